"""Tables of a run: they grow round by round, and are read up to their last whole line."""

import csv
import hashlib
import io
import math
import os
from array import array
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.files import naming, open_own, write_all, write_whole
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


class GrowingTable:
    """A table that rows are added to; it knows its length and its SHA-256 without reading it again."""

    def __init__(self, path: Path, header: Iterable[object] | None = None) -> None:
        """A new table with this header, or the one that is there."""
        self.path = path
        if header is not None:
            write_whole(path, lines([header]), sync=False)
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
    size, digest = extent
    return path.is_file() and path.stat().st_size >= size and sum_of(path, size) == digest


def cut(path: Path, size: int) -> None:
    """Take all off a table that follows its first `size` bytes."""
    with os.fdopen(open_own(path, os.O_WRONLY), "wb") as file:
        file.truncate(size)


def lines(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def text_of(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def read_table(path: Path, text: Collection[str] = ()) -> dict[str, Column]:
    """The columns of a table by name: whole numbers, others, of which an empty cell is NaN, or words
    where they are among `text`. Earlier versions wrote fewer of them.
    """
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.reader(_whole_lines(file))
        header = next(rows, [])
        if "round" not in header:
            raise ValueError(f"{path.name} lacks the column round")

        # Numbers are kept as such: as text, or as objects of Python, they take many times the room.
        columns: dict[str, array[float] | list[str]] = {
            name: [] if name in text else array("q" if name in WHOLE else "d") for name in header
        }
        for row in rows:
            for (name, column), cell in zip(columns.items(), row, strict=True):
                column.append(_value(name, cell, text))
    return {name: np.array(column) for name, column in columns.items()}


def _value(name: str, cell: str, text: Collection[str]) -> Any:
    if name in text:
        return cell
    return int(cell) if name in WHOLE else float(cell or "nan")


def _whole_lines(file: Iterable[str]) -> Iterator[str]:
    """All but half a line at the end, which a killed run may leave."""
    return (line for line in file if line.endswith("\n"))
