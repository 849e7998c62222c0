"""A trace of gains: what is in the file is what is used, and bad files are refused in one line."""

import numpy as np
import pytest

from autofl.channels.trace import Trace
from autofl.cli.main import run as autofl
from autofl.errors import AutoFLError
from autofl.network import Cell

GAINS = np.array([[1e-8, 2e-8, 3e-8], [4e-8, 5e-8, 6e-8]])


@pytest.fixture(params=["csv", "npz"])
def file(request, tmp_path):
    path = tmp_path / f"gains.{request.param}"
    if request.param == "csv":
        np.savetxt(path, GAINS, delimiter=",")
    else:
        np.savez(path, gain=GAINS)
    return str(path)


def test_rows_are_rounds_and_columns_ues(file):
    cell = Cell(distance=np.array([1.0, 2.0]))  # the first two columns serve
    np.testing.assert_array_equal(Trace(file).gain(cell, 5, 1), GAINS[0, :2])
    np.testing.assert_array_equal(Trace(file).gain(cell, 6, 2), GAINS[1, :2])
    np.testing.assert_array_equal(Trace(file).gain(cell, 5, 3), GAINS[0, :2])  # and again
    with pytest.raises(AutoFLError, match="2 rounds, round 3"):
        Trace(file, after_end="stop").gain(cell, 5, 3)


def test_too_few_ues_are_refused(file):
    with pytest.raises(AutoFLError, match="gains of 3 UEs; the cell has 4"):
        Trace(file).gain(Cell(distance=np.ones(4)), 1, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1e-8,,3e-8\n", "column 2: nan"),
        ("1e-8,-2e-8\n", "column 2: -2e-08"),
        ("1e-8,inf\n", "column 2: inf"),
        ("1e-8,x\n", "column 2: nan"),
        ("1,2\n3\n", "not a table"),
        ("", "a row for each round"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_bad_file_ends_in_one_line(tmp_path, capsys, text, words):
    path = tmp_path / "gains.csv"
    path.write_text(text)
    with pytest.raises(AutoFLError, match=words):
        Trace(str(path))
    assert autofl(["plan", "--set", "channel.name=trace", "--set", f'channel.file="{path}"']) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


def test_a_missing_file_and_a_missing_array(tmp_path):
    with pytest.raises(AutoFLError, match="cannot be read"):
        Trace(str(tmp_path / "none.csv"))
    np.savez(tmp_path / "wrong.npz", other=GAINS)
    with pytest.raises(AutoFLError, match="'gain' is missing"):
        Trace(str(tmp_path / "wrong.npz"))


def test_a_plan_uses_the_trace(tmp_path, capsys):
    import json

    np.savetxt(tmp_path / "gains.csv", np.full((2, 20), 3e-8), delimiter=",")
    assert (
        autofl(["plan", "--json", "--set", "channel.name=trace", "--set", f'channel.file="{tmp_path}/gains.csv"']) == 0
    )
    ues = json.loads(capsys.readouterr().out)["ues"]
    assert {ue["channel_gain"] for ue in ues} == {3e-8}
    assert {ue["success_probability"] for ue in ues} == {None}  # a trace has no law
