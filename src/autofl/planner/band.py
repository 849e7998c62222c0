"""The least band with which a UE makes a deadline: the inner function of the exact allocation.

A UE computes W cycles in s = W/f seconds and sends Z bits in t seconds. With the spectral
efficiency y = ln(1 + x), x = p a/B its SNR, everything is explicit (docs/joint-planner.md has the
derivation):

    band B = Z ln 2/(t y),    upload energy p t = eta c,    eta = Z ln 2/a,    c(y) = (exp(y) - 1)/y
"""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array, BoolArray

GUARD = 2e-14
"""Budgets are read as E (1 - GUARD) and phi as phi (1 + GUARD): rounding then stays on the feasible
side.
"""

FOREVER = 1e12
"""A UE that needs more seconds for a round never takes part: beyond, numbers run out of floats."""

SAFE = 1e-12
"""The same for the rate laws that are not Shannon's."""


@dataclass(frozen=True)
class Task:
    """What the UEs of one round have to do, and with what. Arrays broadcast to one shape (...,
    num_ue).

    A UE for which any value is not a number > 0 (min_frequency: >= 0) cannot take part. Amplifier
    efficiency eta and
    SNR gap Gamma are not fields of their own: power is what the amplifier draws, P/eta; a stands
    for eta a/Gamma, and phi for phi/Gamma.
    """

    cycles: Array  # W_i = C_i tau_i d_i [cycle]
    bits: Array  # Z_i [bit]
    gain_to_noise: Array  # a_i = g_i / N0 [Hz/W]
    max_energy: Array  # E_i [J]
    max_power: Array  # P_i^max [W]
    min_frequency: Array  # [cycle/s]; equal to max_frequency where the frequency is not decided
    max_frequency: Array  # [cycle/s]
    phi: float  # least SNR that is decoded
    kappa: float  # varsigma / 2 [J s^2/cycle^3]
    circuit_power: float = 0.0  # P_c [W] while a UE sends
    ceiling: float = math.inf  # of the spectral efficiency [nat/s/Hz]
    levels: tuple[tuple[float, float], ...] = ()  # (y [nat/s/Hz], SNR) of a staircase

    def __post_init__(self) -> None:
        for name in ("phi", "kappa"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise AutoFLError(f"allocation: {name} = {value}; it must be a finite number > 0")

    def at(self, shape: tuple[int, ...], *index: Any) -> "Task":
        """The task at this index of its arrays, once these have the given shape."""
        values = {
            name: np.broadcast_to(np.asarray(getattr(self, name)), shape)[index] for name in PER_UE
        }
        return replace(self, **values)

    @property
    def is_plain(self) -> bool:
        """Whether the fast method applies: Shannon's rate, and circuits that draw no power."""
        return self.circuit_power == 0.0 and math.isinf(self.ceiling) and not self.levels

    @cached_property
    def limits(self) -> "Limits":
        return _limits(self)

    @cached_property
    def terms(self) -> "Terms":
        return _terms(self)


PER_UE = tuple(field.name for field in fields(Task) if field.type is Array)
"""The arrays of a task."""


@dataclass(frozen=True)
class Limits:
    """What bounds each UE at every deadline, worked out once. Where `able` is False the other
    values mean nothing.

    s0 = sqrt(kappa W^3 / E) is the time in which computing alone would use up E, and w = s0/s, so
    that computing in time s takes E w^2 and leaves c = (1 - w^2)/eps for sending, eps = eta/E.
    """

    able: BoolArray
    eta: Array  # Z ln 2 / a [J], the least upload energy at vanishing SNR
    eps: Array  # eta / E
    s0: Array  # [s]
    pi: Array  # P s0 / E
    phi_energy: (
        Array  # E_phi = eta phi / ln(1 + phi) [J], the least energy of an upload that is decoded
    )
    fastest: (
        Array  # the largest w: at f_max, or less where the upload needs the energy to reach phi
    )
    slowest: Array  # the smallest w: at f_min
    widest: Array  # widest band in which P reaches phi [Hz]
    shortest: Array  # least T with any band [s]
    ends: Array  # y at w = fastest, at w = slowest and at w = 0, shape (3, ...)
    stays: Array  # up to this deadline s = s0 / fastest is best [s]
    slows: Array  # from this deadline on s = s0 / slowest is best [s]


class Terms(NamedTuple):
    """What the allocation of the other rate laws works with, shape of the task."""

    energy: Array  # E (1 - SAFE)
    cube: Array  # kappa W^3
    quickest: Array  # W/f_max
    slowest: Array  # W/f_min
    eta: Array  # Z ln 2 / a
    lowest: float  # y at phi


def _terms(task: Task) -> Terms:
    with np.errstate(divide="ignore", invalid="ignore"):
        return Terms(
            np.asarray(task.max_energy * (1.0 - SAFE)),
            np.asarray(task.kappa * task.cycles * task.cycles * task.cycles),
            np.asarray(task.cycles / task.max_frequency),
            np.asarray(task.cycles / task.min_frequency),
            np.asarray(task.bits * math.log(2.0) / task.gain_to_noise),
            math.log1p(task.phi * (1.0 + SAFE)),
        )


def spectral_efficiency(c: Array) -> Array:
    """The y > 0 with (exp(y) - 1)/y = c, for c > 1: Lambert's -W_{-1}(-exp(-1/c)/c) - 1/c.

    ln((exp(y) - 1)/y) is convex with a slope between 1/2 and 1, so Newton's method takes three
    steps from a start between Chatzigeorgiou's bounds (2013), sqrt(2 u) + 2 u/3 < -W_{-1} - 1 <
    sqrt(2 u) + u with u = ln c + 1/c - 1.
    """
    log_c = np.log(c)
    inverse = 1.0 / c
    u = np.maximum(log_c + inverse - 1.0, 0.0)
    root = np.sqrt(2.0 * u)
    y = np.maximum(root + u * (1.0 - 1.0 / (3.0 + 0.6 * root)) + (1.0 - inverse), 1e-8)
    for _ in range(3):
        x = np.expm1(y)
        y = y + y * (log_c - np.log(x / y)) / (y + y / x - 1.0)
    return y


def excess(y: Array, c: Array) -> Array:
    """D = 1 + x - c: marginal upload energy of spectral efficiency, dc/dy = D/y, and d ln y/dc =
    1/D.
    """
    return np.exp(y) - c


def _limits(task: Task) -> Limits:
    with np.errstate(all="ignore"):
        least_c = task.phi * (1.0 + GUARD) / math.log1p(task.phi * (1.0 + GUARD))
        energy = np.asarray(task.max_energy * (1.0 - GUARD))
        eta = task.bits * math.log(2.0) / task.gain_to_noise
        eps = eta / energy
        s0 = task.cycles * np.sqrt(task.kappa * task.cycles / energy)
        pi = task.max_power * s0 / energy
        slowest = s0 * task.min_frequency / task.cycles
        decodable = np.sqrt(1.0 - eps * least_c)  # NaN where the upload alone exceeds the budget
        fastest = np.minimum(decodable, s0 * task.max_frequency / task.cycles)
        phi_energy = eta * least_c
        in_time = s0 / fastest + phi_energy / task.max_power < FOREVER
        able = (
            (eps > 0.0)
            & (pi > 0.0)
            & (pi < np.inf)
            & (fastest > 0.0)
            & (fastest >= slowest)
            & in_time
        )
        if not able.all():
            eps = np.where(able, eps, 0.5 / least_c)
            s0 = np.where(able, s0, 1.0)
            pi = np.where(able, pi, 1.0)
            fastest = np.where(able, fastest, 0.5)
            slowest = np.where(able, slowest, 0.5)
        widest = task.max_power * task.gain_to_noise / (task.phi * (1.0 + GUARD))
        computing = s0 / fastest
        # With an absurd gain the upload is lost in the rounding of the sum, and its band would be
        # infinite.
        least = np.maximum(computing + phi_energy / task.max_power, computing * (1.0 + GUARD))
        shortest = np.where(able, least, np.inf)
        w = np.stack(np.broadcast_arrays(fastest, slowest, 0.0 * eps))
        c = np.maximum((1.0 - w * w) / eps, least_c)
        ends = spectral_efficiency(c)
        s = s0 / w[:2]
        # T_E = s (1 + eps D/(2 w^2)) and T_P = s + eta c / P: max of the two is the deadline at
        # which w is best
        turn = s + np.maximum(
            0.5 * eps * s * excess(ends[:2], c[:2]) / w[:2] ** 2, eps * c[:2] * s0 / pi
        )
    return Limits(
        able,
        eta,
        eps,
        s0,
        pi,
        phi_energy,
        fastest,
        slowest,
        widest,
        shortest,
        ends,
        turn[0],
        turn[1],
    )


def shortest(task: Task) -> Array:
    """Least deadline that a UE can make with any band [s], shape (..., num_ue); inf where it can
    never take part.

    At the decoding threshold the band is P a/phi, and the upload takes E_phi / P.
    """
    return task.limits.shortest


def least_band(task: Task, deadline: Array | float) -> Array:
    """b_i(T): the least band with which UE i makes deadline T [Hz]; inf where no band is enough.

    ln b_i is convex and falling in ln T.

    Args:
        task: arrays that broadcast with `deadline`.
        deadline: T [s].
    """
    with np.errstate(all="ignore"):
        return _band(task, np.asarray(deadline, dtype=np.float64))[0]


def band_and_slope(task: Task, deadline: Array | float) -> tuple[Array, Array]:
    """b_i(T) and d b_i/d ln T [Hz], a subgradient where b_i has a kink; inf and -inf where no band
    is enough.
    """
    with np.errstate(all="ignore"):
        deadline = np.asarray(deadline, dtype=np.float64)
        band, y, c, upload_time, pushed, crossing, w = _band(task, deadline)
        limits = task.limits
        rate = limits.pi / (limits.eps * limits.s0)  # P / eta
        slope = 1.0 / upload_time + np.where(pushed, rate / excess(y, c), 0.0)
        if crossing is not None:
            hold = 2.0 * w**3 / (limits.eps * limits.s0)  # dc/ds along the energy budget
            slope = np.where(crossing, slope * hold / (hold + rate), slope)
        return band, -slope * band * deadline


def _band(
    task: Task, deadline: Array
) -> tuple[Array, Array, Array, Array, BoolArray, BoolArray | None, Array]:
    limits = task.limits
    w = np.where(deadline >= limits.slows, limits.slowest, limits.fastest)
    moves = (deadline > limits.stays) & (deadline < limits.slows)
    crossing = None
    if moves.any():
        eps, s0, pi, lowest_y, highest_y, goal = picked(
            moves, limits.eps, limits.s0, limits.pi, limits.ends[0], limits.ends[2], deadline
        )
        at_power = power_crossing(pi, 1.0 - pi * (goal / s0))
        # the band is flat around its minimum, so an error of 1e-8 in the share does not show in the
        # band
        share = computing_share(
            MeetsDeadline(goal / s0 - 1.0), eps, lowest_y, highest_y, tolerance=1e-4
        )
        at_energy = np.sqrt(share)
        w[moves] = np.maximum(at_power, at_energy)
        w = np.minimum(np.maximum(w, limits.slowest), limits.fastest)
        crossing = np.zeros(moves.shape, dtype=bool)
        crossing[moves] = at_power > at_energy
    upload_time = deadline - limits.s0 / w
    by_power = limits.pi * (upload_time / limits.s0)
    by_energy = 1.0 - w * w
    # on a tie, and at the very shortest deadline, the steeper slope is the one that holds to the
    # left and to the right
    pushed = (by_power <= by_energy) | (deadline <= limits.shortest)
    if crossing is not None:
        pushed = pushed | crossing
    c = (
        np.maximum(
            np.where(pushed, by_power, by_energy), limits.phi_energy / limits.eta * limits.eps
        )
        / limits.eps
    )
    y = spectral_efficiency(c)
    makes = limits.able & (deadline >= limits.shortest)
    band = np.minimum(task.bits * math.log(2.0) / (upload_time * y), limits.widest)
    band = np.where(makes, band, np.inf)
    return band, y, c, upload_time, pushed, crossing, w


def picked(chosen: BoolArray, *values: Array) -> list[Array]:
    """Each array, spread to the shape of the mask, where the mask is True."""
    shape = chosen.shape
    return [
        (value if value.shape == shape else np.broadcast_to(value, shape))[chosen]
        for value in values
    ]


def power_crossing(
    pi: Array,
    beta: Array,
    start: Array | None = None,
    tolerance: float = 1e-13,
    max_steps: int = 60,
) -> Array:
    """The positive root w of w^3 = beta w + pi: the computing time at which energy and power run
    out together.

    Newton's method on a convex function, from an upper bound or a guess >= sqrt(beta), where the
    slope is positive.
    """
    if start is None:
        third = np.cbrt(pi)
        slow = np.minimum(third, pi / -np.minimum(beta, -1e-300))
        w = np.where(beta < 0.0, slow, third + np.sqrt(np.maximum(beta, 0.0)))
    else:
        w = start
    for _ in range(max_steps):
        square = w * w
        step = (w * (square - beta) - pi) / (3.0 * square - beta)
        w = w - step
        if not (np.abs(step) > tolerance * w).any():
            break
    return w


Residual = tuple[Array, Array, Array | float, float]
"""An equation in the logarithm, left side minus right, and its derivatives by v, ln D and ln y."""


@dataclass(frozen=True)
class MeetsDeadline:
    """s (1 + r) = T: the split of the energy that is best for a deadline."""

    lateness: Array  # T/s0 - 1

    def start(self, top: Array) -> Array:
        return 1.5 * self.lateness / top

    def residual(self, rho: Array, w: Array, sending: Array, y: Array) -> Residual:
        total = rho / (w * (1.0 + w)) + sending  # (T - s0)/s0 without a difference
        by_v = rho * (0.5 / w + 1.5 * sending) / total
        return np.log(total / self.lateness), by_v, sending / total, 0.0


@dataclass(frozen=True)
class FillsBand:
    """s r y = Z ln 2/B: the split of the energy that is best for a band."""

    unit_upload: Array  # Z ln 2/(B s0): upload time at y = 1, in units of s0

    def start(self, top: Array) -> Array:
        return self.unit_upload / (top * top)

    def residual(self, rho: Array, w: Array, sending: Array, y: Array) -> Residual:
        return np.log(sending * y / self.unit_upload), 1.5 * rho, 1.0, 1.0


def computing_share(
    goal: MeetsDeadline | FillsBand,
    eps: Array,
    lowest_y: Array,
    highest_y: Array,
    tolerance: float = 1e-8,
    max_steps: int = 60,
) -> Array:
    """Share q = w^2 of the energy for computing at which shifting energy gains no time.

    There the upload takes t = s r with r = eps D/(2 q). Newton's method in v = ln((1 - q)/q)
    together with y, which c(y) = (1 - q)/eps ties to v. Both goals are nearly linear in v, so about
    four steps are enough.

    Args:
        goal: the equation to meet.
        eps: eta/E.
        lowest_y, highest_y: bounds of y; at the upper one all energy is used for sending.
        tolerance: size of the last step; the error left is about its square.
    """
    odds = 1.0 / np.maximum(
        np.cbrt((1.0 + 2.0 * goal.start(highest_y)) ** 2) - 1.0, 1e-30
    )  # exp(-v)
    log_c = -np.log1p(odds) - np.log(eps)
    y = np.maximum(highest_y - np.log1p(odds), lowest_y)
    x = np.expm1(y)
    c = x / y
    y = np.maximum(y + y * c / (x + 1.0 - c) * (log_c - np.log(c)), lowest_y)
    for _ in range(max_steps):
        x = np.expm1(y)
        c = x / y
        gap = x + 1.0 - c  # D
        stretch = x / gap  # dy / d ln c
        late = log_c - np.log(c)
        rho = 1.0 / (1.0 + odds)
        q = odds * rho
        w = np.sqrt(q)
        value, by_v, by_log_gap, by_log_y = goal.residual(rho, w, 0.5 * eps * gap / (w * q), y)
        by_log_c = by_log_gap * (((1.0 + x) / gap - 1.0 / y) * stretch) + by_log_y * (c / gap)
        step = (value + by_log_c * late) / (by_v + by_log_c * q)
        odds = odds * np.exp(step)
        moved = -np.log1p(odds) - np.log(eps)
        y = np.maximum(y + stretch * (late + moved - log_c), lowest_y)
        log_c = moved
        if not (np.abs(step) > tolerance).any():
            break
    return odds / (1.0 + odds)
