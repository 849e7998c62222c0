"""Fading over the way gone: laws, Jakes' autocorrelation, and the same numbers from a slow sum of
paths.
"""

import cmath
import math

import numpy as np
import pytest
from scipy import special, stats

from autofl.channels.doppler import PATHS, amplitude, nakagami_gain, rayleigh_gain, rician_gain
from autofl.channels.special import gamma_tails, nakagami_survival, normal_cdf, rician_survival
from autofl.rng import ue_uniforms

UE = np.arange(100_000)


def slow_amplitude(seed, ue, way, k_factor):
    """One UE, one path after the other."""
    toward, turn, phase, *pairs = ue_uniforms(seed, "doppler", (), np.array([ue]), 3 + PATHS // 2)[
        0
    ]
    total = 0j
    for n in range(PATHS):
        bits = pairs[n // 2] * 2.0**26
        start = bits - math.floor(bits) if n % 2 else math.floor(bits) / 2.0**26
        angle = 2.0 * math.pi * (n + turn) / PATHS
        total += cmath.exp(2j * math.pi * (way * math.cos(angle) + start))
    direct = cmath.exp(2j * math.pi * (way * math.cos(2.0 * math.pi * toward) + phase))
    return (
        math.sqrt(k_factor / (k_factor + 1)) * direct
        + math.sqrt(1 / (k_factor + 1) / PATHS) * total
    )


def test_the_fast_sum_of_paths_is_the_slow_one():
    ue, way = np.array([0, 5, 77, 900_000]), np.array([0.0, 0.3, 21.7, 400.5])
    k_factor = np.array([0.0, 8.0, 2.0, 0.0])
    expected = [slow_amplitude(4, *values) for values in zip(ue, way, k_factor, strict=True)]
    np.testing.assert_allclose(
        amplitude(4, ue, way, k_factor), expected, atol=1e-3
    )  # directions are single precision


@pytest.mark.parametrize("k_factor", [0.0, 4.0])
def test_amplitudes_are_correlated_over_the_way_as_jakes_says(k_factor):
    k_factors = np.full(UE.shape, k_factor)
    start = np.random.default_rng(1).uniform(0.0, 1e4, UE.shape)
    here = amplitude(2, UE, start, k_factors)
    for lag in (0.05, 0.2, 0.3827, 0.6, 1.0, 2.3, 10.0):  # in wavelengths; J0 is 0 at 0.3827
        product = here * amplitude(2, UE, start + lag, k_factors).conj()
        theory = special.j0(2.0 * np.pi * lag)
        assert abs(product.mean() - theory) < 5.0 / math.sqrt(len(UE)), lag


def test_a_single_ue_meets_jakes_correlation_on_its_way():
    """Along 2,000 wavelengths of one UE; its 16 paths leave an error that all UEs together do not
    have.
    """
    way = np.arange(0.0, 2000.0, 0.05)
    off = []
    for ue in range(12):
        h = amplitude(9, np.full(way.shape, ue), way, np.zeros(way.shape))
        for lag in (4, 8, 20):
            off.append((h[lag:] * h[:-lag].conj()).mean() - special.j0(2.0 * np.pi * 0.05 * lag))
    assert np.abs(off).max() < 0.25
    assert np.sqrt((np.abs(off) ** 2).mean()) < 0.12


def test_speed_and_carrier_set_how_fast_it_changes():
    """f_D = v f_c / c: at 3 m/s and 3.5 GHz (35 Hz) the first zero of J0 is at 2.4048 / (2 pi f_D)
    = 10.9 ms.
    """
    doppler = 3.0 * 3.5e9 / 299_792_458.0
    time = 2.404826 / (2.0 * np.pi * doppler)
    assert time == pytest.approx(0.010928, rel=1e-4)
    zeros = np.zeros(UE.shape)
    product = (
        amplitude(1, UE, zeros, zeros) * amplitude(1, UE, zeros + doppler * time, zeros).conj()
    )
    assert abs(product.mean()) < 5.0 / math.sqrt(len(UE))


@pytest.mark.parametrize(
    ("gain", "law"),
    [
        (lambda: rayleigh_gain(3, UE, 7.3 * np.ones(UE.shape)), stats.expon()),
        (
            lambda: rician_gain(3, UE, np.zeros(UE.shape), np.full(UE.shape, 8.0)),
            stats.ncx2(2, 16.0, scale=1 / 18),
        ),
        (lambda: nakagami_gain(3, UE, np.zeros(UE.shape), 0.7), stats.gamma(0.7, scale=1 / 0.7)),
        (lambda: nakagami_gain(3, UE, np.zeros(UE.shape), 4.0), stats.gamma(4.0, scale=1 / 4.0)),
        (
            lambda: nakagami_gain(3, UE, np.zeros(UE.shape), 1000.0),
            stats.gamma(1000.0, scale=1 / 1000.0),
        ),
    ],
)
def test_laws_of_the_gain(gain, law):
    """16 paths are within 0.23 / 32 = 0.0072 of the law; 100,000 draws add 0.005."""
    values = gain()
    assert values.mean() == pytest.approx(1.0, abs=0.02)
    assert stats.kstest(values, law.cdf).statistic < 0.0072 + 0.005


def test_nakagami_is_rayleigh_at_one_and_keeps_the_power_correlation():
    """The power's correlation is J0^2 up to 1/16 for so many paths, and a little less for m far
    from 1.
    """
    ue = UE[:30_000]
    zeros = np.zeros(ue.shape)
    np.testing.assert_allclose(
        nakagami_gain(3, ue, zeros, 1.0), rayleigh_gain(3, ue, zeros), rtol=1e-4
    )
    for m in (0.5, 2.0, 5.0):
        for lag in (0.1, 0.2, 0.6):
            pair = nakagami_gain(3, ue, zeros, m), nakagami_gain(3, ue, zeros + lag, m)
            assert abs(np.corrcoef(*pair)[0, 1] - special.j0(2.0 * np.pi * lag) ** 2) < 0.09, (
                m,
                lag,
            )


def test_a_ue_keeps_its_fading_whoever_else_is_asked():
    some = np.array([5, 20_000, 20_001])
    whole = rayleigh_gain(1, UE, 0.01 * UE)
    np.testing.assert_array_equal(rayleigh_gain(1, some, 0.01 * some), whole[some])
    assert (rayleigh_gain(2, some, 0.01 * some) != whole[some]).all()


def test_tails_are_scipys():
    x = np.linspace(-7.0, 7.0, 1001)
    np.testing.assert_allclose(normal_cdf(x), stats.norm.cdf(x), atol=2e-7)
    for shape in (0.5, 1.0, 3.3, 100.0):
        x = np.geomspace(1e-6, 50.0 * shape, 500)
        lower, upper = gamma_tails(shape, x)
        np.testing.assert_allclose(lower, special.gammainc(shape, x), rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(upper, special.gammaincc(shape, x), rtol=1e-12, atol=1e-300)
    gain = np.array([0.0, 1e-4, 0.3, 1.0, 2.5, 9.0, 1e12, np.inf])
    for k_factor in (0.0, 0.5, 8.0, 100.0, 1000.0):
        expected = (
            stats.ncx2.sf(2.0 * (k_factor + 1.0) * gain, 2, 2.0 * k_factor)
            if k_factor
            else np.exp(-gain)
        )
        np.testing.assert_allclose(rician_survival(k_factor, gain), expected, atol=1e-10)
    np.testing.assert_allclose(
        nakagami_survival(2.0, gain), stats.gamma.sf(gain, 2.0, scale=0.5), atol=1e-14
    )
