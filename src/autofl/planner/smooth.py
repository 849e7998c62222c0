"""One UE of the allocation where the rate is a curve with a ceiling and circuits draw power
(docs/radio.md).

With y the spectral efficiency, c(y) = (exp(y) - 1)/y, eta = Z ln 2/a and u the time before the
upload begins:

    energy kappa W^3/s^2 + eta c(y) + P_c t <= E,    s = min(u, W/f_min),    t = T - u,    eta c(y)
    <= P t

Each function looks for the place where the derivative of a convex or concave function is 0, for all
UEs at once.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from autofl.planner.band import SAFE, Task, Terms, excess, power_crossing, spectral_efficiency
from autofl.units import Array, BoolArray

HALVINGS = 50


class Point(NamedTuple):
    """How a UE sends, shape (..., num_ue); where `able` is False the rest means nothing."""

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


def least_upload_energy(task: Task) -> Array:
    """eta c(y) of the upload that takes least energy with any band, circuits not counted [J]."""
    its = task.terms
    return its.eta * math.expm1(its.lowest) / its.lowest


def longest_upload(its: Terms, deadline: Array, power: Array | float) -> Callable[[Array], Array]:
    """A function of the energy E: the longest t with kappa W^3/s^2 + power t <= E, s = min(T - t,
    W/f_min).

    It is the root of a cubic, or shorter where the CPU at f_max is not done before; not > 0 where
    there is none.
    """
    alone = np.sqrt(its.cube / its.energy)  # s0, computing takes all energy
    latest = deadline - its.quickest
    least_energy = its.cube / its.slowest**2
    pi = power * alone / its.energy
    third = np.cbrt(pi) ** 2  # where beta is 0, w^2 = third
    draws = bool(np.any(pi > 0.0))

    def longest(left: Array) -> Array:
        beta = (left - power * deadline) / its.energy
        if draws:
            near = np.sqrt(np.maximum(beta, 0.0) + pi / np.sqrt(np.maximum(beta, 0.0) + third))
            guess = np.where(
                beta < 0.0, pi / (third * third / (third - beta) - beta), near
            )  # 6 % off at most
            w = power_crossing(pi, beta, guess, tolerance=1e-7)
        else:
            w = np.sqrt(np.maximum(beta, 0.0))
        u = alone / w
        at_leisure = (left - least_energy) / power if draws else 0.0
        return np.where(u > its.slowest, at_leisure, np.minimum(deadline - u, latest))

    return longest


def narrowest(task: Task, deadline: Array) -> Point:
    """The least band with which a UE makes a deadline.

    The energy left for the amplifier, h(t) = E - kappa W^3/s^2 - P_c t with s = min(T - t,
    W/f_min), is concave and falls with t. y is the least of three concave functions of t, so ln t +
    ln y is concave. The best t is where power or ceiling begin to bind, or longer, where the sum
    stops growing; and h(t) must be enough for phi.
    """
    its = task.terms
    circuit = task.circuit_power
    lowest_energy = its.eta * math.expm1(its.lowest) / its.lowest
    with np.errstate(all="ignore"):
        within = longest_upload(its, deadline, circuit)
        longest = within(its.energy - lowest_energy)
        bound = longest_upload(its, deadline, circuit + task.max_power)(its.energy)
        if not math.isinf(task.ceiling):
            at_ceiling = its.eta * math.expm1(task.ceiling) / task.ceiling
            bound = np.maximum(bound, within(its.energy - at_ceiling))
        t = _best_time(task, deadline, np.minimum(bound, longest), longest)
        able = (longest > 0.0) & (t > 0.0) & (task.max_power * t >= lowest_energy * (1.0 - SAFE))
        s = np.minimum(deadline - t, its.slowest)
        energy = np.minimum(its.energy - its.cube / s**2 - circuit * t, task.max_power * t)
        y = np.maximum(spectral_efficiency(np.maximum(energy, lowest_energy) / its.eta), its.lowest)
        y = np.minimum(y, task.ceiling)
        return _point(task, able, task.bits * math.log(2.0) / (t * y), y, s, t)


def _best_time(task: Task, deadline: Array, low: Array, high: Array) -> Array:
    """The t between two bounds at which t y(h(t)) is greatest [s]: there -h'(t) t = eta D(y), which
    it then exceeds.
    """
    its = task.terms
    circuit = task.circuit_power
    lowest_c = math.expm1(its.lowest) / its.lowest

    def surplus(
        t: Array, cube: Array, eta: Array, energy: Array, deadline: Array, slowest: Array
    ) -> _Sides:
        """ln(-h'(t) t / (eta D))."""
        s = np.minimum(deadline - t, slowest)
        falls = 2.0 * cube / (s * s * s)  # -h'(t) without circuits
        c = np.maximum((energy - 0.5 * falls * s - circuit * t) / eta, lowest_c)
        y = spectral_efficiency(c)
        gap = excess(y, c)
        ratio = t / (eta * gap)
        turns = (y * (1.0 + c / gap) - 1.0) * ratio
        bend = 3.0 * t / s * falls / (falls + circuit)
        at_leisure = np.log(circuit * ratio), 1.0 + turns * circuit
        return (
            *at_leisure,
            np.log((falls + circuit) * ratio),
            1.0 + bend + turns * (falls + circuit),
        )

    values = its.cube, its.eta, its.energy, deadline, its.slowest
    return _root(low, np.maximum(high, low), deadline - its.slowest, surplus, values)


_Sides = tuple[Array, Array, Array, Array]
"""A function below the place where it jumps, its slope by ln x, and the same above that place."""


def _root(
    low: Array,
    high: Array,
    jump: Array,
    surplus: Callable[..., _Sides],
    values: Sequence[Array],
    tolerance: float = 1e-7,
    max_steps: int = 100,
) -> Array:
    """The x in [low, high] at which a growing function is 0; an end of the interval where it has
    one sign.

    The jump is tried first, then the ends; in between Newton's method in ln x, kept where the signs
    say the root is.

    Args:
        surplus: the function of x and of what stands in `values` for the same UEs.
        jump: where the function jumps.
        tolerance: value at which the search ends. Where x makes something greatest or least, that
            is flat there: its error is the square.
    """
    x = np.clip(jump, low, high)
    shape = x.shape
    values = [np.broadcast_to(value, shape) for value in values]
    before, _, after, _ = surplus(x, *values)
    # where the root is
    above = after < 0.0
    below = before > 0.0
    low = np.where(below, low, x)
    high = np.where(above, high, x)
    inside = low < high
    if not inside.any():
        return x
    low = low[inside]
    high = high[inside]
    above = above[inside]
    values = [value[inside] for value in values]
    trial = np.where(above, high, low)  # the end that was not tried yet
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


def fastest(task: Task, band: Array) -> Point:
    """The least time in a band: s(y) + M/y is convex, M = Z ln 2/B, s(y) = sqrt(kappa W^3/(E -
    g(y))).

    g(y) = eta c(y) + P_c M/y, the energy of the upload, is convex too.
    """
    its = task.terms
    circuit = task.circuit_power
    with np.errstate(all="ignore"):
        upload = task.bits * math.log(2.0) / band
        top = np.minimum(np.log1p(task.max_power * task.gain_to_noise / band), task.ceiling)
        budget = its.energy - its.cube / its.slowest**2

        def sending(y: Array) -> tuple[Array, Array]:
            c = np.expm1(y) / y
            return its.eta * c + circuit * upload / y, its.eta * excess(
                y, c
            ) / y - circuit * upload / y**2

        low = np.broadcast_to(np.asarray(its.lowest), top.shape)
        high = np.maximum(top, low)
        low, high = _turning(low, high, lambda y: _faster(sending(y), its, budget, upload, y))
        points = []
        for y in (low, high):
            used = sending(y)[0]
            s = np.maximum(np.sqrt(its.cube / (its.energy - used)), its.quickest)
            able = (used <= budget * (1.0 + SAFE)) & (its.lowest <= top * (1.0 + SAFE)) & (s > 0.0)
            points.append(_point(task, able, band, y, np.minimum(s, its.slowest), upload / y))
    return better(points[0], points[1], "time")


def _faster(
    sending: tuple[Array, Array], its: Terms, budget: Array, upload: Array, y: Array
) -> BoolArray:
    """Whether a higher efficiency takes less time, or comes nearer to the budget."""
    used, slope = sending
    left = its.energy - used
    s = np.sqrt(its.cube / np.maximum(left, 1e-300))
    falls = (s <= its.quickest) | (0.5 * s / left * slope < upload / y**2)
    return np.asarray(np.where(used > budget, slope < 0.0, falls))


def thriftiest(task: Task, band: Array, deadline: Array | float) -> Point:
    """The least energy in a band within a deadline: kappa W^3/s^2 + g(y), s = min(T - M/y,
    W/f_min), is convex in y.
    """
    its = task.terms
    circuit = task.circuit_power
    with np.errstate(all="ignore"):
        upload = task.bits * math.log(2.0) / band
        hurried = upload / np.maximum(deadline - its.quickest, 0.0)
        bottom = np.maximum(its.lowest, hurried)
        top = np.minimum(np.log1p(task.max_power * task.gain_to_noise / band), task.ceiling)

        def surplus(
            y: Array, cube: Array, eta: Array, upload: Array, deadline: Array, slowest: Array
        ) -> _Sides:
            """ln of what a higher y costs the amplifier over what it saves: eta D y / (M (P_c + 2
            kappa W^3/s^3)).
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

        jump = np.where(deadline > its.slowest, upload / (deadline - its.slowest), np.inf)
        values = its.cube, its.eta, upload, np.asarray(deadline), its.slowest
        y = _root(bottom, np.maximum(top, bottom), jump, surplus, values)
        s = np.minimum(deadline - upload / y, its.slowest)
        able = (bottom <= top * (1.0 + SAFE)) & (s >= its.quickest * (1.0 - SAFE))
        point = _point(task, able, band, y, np.maximum(s, its.quickest), upload / y)
        return point._replace(able=able & (point.energy <= task.max_energy * (1.0 + 1e-9)))


def _turning(low: Array, high: Array, goes_on) -> tuple[Array, Array]:  # type: ignore[no-untyped-def]
    """The ends of the interval in which `goes_on` turns from true to false; twice the same end
    where it does not.
    """
    if_none = np.where(goes_on(high), high, low)
    on = goes_on(low)
    off = ~goes_on(high)
    inside = on & off
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        further = goes_on(middle)
        low = np.where(further, middle, low)
        high = np.where(further, high, middle)
    return np.where(inside, low, if_none), np.where(inside, high, if_none)


def better(best: Point | None, other: Point, by: str) -> Point:
    """The better of two, by least band, time or energy; the other where there is no best yet."""
    if best is None:
        return other
    first = best.able & (~other.able | (getattr(best, by) <= getattr(other, by)))
    return Point(*(np.where(first, a, b) for a, b in zip(best, other, strict=True)))


def _point(
    task: Task, able: BoolArray, band: Array, y: Array, compute_time: Array, upload_time: Array
) -> Point:
    with np.errstate(all="ignore"):
        snr = np.expm1(y)
        its = task.terms
        energy = its.cube / compute_time**2 + its.eta * snr / y + task.circuit_power * upload_time
    return Point(able, band, snr, y, compute_time, upload_time, energy)
