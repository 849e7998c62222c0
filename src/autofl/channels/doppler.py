"""Small-scale fading that a UE meets on its way: Rayleigh, Rician and Nakagami power gains of mean
1.

A UE that has travelled a distance s has passed s / lambda wavelengths, and its fading depends on
these alone: two gains have Jakes' correlation J0(2 pi s / lambda), which at constant speed v is
J0(2 pi f_D t), f_D = v f_c / c. No state is kept, so any moment can be computed alone.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autofl.channels.special import gamma_tails
from autofl.rng import ue_uniforms
from autofl.units import Array, IntArray

SPEED_OF_LIGHT = 299_792_458.0
"""c [m/s]."""
PATHS = 16
"""Scattered paths of a UE. The tail of the power differs from the exponential one by at most 0.23 /
(2 PATHS).
"""
CHUNK = 1 << 13
"""Amplitudes computed at once, so that their paths stay in the processor's cache."""

Complex = NDArray[np.complex64]


def amplitude(seed: int, ue: IntArray, wavelengths: Array, k_factor: Array) -> Complex:
    """Complex amplitudes of mean power 1, shape (..., num_ue): scattered paths from all sides, and
    a direct one.

        h = sqrt(K/(K+1)) e(s/lambda cos a + u) + sqrt(1/(K+1)) (1/sqrt(N)) sum_n e(s/lambda cos a_n
        + u_n)
        e(x) = exp(2 pi j x),    a_n = 2 pi (n + theta) / N

    a, u, theta and u_n are uniform, a UE's own. Over them, E[h(s) h*(s')] = J0(2 pi (s -
    s')/lambda) exactly, and the scattered part is complex Gaussian for N to infinity (Zheng and
    Xiao, IEEE Trans. Commun. 51, 2003).

    Args:
        wavelengths: s / lambda of each UE, shape (..., num_ue).
        k_factor: K, how much stronger the direct path is than all others together, shape (num_ue,);
            0: Rayleigh.
    """
    h = np.empty(wavelengths.shape, np.complex64)
    spread = (2.0 * np.pi * np.arange(PATHS) / PATHS).reshape(
        PATHS, *(1 for _ in wavelengths.shape)
    )
    cosine = np.cos(spread)
    sine = np.sin(spread)
    direct = np.sqrt(k_factor / (k_factor + 1.0)).astype(np.float32)
    share = np.sqrt(1.0 / (k_factor + 1.0) / PATHS).astype(np.float32)
    at_once = max(CHUNK // math.prod(wavelengths.shape[:-1]), 64)
    for start in range(0, ue.size, at_once):
        here = slice(start, start + at_once)
        uniform = ue_uniforms(seed, "doppler", (), ue[here], 3 + PATHS // 2).T
        toward, turn = (2.0 * np.pi * uniform[0:2] / [[1.0], [PATHS]]).astype(
            np.float32
        )  # directions, good to 1e-7
        way = wavelengths[..., here]
        turns = np.empty((PATHS + 1, *way.shape))
        np.multiply(cosine, way * np.cos(turn), out=turns[:-1])
        turns[:-1] -= sine * (way * np.sin(turn))
        turns[-1] = way * np.cos(toward) + uniform[2]
        pairs = uniform[3:] * 2.0**26  # 53 random bits are enough for two phases
        pairs = pairs.reshape(PATHS // 2, *(1 for _ in way.shape[:-1]), -1)
        turns[0:-1:2] += np.floor(pairs) * 2.0**-26
        turns[1:-1:2] += pairs
        turns -= np.rint(turns)  # whole turns go in float64, so that float32 keeps the rest
        angle = turns.astype(np.float32)
        angle *= np.float32(2.0 * np.pi)
        for part, wave in ((h.real, np.cos(angle)), (h.imag, np.sin(angle, out=angle))):
            part[..., here] = share[here] * wave[:-1].sum(axis=0) + direct[here] * wave[-1]
    return h


def rician_gain(seed: int, ue: IntArray, wavelengths: Array, k_factor: Array) -> Array:
    """|h|^2 of mean 1: Rician, and exponential where K = 0."""
    h = amplitude(seed, ue, wavelengths, k_factor)
    return h.real.astype(np.float64) ** 2 + h.imag.astype(np.float64) ** 2


def rayleigh_gain(seed: int, ue: IntArray, wavelengths: Array) -> Array:
    """|h|^2 without a direct path: exponential with mean 1."""
    return rician_gain(seed, ue, wavelengths, np.zeros(ue.shape))


def nakagami_gain(seed: int, ue: IntArray, wavelengths: Array, m: float) -> Array:
    """Gamma(m, 1/m): the power of the scattered paths, carried over from one law to the other,
    quantile by quantile.

    Exact for m = 1. The law is exact for every m as far as `rayleigh_gain`'s is; the power's
    correlation is J0^2 for m = 1 and close to it for others (docs/radio.md).
    """
    with np.errstate(divide="ignore"):
        log_power = np.log(rayleigh_gain(seed, ue, wavelengths))
    return np.exp(np.interp(log_power, *_nakagami_table(m)))


@lru_cache(maxsize=8)
def _nakagami_table(m: float) -> tuple[Array, Array]:
    """ln of exponential and of Gamma(m, 1/m) quantiles of the same rank; both tails are nearly
    straight lines.
    """
    log_gain = np.linspace(-max(40.0 / m, 9.0 / math.sqrt(m)), np.log(60.0 / m + 4.0), 8192)
    lower, upper = gamma_tails(m, m * np.exp(log_gain))
    with np.errstate(divide="ignore"):
        power = np.where(lower < 0.5, -np.log1p(-lower), -np.log(upper))
    kept = (power > 1e-18) & (power < 600.0)
    return np.log(power[kept]), log_gain[kept]
