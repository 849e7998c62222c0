"""A rate law in steps: the best level is searched for (docs/radio.md).

At a level (y, xi) the amplifier takes A = (Z ln 2/a) xi/y whatever the band, so only the times are
left to decide:

    energy kappa W^3/s^2 + A + P_c t <= E,    t >= A/P,    band Z ln 2/(t y)
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autofl.planner.allocation.search import SAFE, SearchedLaws, Way, better
from autofl.units import Array, BoolArray, IntArray


class Flight(NamedTuple):
    """Levels one above the other, along which xi/y grows and is convex in ln y and in 1/y, as on
    Shannon's curve.
    """

    y: Array
    snr: Array
    cost: Array  # xi/y


@lru_cache(maxsize=64)
def flights_of(levels: tuple[tuple[float, float], ...]) -> tuple[Flight, ...]:
    """The levels in as few flights as possible: one for the tables of NR, several where measured
    SNRs scatter.
    """
    y, snr = np.array(levels).T
    cost = snr / y
    rise = np.diff(cost)
    by_log = rise / np.diff(np.log(y))
    by_inverse = rise / np.diff(1.0 / y)
    bends = (np.diff(by_log) >= 0.0) & (np.diff(by_inverse) <= 0.0)
    begins = [0]
    for level in range(1, len(y)):
        if not rise[level - 1] > 0.0 or (level - begins[-1] >= 2 and not bends[level - 2]):
            begins.append(level)
    return tuple(
        Flight(y[begin:end], snr[begin:end], cost[begin:end])
        for begin, end in zip(begins, [*begins[1:], len(y)], strict=True)
    )


def _best_level(
    flight: Flight, shape: tuple[int, ...], next_is_better: Callable[[IntArray], BoolArray]
) -> IntArray:
    """The best level of a flight, where levels get better up to it and worse from there on, by
    bisection.
    """
    num = len(flight.y)
    level = np.zeros(shape, np.int64)
    for power in reversed(range((num - 1).bit_length())):
        trial = np.minimum(level + 2**power, num - 1)
        level = np.where(next_is_better(trial - 1), trial, level)
    return level


class StaircaseLaws(SearchedLaws):
    """The UEs of a task under a staircase of rates."""

    PIECES = 400
    """Pieces in which the spare band is dealt out: an error of 1/400 of it at most for each UE."""
    FEW = 32
    """Up to this many UEs share the band in pieces; with more, what a price leaves over is
    negligible.
    """

    @property
    def least_upload_energy(self) -> Array:
        """The least A of all levels [J]."""
        return self.eta * min(snr / y for y, snr in self.task.levels)

    @property
    def lowest_snr(self) -> float:
        return self.task.levels[0][1]

    def narrowest(self, deadline: Array) -> Way:
        """At each level the longest upload that the energy allows. That time is concave in A and
        falls, so along a flight t y grows up to the best level and falls from there on.
        """
        ways = (self._narrowest_of(flight, deadline) for flight in flights_of(self.task.levels))
        return self._best(ways, "band")

    def _narrowest_of(self, flight: Flight, deadline: Array) -> Way:
        circuit = self.task.circuit_power
        with np.errstate(all="ignore"):
            longest = self.longest_upload(deadline, circuit)
            least_time = self.eta / self.task.max_power * (1.0 - SAFE)

            def next_needs_less(level: IntArray) -> BoolArray:
                """The next level needs less band if it has energy to spare in the time t y/y'."""
                t = longest(self.energy - self.eta * flight.cost[level])
                time = t * flight.y[level] / flight.y[level + 1]
                time = np.maximum(time, least_time * flight.cost[level + 1])
                s = np.minimum(deadline - time, self.slowest_cpu)
                spent = self.cube / s**2 + circuit * time + self.eta * flight.cost[level + 1]
                return np.asarray((s >= self.quickest_cpu) & (spent < self.energy))

            shape = np.broadcast_shapes(np.shape(deadline), self.eta.shape)
            level = _best_level(flight, shape, next_needs_less)
            t = longest(self.energy - self.eta * flight.cost[level])
            able = (t > 0.0) & (t >= least_time * flight.cost[level])
            band = self.task.bits * math.log(2.0) / (t * flight.y[level])
            s = np.minimum(deadline - t, self.slowest_cpu)
            return self.way(able, band, flight.snr[level], flight.y[level], s, t)

    def quickest(self, band: Array) -> Way:
        """All levels are compared: time is not convex along them."""
        return self._best((self._quickest_at(y, snr, band) for y, snr in self.task.levels), "time")

    def _quickest_at(self, y: float, snr: float, band: Array) -> Way:
        with np.errstate(all="ignore"):
            t = self.task.bits * math.log(2.0) / (band * y)
            left = self.energy - self.eta * snr / y - self.task.circuit_power * t
            s = np.maximum(np.sqrt(self.cube / left), self.quickest_cpu)
            able = (left > 0.0) & (s <= self.slowest_cpu) & self._reaches(band, snr)
            return self.way(able, band, np.asarray(snr), np.asarray(y), s, t)

    def thriftiest(self, band: Array, deadline: Array | float) -> Way:
        """Along a flight the energy is convex in 1/y."""
        flights = flights_of(self.task.levels)
        return self._best(
            (self._thriftiest_of(flight, band, deadline) for flight in flights), "energy"
        )

    def _thriftiest_of(self, flight: Flight, band: Array, deadline: Array | float) -> Way:
        circuit = self.task.circuit_power
        with np.errstate(all="ignore"):
            upload = self.task.bits * math.log(2.0) / band

            def energy(level: IntArray) -> Array:
                """Infinite where the CPU is not done in time."""
                t = upload / flight.y[level]
                s = np.minimum(deadline - t, self.slowest_cpu)
                used = self.cube / s**2 + circuit * t + self.eta * flight.cost[level]
                return np.where(s >= self.quickest_cpu * (1.0 - SAFE), used, np.inf)

            def next_takes_less(level: IntArray) -> BoolArray:
                less = energy(level)
                return self._reaches(band, flight.snr[level + 1]) & (
                    np.isinf(less) | (energy(level + 1) < less)
                )

            shape = np.broadcast_shapes(np.shape(upload), self.eta.shape)
            level = _best_level(flight, shape, next_takes_less)
            t = upload / flight.y[level]
            s = np.minimum(deadline - t, self.slowest_cpu)
            able = (s >= self.quickest_cpu * (1.0 - SAFE)) & self._reaches(band, flight.snr[level])
            s = np.maximum(s, self.quickest_cpu)
            way = self.way(able, band, flight.snr[level], flight.y[level], s, t)
            affordable = way.energy <= self.task.max_energy * (1.0 + 1e-9)
            return way._replace(able=way.able & affordable)

    def _best(self, ways: Iterable[Way], by: str) -> Way:
        best = None
        for way in ways:
            best = better(best, way, by)
        assert best is not None
        return best

    def _reaches(self, band: Array, snr: Array | float) -> BoolArray:
        strongest = self.task.max_power * self.task.gain_to_noise * (1.0 + SAFE)
        return np.asarray(snr * band <= strongest)

    def candidates(
        self, best: Array, least: Array, most: Array, total_band: float, deadline: float
    ) -> list[Array]:
        """A UE's energy is not convex in its band, so a price may leave band over. That is offered
        to one UE after another, after the price and after dealing out the band in pieces.
        """
        if len(best) > self.FEW:
            return [best]
        split = self._dealt_out(least, most, total_band, deadline)
        return [self._filled(bands, most, total_band, deadline) for bands in (best, split)]

    def _dealt_out(self, least: Array, most: Array, total_band: float, deadline: float) -> Array:
        """The bands of least energy where the spare band is dealt out in equal pieces, by dynamic
        programming.
        """
        piece = max(total_band - float(least.sum()), 0.0) / self.PIECES
        bands = np.minimum(least + piece * np.arange(self.PIECES + 1)[:, None], most)
        trial = self.thriftiest(bands, deadline)
        energy = np.where(trial.able, trial.energy, self.task.max_energy)  # the least is feasible

        # Forward: the least energy of the first UEs for each number of pieces dealt out so far
        # (row), whatever the last of them gets (column).
        total = energy[:, 0]
        picks = []
        for i in range(1, len(least)):
            before = np.concatenate([np.full(self.PIECES, np.inf), total])
            rest = np.lib.stride_tricks.sliding_window_view(before, self.PIECES + 1)[:, ::-1]
            cost = rest + energy[:, i]
            picks.append(cost.argmin(axis=1))
            total = cost.min(axis=1)

        # Backward: what each UE got, the last one first.
        pieces = np.zeros(len(least), np.int64)
        left = self.PIECES
        for i in range(len(least) - 1, 0, -1):
            pieces[i] = picks[i - 1][left]
            left -= int(pieces[i])
        pieces[0] = left
        return np.asarray(bands[pieces, np.arange(len(least))])

    def _filled(self, band: Array, most: Array, total_band: float, deadline: float) -> Array:
        """The bands after what was left over has been offered to one UE after another."""
        left = max(total_band - float(band.sum()), 0.0)
        room = np.maximum(np.minimum(band + left, most), band)
        wider = band + (room - band) * np.linspace(0.0, 1.0, self.GRID)[:, None]
        trial = self.thriftiest(wider, deadline)
        energy = np.where(trial.able, trial.energy, np.inf)
        filled = band.copy()
        for i in range(len(band)):
            affordable = np.where(wider[:, i] - band[i] <= left, energy[:, i], np.inf)
            filled[i] = wider[int(affordable.argmin()), i]
            left -= filled[i] - band[i]
        return filled
