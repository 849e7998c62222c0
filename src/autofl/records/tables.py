"""Tables of a run: they grow round by round, and are read up to their last whole line."""

import csv
import hashlib
import io
import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from autofl.files import naming, open_own, opening, write_all, write_whole
from autofl.records.checks import PIECE, sum_of

Column = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.str_]
WHOLE = {
    "round",
    "ue",
    "num_selected",
    "num_decoded",
    "num_samples",
    "local_steps",
    "decoded",
    "guarded",
}
Extent = tuple[int, str]
"""How long a table is and its SHA-256."""
TABLES = ROUNDS, UES, DEVICES = "rounds.csv", "ues.csv", "devices.csv"
MOST_TABLE = 2**30
MOST_LINE = 2**16
"""Bytes of a table that is read, and of a line of it. As columns a table takes no more than four
times its size.
"""
MOST_VALUE = 1e100
"""Largest finite number in a table; a larger one is no measurement, and no axis could show it."""
MOST_PADDED = 2**25


class GrowingTable:
    """A table that rows are added to; it knows its length and its SHA-256 without reading it again."""

    def __init__(self, path: Path, header: Iterable[object] | None = None) -> None:
        """A new table with this header, or the one that is there."""
        self.path = path
        if header is not None:
            write_whole(path, line(header), sync=False)
        self._file = os.fdopen(open_own(path, os.O_RDWR | os.O_APPEND), "r+b", buffering=0)
        self._size = 0
        self._sum = hashlib.sha256()
        while piece := self._file.read(PIECE):
            self._sum.update(piece)
            self._size += len(piece)

    def add(self, rows: Iterable[Iterable[object]]) -> None:
        """Rows as one piece; a disk that cannot take all of them keeps none."""
        content = lines(rows).encode("utf-8")
        try:
            write_all(self._file, content)
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._size)
            raise naming(self.path, error) from None
        self._sum.update(content)
        self._size += len(content)

    @property
    def extent(self) -> Extent:
        return self._size, self._sum.hexdigest()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def holds(path: Path, extent: Extent) -> bool:
    """Whether a table begins with what had this length and SHA-256."""
    if not path.is_file():
        return False
    size, digest = extent
    return path.stat().st_size >= size and sum_of(path, size) == digest


def last_round(path: Path, size: int) -> int:
    """The round of the last row in the first bytes of a table; -1 where there is none."""
    with open(path, "rb") as file:
        file.seek(max(0, size - MOST_LINE))
        rows = file.read(min(size, MOST_LINE)).splitlines()
    first = rows[-1].partition(b",")[0] if rows else b""
    return int(first) if first.isdigit() and len(first) < 16 else -1


def cut(path: Path, after: int, size: int | None = None) -> None:
    """Take rows of later rounds off a table, and all that follows its first `size` bytes."""
    if size is not None:
        with os.fdopen(open_own(path, os.O_WRONLY), "wb") as file:
            file.truncate(size)
    with opening(path, "a table of a run"):
        header, *rows = list(whole_lines(path)) or [[]]
        kept = [row for row in rows if int(row[0]) <= after]
    if len(kept) < len(rows) or size is None:
        content = lines((header, *kept)).encode("utf-8")
        if sum_of(path) != hashlib.sha256(content).hexdigest():
            write_whole(path, content)


def line(cells: Iterable[object]) -> str:
    return lines([cells])


def lines(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def whole_lines(path: Path) -> Iterator[list[str]]:
    """The rows of a table, one at a time; no line of ours is long, and a file of one long line is
    none of ours.
    """
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    if (size := path.stat().st_size) > MOST_TABLE:
        raise ValueError(f"{path.name} has {size:,} bytes; at most {MOST_TABLE:,} are read")

    def whole(file: IO[bytes]) -> Iterator[str]:
        while text := file.readline(MOST_LINE):
            if not text.endswith(b"\n"):
                if len(text) == MOST_LINE:
                    raise ValueError(f"{path.name} has a line of more than {MOST_LINE:,} bytes")
                return  # a killed run may leave half a line
            yield text.decode("utf-8")

    with open(path, "rb") as file:
        yield from csv.reader(whole(file))


def text_of(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def read_table(path: Path, needed: set[str], text: tuple[str, ...]) -> dict[str, Column]:
    """The columns of a table by name; those that are needed must be there."""
    rows = whole_lines(path)
    header = next(rows, [])
    if missing := sorted(needed - set(header)):
        raise ValueError(f"{path.name} lacks the column {missing[0]}")
    if len(set(header)) < len(header):
        raise ValueError(f"{path.name} has a column twice")
    columns = [
        _Texts(name) if name in text else _Numbers("q" if name in WHOLE else "d") for name in header
    ]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.add(cell)
    return {name: column.array() for name, column in zip(header, columns, strict=True)}


class _Numbers:
    """A growing column of 8 bytes a cell: whole numbers ("q"), or others ("d"), of which an empty
    cell is NaN.
    """

    def __init__(self, kind: str) -> None:
        self._cells: array[float] = array(kind)
        self._read: Callable[[str], float] = int if kind == "q" else _number

    def add(self, cell: str) -> None:
        self._cells.append(self._read(cell))

    def array(self) -> Column:
        return np.array(self._cells)


def _number(cell: str) -> float:
    """NaN for an empty cell; what no run measures would not fit on any axis."""
    value = float(cell) if cell else math.nan
    if MOST_VALUE < abs(value) < math.inf:
        raise ValueError(f"{cell} is no number of a run")
    return value


class _Texts:
    """A column of words; most are the same few, and an array has room for the longest in each row."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._words = dict[str, str]()
        self._cells = list[str]()
        self._size = 0

    def add(self, cell: str) -> None:
        self._cells.append(self._words.setdefault(cell, cell))
        self._size += len(cell)

    def array(self) -> Column:
        longest = max(map(len, self._words), default=0)
        if 4 * longest * len(self._cells) > MOST_PADDED + 100 * self._size:
            raise ValueError(f"a cell of {longest:,} characters in the column {self._name}")
        return np.array(self._cells, dtype=np.str_)
