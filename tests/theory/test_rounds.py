"""Rounds fitted from pilots: known coefficients come back, and intervals hold what they promise."""

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.theory.rounds import fit_rounds

NOISE = np.tile([0.04, 0.0133, 0.005, 0.033, 0.0067, 0.02, 0.04, 0.01, 0.01], 6)
TAU = np.tile([1.0, 1, 1, 1, 1, 2, 4, 1, 1], 6)
SKEW = np.tile([0, 0, 0, 0, 0, 0, 0, 0.25, 0.67], 6)
H = np.repeat([0.5, 0.2, 0.1], 18)
NONE = np.zeros(54)  # nothing is rounded


def rounds(noise, tau, h, skew):
    return (50 - 30 * h + (1400 - 1500 * h) * noise + (20 + 100 * h) * skew) / tau + 6


def test_exact_pilots_give_their_own_law_back():
    model = fit_rounds(NOISE, TAU, H, SKEW, NONE, rounds(NOISE, TAU, H, SKEW))
    np.testing.assert_allclose(model.coefficients, [50, 1400, 20, -30, -1500, 100, 6], rtol=1e-7)
    assert model.scatter < 1e-12
    found, deviation = model.rounds(np.array([0.01, 0.03]), 3, 1 / 3, 0.4)
    np.testing.assert_allclose(found, rounds(np.array([0.01, 0.03]), 3, 1 / 3, 0.4), rtol=1e-8)
    assert (deviation < 1e-9).all()


def test_without_variety_in_labels_steps_and_chances_two_numbers_are_fitted():
    x = np.array([0.04, 0.02, 0.01])
    model = fit_rounds(x, np.ones(3), np.full(3, 0.2), np.full(3, 0.01), np.zeros(3), 40 + 1000 * x)
    np.testing.assert_allclose(model.coefficients, [40, 1000], rtol=1e-9)
    assert model.rounds(np.array(0.02), 2, 0.2, 0.0)[0] == pytest.approx(30)


def test_intervals_of_single_runs_hold_95_of_100():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        seen = rounds(NOISE, TAU, H, SKEW) * np.exp(0.1 * rng.standard_normal(54))
        model = fit_rounds(NOISE, TAU, H, SKEW, NONE, seen)
        x, h = rng.uniform(0.005, 0.04), rng.uniform(0.1, 0.5)
        mean, deviation = model.rounds(np.array(x), 1, h, 0.1)
        inside += abs(np.log(rounds(x, 1, h, 0.1) * np.exp(0.1 * rng.standard_normal()) / mean)) <= 2.01 * deviation
    assert 0.92 <= inside / 400 <= 0.98  # Student's quantile of 47 degrees; 400 trials scatter by 1.1 %


def test_too_few_or_equal_pilots_are_refused_and_extrapolation_is_named():
    with pytest.raises(AutoFLError, match="vary d"):
        fit_rounds(np.array([0.1, 0.2]), np.ones(2), np.ones(2), np.zeros(2), np.zeros(2), np.array([30.0, 40.0]))
    with pytest.raises(AutoFLError, match="vary d"):
        fit_rounds(np.full(9, 0.1), np.ones(9), np.ones(9), np.zeros(9), np.zeros(9), np.full(9, 30.0))
    model = fit_rounds(NOISE, TAU, H, SKEW, NONE, rounds(NOISE, TAU, H, SKEW))
    assert model.outside(0.02, 1, 0.2, 0.5) == []
    assert model.outside(0.2, 8, 0.2, 0.0) == ["1/(d m)", "tau"]
    assert "chi^2" in model.outside(0.02, 1, 0.2, 2.0)[0]


def test_rounding_comes_back_and_a_term_below_zero_is_left_out():
    """Steps that cost rounds, a < 0, make no sense: K is then fitted by the others, as if a were 0."""
    tau, x = (
        np.array([2.0, 4, 8, 16, 2, 4, 8, 16, 8, 8]),
        np.array([0.04, 0.04, 0.04, 0.04, 0.02, 0.02, 0.02, 0.02, 0.01, 0.03]),
    )
    y = np.array([0.1, 0.2, 0.1, 0.4, 0.3, 0.1, 0.2, 0.1, 0.8, 0.6])
    h, skew = np.full(10, 0.2), np.zeros(10)
    model = fit_rounds(x, tau, h, skew, y, 9 + (20 + 1000 * x) / tau + 5 * y)
    np.testing.assert_allclose(model.pace(0.2), [9, 20, 0, 1000, 5], rtol=1e-7)
    odd = fit_rounds(x, tau, h, skew, y, 9 + (-6 + 1000 * x) / tau + 5 * y)
    constant, per_step, per_ue, noise, rounding = odd.pace(0.2)
    assert per_step == per_ue == 0.0
    assert min(constant, noise, rounding) > 0.0
    columns = np.stack([x / tau, np.ones(10), y], axis=1)  # a least-squares fit of the others, by hand
    K, fitted = 9 + (-6 + 1000 * x) / tau + 5 * y, 9 + (-6 + 1000 * x) / tau + 5 * y
    for _ in range(10):
        by_hand = np.linalg.lstsq(columns / fitted[:, None], K / fitted, rcond=None)[0]
        fitted = columns @ by_hand
    np.testing.assert_allclose([noise, constant, rounding], by_hand, rtol=1e-6)
    at, deviation = odd.rounds(np.array(0.02), 4, 0.2, 0.0, 0.2)
    assert at == pytest.approx(constant + noise * 0.02 / 4 + rounding * 0.2)
    assert deviation > odd.scatter


def test_few_ues_stand_for_all_where_pilots_differ_in_both_their_number_and_their_samples():
    d, m = np.array([5.0, 10, 20, 5, 10, 20, 5, 10, 20]), np.repeat([2.0, 5, 10], 3)
    tau = np.array([2.0, 4, 8, 4, 8, 2, 8, 2, 4])
    h, none, x = np.full(9, 0.2), np.zeros(9), 1 / (d * m)
    K = 3 + (10 + 1000 * x) / tau + 30 / m
    model = fit_rounds(x, tau, h, none, none, K, share=1 / m)
    np.testing.assert_allclose(model.pace(0.2), [3, 10, 30, 1000, 0], rtol=1e-6, atol=1e-6)
    assert model.rounds(np.array(0.02), 4, 0.2, 0.0, share=0.2)[0] == pytest.approx(3 + (10 + 20) / 4 + 6)
    assert model.outside(0.02, 4, 0.2, 0.0, share=0.05) == ["1/m"]
    same_d = 1 / (5 * m)
    assert fit_rounds(same_d, tau, h, none, none, 3 + 1000 * same_d / tau, share=1 / m).pace(0.2)[2] == 0.0
