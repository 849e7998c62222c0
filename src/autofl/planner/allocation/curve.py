"""A rate law that is a curve with a ceiling, or with circuits that draw power (docs/radio.md).

With y the spectral efficiency, c(y) = (exp(y) - 1)/y, eta = Z ln 2/a and u the time before the
upload begins:

    energy kappa W^3/s^2 + eta c(y) + P_c t <= E,    s = min(u, W/f_min),    t = T - u,    eta c(y)
    <= P t

Each function looks for the place where the derivative of a convex or concave function is 0, for all
UEs at once.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from autofl.planner.allocation.roots import excess, spectral_efficiency
from autofl.planner.allocation.search import SAFE, SearchedLaws, Way, better
from autofl.planner.allocation.task import Task
from autofl.units import Array, BoolArray


class CurveLaws(SearchedLaws):
    """The UEs of a task under a curve, y = min(ln(1 + SNR), ceiling), decoded from phi on."""

    HALVINGS = 50
    """Of the interval of y: 15 digits."""

    def __init__(self, task: Task) -> None:
        self.least_y = math.log1p(task.phi * (1.0 + SAFE))
        super().__init__(task)

    @property
    def least_upload_energy(self) -> Array:
        """eta c(y) at phi [J]."""
        return self._amplifier_energy(self.least_y)

    @property
    def lowest_snr(self) -> float:
        return self.task.phi * (1.0 + SAFE)

    def _amplifier_energy(self, y: float) -> Array:
        return self.eta * math.expm1(y) / y

    def narrowest(self, deadline: Array) -> Way:
        """The energy left for the amplifier, h(t) = E - kappa W^3/s^2 - P_c t with s = min(T - t,
        W/f_min), is concave and falls with t. y is the least of three concave functions of t, so ln
        t + ln y is concave. The best t is where power or ceiling begin to bind, or longer, where
        the sum stops growing; and h(t) must be enough for phi.
        """
        task = self.task
        circuit = task.circuit_power
        lowest_energy = self.least_upload_energy
        with np.errstate(all="ignore"):
            # The t at which the energy just reaches phi, and those from which on it binds.
            within = self.longest_upload(deadline, circuit)
            longest = within(self.energy - lowest_energy)
            bound = self.longest_upload(deadline, circuit + task.max_power)(self.energy)
            if not math.isinf(task.ceiling):
                at_ceiling = within(self.energy - self._amplifier_energy(task.ceiling))
                bound = np.maximum(bound, at_ceiling)
            t = self._best_time(deadline, np.minimum(bound, longest), longest)

            # What energy, power and ceiling allow in that time.
            able = (longest > 0.0) & (t > 0.0)
            able = able & (task.max_power * t >= lowest_energy * (1.0 - SAFE))
            s = np.minimum(deadline - t, self.slowest_cpu)
            energy = np.minimum(self.energy - self.cube / s**2 - circuit * t, task.max_power * t)
            y = spectral_efficiency(np.maximum(energy, lowest_energy) / self.eta)
            y = np.minimum(np.maximum(y, self.least_y), task.ceiling)
            band = task.bits * math.log(2.0) / (t * y)
            return self.way(able, band, np.expm1(y), y, s, t)

    def _best_time(self, deadline: Array, low: Array, high: Array) -> Array:
        """The t between two bounds at which t y(h(t)) is greatest [s]: there -h'(t) t = eta D(y),
        which it then exceeds.
        """
        circuit = self.task.circuit_power
        lowest_c = math.expm1(self.least_y) / self.least_y

        def surplus(
            t: Array, cube: Array, eta: Array, energy: Array, deadline: Array, slowest: Array
        ) -> tuple[Array, Array, Array, Array]:
            """ln(-h'(t) t / (eta D)), with the CPU at f_min and below."""
            s = np.minimum(deadline - t, slowest)
            falls = 2.0 * cube / (s * s * s)  # -h'(t) without circuits
            c = np.maximum((energy - 0.5 * falls * s - circuit * t) / eta, lowest_c)
            y = spectral_efficiency(c)
            gap = excess(y, c)
            ratio = t / (eta * gap)
            turns = (y * (1.0 + c / gap) - 1.0) * ratio
            bend = 3.0 * t / s * falls / (falls + circuit)
            return (
                np.log(circuit * ratio),
                1.0 + turns * circuit,
                np.log((falls + circuit) * ratio),
                1.0 + bend + turns * (falls + circuit),
            )

        values = (self.cube, self.eta, self.energy, deadline, self.slowest_cpu)
        return _root(low, np.maximum(high, low), deadline - self.slowest_cpu, surplus, values)

    def quickest(self, band: Array) -> Way:
        """s(y) + M/y is convex, M = Z ln 2/B, s(y) = sqrt(kappa W^3/(E - g(y))). g(y) = eta c(y) +
        P_c M/y, the energy of the upload, is convex too.
        """
        with np.errstate(all="ignore"):
            upload = self.task.bits * math.log(2.0) / band
            top = self._top(band)
            budget = self.energy - self.cube / self.slowest_cpu**2
            low = np.broadcast_to(np.asarray(self.least_y), top.shape)
            low, high = self._turning(low, np.maximum(top, low), upload, budget)

            # Where the budget cuts the interval, only one of its ends may be affordable.
            ways = []
            for y in (low, high):
                used = self._upload_energy(y, upload)
                s = np.maximum(np.sqrt(self.cube / (self.energy - used)), self.quickest_cpu)
                able = (used <= budget * (1.0 + SAFE)) & (s > 0.0)
                able = able & (self.least_y <= top * (1.0 + SAFE))
                s = np.minimum(s, self.slowest_cpu)
                ways.append(self.way(able, band, np.expm1(y), y, s, upload / y))
        return better(ways[0], ways[1], "time")

    def _top(self, band: Array) -> Array:
        """y at P, or the ceiling."""
        snr = self.task.max_power * self.task.gain_to_noise / band
        return np.asarray(np.minimum(np.log1p(snr), self.task.ceiling))

    def _upload_energy(self, y: Array, upload: Array) -> Array:
        """g(y) [J]."""
        return np.asarray(self.eta * (np.expm1(y) / y) + self.task.circuit_power * upload / y)

    def _turning(
        self, low: Array, high: Array, upload: Array, budget: Array
    ) -> tuple[Array, Array]:
        """The ends of the interval in which a higher efficiency stops to be faster; twice the same
        end where it does not.
        """

        def goes_on(y: Array) -> BoolArray:
            """Whether more takes less time, or comes nearer to the budget."""
            used = self._upload_energy(y, upload)
            marginal = self.eta * excess(y, np.expm1(y) / y) / y
            slope = marginal - self.task.circuit_power * upload / y**2
            left = self.energy - used
            s = np.sqrt(self.cube / np.maximum(left, 1e-300))
            faster = (s <= self.quickest_cpu) | (0.5 * s / left * slope < upload / y**2)
            return np.asarray(np.where(used > budget, slope < 0.0, faster))

        beyond = goes_on(high)
        if_none = np.where(beyond, high, low)
        inside = goes_on(low) & ~beyond
        for _ in range(self.HALVINGS):
            middle = 0.5 * (low + high)
            further = goes_on(middle)
            low = np.where(further, middle, low)
            high = np.where(further, high, middle)
        return np.where(inside, low, if_none), np.where(inside, high, if_none)

    def thriftiest(self, band: Array, deadline: Array | float) -> Way:
        """kappa W^3/s^2 + g(y), s = min(T - M/y, W/f_min), is convex in y."""
        circuit = self.task.circuit_power
        with np.errstate(all="ignore"):
            # In time with the CPU at f_max, and decoded; within power and ceiling.
            upload = self.task.bits * math.log(2.0) / band
            hurried = upload / np.maximum(deadline - self.quickest_cpu, 0.0)
            bottom = np.maximum(self.least_y, hurried)
            top = self._top(band)

            def surplus(
                y: Array, cube: Array, eta: Array, upload: Array, deadline: Array, slowest: Array
            ) -> tuple[Array, Array, Array, Array]:
                """ln of what a higher y costs the amplifier over what it saves: eta D y / (M (P_c +
                2 kappa W^3/s^3)).
                """
                t = upload / y
                s = np.minimum(deadline - t, slowest)
                saved = 2.0 * cube / (s * s * s)
                x = np.expm1(y)
                gap = 1.0 + x - x / y
                slope = (1.0 + x) * y / gap
                cost = eta * gap / t
                bend = 3.0 * t / s * saved / (saved + circuit)
                return np.log(cost / (saved + circuit)), slope + bend, np.log(cost / circuit), slope

            # From here on the CPU at f_min is done before the upload begins.
            jump = upload / (deadline - self.slowest_cpu)
            jump = np.where(deadline > self.slowest_cpu, jump, np.inf)
            values = (self.cube, self.eta, upload, np.asarray(deadline), self.slowest_cpu)
            y = _root(bottom, np.maximum(top, bottom), jump, surplus, values)

            s = np.minimum(deadline - upload / y, self.slowest_cpu)
            able = (bottom <= top * (1.0 + SAFE)) & (s >= self.quickest_cpu * (1.0 - SAFE))
            s = np.maximum(s, self.quickest_cpu)
            way = self.way(able, band, np.expm1(y), y, s, upload / y)
            affordable = way.energy <= self.task.max_energy * (1.0 + 1e-9)
            return way._replace(able=way.able & affordable)


def _root(
    low: Array,
    high: Array,
    jump: Array,
    surplus: Callable[..., tuple[Array, Array, Array, Array]],
    values: Sequence[Array],
    tolerance: float = 1e-7,
    max_steps: int = 100,
) -> Array:
    """The x in [low, high] at which a growing function is 0; an end of the interval where it has
    one sign.

    The jump is tried first, then the ends; in between Newton's method in ln x, kept where the signs
    say the root is.

    Args:
        surplus: the function of x and of what stands in `values` for the same UEs: below the place
            where it jumps, its slope by ln x, and the same above that place.
        jump: where the function jumps.
        tolerance: value at which the search ends. Where x makes something greatest or least, that
            is flat there: its error is the square.
        max_steps: more than ever needed.
    """
    x = np.clip(jump, low, high)
    shape = x.shape
    values = [np.broadcast_to(value, shape) for value in values]
    before, _, after, _ = surplus(x, *values)

    # Signs at the jump tell on which side of it the root is; where they differ, it is the jump.
    above = after < 0.0
    below = before > 0.0
    low = np.where(below, low, x)
    high = np.where(above, high, x)
    inside = low < high
    if not inside.any():
        return x

    # Only UEs whose root is elsewhere go on, from the end that was not tried yet.
    low = low[inside]
    high = high[inside]
    above = above[inside]
    values = [value[inside] for value in values]
    trial = np.where(above, high, low)
    for _ in range(max_steps):
        before, by_before, after, by_after = surplus(trial, *values)
        value = np.where(above, after, before)
        slope = np.where(above, by_after, by_before)
        low = np.where(value < 0.0, trial, low)
        high = np.where(value < 0.0, high, trial)
        going = (np.abs(value) > tolerance) & (low < high)
        if not going.any():
            break
        newton = trial * np.exp(-value / slope)
        newton = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        trial = np.where(going, newton, trial)
    x[inside] = trial
    return x
