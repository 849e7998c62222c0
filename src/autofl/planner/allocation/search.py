"""The allocation by search, for rate laws of which only single UEs are known in closed form.

The least band of a UE still falls as the deadline grows, though perhaps in jumps, so the least
deadline whose bands fit into the total can be bracketed as closely as floats allow (docs/radio.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autofl.network import Certificate
from autofl.planner.allocation.result import Allocation, Outcome
from autofl.planner.allocation.roots import power_crossing
from autofl.planner.allocation.task import FOREVER, Task
from autofl.units import Array, BoolArray, IntArray

SAFE = 1e-12
"""Budgets are read as E (1 - SAFE) and phi as phi (1 + SAFE): rounding then stays on the feasible
side.
"""


class Way(NamedTuple):
    """How a UE computes and sends, shape (..., num_ue); where `able` is False the rest means
    nothing.
    """

    able: BoolArray
    band: Array  # [Hz]
    snr: Array
    y: Array  # [nat/s/Hz]
    compute_time: Array  # [s]
    upload_time: Array  # [s]
    energy: Array  # [J]

    @property
    def time(self) -> Array:
        """s + t [s]."""
        return self.compute_time + self.upload_time


def better(best: Way | None, other: Way, by: str) -> Way:
    """The better of two, by least band, time or energy; the other where there is no best yet."""
    if best is None:
        return other
    first = best.able & (~other.able | (getattr(best, by) <= getattr(other, by)))
    return Way(*(np.where(first, a, b) for a, b in zip(best, other, strict=True)))


class SearchedLaws(ABC):
    """The UEs of a task under a law that knows, for each UE alone, the least upload energy and the
    narrowest, the quickest and the thriftiest way. All UEs and all trials go through one call.

    With y the spectral efficiency, c(y) = SNR/y, eta = Z ln 2/a and P_c the power of the circuits,
    an upload takes the energy eta c(y) + P_c t, and computing kappa W^3/s^2.
    """

    TOLERANCE = 1e-12
    """Relative width of the interval in which the least deadline is known in the end: it shows as
    the certificate's gap.
    """
    DEADLINES = 32
    """Deadlines tried in one call, which narrows the interval 33-fold; fewer when there are many
    UEs.
    """
    MOST_VALUES = 20_000
    """Deadlines times UEs in one call: beyond this, one call with many costs as much as several
    calls with few.
    """
    BLOCK = 8_192
    """Values worked on at once, so that they stay in the processor's cache."""
    GRID = 65
    """Bands compared for each UE when saving energy; fewer when there are many UEs."""
    REFINED = 5
    """Grids, each around the best of the one before and 32-fold narrower: the last one divides the
    logarithm of the range by 7e7.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        with np.errstate(divide="ignore", invalid="ignore"):
            self.energy = np.asarray(task.max_energy * (1.0 - SAFE))
            self.cube = np.asarray(task.kappa * task.cycles * task.cycles * task.cycles)
            self.quickest_cpu = np.asarray(task.cycles / task.max_frequency)  # W/f_max
            self.slowest_cpu = np.asarray(task.cycles / task.min_frequency)  # W/f_min
            self.eta = np.asarray(task.bits * math.log(2.0) / task.gain_to_noise)

    @property
    @abstractmethod
    def least_upload_energy(self) -> Array:
        """Of the upload that takes least energy with any band, circuits not counted [J]."""

    @property
    @abstractmethod
    def lowest_snr(self) -> float:
        """From which on an update is decoded."""

    @abstractmethod
    def narrowest(self, deadline: Array) -> Way:
        """The least band with which a UE makes a deadline [s]."""

    @abstractmethod
    def quickest(self, band: Array) -> Way:
        """The least time in a band [Hz]."""

    @abstractmethod
    def thriftiest(self, band: Array, deadline: Array | float) -> Way:
        """The least energy in a band within a deadline."""

    @cached_property
    def shortest(self) -> Array:
        """Least deadline with any band [s]: full power in a band as wide as the lowest SNR allows,
        t = A/P, and the circuits take P_c t.
        """
        with np.errstate(all="ignore"):
            sending = self.least_upload_energy
            t = sending / self.task.max_power
            left = self.energy - sending - self.task.circuit_power * t
            s = np.maximum(np.sqrt(self.cube / left), self.quickest_cpu)
            able = (s <= self.slowest_cpu) & (s > 0.0) & (t > 0.0) & (s + t < FOREVER)
        return np.where(able, (s + t) * (1.0 + 4.0 * SAFE), np.inf)

    def way(
        self, able: BoolArray, band: Array, snr: Array, y: Array, compute_time: Array, t: Array
    ) -> Way:
        """The way with its energy; arrays that broadcast to one shape."""
        circuits = self.task.circuit_power * t
        energy = self.cube / compute_time**2 + self.eta * snr / y + circuits
        return Way(able, band, snr, y, compute_time, t, energy)

    def longest_upload(self, deadline: Array, power: Array | float) -> Callable[[Array], Array]:
        """A function of the energy E: the longest t with kappa W^3/s^2 + power t <= E, s = min(T -
        t, W/f_min).

        It is the root of a cubic, or shorter where the CPU at f_max is not done before; not > 0
        where there is none.
        """
        alone = np.sqrt(self.cube / self.energy)  # s0, computing takes all energy
        latest = deadline - self.quickest_cpu
        least_energy = self.cube / self.slowest_cpu**2
        pi = power * alone / self.energy
        third = np.cbrt(pi) ** 2  # where beta is 0, w^2 = third
        draws = bool(np.any(pi > 0.0))

        def longest(left: Array) -> Array:
            beta = (left - power * deadline) / self.energy
            if not draws:
                u = alone / np.sqrt(np.maximum(beta, 0.0))
                return np.where(u > self.slowest_cpu, 0.0, np.minimum(deadline - u, latest))
            near = np.sqrt(np.maximum(beta, 0.0) + pi / np.sqrt(np.maximum(beta, 0.0) + third))
            far = pi / (third * third / (third - beta) - beta)
            guess = np.where(beta < 0.0, far, near)  # 6 % off at most
            u = alone / power_crossing(pi, beta, guess, tolerance=1e-7)
            at_leisure = (left - least_energy) / power
            return np.where(u > self.slowest_cpu, at_leisure, np.minimum(deadline - u, latest))

        return longest

    def least_band(self, deadline: Array) -> Array:
        """b_i(T) [Hz]; inf where no band is enough."""
        makes = deadline >= self.shortest
        band = np.full(makes.shape, np.inf)
        places = np.flatnonzero(makes)
        served = self.task.at(makes.shape, makes)
        deadlines = np.broadcast_to(deadline, makes.shape)[makes]
        for begin in range(0, len(places), self.BLOCK):
            block = slice(begin, begin + self.BLOCK)
            laws = type(self)(served.at(places.shape, block))
            way = laws.narrowest(deadlines[block])
            band.flat[places[block]] = np.where(way.able, way.band, np.inf)
        return band

    def allocate(self, total_band: float) -> Allocation:
        """The least T; `lower` is a deadline whose bands do not fit, `upper` one whose bands do."""
        num_ue = len(self.shortest)

        def fits(deadlines: Array) -> BoolArray:
            return np.asarray(self.least_band(deadlines[:, None]).sum(axis=-1) <= total_band)

        low = high = float(self.shortest.max())
        if not fits(np.array([low]))[0]:
            # With circuits there may be no such deadline.
            longest = self._longest()
            if longest < math.inf and not fits(np.array([longest]))[0]:
                return Allocation.of_nobody(self.task, (num_ue,), Outcome.NO_BAND)

            # Bracketed by factors of 2 ...
            ladder = low * 2.0 ** np.arange(1.0, 9.0)
            while not (good := fits(np.minimum(ladder, longest))).any():
                ladder = ladder * 256.0
            high = float(ladder[int(np.argmax(good))])
            low = max(low, high / 2.0)
            high = min(high, longest)

            # ... then narrowed with several trials at a time, keeping what fits.
            at_once = max(1, min(self.DEADLINES, self.MOST_VALUES // num_ue))
            while high > low * (1.0 + self.TOLERANCE):
                trials = low * (high / low) ** (np.arange(1, at_once + 1) / (at_once + 1))
                first = int(np.argmax(np.append(fits(trials), True)))
                before = low
                low = low if first == 0 else float(trials[first - 1])
                high = high if first == at_once else float(trials[first])
                if low == before and first == at_once:
                    break
        plan = self._carried_out(self.narrowest(np.asarray(high)))
        certificate = Certificate(min(low, plan.time), plan.time, math.nan)
        return replace(plan, certificate=certificate)

    def _longest(self) -> float:
        """A deadline [s] beyond which no UE needs less band, as its circuits use up the energy; inf
        without circuits.
        """
        if self.task.circuit_power == 0.0:
            return math.inf
        crawling = 1e4 * np.sqrt(self.cube / self.energy)  # computing takes 1e-8 of the energy
        sending = self.energy / self.task.circuit_power
        return float((np.minimum(self.slowest_cpu, crawling) + sending).max())

    def _carried_out(self, way: Way) -> Allocation:
        """The allocation of these ways; UEs that are not able have nothing."""
        able = np.broadcast_to(way.able, self.shortest.shape)
        task = self.task.part(able)
        way = Way._make(np.broadcast_to(value, able.shape)[able] for value in way)
        power = np.minimum(way.snr * way.band / task.gain_to_noise, task.max_power)
        frequency = task.cycles / way.compute_time
        frequency = np.clip(frequency, task.min_frequency, task.max_frequency)
        return Allocation.of(task, way.band, power, frequency, way.y).among(self.task, able)

    def allocate_fixed_band(self, band: Array) -> Allocation:
        """The least time of each UE in its own band."""
        plan = self._carried_out(self.quickest(band))
        return replace(plan, certificate=Certificate(plan.time, plan.time, math.nan))

    def least_energy_fixed_band(self, band: Array, deadline: float) -> Allocation:
        """The least energy of each UE in its own band within a deadline."""
        return self._carried_out(self.thriftiest(band, deadline))

    def least_energy(self, total_band: float, deadline: float) -> Allocation:
        """The least total energy within a deadline: one price for band, and grids of bands refined
        around the best.

        Where a UE's energy is convex in its band, this is the optimum. `residual` is the relative
        gap to the dual bound.

        Note: at the time of `allocate` a UE may have one way to send and none a rounding error
            earlier, so the deadline is read as a trifle longer: no plan is later than deadline (1 +
            4 SAFE).
        """
        deadline *= 1.0 + 4.0 * SAFE
        least = self.least_band(np.asarray(deadline))
        if not float(least.sum()) <= total_band * (1.0 + 1e-9):
            return Allocation.of_nobody(self.task, least.shape, Outcome.TOO_SHORT)

        # No UE can use more than reaches the lowest SNR, or than the others leave.
        spare = max(total_band - float(least.sum()), 0.0)
        widest = self.task.max_power * self.task.gain_to_noise / self.lowest_snr
        most = np.maximum(np.minimum(widest, least + spare), least)
        best, bound = self._priced(least, most, total_band, deadline)
        best = np.maximum(best * min(1.0, total_band / float(best.sum())), least)

        # In the least band where a UE cannot use its own.
        narrow = self.narrowest(np.asarray(deadline))

        def sent_in(bands: Array) -> Way:
            return better(narrow, self.thriftiest(bands, deadline), "energy")

        way = min(
            (sent_in(bands) for bands in self.candidates(best, least, most, total_band, deadline)),
            key=lambda way: float(way.energy.sum()),
        )
        total = float(way.energy.sum())
        residual = max(total - bound, 0.0) / total
        plan = self._carried_out(way)
        return replace(plan, certificate=Certificate(math.nan, plan.time, residual))

    def candidates(
        self, best: Array, least: Array, most: Array, total_band: float, deadline: float
    ) -> list[Array]:
        """Bands to choose from, given those that a price finds."""
        return [best]

    def _priced(
        self, least: Array, most: Array, total_band: float, deadline: float
    ) -> tuple[Array, float]:
        """The bands of least energy between two bounds, and a bound from below on the energy."""
        points = int(np.clip(self.MOST_VALUES // len(least), 9, self.GRID))
        grid = np.linspace(0.0, 1.0, points)[:, None]
        column = np.arange(len(least))
        low = np.log(least)
        high = np.log(most)
        bound = -math.inf
        for step in range(self.REFINED):
            bands = np.exp(low + (high - low) * grid)
            bands[0] = np.exp(low) if step else least
            trial = self.thriftiest(bands, deadline)
            energy = np.where(trial.able, trial.energy, np.inf)
            if step == 0:  # the least band is feasible, whatever rounding says
                energy[0] = np.where(trial.able[0], energy[0], self.task.max_energy)
            place, dual = _at_a_price(energy, bands, total_band)
            bound = max(bound, dual) if step else dual
            low = np.log(bands[np.maximum(place - 1, 0), column])
            high = np.log(bands[np.minimum(place + 1, points - 1), column])
        return bands[place, column], bound


def _at_a_price(energy: Array, bands: Array, total_band: float) -> tuple[IntArray, float]:
    """The rows of least energy + price band at the lowest price at which the bands fit, and the
    dual bound.
    """
    column = np.arange(energy.shape[1])
    place = energy.argmin(axis=0)
    if float(bands[place, column].sum()) <= total_band:
        return place, float(energy[place, column].sum())

    # From a price that changes nothing to one at which nobody wants more than the least.
    finite = energy[np.isfinite(energy)]
    low = math.log(1e-12 * finite.max() / bands.max())
    high = math.log(1e6 * finite.max() / bands.min())
    bound = -math.inf
    while low < (middle := 0.5 * (low + high)) < high:  # until there is no float in between
        price = math.exp(middle)
        tried = (energy + price * bands).argmin(axis=0)
        used = float(bands[tried, column].sum())
        bound = max(bound, float(energy[tried, column].sum()) + price * (used - total_band))
        if used <= total_band:
            place = tried
            high = middle
        else:
            low = middle
    return place, bound
