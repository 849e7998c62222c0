from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import optimize, special

from autofl.network import Cell
from autofl.planner import energy_limited_power, energy_limited_snr, power_computation
from reference.planner_reference import power_by_bisection, ues_of

# From just above the least energy an upload can take to a hundred million times as much.
RATIOS = np.concatenate([1.0 + np.geomspace(1e-12, 0.5, 60), np.geomspace(1.6, 1e8, 60)])


def rounding(b, xi):
    """Relative error that float64 leaves in the root of xi - b ln(1 + xi).

    Both terms carry a few ulps, an error of 2 eps xi in their difference, and the slope 1 - b / (1
    + xi) turns it into one of xi. The slope vanishes at b = 1, where only xi / (b - 1) = 2 is
    known: 4 digits are left at b = 1 + 1e-12.
    """
    return 4.0 * np.finfo(np.float64).eps * (1.0 + xi) / (xi - (b - 1.0))


def snr_by_bisection(b):
    """Root of xi = b ln(1 + xi) beyond the minimum at b - 1, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        b = Decimal(float(b))
        low, high = b - 1, 2 * (b - 1)
        while high < b * (1 + high).ln():
            high *= 2
        for _ in range(100):  # halves the bracket to a relative 1e-30
            middle = (low + high) / 2
            low, high = (middle, high) if middle < b * (1 + middle).ln() else (low, middle)
        return float(low)


def test_the_snr_solves_its_equation_as_bisection_in_60_digits_does():
    expected = np.array([snr_by_bisection(b) for b in RATIOS])
    assert (np.abs(energy_limited_snr(RATIOS) / expected - 1.0) <= rounding(RATIOS, expected)).all()


def test_the_snr_agrees_with_brentq():
    def root(b):
        above = 2.0 * (b - 1.0) * (1.0 + 10.0 * np.log(b)) + 1.0
        return optimize.brentq(
            lambda xi: xi - b * np.log1p(xi), b - 1.0, above, xtol=1e-300, rtol=1e-15
        )

    expected = np.array([root(b) for b in RATIOS])
    assert (
        np.abs(energy_limited_snr(RATIOS) / expected - 1.0) <= 2.0 * rounding(RATIOS, expected)
    ).all()


def test_the_snr_is_the_lower_branch_of_lamberts_function():
    b = RATIOS[
        RATIOS > 1.05
    ]  # nearer to 1, exp(-1/b) / b meets the branch point 1/e and W itself loses its digits
    expected = -b * special.lambertw(-np.exp(-1.0 / b) / b, k=-1).real - 1.0
    np.testing.assert_allclose(energy_limited_snr(b), expected, rtol=1e-12)


def test_the_snr_worked_by_hand():
    # b = 1 / ln 2 makes xi = 1, b = 3 / ln 4 makes xi = 3, b = 1023 / ln 1024 makes xi = 1023.
    b = np.array([1.0, 3.0, 1023.0]) / np.log([2.0, 4.0, 1024.0])
    np.testing.assert_allclose(energy_limited_snr(b), [1.0, 3.0, 1023.0], rtol=4e-15)


def test_at_or_below_the_least_energy_there_is_no_snr():
    np.testing.assert_array_equal(
        energy_limited_snr(np.array([1.0, np.nextafter(1.0, 0.0), 0.5, 0.0])), 0.0
    )


def test_the_first_number_above_one_has_a_snr_without_a_stray_nan():
    b = np.nextafter(1.0, 2.0)
    assert (
        0.0 < energy_limited_snr(np.array([b]))[0] < 4.0 * (b - 1.0)
    )  # 2 (b - 1), of which rounding takes its part


def test_the_snr_grows_with_energy_and_faster_than_it():
    xi = energy_limited_snr(RATIOS)
    assert (np.diff(xi) > 0.0).all()
    assert (np.diff(xi / RATIOS) > 0.0).all()


def test_the_slope_of_the_snr_is_that_of_the_equation():
    # Differentiating xi = b ln(1 + xi): dxi/db = ln(1 + xi) / (1 - b / (1 + xi)).
    b = np.geomspace(1.1, 1e6, 40)
    step = 1e-5 * (b - 1.0)  # truncation about 1e-10, rounding about 1e-15 / 1e-5
    slope = (energy_limited_snr(b + step) - energy_limited_snr(b - step)) / (2.0 * step)
    xi = energy_limited_snr(b)
    np.testing.assert_allclose(slope, np.log1p(xi) / (1.0 - b / (1.0 + xi)), rtol=1e-8)


def test_many_ratios_in_any_shape_are_solved_as_one_by_one():
    b = np.random.default_rng(1).uniform(0.5, 3.0, (3, 4, 5))
    together = energy_limited_snr(b)
    assert together.shape == (3, 4, 5)
    alone = [energy_limited_snr(np.array([one]))[0] for one in b.ravel()]
    # Together all UEs take as many Newton steps as the slowest, which moves the others within
    # rounding.
    np.testing.assert_allclose(together.ravel(), alone, rtol=1e-13)
    assert (together[b <= 1.0] == 0.0).all()
    assert (b <= 1.0).any()


def test_too_few_steps_leave_the_snr_above_its_value():
    # Newton's method falls onto the root of a convex function from above: a step limit errs on one
    # known side.
    b = np.geomspace(1.1, 1e6, 40)
    early = energy_limited_snr(b, max_steps=1)
    assert (early > energy_limited_snr(b)).all()
    np.testing.assert_allclose(early, energy_limited_snr(b), rtol=0.1)


def test_a_loose_tolerance_is_met_and_not_overfulfilled():
    b = np.geomspace(1.1, 1e6, 40)
    loose, tight = energy_limited_snr(b, tolerance=0.1), energy_limited_snr(b)
    np.testing.assert_allclose(loose, tight, rtol=0.1)
    assert (np.abs(loose / tight - 1.0) > 1e-9).any()


NUM_UE = 2000


@pytest.fixture(scope="module")
def cell():
    rng = np.random.default_rng(2)
    return Cell(
        distance=np.full(NUM_UE, 100.0),
        cycles_per_sample=1e5,
        cpu_frequency=1e9,
        data_size=100,
        max_energy=3e-3,
        max_power=10.0 ** rng.uniform(-3.0, 1.0, NUM_UE),
        bandwidth=10.0 ** rng.uniform(5.0, 7.0, NUM_UE),
        update_bits=32 * 79510,
    )


@pytest.fixture(scope="module")
def gain():
    return 10.0 ** np.random.default_rng(3).uniform(-14.0, -5.0, NUM_UE)


def least_energy(cell, gain):
    """Z N0 ln 2 / g [J]: an upload at vanishing power, where log2(1 + x) is x / ln 2."""
    return cell.update_bits * cell.noise_psd * np.log(2.0) / gain


def upload_energy(cell, gain, power):
    bits_per_hertz = np.log1p(power * gain / (cell.noise_psd * cell.bandwidth)) / np.log(2.0)
    return power * cell.update_bits / (cell.bandwidth * bits_per_hertz)


def test_an_upload_at_the_computed_power_takes_exactly_the_energy(cell, gain):
    energy = least_energy(cell, gain) * (
        1.0 + 10.0 ** np.random.default_rng(4).uniform(-9.0, 6.0, NUM_UE)
    )
    power = energy_limited_power(cell, gain, energy)
    assert (power > 0.0).all()
    np.testing.assert_allclose(upload_energy(cell, gain, power), energy, rtol=1e-13)


def test_less_than_the_least_energy_allows_no_power_and_a_little_more_does(cell, gain):
    least = least_energy(cell, gain)
    np.testing.assert_array_equal(energy_limited_power(cell, gain, least * (1.0 - 1e-12)), 0.0)
    assert (energy_limited_power(cell, gain, least * (1.0 + 1e-12)) > 0.0).all()


def test_no_energy_a_debt_of_energy_and_a_dead_channel_allow_no_power(cell, gain):
    np.testing.assert_array_equal(energy_limited_power(cell, gain, np.zeros(NUM_UE)), 0.0)
    np.testing.assert_array_equal(energy_limited_power(cell, gain, np.full(NUM_UE, -1.0)), 0.0)
    np.testing.assert_array_equal(power_computation(cell, np.zeros(NUM_UE), cell.max_energy), 0.0)


def test_power_computation_is_bisection_up_to_the_power_limit(cell, gain):
    energy = least_energy(cell, gain) * 10.0 ** np.random.default_rng(5).uniform(-0.2, 3.0, NUM_UE)
    power = power_computation(cell, gain, energy)
    expected = [power_by_bisection(ue, e) for ue, e in zip(ues_of(cell, gain), energy, strict=True)]
    # Both solve to rounding, which the slope of the equation enlarges a thousandfold 0.1 % above
    # the least energy.
    np.testing.assert_allclose(power, expected, rtol=1e-11)
    at_limit = power == cell.max_power
    assert at_limit.any()
    assert (power == 0.0).any()
    assert (~at_limit & (power > 0.0)).any()


def test_power_computation_broadcasts_over_leading_axes(cell, gain):
    few = cell.take(np.arange(5))
    rng = np.random.default_rng(6)
    gains = 10.0 ** rng.uniform(-11.0, -8.0, (2, 3, 5))
    energy = rng.uniform(1e-4, 3e-3, (3, 5))
    together = power_computation(few, gains, energy)
    for k in np.ndindex(2, 3):
        np.testing.assert_allclose(
            together[k], power_computation(few, gains[k], energy[k[1]]), rtol=1e-12
        )
