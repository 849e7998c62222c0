"""Gains from a file, rounds by UEs: measured somewhere, or made by another program."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from autofl.channels.base import Channel
from autofl.errors import AutoFLError
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


def read_table(path: Path) -> Array:
    """A table of gains, checked; an AutoFLError of one line where something is wrong."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                if "gain" not in arrays.files:
                    raise AutoFLError(f"{path}: array 'gain' is missing; save it with numpy.savez(path, gain=...)")
                table = np.asarray(arrays["gain"], dtype=np.float64)
        else:
            table = np.genfromtxt(path, delimiter=",", dtype=np.float64, ndmin=2, filling_values=np.nan)
    except OSError as error:
        raise AutoFLError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, TypeError, EOFError) as error:
        raise AutoFLError(f"{path}: not a table of gains ({' '.join(str(error).split())[:120]})") from None
    if table.ndim != 2 or table.size == 0:
        raise AutoFLError(f"{path}: shape {table.shape}; a table needs a row for each round and a column for each UE")
    bad = np.argwhere(~np.isfinite(table) | (table < 0.0))
    if len(bad):
        row, column = bad[0]
        raise AutoFLError(
            f"{path}: row {row + 1}, column {column + 1}: {table[row, column]:g}; a gain is a number >= 0, no gaps"
        )
    return table
