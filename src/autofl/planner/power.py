"""PowerComputation: the largest power that an energy budget allows, in closed form (Section IV-B3)."""

import numpy as np

from autofl.network import Cell
from autofl.units import Array


def energy_limited_snr(b: Array, tolerance: float = 1e-9, max_steps: int = 64) -> Array:
    """The SNR xi > 0 with xi = b ln(1 + xi), that is xi = -b W_{-1}(-exp(-1/b) / b) - 1; 0 where b <= 1.

    W_{-1} is the lower branch of Lambert's function. We evaluate it by Newton's method on the convex function
    xi - b ln(1 + xi), started at Chatzigeorgiou's bound (2013) W_{-1}(-exp(-s-1)) > -1 - sqrt(2 s) - s with
    s = 1/b + ln b - 1, which lies above the root, so the steps fall monotonically onto it (4 to 6 of them).
    Near b = 1 it does not lose digits as `-b W - 1` does, and planning needs no SciPy, whose import alone
    would take half of the time `autofl plan` has.

    Args:
        b: ratio of the energy left to the least energy an upload can take, any shape.
        tolerance: relative size of the last step; the error left is about its square.
        max_steps: more than ever needed.
    """
    solvable = b > 1.0
    b = np.where(solvable, b, 2.0)
    excess = b - 1.0
    s = np.maximum(np.log1p(excess) - excess / b, 0.0)
    xi = excess + b * (np.sqrt(2.0 * s) + s)
    for _ in range(max_steps):
        # (xi - b ln(1 + xi)) / (1 - b / (1 + xi)); the slope is positive right of the root
        step = (xi - b * np.log1p(xi)) * (1.0 + xi) / (xi - excess)
        xi = np.maximum(xi - step, excess)
        if not (np.abs(step) > tolerance * xi).any():
            break
    return np.where(solvable, xi, 0.0)


def energy_limited_power(cell: Cell, gain: Array, energy: Array) -> Array:
    """The power at which an upload takes exactly this energy: (C4.2) with equality, before the cap at P_max.

        p Z / (B log2(1 + a p)) = E,  a = g / (N0 B)   =>   a p = b ln(1 + a p),  b = a E B / (Z ln 2)

    Upload energy grows with p from its least value Z ln 2 / (B a), so b <= 1 has no solution: power 0.

    Args:
        cell: update_bits Z, bandwidth B, noise_psd N0.
        gain: g_i, shape (..., num_ue).
        energy: E [J] left for the upload, shape (..., num_ue).
    Returns:
        p_i [W], shape (..., num_ue), 0 where no power is low enough.
    """
    snr_per_watt = gain / cell.noise_power
    b = snr_per_watt * np.maximum(energy, 0.0) * cell.bandwidth / (cell.update_bits * np.log(2.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b > 1.0, energy_limited_snr(b) / snr_per_watt, 0.0)


def power_computation(cell: Cell, gain: Array, energy: Array) -> Array:
    """PowerComputation, (P4): min(P_max, energy_limited_power), shape (..., num_ue)."""
    return np.minimum(cell.max_power, energy_limited_power(cell, gain, energy))
