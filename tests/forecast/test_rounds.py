"""Rounds fitted from pilots: known coefficients come back, and intervals hold what they promise."""

import numpy as np
import pytest
from scipy import stats

from autofl.errors import AutoFLError
from autofl.forecast.predict import far_error
from autofl.forecast.rounds import Influences, fit_rounds
from autofl.forecast.tobit import _hazard, tobit

NOISE = np.tile([0.04, 0.0133, 0.005, 0.033, 0.0067, 0.02, 0.04, 0.01, 0.01], 6)
TAU = np.tile([1.0, 1, 1, 1, 1, 2, 4, 1, 1], 6)
SKEW = np.tile([0, 0, 0, 0, 0, 0, 0, 0.25, 0.67], 6)
H = np.repeat([0.5, 0.2, 0.1], 18)
GIVEN = Influences(NOISE, TAU, H, SKEW)


def rounds(noise, tau, h, skew):
    return (50 - 30 * h + (1400 - 1500 * h) * noise + (20 + 100 * h) * skew) / tau + 6


def test_exact_pilots_give_their_own_law_back():
    model = fit_rounds(GIVEN, rounds(NOISE, TAU, H, SKEW))
    np.testing.assert_allclose(model.coefficients, [50, 1400, 20, -30, -1500, 100, 6], rtol=1e-7)
    assert model.scatter < 1e-12
    found, deviation = model.rounds(Influences(np.array([0.01, 0.03]), 3, 1 / 3, 0.4))
    np.testing.assert_allclose(found, rounds(np.array([0.01, 0.03]), 3, 1 / 3, 0.4), rtol=1e-8)
    assert (deviation < 1e-9).all()


def test_without_variety_in_labels_steps_and_chances_two_numbers_are_fitted():
    x = np.array([0.04, 0.02, 0.01])
    model = fit_rounds(Influences(x, np.ones(3), np.full(3, 0.2), np.full(3, 0.01)), 40 + 1000 * x)
    np.testing.assert_allclose(model.coefficients, [40, 1000], rtol=1e-9)
    assert model.rounds(Influences(np.array(0.02), 2, 0.2, 0.0))[0] == pytest.approx(30)


def test_intervals_of_single_runs_hold_95_of_100():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        seen = rounds(NOISE, TAU, H, SKEW) * np.exp(0.1 * rng.standard_normal(54))
        model = fit_rounds(GIVEN, seen)
        x, h = rng.uniform(0.005, 0.04), rng.uniform(0.1, 0.5)
        mean, deviation = model.rounds(Influences(np.array(x), 1, h, 0.1))
        inside += (
            abs(np.log(rounds(x, 1, h, 0.1) * np.exp(0.1 * rng.standard_normal()) / mean))
            <= 2.01 * deviation
        )
    assert (
        0.92 <= inside / 400 <= 0.98
    )  # Student's quantile of 47 degrees; 400 trials scatter by 1.1 %


def test_too_few_or_equal_pilots_are_refused_and_extrapolation_is_named():
    with pytest.raises(AutoFLError, match="vary d"):
        fit_rounds(Influences(np.array([0.1, 0.2]), 1.0, 1.0), np.array([30.0, 40.0]))
    with pytest.raises(AutoFLError, match="vary d"):
        fit_rounds(Influences(np.full(9, 0.1), 1.0, 1.0), np.full(9, 30.0))
    model = fit_rounds(GIVEN, rounds(NOISE, TAU, H, SKEW))
    assert model.outside(Influences(0.02, 1, 0.2, 0.5)) == []
    assert model.outside(Influences(0.2, 8, 0.2, 0.0)) == ["1/(d m)", "tau"]
    assert "chi^2" in model.outside(Influences(0.02, 1, 0.2, 2.0))[0]


def test_rounding_comes_back_and_a_term_below_zero_is_left_out():
    """Steps that cost rounds, a < 0, make no sense: K is then fitted by the others, as if a were 0."""
    tau, x = (
        np.array([2.0, 4, 8, 16, 2, 4, 8, 16, 8, 8]),
        np.array([0.04, 0.04, 0.04, 0.04, 0.02, 0.02, 0.02, 0.02, 0.01, 0.03]),
    )
    y = np.array([0.1, 0.2, 0.1, 0.4, 0.3, 0.1, 0.2, 0.1, 0.8, 0.6])
    h, skew = np.full(10, 0.2), np.zeros(10)
    model = fit_rounds(Influences(x, tau, h, skew, y), 9 + (20 + 1000 * x) / tau + 5 * y)
    np.testing.assert_allclose(model.pace(0.2), [9, 20, 0, 1000, 5], rtol=1e-7)
    odd = fit_rounds(Influences(x, tau, h, skew, y), 9 + (-6 + 1000 * x) / tau + 5 * y)
    constant, per_step, per_ue, noise, rounding = odd.pace(0.2)
    assert per_step == per_ue == 0.0
    assert min(constant, noise, rounding) > 0.0
    columns = np.stack(
        [x / tau, np.ones(10), y], axis=1
    )  # a least-squares fit of the others, by hand
    K, fitted = 9 + (-6 + 1000 * x) / tau + 5 * y, 9 + (-6 + 1000 * x) / tau + 5 * y
    for _ in range(10):
        by_hand = np.linalg.lstsq(columns / fitted[:, None], K / fitted, rcond=None)[0]
        fitted = columns @ by_hand
    np.testing.assert_allclose([noise, constant, rounding], by_hand, rtol=1e-6)
    at, deviation = odd.rounds(Influences(np.array(0.02), 4, 0.2, 0.0, 0.2))
    assert at == pytest.approx(constant + noise * 0.02 / 4 + rounding * 0.2)
    assert deviation > odd.scatter


def test_few_ues_stand_for_all_where_pilots_differ_in_both_their_number_and_their_samples():
    d, m = np.array([5.0, 10, 20, 5, 10, 20, 5, 10, 20]), np.repeat([2.0, 5, 10], 3)
    tau = np.array([2.0, 4, 8, 4, 8, 2, 8, 2, 4])
    h, x = np.full(9, 0.2), 1 / (d * m)
    K = 3 + (10 + 1000 * x) / tau + 30 / m
    model = fit_rounds(Influences(x, tau, h, share=1 / m), K)
    np.testing.assert_allclose(model.pace(0.2), [3, 10, 30, 1000, 0], rtol=1e-6, atol=1e-6)
    assert model.rounds(Influences(np.array(0.02), 4, 0.2, 0.0, share=0.2))[0] == pytest.approx(
        3 + (10 + 20) / 4 + 6
    )
    assert model.outside(Influences(0.02, 4, 0.2, 0.0, share=0.05)) == ["1/m"]
    same_d = 1 / (5 * m)
    assert (
        fit_rounds(Influences(same_d, tau, h, share=1 / m), 3 + 1000 * same_d / tau).pace(0.2)[2]
        == 0.0
    )


def test_values_known_only_to_be_larger_give_mean_and_deviation_back():
    """4,000 draws of a normal law with mean 50 and deviation 10, those above 53 cut there: four of
    ten.
    """
    drawn = 50 + 10 * np.random.default_rng(5).standard_normal(4000)
    seen = drawn <= 53
    found = tobit(
        np.ones((4000, 1)), np.minimum(drawn, 53), seen, np.ones((4000, 1)), np.arange(4000)
    )
    assert found.coefficients[0] == pytest.approx(50, rel=0.015)
    assert np.sqrt(found.variance[0]) == pytest.approx(0.2, rel=0.05)
    kept = tobit(
        np.ones((seen.sum(), 1)),
        drawn[seen],
        seen[seen],
        np.ones((seen.sum(), 1)),
        np.arange(seen.sum()),
    )
    assert kept.coefficients[0] < 46  # the mean of those that were seen
    assert (
        1 < np.sqrt(found.covariance[0, 0]) / (0.2 * 50 / np.sqrt(4000)) < 1.2
    )  # a cut value tells less


def test_pilots_that_end_before_the_target_do_not_make_the_forecast_too_fast():
    """Pilots of 85 rounds where d = 5 at l = 10 needs 103: leaving out those that are not there
    keeps the fast ones.
    """
    rng, dropped, counted = np.random.default_rng(2), [], []
    truth = rounds(NOISE, TAU, H, SKEW)
    wanted = float(rounds(0.04, 1, 0.1, 0.0))
    assert wanted == pytest.approx(103)
    for _ in range(100):
        K = truth * (1 + 0.2 * rng.standard_normal(54))
        there = K <= 85
        old = fit_rounds(Influences(*(column[there] for column in GIVEN[:4])), K[there])
        new = fit_rounds(GIVEN, np.minimum(K, 85), reached=there)
        dropped.append(float(old.rounds(Influences(np.array(0.04), 1, 0.1, 0.0))[0]) / wanted)
        counted.append(float(new.rounds(Influences(np.array(0.04), 1, 0.1, 0.0))[0]) / wanted)
    assert np.median(dropped) < 0.88
    assert np.median(counted) == pytest.approx(1.0, abs=0.03)


def test_runs_scatter_more_where_some_ues_are_not_heard_and_intervals_know_it():
    """ln K scatters by 0.08 where all are heard and by 0.26 at chi^2 = 0.67; one deviation for both
    would be 0.14.
    """
    rng, inside, said = np.random.default_rng(3), np.zeros(2), []
    truth, deviation = rounds(NOISE, TAU, H, SKEW), np.sqrt(0.08**2 + 0.09 * SKEW)
    for _ in range(300):
        model = fit_rounds(GIVEN, truth * (1 + deviation * rng.standard_normal(54)))
        said.append(model.scatter_at(np.array([0.0, 0.67])))
        for place, chi in enumerate((0.0, 0.67)):
            mean, of_run = model.rounds(Influences(np.array(0.01), 1, 0.2, chi))
            run = rounds(0.01, 1, 0.2, chi) * np.exp(
                np.sqrt(0.08**2 + 0.09 * chi) * rng.standard_normal()
            )
            inside[place] += abs(np.log(run / mean)) <= 2.01 * of_run
    np.testing.assert_allclose(np.median(said, axis=0), [0.08, 0.26], rtol=0.1)
    assert 0.92 <= inside[0] / 300 <= 0.98
    assert (
        0.87 <= inside[1] / 300 <= 0.98
    )  # twelve pilots tell of it, so that its own error is large


def test_errors_that_pilots_of_a_seed_share_widen_the_error_of_the_fit():
    """Six groups with an error of 0.15 each: the fit at the mean of the pilots is off by about
    0.15/sqrt(6).
    """
    rng, group, off, said, alone = np.random.default_rng(4), np.repeat(np.arange(6), 9), [], [], []
    truth = rounds(NOISE, TAU, H, SKEW)
    for _ in range(200):
        K = truth * (1 + 0.15 * rng.standard_normal(6)[group] + 0.05 * rng.standard_normal(54))
        for gathered, found in ((group, said), (None, alone)):
            model = fit_rounds(GIVEN, K, group=gathered)
            mean, deviation = model.rounds(Influences(np.array(0.015), 1, 0.25, 0.0))
            found.append(np.sqrt(deviation**2 - model.scatter**2))
        off.append(float(mean / rounds(0.015, 1, 0.25, 0.0) - 1))
    assert np.std(off) > 1.6 * np.median(alone)
    assert 0.7 < np.median(said) / np.std(off) < 1.2


def test_pilots_of_one_seed_tell_nothing_of_what_seeds_share():
    """One group: what its pilots have in common looks like another law, so they count as if they
    were independent.
    """
    K = rounds(NOISE, TAU, H, SKEW) * (1 + 0.1 * np.random.default_rng(6).standard_normal(54))
    alone = fit_rounds(GIVEN, K)
    one = fit_rounds(GIVEN, K, group=np.zeros(54, int))
    np.testing.assert_allclose(one.covariance, alone.covariance)
    assert one.scatter == alone.scatter


@pytest.mark.parametrize("z", [-40.0, -3.0, 0.0, 1.0, 8.0, 29.9, 30.1, 500.0])
def test_the_mean_of_a_normal_number_beyond_z_is_scipys(z):
    assert _hazard(z) == pytest.approx(
        np.exp(stats.norm.logpdf(z) - stats.norm.logsf(z)), rel=3e-6, abs=1e-300
    )


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 20, 50])
def test_errors_are_cut_beyond_every_interval(freedom):
    assert far_error(freedom) > 1.3 * stats.t.ppf(0.975, freedom)
    if freedom >= 5:
        assert far_error(freedom) == pytest.approx(stats.t.ppf(0.995, freedom), rel=0.02)
