"""Tails of the normal, gamma and Rician laws, for arrays. Planning loads no SciPy, so they are
written here.
"""

import math

import numpy as np

from autofl.units import Array


def normal_cdf(x: Array) -> Array:
    """P(N(0, 1) <= x) within 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    size = np.abs(x) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * size)
    poly = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    tail = 0.5 * poly * np.exp(-size * size)
    return np.where(x < 0.0, tail, 1.0 - tail)


def gamma_tails(shape: float, x: Array) -> tuple[Array, Array]:
    """P(X < x) and P(X >= x) of X ~ Gamma(shape, 1), each to full precision where it is the smaller
    one.

    Below shape + 1 by the series of the lower tail, above by the continued fraction of the upper
    one (Lentz).
    """
    x = np.maximum(np.asarray(x, dtype=np.float64), 0.0)
    below = x < shape + 1.0
    small = np.where(below, x, 1.0)
    large = np.where(below, shape + 1.0, np.minimum(x, 1e4))
    with np.errstate(divide="ignore", under="ignore"):
        scale_small = np.exp(shape * np.log(small) - small - math.lgamma(shape + 1.0))
        scale_large = np.exp(shape * np.log(large) - large - math.lgamma(shape))
    term = np.ones_like(small)
    series = np.ones_like(small)
    for n in range(1, 1000):
        term = term * small / (shape + n)
        series += term
        if (term <= 1e-16 * series).all():
            break
    b = large + 1.0 - shape
    c = np.full_like(large, 1e300)
    d = 1.0 / b
    fraction = d
    for n in range(1, 1000):
        a = -n * (n - shape)
        b = b + 2.0
        d = 1.0 / (a * d + b)
        c = b + a / c
        change = d * c
        fraction = fraction * change
        if (np.abs(change - 1.0) <= 1e-15).all():
            break
    lower = scale_small * series
    upper = scale_large * fraction
    return np.where(below, lower, 1.0 - upper), np.where(below, 1.0 - lower, upper)


def rician_survival(k_factor: float, gain: Array) -> Array:
    """P(h >= gain) of a Rician power gain of mean 1: Marcum's Q_1(sqrt(2 K), sqrt(2 (K + 1) gain)).

    A Rician power is a sum of a Poisson(K) number of exponentials and one more, so the tail is
    sum_j Poisson(j; K) P(Poisson((K + 1) gain) <= j).
    """
    level = (k_factor + 1.0) * np.maximum(np.asarray(gain, dtype=np.float64), 0.0)
    last = math.ceil(k_factor + 12.0 * math.sqrt(k_factor) + 40.0)
    with np.errstate(divide="ignore"):
        log_level = np.log(level)
    at_most = np.zeros_like(level)
    tail = np.zeros_like(level)
    log_weight = -k_factor
    log_factorial = 0.0
    for j in range(last):
        with np.errstate(invalid="ignore", under="ignore"):
            power = np.zeros_like(level) if j == 0 else j * log_level
            at_most = at_most + np.exp(power - level - log_factorial)
        tail = tail + math.exp(log_weight) * at_most
        log_factorial += math.log(j + 1.0)
        log_weight += (math.log(k_factor) if k_factor > 0.0 else -math.inf) - math.log(j + 1.0)
    return np.clip(np.where(np.isposinf(level), 0.0, tail), 0.0, 1.0)


def nakagami_survival(m: float, gain: Array) -> Array:
    """P(h >= gain) of a Nakagami-m power gain of mean 1: h ~ Gamma(m, 1/m)."""
    return gamma_tails(m, m * np.asarray(gain, dtype=np.float64))[1]
