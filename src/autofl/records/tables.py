"""Tables of a run: they grow round by round, and are read up to their last whole line."""

import csv
import hashlib
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.files import naming, write_all, write_whole

Column = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.str_]
WHOLE = {"round", "ue", "num_selected", "num_decoded", "num_samples", "local_steps", "decoded", "guarded"}
Extent = tuple[int, str]
"""How long a table is and its SHA-256."""


class GrowingTable:
    """A table that rows are added to; it knows its length and its SHA-256 without reading it again."""

    def __init__(self, path: Path, header: Iterable[object] | None = None) -> None:
        """A new table with this header, or the one that is there."""
        self.path = path
        if header is not None:
            path.write_bytes(line(header).encode("utf-8"))
        content = path.read_bytes()
        self._size, self._sum = len(content), hashlib.sha256(content)
        self._file = path.open("ab", buffering=0)

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
    with open(path, "rb") as file:
        content = file.read(size)
    return len(content) == size and hashlib.sha256(content).hexdigest() == digest


def cut(path: Path, after: int, size: int | None = None) -> None:
    """Take rows of later rounds off a table, and all that follows its first `size` bytes."""
    if size is not None:
        os.truncate(path, size)
    header, *rows = whole_lines(path) or [[]]
    kept = [row for row in rows if int(row[0]) <= after]
    if len(kept) < len(rows) or size is None:
        content = lines((header, *kept)).encode("utf-8")
        if path.read_bytes() != content:
            write_whole(path, content)


def line(cells: Iterable[object]) -> str:
    return lines([cells])


def lines(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def whole_lines(path: Path) -> list[list[str]]:
    content = path.read_bytes().decode("utf-8")
    content = content[: content.rfind("\n") + 1]  # a killed run may leave half a line
    return list(csv.reader(io.StringIO(content, newline="")))


def text_of(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def read_table(path: Path, needed: set[str], text: tuple[str, ...]) -> dict[str, Column]:
    """The columns of a table by name; those that are needed must be there."""
    header, *rows = whole_lines(path) or [[]]
    if missing := sorted(needed - set(header)):
        raise ValueError(f"{path.name} lacks the column {missing[0]}")
    if len(set(header)) < len(header):
        raise ValueError(f"{path.name} has a column twice")
    cells: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) or [()] * len(header)
    return {name: _column(name, cell, name in text) for name, cell in zip(header, cells, strict=True)}


def _column(name: str, cells: tuple[str, ...], is_text: bool) -> Column:
    if is_text:
        return np.array(cells, dtype=np.str_)
    if name in WHOLE:
        return np.array(cells, dtype=np.int64)
    return np.array([float(cell) if cell else math.nan for cell in cells], dtype=np.float64)
