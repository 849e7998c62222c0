"""Where UEs are at a given time: still, on random ways, or on a given track. Pure functions of seed
and time.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from autofl.channels.tables import TimeTable, at_time, read_table
from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.rng import ue_uniforms
from autofl.units import Array, IntArray

MOST_LEGS = 100_000
"""Most legs (from point to point) that are followed from the start of a run."""


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
    """UEs stay where the cell has them; what moves around them makes their fading change as if they
    went at `speed`.
    """

    speed: float

    def place(self, cell: Cell, seed: int, time: float) -> Place:
        x, y = cell.position
        return Place(
            x, y, np.full(cell.num_ue, self.speed * time), np.full(cell.num_ue, self.speed)
        )


class _Legs(NamedTuple):
    """The way each UE is on: which of its ways that is, and how it began; shape (num_ue,), points
    (2, num_ue).
    """

    leg: IntArray
    start: Array
    ahead: Array  # from the start to the goal
    length: Array
    begin: Array  # [s] at which it set out
    way: Array  # [m] gone by then


@dataclass(frozen=True)
class Waypoint:
    """Random waypoint: straight on to a point drawn uniformly in a disc, a pause, straight on to
    the next.

    UEs start where the cell has them. In the long run they are more often near the centre than at
    the rim, as is known of this model (Bettstetter, Resta and Santi, IEEE Trans. Mobile Computing
    2, 2003).

    Note:
        Places are pure functions of seed and time. The ways of the last three times asked for are
        kept, so that a run goes on from there instead of from its beginning; the bits are the same.
    """

    speed: float  # [m/s] of all UEs
    pause: float = 0.0  # [s] at each point
    area: float | None = None  # radius [m] of the disc; by default the largest distance in the cell

    def place(self, cell: Cell, seed: int, time: float) -> Place:
        radius = float(cell.distance.max(initial=0.0)) if self.area is None else self.area
        if self.speed == 0.0 or radius == 0.0:
            x, y = cell.position
            return Place(x, y, np.zeros(cell.num_ue), np.zeros(cell.num_ue))
        legs = self._legs(cell, seed, radius, time)
        gone = np.minimum(self.speed * (time - legs.begin), legs.length)
        with np.errstate(invalid="ignore"):
            x, y = legs.start + legs.ahead * np.where(legs.length > 0.0, gone / legs.length, 0.0)
        return Place(x, y, legs.way + gone, np.where(gone < legs.length, self.speed, 0.0))

    def _legs(self, cell: Cell, seed: int, radius: float, time: float) -> _Legs:
        kept = self._kept
        if not ((kept.cell is cell) and kept.seed == seed and kept.radius == radius):
            kept.cell = cell
            kept.seed = seed
            kept.radius = radius
            kept.legs = {}
        before = max((then for then in kept.legs if then <= time), default=None)
        legs = self._first(cell, seed, radius) if before is None else kept.legs[before]
        kept.legs[time] = followed = self._followed(legs, cell, seed, radius, time)
        for then in sorted(kept.legs)[:-3]:
            del kept.legs[then]
        return followed

    @cached_property
    def _kept(self) -> "_Kept":
        return _Kept()

    def _first(self, cell: Cell, seed: int, radius: float) -> _Legs:
        ahead = _goals(seed, 0, cell.ue, radius) - cell.position
        nothing = np.zeros(cell.num_ue)
        return _Legs(
            np.zeros(cell.num_ue, np.int64),
            cell.position,
            ahead,
            np.hypot(*ahead),
            nothing,
            nothing,
        )

    def _followed(self, legs: _Legs, cell: Cell, seed: int, radius: float, time: float) -> _Legs:
        """The ways UEs are on at this later time."""
        due = np.flatnonzero(legs.begin + legs.length / self.speed + self.pause < time)
        if not len(due):
            return legs
        legs = _Legs(legs.leg.copy(), *(values.copy() for values in legs[1:]))
        while len(due):
            leg = int(legs.leg[due].min()) + 1
            if leg >= MOST_LEGS:
                raise AutoFLError(
                    f"waypoint: more than {MOST_LEGS} legs up to {time:g} s; take a larger area"
                )
            off = due[legs.leg[due] == leg - 1]
            goal = _goals(seed, leg, cell.ue[off], radius)
            legs.leg[off] = leg
            legs.begin[off] += legs.length[off] / self.speed + self.pause
            legs.way[off] += legs.length[off]
            legs.start[:, off] += legs.ahead[:, off]
            legs.ahead[:, off] = ahead = goal - legs.start[:, off]
            legs.length[off] = np.hypot(*ahead)
            due = due[legs.begin[due] + legs.length[due] / self.speed + self.pause < time]
        return legs


class _Kept:
    """What a `Waypoint` remembers: the ways of one cell and seed at the times last asked for."""

    cell: Cell | None = None
    seed: int = 0
    radius: float = 0.0

    def __init__(self) -> None:
        self.legs: dict[float, _Legs] = {}


def _goals(seed: int, leg: int, ue: IntArray, radius: float) -> Array:
    """Points uniform in a disc, shape (2, len(ue))."""
    u, v = ue_uniforms(seed, "waypoint", (leg,), ue, 2).T
    angle = (2.0 * np.pi * v).astype(
        np.float32
    )  # a goal need not be more exact, and this is much faster
    return np.asarray(radius * np.sqrt(u) * np.stack([np.cos(angle), np.sin(angle)]))


@dataclass(frozen=True)
class Track:
    """Positions over time from a file, linear in between; after the last row UEs stay where they
    are.

    .csv: `time` and then x and y of each UE in turn, with that header; .npz: arrays `time` and
    `position` of shape (num_rows, num_ue, 2). Metres from the base station, and seconds. The
    positions of the cell play no part.
    """

    file: str
    longest_gap: float | None = None

    @cached_property
    def table(self) -> TimeTable:
        """x, y and the way gone, shape (num_rows, num_ue, 3)."""
        table = read_table(Path(self.file), "position", -np.inf, self.longest_gap)
        rows = table.value.reshape(len(table.value), -1)
        if (
            table.time is None
            or rows.shape[1] % 2
            or (table.value.ndim == 3 and table.value.shape[2] != 2)
        ):
            raise AutoFLError(
                f"{self.file}: a track has times, and x and y of each UE: time, x0, y0, x1, y1, ..."
            )
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
        pace = (table.value[row, :, 2] - table.value[row - 1, :, 2]) / (
            table.time[row] - table.time[row - 1]
        )
        return Place(
            x, y, way, pace[: cell.num_ue] if time < table.duration else np.zeros(cell.num_ue)
        )
