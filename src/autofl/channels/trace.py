"""Gains from a file, rounds by UEs: measured somewhere, or made by another program."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from autofl.channels.base import Channel
from autofl.errors import AutoFLError
from autofl.files import opening, read_arrays, read_bytes
from autofl.network import Cell
from autofl.units import Array


@dataclass(frozen=True)
class Trace(Channel):
    """g_k^i from row k - 1 and column i of a table: .csv with commas, or .npz with an array `gain`.

    Gains are power ratios, path loss included. A run longer than the table begins again at its first row, or stops with
    an error; the seed plays no part.
    """

    file: Annotated[str, ".csv or .npz, a row a round and a column a UE"]
    after_end: Annotated[Literal["again", "stop"], "what follows the last row"] = "again"

    def __post_init__(self) -> None:
        _ = self.table  # what is wrong with the file is said when it is named

    @cached_property
    def table(self) -> Array:
        """All gains, shape (num_rounds, num_ue)."""
        return read_table(Path(self.file))

    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        num_rounds, num_ue = self.table.shape
        if num_ue < cell.num_ue:
            raise AutoFLError(f"{self.file}: gains of {num_ue} UEs; the cell has {cell.num_ue} (cell.num_ue)")
        if k > num_rounds and self.after_end == "stop":
            raise AutoFLError(
                f'{self.file}: it has {num_rounds} rounds, round {k} is asked for; set after_end = "again"'
            )
        return self.table[(k - 1) % num_rounds, : cell.num_ue].copy()


MOST_TRACE = 64 * 2**20
"""Bytes of a trace in text."""


def read_table(path: Path) -> Array:
    """A table of gains, checked; an AutoFLError of one line where something is wrong."""
    with opening(path, "a table of gains"):
        if path.suffix == ".npz":
            arrays = read_arrays(path, ["gain"], "a table of gains")
            if "gain" not in arrays:
                raise AutoFLError(f"{path}: array 'gain' is missing; save it with numpy.savez(path, gain=...)")
            table = np.asarray(arrays["gain"], dtype=np.float64)
        else:
            text = read_bytes(path, MOST_TRACE).decode("utf-8").splitlines()
            table = np.genfromtxt(text, delimiter=",", dtype=np.float64, ndmin=2, filling_values=np.nan)
    if table.ndim != 2 or table.size == 0:
        raise AutoFLError(f"{path}: shape {table.shape}; a table needs a row for each round and a column for each UE")
    bad = np.argwhere(~np.isfinite(table) | (table < 0.0))
    if len(bad):
        row, column = bad[0]
        raise AutoFLError(
            f"{path}: row {row + 1}, column {column + 1}: {table[row, column]:g}; a gain is a number >= 0, no gaps"
        )
    return table
