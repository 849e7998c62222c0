"""PowerComputation: the power of the highest rate that an energy budget allows, in closed form
(Section IV-B3).
"""

import math
from collections.abc import Iterator

import numpy as np

from autofl.network import Cell, drawn_power, longest_upload, upload_cost
from autofl.network.links import DECODE_SLACK
from autofl.units import Array, BoolArray


def energy_limited_snr(
    b: Array, circuit: Array | float = 0.0, tolerance: float = 1e-9, max_steps: int = 64
) -> Array:
    """The largest SNR xi > 0 with xi + k = b ln(1 + xi), that is xi = -b W_{-1}(-exp((k - 1)/b) /
    b) - 1; 0 for none.

    W_{-1} is the lower branch of Lambert's function. We evaluate it by Newton's method on the
    convex function xi + k - b ln(1 + xi), started at Chatzigeorgiou's bound (2013)
    W_{-1}(-exp(-s-1)) > -1 - sqrt(2 s) - s with s = (1 - k)/b + ln b - 1, which lies above the
    root, so the steps fall monotonically onto it (4 to 6 of them, more where s is nearly 0 and the
    root a double one). Near b = 1 this loses no digits, as `-b W - 1` would, and planning needs no
    SciPy, whose import alone would take half the time allowed to `autofl plan`.

    Args:
        b: ratio of the energy left to the least energy an upload can take, any shape.
        circuit: k, the power of the circuits in units of the power that gives an SNR of 1. Where b
            <= 1 or s < 0 there
            is no root: no power is low enough, or high enough to finish before the circuits have
                used it all.
        tolerance: relative size of the last step; the error left is about its square.
        max_steps: more than ever needed.
    """
    solvable = b > 1.0
    b = np.where(solvable, b, 2.0)
    excess = b - 1.0
    s = np.log1p(excess) - (excess + circuit) / b
    solvable = solvable & ((s >= 0.0) | (np.asarray(circuit) == 0.0))
    s = np.maximum(s, 0.0)
    xi = excess + b * (np.sqrt(2.0 * s) + s)
    for _ in range(max_steps):
        # (xi - b ln(1 + xi)) / (1 - b / (1 + xi)); the slope is positive right of the root
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (xi - b * np.log1p(xi) + circuit) * (1.0 + xi) / (xi - excess)
        step = np.where(xi > excess, step, 0.0)
        xi = np.maximum(xi - step, excess)
        if not (np.abs(step) > tolerance * xi).any():
            break
    return np.where(solvable, xi, 0.0)


def energy_limited_power(cell: Cell, gain: Array, energy: Array) -> Array:
    """The largest power at which an upload takes this energy: (C4.2) with equality, before the cap
    at P_max.

        (p/eta + P_c) Z / (B log2(1 + a p)) = E,  a = g / (Gamma N0 B)
        =>   a p + k = b ln(1 + a p),  b = eta a E B / (Z ln 2),  k = eta a P_c

    Without circuits upload energy grows with p from its least value Z ln 2 / (eta B a), so b <= 1
    has no solution: power 0. With them it first falls, then grows.

    Args:
        cell: update_bits Z, bandwidth B, noise_psd N0, link (a curve; its ceiling plays no part
            here).
        gain: g_i, shape (..., num_ue).
        energy: E [J] left for the upload, shape (..., num_ue).
    Returns:
        p_i [W], shape (..., num_ue), 0 where no power will do.
    """
    snr_per_watt = gain / cell.noise_power / cell.link.gap
    drawn = snr_per_watt * cell.pa_efficiency
    b = drawn * np.maximum(energy, 0.0) * cell.bandwidth / (cell.update_bits * np.log(2.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            b > 1.0, energy_limited_snr(b, drawn * cell.circuit_power) / snr_per_watt, 0.0
        )


def power_computation(cell: Cell, gain: Array, energy: Array) -> Array:
    """PowerComputation, (P4): least power of the highest rate that P_max and this energy allow,
    shape (..., num_ue).

    On a curve that is min(P_max, energy_limited_power), or where the ceiling is reached; on a
    staircase the power that just reaches the highest level it can pay for. 0 where none can be paid
    for.
    """
    if cell.link.levels:
        best = np.zeros(np.broadcast_shapes(np.shape(gain), np.shape(energy)))
        for power, cost in _levels(cell, gain):
            best = np.where(
                _within(power, cell) & (cost <= energy), np.minimum(power, cell.max_power), best
            )
        return best
    power = np.minimum(cell.max_power, energy_limited_power(cell, gain, energy))
    capped = np.isfinite(cell.link.ceiling)
    if capped:
        power = np.minimum(power, _power_of(cell, gain, _ceiling_snr(cell)))
    if (
        capped or cell.circuit_power > 0.0
    ):  # below the power of least energy more would cost less, but there is none
        power = np.where(
            upload_cost(cell, gain, power).energy <= energy * (1.0 + 1e-12), power, 0.0
        )
    return power


def _within(power: Array, cell: Cell) -> BoolArray:
    """Whether P_max reaches a level, with the slack that decoding has: a gain may lie just on a
    threshold at P_max.
    """
    return power <= cell.max_power * (1.0 + DECODE_SLACK)


def least_upload(cell: Cell, gain: Array) -> tuple[Array, Array]:
    """Power [W] and energy [J] of the decodable upload of least energy within P_max, shape (...,
    num_ue).

    Without circuits that is p_phi, at which xi = phi. With them a curve has its least where (y - 1)
    e^y = k - 1, with y = ln(1 + a p) and k = eta a P_c, between p_phi and P_max; on a staircase the
    levels are compared. Where P_max does not reach phi, it is p_phi, which cannot be sent and so is
    not decoded.
    """
    if cell.link.levels:
        levels = _levels(cell, gain)
        power, energy = next(levels)
        for stronger, cost in levels:
            better = (cost < energy) & _within(stronger, cell)
            power = np.where(better, stronger, power)
            energy = np.where(better, cost, energy)
        return np.where(_within(power, cell), np.minimum(power, cell.max_power), power), energy
    least = _power_of(cell, gain, cell.snr_threshold)
    if cell.circuit_power == 0.0:
        # the time at phi itself: from the power, which is rounded, it would differ in the last
        # digit
        return least, drawn_power(cell, least) * longest_upload(cell)
    with np.errstate(divide="ignore", invalid="ignore"):
        snr_per_watt = gain / cell.noise_power / cell.link.gap
        best = (
            np.expm1(_best_efficiency(cell.pa_efficiency * snr_per_watt * cell.circuit_power))
            / snr_per_watt
        )
    if np.isfinite(cell.link.ceiling):
        best = np.minimum(best, _power_of(cell, gain, _ceiling_snr(cell)))
    power = np.maximum(np.minimum(best, cell.max_power), least)
    return power, upload_cost(cell, gain, power).energy


def _ceiling_snr(cell: Cell) -> float:
    """From here on the rate does not grow; phi, where that is higher."""
    return max(cell.link.gap * math.expm1(cell.link.ceiling), cell.snr_threshold)


def _power_of(cell: Cell, gain: Array, snr: float) -> Array:
    """The power that gives this SNR [W]."""
    with np.errstate(divide="ignore"):
        return np.asarray(snr * cell.noise_power / gain)


def _levels(cell: Cell, gain: Array) -> Iterator[tuple[Array, Array]]:
    """Power [W] and upload energy [J] of each level, the lowest first."""
    for y, snr in cell.link.levels:
        power = _power_of(cell, gain, snr)
        yield (
            power,
            drawn_power(cell, power) * (cell.update_bits * np.log(2.0) / (cell.bandwidth * y)),
        )


def _best_efficiency(k: Array, tolerance: float = 1e-12, max_steps: int = 100) -> Array:
    """The y >= 0 with (y - 1) e^y = k - 1, that is 1 + W_0((k - 1)/e), for k >= 0, by bisection.

    y e^y - (e^y - 1) = k grows with y, and is above k at y = 1 + ln(1 + k).
    """
    low = np.zeros(np.shape(k))
    high = 1.0 + np.log1p(k)
    for _ in range(max_steps):
        middle = 0.5 * (low + high)
        below = middle * np.exp(middle) - np.expm1(middle) < k
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
        if not (high - low > tolerance * high).any():
            break
    return 0.5 * (low + high)
