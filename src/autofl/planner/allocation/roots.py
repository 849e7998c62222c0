"""Three equations that the allocation solves for all UEs at once, each by Newton's method.

y is the spectral efficiency, x = exp(y) - 1 its SNR, c(y) = x/y and D = 1 + x - c.
"""

from collections.abc import Callable

import numpy as np

from autofl.units import Array


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


Goal = Callable[[Array, Array, Array, Array], tuple[Array, Array, Array | float, float]]
"""An equation for the split of the energy, as a function of rho = 1 - q, w, r and y: its left side
minus its right, both as logarithms, and the derivatives by v, ln D and ln y.
"""


def meets_deadline(lateness: Array) -> Goal:
    """s (1 + r) = T, where the lateness is T/s0 - 1."""

    def goal(
        rho: Array, w: Array, sending: Array, y: Array
    ) -> tuple[Array, Array, Array | float, float]:
        total = rho / (w * (1.0 + w)) + sending  # (T - s0)/s0 without a difference
        by_v = rho * (0.5 / w + 1.5 * sending) / total
        return np.log(total / lateness), by_v, sending / total, 0.0

    return goal


def fills_band(unit_upload: Array) -> Goal:
    """s r y = Z ln 2/B, where the upload takes Z ln 2/(B s0) at y = 1, in units of s0."""

    def goal(
        rho: Array, w: Array, sending: Array, y: Array
    ) -> tuple[Array, Array, Array | float, float]:
        return np.log(sending * y / unit_upload), 1.5 * rho, 1.0, 1.0

    return goal


def computing_share(
    goal: Goal,
    guess: Array,
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
        guess: r y at the highest y, as if little were computed.
        eps: eta/E.
        lowest_y, highest_y: bounds of y; at the upper one all energy is used for sending.
        tolerance: size of the last step; the error left is about its square.
    """
    odds = 1.0 / np.maximum(np.cbrt((1.0 + 2.0 * guess) ** 2) - 1.0, 1e-30)  # exp(-v)
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

        # The goal at this split, and its step: y moves with v along c(y) = (1 - q)/eps.
        rho = 1.0 / (1.0 + odds)
        q = odds * rho
        w = np.sqrt(q)
        value, by_v, by_log_gap, by_log_y = goal(rho, w, 0.5 * eps * gap / (w * q), y)
        by_log_c = by_log_gap * (((1.0 + x) / gap - 1.0 / y) * stretch) + by_log_y * (c / gap)
        step = (value + by_log_c * late) / (by_v + by_log_c * q)
        odds = odds * np.exp(step)

        # The tie between y and v holds to first order only, so what is missing is carried along.
        moved = -np.log1p(odds) - np.log(eps)
        y = np.maximum(y + stretch * (late + moved - log_c), lowest_y)
        log_c = moved
        if not (np.abs(step) > tolerance).any():
            break
    return odds / (1.0 + odds)
