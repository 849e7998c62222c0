"""Tables that grow: what was added is read back, up to the last whole line."""

import hashlib

import numpy as np
import pytest

from autofl.records.tables import GrowingTable, cut, holds, read_table

ROWS = [(0, "", "none"), (1, 2.5, "energy"), (2, 1e-300, "a, b")]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ues.csv"
    table = GrowingTable(path, ("round", "energy", "status"))
    for row in ROWS:
        table.add([row])
    table.close()
    return path


def test_columns_have_their_kinds_and_an_empty_cell_is_no_number(path):
    columns = read_table(path, text=("status",))
    assert columns["round"].tolist() == [0, 1, 2]
    assert columns["round"].dtype == np.int64
    np.testing.assert_array_equal(columns["energy"], [np.nan, 2.5, 1e-300])
    assert columns["status"].tolist() == ["none", "energy", "a, b"]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_half_a_line_is_left_out(path, lost):
    path.write_bytes(path.read_bytes()[:-lost])
    assert read_table(path, text=("status",))["round"].tolist() == [0, 1]


@pytest.mark.parametrize("damage", ["1,2\r\n", "x,1.0,none\r\n", "3,1.0,none,4\r\n"])
def test_rows_that_are_none_are_refused(path, damage):
    with path.open("a", newline="") as file:
        file.write(damage)
    with pytest.raises(ValueError, match=r"zip\(\)|invalid literal"):
        read_table(path, text=("status",))


def test_a_table_knows_what_it_holds_without_reading_it_again(path):
    table = GrowingTable(path)
    size, digest = table.extent
    assert (size, digest) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    table.add([(3, 1.0, "none")])
    assert holds(path, table.extent)
    assert holds(path, (size, digest))
    table.close()
    cut(path, size)
    assert holds(path, (size, digest))
    assert path.stat().st_size == size
    path.write_bytes(path.read_bytes().replace(b"2.5", b"2.6"))
    assert not holds(path, (size, digest))
