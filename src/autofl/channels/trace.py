"""Gains from a file, over rounds or time and UEs: measured somewhere, or made by another program."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from autofl.channels.base import Channel, Timed
from autofl.channels.tables import TimeTable, at_time, read_table
from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.ranges import Checked, Range
from autofl.units import Array

LEAST = {"gain": 0.0, "gain_db": -np.inf, "snr_db": -np.inf, "rate": 0.0}


@dataclass(frozen=True)
class Trace(Checked, Timed):
    """What a table says of UE i, in column i: .csv with commas, or .npz with an array named by
    `quantity`.

    Without times, row k - 1 is round k. With them (first column `time` of a .csv, array `time` of
    an .npz, seconds)
    values are linear between rows, and the first row is the start of the run: a round takes the
    value at its beginning. Gains are power ratios, path loss included. SNR and rate [bit/s] are
    those at P_max in the UE's own band,

        g = xi N0 B / P_max,    xi = 2^(r/B) - 1, or the SNR that another rate law needs for r

    A run longer than the table begins again at its first row, or stops with an error; the seed
    plays no part.
    """

    file: Annotated[str, ".csv or .npz; a row for each round or time, a column for each UE"]
    after_end: Annotated[
        Literal["again", "stop"], "after the last row: from the start again, or stop"
    ] = "again"
    quantity: Annotated[Literal["gain", "gain_db", "snr_db", "rate"], "what the table holds"] = (
        "gain"
    )
    longest_gap: Annotated[
        float | None, Range(gt=0), "largest gap between two rows [s]; default 10 times the median"
    ] = None
    interval: Annotated[float, Range(gt=0), "seconds between rounds if no clock runs"] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = self.table.value.shape  # a bad file is reported as soon as it is named
        if len(shape) != 2:
            raise AutoFLError(
                f"{self.file}: shape {shape}; a table needs a row for each round or time, a column per UE"
            )

    @cached_property
    def table(self) -> TimeTable:
        """All values, shape (num_rows, num_ue)."""
        return read_table(Path(self.file), self.quantity, LEAST[self.quantity], self.longest_gap)

    def at(self, time: float) -> Channel:
        return self if self.table.time is None else super().at(time)

    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        if self.table.time is not None:
            return super().gain(cell, seed, k)
        num_rounds = len(self.table.value)
        if k > num_rounds and self.after_end == "stop":
            raise AutoFLError(
                f'{self.file}: it has {num_rounds} rounds, round {k} is asked for; set after_end = "again"'
            )
        return self._as_gain(cell, self.table.value[(k - 1) % num_rounds])

    def gain_at(self, cell: Cell, seed: int, time: float) -> Array:
        duration = self.table.duration
        if time > duration and self.after_end == "stop":
            raise AutoFLError(
                f'{self.file}: it ends after {duration:g} s, {time:g} s is asked for; set after_end = "again"'
            )
        return self._as_gain(
            cell, at_time(self.table, time if time <= duration else time % duration)
        )

    def _as_gain(self, cell: Cell, row: Array) -> Array:
        if len(row) < cell.num_ue:
            raise AutoFLError(
                f"{self.file}: gains of {len(row)} UEs; the cell has {cell.num_ue} (cell.num_ue)"
            )
        value = row[: cell.num_ue].copy()
        if self.quantity == "gain":
            return value
        if self.quantity == "gain_db":
            return 10.0 ** (value / 10.0)
        if self.quantity == "snr_db":
            snr = 10.0 ** (value / 10.0)
        else:
            snr = cell.link.snr_of(value / cell.bandwidth * np.log(2.0))
        return snr * cell.noise_power / cell.max_power
