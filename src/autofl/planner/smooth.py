"""One UE of the allocation where the rate is a curve with a ceiling and circuits draw power (docs/radio.md).

With y the spectral efficiency, c(y) = (exp(y) - 1)/y, eta = Z ln 2/a and u the time before the upload begins:

    energy kappa W^3/s^2 + eta c(y) + P_c t <= E,    s = min(u, W/f_min),    t = T - u,    eta c(y) <= P t

Each function is one bisection on the derivative of a function that is convex or concave, for all UEs at once.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from autofl.planner.band import Task, excess, power_crossing, spectral_efficiency
from autofl.units import Array, BoolArray

SAFE = 1e-12
"""Budgets are read as E (1 - SAFE) and phi as phi (1 + SAFE): rounding then stays on the feasible side."""
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


class _Terms(NamedTuple):
    energy: Array  # E (1 - SAFE)
    cube: Array  # kappa W^3
    quickest: Array  # W/f_max
    slowest: Array  # W/f_min
    eta: Array  # Z ln 2 / a
    lowest: float  # y at phi


def terms(task: Task) -> _Terms:
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Terms(
            np.asarray(task.max_energy * (1.0 - SAFE)),
            np.asarray(task.kappa * task.cycles**3),
            np.asarray(task.cycles / task.max_frequency),
            np.asarray(task.cycles / task.min_frequency),
            np.asarray(task.bits * math.log(2.0) / task.gain_to_noise),
            math.log1p(task.phi * (1.0 + SAFE)),
        )


def least_upload_energy(task: Task) -> Array:
    """eta c(y) of the upload that takes least energy with any band, circuits not counted [J]."""
    its = terms(task)
    return its.eta * math.expm1(its.lowest) / its.lowest


def longest_upload(its: _Terms, deadline: Array, power: Array | float) -> Callable[[Array], Array]:
    """A function of the energy E: the longest t with kappa W^3/s^2 + power t <= E, s = min(T - t, W/f_min).

    It is the root of a cubic, or shorter where the CPU at f_max is not done before; not > 0 where there is none.
    """
    alone = np.sqrt(its.cube / its.energy)  # s0, computing takes all energy
    latest, least_energy = deadline - its.quickest, its.cube / its.slowest**2
    pi = power * alone / its.energy
    third = np.cbrt(pi) ** 2  # where beta is 0, w^2 = third
    draws = bool(np.any(pi > 0.0))

    def longest(left: Array) -> Array:
        beta = (left - power * deadline) / its.energy
        if draws:
            near = np.sqrt(np.maximum(beta, 0.0) + pi / np.sqrt(np.maximum(beta, 0.0) + third))
            guess = np.where(beta < 0.0, pi / (third * third / (third - beta) - beta), near)  # 5 % off at most
            w = power_crossing(pi, beta, guess, tolerance=1e-7)
        else:
            w = np.sqrt(np.maximum(beta, 0.0))
        u = alone / w
        at_leisure = (left - least_energy) / power if draws else 0.0
        return np.where(u > its.slowest, at_leisure, np.minimum(deadline - u, latest))

    return longest


def narrowest(task: Task, deadline: Array) -> Point:
    """The least band with which a UE makes a deadline.

    The energy left for the amplifier, h(t) = E - kappa W^3/s^2 - P_c t with s = min(T - t, W/f_min), is concave and
    falls with t. y is the least of three concave functions of t, so ln t + ln y is concave. The best t is where power
    or ceiling begin to bind, or longer, where the sum stops growing; and h(t) must be enough for phi.
    """
    its, circuit = terms(task), task.circuit_power
    lowest_energy = its.eta * math.expm1(its.lowest) / its.lowest
    with np.errstate(all="ignore"):
        within = longest_upload(its, deadline, circuit)
        longest = within(its.energy - lowest_energy)
        bound = longest_upload(its, deadline, circuit + task.max_power)(its.energy)
        if not math.isinf(task.ceiling):
            at_ceiling = its.eta * math.expm1(task.ceiling) / task.ceiling
            bound = np.maximum(bound, within(its.energy - at_ceiling))
        t = _best_time(task, its, deadline, np.minimum(bound, longest), longest)
        able = (longest > 0.0) & (t > 0.0) & (task.max_power * t >= lowest_energy * (1.0 - SAFE))
        s = np.minimum(deadline - t, its.slowest)
        energy = np.minimum(its.energy - its.cube / s**2 - circuit * t, task.max_power * t)
        y = np.maximum(spectral_efficiency(np.maximum(energy, lowest_energy) / its.eta), its.lowest)
        y = np.minimum(y, task.ceiling)
        return _point(task, able, task.bits * math.log(2.0) / (t * y), y, s, t)


def _best_time(
    task: Task, its: _Terms, deadline: Array, low: Array, high: Array, tolerance: float = 1e-7
) -> Array:
    """The t between two bounds at which t y(h(t)) is greatest [s]: there -h'(t) t = eta D(y), and beyond it is greater.

    Newton's method in ln t, kept within the bounds. The first trial is T - W/f_min, where -h' jumps.

    Args:
        tolerance: of ln(-h'(t) t / (eta D)); t y is flat around its greatest value, so its error is the square of that.
    """
    lowest_c, circuit = math.expm1(its.lowest) / its.lowest, task.circuit_power

    def surplus(t: Array, cube: Array, eta: Array, energy: Array, deadline: Array, slowest: Array) -> tuple[Array, ...]:
        """ln(-h'(t) t / (eta D)) and its slope by ln t, then the same where the CPU is at f_min."""
        s = np.minimum(deadline - t, slowest)
        falls = 2.0 * cube / (s * s * s)  # -h'(t) without circuits
        c = np.maximum((energy - 0.5 * falls * s - circuit * t) / eta, lowest_c)
        y = spectral_efficiency(c)
        gap = excess(y, c)
        turns = (y * (1.0 + c / gap) - 1.0) * t / (eta * gap)
        ratio, bend = t / (eta * gap), 3.0 * t / s * falls / (falls + circuit)
        moving = np.log((falls + circuit) * ratio), 1.0 + bend + turns * (falls + circuit)
        return *moving, np.log(circuit * ratio), 1.0 + turns * circuit

    high = np.maximum(high, low)
    shape = np.broadcast_shapes(np.shape(low), np.shape(deadline))
    values = [np.broadcast_to(value, shape) for value in (its.cube, its.eta, its.energy, deadline, its.slowest)]
    t = np.clip(deadline - its.slowest, low, high)
    moving, _, calm, _ = surplus(t, *values)
    low, high = np.where((moving < 0.0) | (calm <= 0.0), t, low), np.where((calm > 0.0) | (moving >= 0.0), t, high)
    inside = low < high
    if not inside.any():
        return t
    t = np.array(t)
    some, low, high, moves = [value[inside] for value in values], low[inside], high[inside], (moving < 0.0)[inside]
    trial = np.where(moves, high, low)  # the ends that were not tried yet
    for _ in range(HALVINGS):
        moving, by_moving, calm, by_calm = surplus(trial, *some)
        value, slope = np.where(moves, moving, calm), np.where(moves, by_moving, by_calm)
        low, high = np.where(value < 0.0, trial, low), np.where(value < 0.0, high, trial)
        going = (np.abs(value) > tolerance) & (low < high)
        if not going.any():
            break
        newton = trial * np.exp(-value / slope)
        newton = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        trial = np.where(going, newton, trial)
    t[inside] = trial
    return t


def fastest(task: Task, band: Array) -> Point:
    """The least time in a band: s(y) + M/y is convex, M = Z ln 2/B, s(y) = sqrt(kappa W^3/(E - g(y))).

    g(y) = eta c(y) + P_c M/y, the energy of the upload, is convex too.
    """
    its, circuit = terms(task), task.circuit_power
    with np.errstate(all="ignore"):
        upload = task.bits * math.log(2.0) / band
        top = np.minimum(np.log1p(task.max_power * task.gain_to_noise / band), task.ceiling)
        budget = its.energy - its.cube / its.slowest**2

        def sending(y: Array) -> tuple[Array, Array]:
            c = np.expm1(y) / y
            return its.eta * c + circuit * upload / y, its.eta * excess(y, c) / y - circuit * upload / y**2

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


def _faster(sending: tuple[Array, Array], its: _Terms, budget: Array, upload: Array, y: Array) -> BoolArray:
    """Whether a higher efficiency takes less time, or comes nearer to the budget."""
    used, slope = sending
    left = its.energy - used
    s = np.sqrt(its.cube / np.maximum(left, 1e-300))
    falls = (s <= its.quickest) | (0.5 * s / left * slope < upload / y**2)
    return np.asarray(np.where(used > budget, slope < 0.0, falls))


def thriftiest(task: Task, band: Array, deadline: Array | float) -> Point:
    """The least energy in a band within a deadline: kappa W^3/s^2 + g(y), s = min(T - M/y, W/f_min), is convex in y."""
    its, circuit = terms(task), task.circuit_power
    with np.errstate(all="ignore"):
        upload = task.bits * math.log(2.0) / band
        hurried = upload / np.maximum(deadline - its.quickest, 0.0)
        bottom = np.maximum(its.lowest, hurried)
        top = np.minimum(np.log1p(task.max_power * task.gain_to_noise / band), task.ceiling)

        def saves(y: Array) -> BoolArray:
            s = deadline - upload / y
            slope = its.eta * excess(y, np.expm1(y) / y) / y - circuit * upload / y**2
            return np.asarray(np.where(s < its.slowest, 2.0 * its.cube / s**3 * upload / y**2, 0.0) > slope)

        low, high = _turning(bottom, np.maximum(top, bottom), saves)
        y = 0.5 * (low + high)
        s = np.minimum(deadline - upload / y, its.slowest)
        able = (bottom <= top * (1.0 + SAFE)) & (s >= its.quickest * (1.0 - SAFE))
        point = _point(task, able, band, y, np.maximum(s, its.quickest), upload / y)
        return point._replace(able=able & (point.energy <= task.max_energy * (1.0 + 1e-9)))


def _turning(low: Array, high: Array, goes_on) -> tuple[Array, Array]:  # type: ignore[no-untyped-def]
    """The ends of the interval in which `goes_on` turns from true to false; twice the same end where it does not."""
    if_none = np.where(goes_on(high), high, low)
    on, off = goes_on(low), ~goes_on(high)
    inside = on & off
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        further = goes_on(middle)
        low, high = np.where(further, middle, low), np.where(further, high, middle)
    return np.where(inside, low, if_none), np.where(inside, high, if_none)


def better(best: Point | None, other: Point, by: str) -> Point:
    """The better of two, by least band, time or energy; the other where there is no best yet."""
    if best is None:
        return other
    first = best.able & (~other.able | (getattr(best, by) <= getattr(other, by)))
    return Point(*(np.where(first, a, b) for a, b in zip(best, other, strict=True)))


def _point(task: Task, able: BoolArray, band: Array, y: Array, compute_time: Array, upload_time: Array) -> Point:
    with np.errstate(all="ignore"):
        snr = np.expm1(y)
        its = terms(task)
        energy = its.cube / compute_time**2 + its.eta * snr / y + task.circuit_power * upload_time
    return Point(able, band, snr, y, compute_time, upload_time, energy)
