"""Rounds fitted from pilots: known coefficients come back, and intervals hold what they promise."""

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.theory.rounds import fit_rounds

NOISE = np.tile([0.04, 0.0133, 0.005, 0.033, 0.0067, 0.02, 0.04], 6)
TAU = np.tile([1.0, 1, 1, 1, 1, 2, 4], 6)
H = np.repeat([0.5, 0.2, 0.1], 14)


def rounds(noise, tau, h):
    return (50 - 30 * h + (1400 - 1500 * h) * noise) / tau + 6


def test_exact_pilots_give_their_own_law_back():
    model = fit_rounds(NOISE, TAU, H, rounds(NOISE, TAU, H))
    np.testing.assert_allclose(model.coefficients, [50, 1400, -30, -1500, 6], rtol=1e-8)
    assert model.scatter < 1e-12
    found, deviation = model.rounds(np.array([0.01, 0.03]), 3, 1 / 3)
    np.testing.assert_allclose(found, rounds(np.array([0.01, 0.03]), 3, 1 / 3), rtol=1e-8)
    assert (deviation < 1e-9).all()


def test_without_variety_in_labels_and_steps_two_numbers_are_fitted():
    x = np.array([0.04, 0.02, 0.01])
    model = fit_rounds(x, np.ones(3), np.full(3, 0.2), 40 + 1000 * x)
    np.testing.assert_allclose(model.coefficients, [40, 1000], rtol=1e-9)
    assert model.rounds(np.array(0.02), 2, 0.2)[0] == pytest.approx(30)


def test_intervals_of_single_runs_hold_95_of_100():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        model = fit_rounds(NOISE, TAU, H, rounds(NOISE, TAU, H) * np.exp(0.1 * rng.standard_normal(42)))
        x, h = rng.uniform(0.005, 0.04), rng.uniform(0.1, 0.5)
        mean, deviation = model.rounds(np.array(x), 1, h)
        inside += abs(np.log(rounds(x, 1, h) * np.exp(0.1 * rng.standard_normal()) / mean)) <= 2.03 * deviation
    assert 0.92 <= inside / 400 <= 0.98  # Student's quantile of 37 degrees; 400 trials scatter by 1.1 %


def test_too_few_or_equal_pilots_are_refused_and_extrapolation_is_named():
    with pytest.raises(AutoFLError, match="vary d"):
        fit_rounds(np.array([0.1, 0.2]), np.ones(2), np.ones(2), np.array([30.0, 40.0]))
    with pytest.raises(AutoFLError, match="vary d"):
        fit_rounds(np.full(9, 0.1), np.ones(9), np.ones(9), np.full(9, 30.0))
    model = fit_rounds(NOISE, TAU, H, rounds(NOISE, TAU, H))
    assert model.outside(0.02, 1, 0.2) == []
    assert model.outside(0.2, 8, 0.2) == ["1/(d m)", "tau"]
