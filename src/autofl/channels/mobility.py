"""Where UEs are at a time: still, on random ways, or on a given track. Pure functions of seed and time."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from autofl.channels.tables import TimeTable, at_time, read_table
from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.rng import ue_uniforms
from autofl.units import Array

MOST_LEGS = 100_000
"""Ways between two points that are followed from the start of a run."""


class Place(NamedTuple):
    """Where UEs are, and how far they have gone, shape (num_ue,)."""

    x: Array  # [m], the base station is at (0, 0)
    y: Array
    way: Array  # s [m] gone since time 0: it decides the fading
    speed: Array  # [m/s] at this moment

    @property
    def distance(self) -> Array:
        """d_2D [m]."""
        return np.hypot(self.x, self.y)


class Mobility(Protocol):
    """How UEs move."""

    def place(self, cell: Cell, seed: int, time: float) -> Place:
        """Where the UEs of the cell are at this time [s]."""
        ...


@dataclass(frozen=True)
class Still:
    """UEs stay where the cell has them; what moves around them makes their fading change as if they went at `speed`."""

    speed: float

    def place(self, cell: Cell, seed: int, time: float) -> Place:
        x, y = cell.position
        return Place(x, y, np.full(cell.num_ue, self.speed * time), np.full(cell.num_ue, self.speed))


@dataclass(frozen=True)
class Waypoint:
    """Random waypoint: straight on to a point drawn uniformly in a disc, a pause, straight on to the next.

    UEs start where the cell has them. In the long run they are more often near the centre than at the rim, as is known
    of this model (Bettstetter, Resta and Santi, IEEE Trans. Mobile Computing 2, 2003).
    """

    speed: float  # [m/s] of all UEs
    pause: float = 0.0  # [s] at each point
    area: float | None = None  # radius [m] of the disc; by default the largest distance in the cell

    def place(self, cell: Cell, seed: int, time: float) -> Place:
        radius = float(cell.distance.max(initial=0.0)) if self.area is None else self.area
        x, y = cell.position
        start, left = np.stack([x, y]), np.full(cell.num_ue, time)
        where, way, speed = start.copy(), np.zeros(cell.num_ue), np.zeros(cell.num_ue)
        on_way = np.arange(cell.num_ue) if self.speed > 0.0 and radius > 0.0 else np.empty(0, np.int64)
        for leg in range(MOST_LEGS):
            if not len(on_way):
                return Place(where[0], where[1], way, speed)
            u, v = ue_uniforms(seed, "waypoint", (leg,), cell.ue[on_way], 2).T
            angle = (2.0 * np.pi * v).astype(np.float32)  # a goal need not be more exact, and this is much faster
            goal = radius * np.sqrt(u) * np.stack([np.cos(angle), np.sin(angle)])
            ahead = goal - start[:, on_way]
            length = np.hypot(*ahead)
            gone = np.minimum(self.speed * left[on_way], length)
            with np.errstate(invalid="ignore"):
                where[:, on_way] = start[:, on_way] + ahead * np.where(length > 0.0, gone / length, 0.0)
            way[on_way] += gone
            speed[on_way] = np.where(gone < length, self.speed, 0.0)
            start[:, on_way] = goal
            left[on_way] -= length / self.speed + self.pause
            on_way = on_way[left[on_way] > 0.0]
        raise AutoFLError(f"waypoint: more than {MOST_LEGS} legs up to {time:g} s; take a larger area or a lower speed")


@dataclass(frozen=True)
class Track:
    """Positions over time from a file, linear in between; after the last row UEs stay where they are.

    .csv: `time` and then x and y of each UE in turn, with that header; .npz: arrays `time` and `position` of shape
    (num_rows, num_ue, 2). Metres from the base station, and seconds. The positions of the cell play no part.
    """

    file: str
    longest_gap: float | None = None

    @cached_property
    def table(self) -> TimeTable:
        """x, y and the way gone, shape (num_rows, num_ue, 3)."""
        table = read_table(Path(self.file), "position", -np.inf, self.longest_gap)
        rows = table.value.reshape(len(table.value), -1)
        if table.time is None or rows.shape[1] % 2:
            raise AutoFLError(f"{self.file}: a track has times, and x and y of each UE: time, x0, y0, x1, y1, ...")
        places = rows.reshape(len(rows), -1, 2)
        step = np.linalg.norm(np.diff(places, axis=0), axis=-1)
        way = np.concatenate([np.zeros_like(step[:1]), step.cumsum(axis=0)])
        return TimeTable(np.concatenate([places, way[..., None]], axis=-1), table.time)

    def place(self, cell: Cell, seed: int, time: float) -> Place:
        table = self.table
        assert table.time is not None
        if table.value.shape[1] < cell.num_ue:
            raise AutoFLError(
                f"{self.file}: tracks of {table.value.shape[1]} UEs; the cell has {cell.num_ue} (cell.num_ue)"
            )
        x, y, way = at_time(table, min(time, table.duration))[: cell.num_ue].T
        row = min(int(np.searchsorted(table.time, time, side="right")), len(table.time) - 1)
        pace = (table.value[row, :, 2] - table.value[row - 1, :, 2]) / (table.time[row] - table.time[row - 1])
        return Place(x, y, way, pace[: cell.num_ue] if time < table.duration else np.zeros(cell.num_ue))
