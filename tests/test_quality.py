import math

import numpy as np
import pytest

from autofl.quality import convergence_round, mean_interval, smoothed, time_to_accuracy


def test_smoothing_averages_a_value_with_the_two_before_it():
    np.testing.assert_allclose(
        smoothed(np.array([0.0, 0.3, 0.6, 0.9, 0.0])),
        [0.0, 0.15, 0.3, 0.6, 0.5],
        rtol=1e-14,
        atol=1e-16,
    )


def test_one_lucky_evaluation_is_spread_over_itself_and_the_two_after_it():
    # Smoothing is linear, so what it does to the unit vectors is all it does.
    np.testing.assert_allclose(
        [smoothed(unit) for unit in np.eye(5)],
        [
            [1, 1 / 2, 1 / 3, 0, 0],  # the first two means have one and two values
            [0, 1 / 2, 1 / 3, 1 / 3, 0],
            [0, 0, 1 / 3, 1 / 3, 1 / 3],
            [0, 0, 0, 1 / 3, 1 / 3],
            [0, 0, 0, 0, 1 / 3],
        ],
        rtol=1e-14,
    )
    one, two = np.random.default_rng(1).random((2, 50))
    np.testing.assert_allclose(
        smoothed(one - 2.0 * two), smoothed(one) - 2.0 * smoothed(two), rtol=1e-12
    )


def test_nothing_smoothed_is_nothing():
    assert smoothed(np.array([])).shape == (0,)


# Times and accuracies below are binary fractions, so that a mean that meets the target meets it
# exactly.
SIM_TIME = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])


@pytest.mark.parametrize(
    ("accuracy", "time"),
    [
        (
            [0.0, 0.0, 0.625, 0.625, 0.625, 0.625],
            8.0,
        ),  # the third of three: (0 + 0.625 + 0.625) / 3 is too low
        ([0.0, 0.0, 0.0, 1.0, 0.5, 0.5], 8.0),  # (0 + 1 + 0.5) / 3 is 0.5, and passes 0.5
        ([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], np.nan),  # one lucky evaluation is not enough
        ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.5),  # the first stands alone
        ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 1.0),  # the second has one before it
        ([0.0, 0.0, 1.0, 1.0, 0.0, 0.0], 4.0),  # what comes after does not matter
        ([0.25, 0.25, 0.25, 0.25, 0.25, 0.25], np.nan),
    ],
)
def test_time_to_accuracy_is_when_the_mean_of_three_passes_the_target(accuracy, time):
    np.testing.assert_equal(time_to_accuracy(SIM_TIME, np.array(accuracy), 0.5), time)


def test_a_higher_target_takes_at_least_as_long():
    accuracy = np.linspace(0.0, 1.0, 101)
    times = [time_to_accuracy(np.arange(101.0), accuracy, target) for target in (0.2, 0.5, 0.8)]
    # On a ramp of 0.01 a round the mean of three lags by one round.
    np.testing.assert_allclose(np.array(times), [21.0, 51.0, 81.0], atol=1.0)
    assert times == sorted(times)


def test_a_run_without_evaluations_never_reaches_its_target():
    assert np.isnan(time_to_accuracy(np.array([]), np.array([]), 0.5))


def test_a_curve_that_rises_and_stays_has_converged_where_it_starts_to_stay():
    rounds = np.arange(60)
    accuracy = np.where(rounds < 30, rounds / 30.0, 1.0)
    # From round k the window of 21 holds 30 - k values of the ramp. At k = 30 it is flat; at k = 29
    # it holds one value
    # 1/30 low, deviation (1/30) sqrt(20) / 21 = 0.0071; at k = 28 also one 2/30 low, deviation
    # 0.0156.
    assert convergence_round(rounds, accuracy) == 29.0
    assert convergence_round(rounds, accuracy, std=0.0072) == 29.0
    assert convergence_round(rounds, accuracy, std=0.0070) == 30.0
    assert convergence_round(rounds, accuracy, std=0.016) == 28.0


@pytest.mark.parametrize(("swing", "expected"), [(0.009, 0.0), (0.011, np.nan)])
def test_one_percent_of_deviation_is_the_limit(swing, expected):
    accuracy = 0.8 + swing * (-1.0) ** np.arange(
        40
    )  # the population deviation over 21 values is within 0.2 % of it
    np.testing.assert_equal(convergence_round(np.arange(40), accuracy), expected)


def test_the_window_includes_the_round_that_ends_it():
    rounds = np.arange(60)
    accuracy = np.where(rounds <= 25, 0.5, 0.9)
    assert convergence_round(rounds, accuracy, num_rounds=25) == 0.0
    assert convergence_round(rounds, accuracy, num_rounds=26) == 26.0  # flat again from round 26 on


def test_a_window_must_have_run_its_full_length():
    flat = np.full(21, 0.8)
    assert convergence_round(np.arange(21), flat) == 0.0
    assert np.isnan(convergence_round(np.arange(20), flat[:20]))


def test_the_window_counts_rounds_and_not_evaluations():
    rounds = np.arange(0, 105, 5)  # 0, 5, ..., 100: a window of 20 rounds holds 5 evaluations
    accuracy = np.where(rounds < 50, rounds / 50.0, 1.0)
    assert convergence_round(rounds, accuracy) == 50.0
    assert np.isnan(
        convergence_round(rounds[:14], accuracy[:14])
    )  # ends in round 65, before 50 + 20


def test_two_evaluations_say_nothing_about_convergence():
    flat = np.full(10, 0.8)
    assert np.isnan(
        convergence_round(np.arange(0, 200, 20), flat)
    )  # two in each window of 20 rounds
    assert convergence_round(np.arange(0, 100, 10), flat) == 0.0  # three


def test_a_curve_that_never_settles_or_has_no_values_has_not_converged():
    assert np.isnan(convergence_round(np.arange(100), np.linspace(0.0, 1.0, 100)))
    assert np.isnan(convergence_round(np.array([]), np.array([])))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_the_interval_of_two_and_three_seeds_is_student_ts_in_closed_form(level):
    # With one degree of freedom t is Cauchy's, with two its distribution function is (1 + t /
    # sqrt(2 + t^2)) / 2.
    mean, half_width = mean_interval(np.array([1.0, 5.0]), level)
    assert (mean, half_width) == pytest.approx(
        (3.0, 2.0 * math.tan(math.pi * level / 2.0)), rel=1e-9
    )
    mean, half_width = mean_interval(np.array([1.0, 2.0, 6.0]), level)  # deviation sqrt(7)
    assert (mean, half_width) == pytest.approx(
        (3.0, math.sqrt(7 / 3) * level * math.sqrt(2 / (1 - level**2))), rel=1e-9
    )


def test_the_interval_of_four_seeds_worked_by_hand():
    # Mean 5, deviation sqrt(20/3), quantile t(0.975; 3) = 3.182446 from the tables.
    mean, half_width = mean_interval(np.array([2.0, 4.0, 6.0, 8.0]))
    assert mean == 5.0
    assert half_width == pytest.approx(3.182446305 * np.sqrt(20.0 / 3.0) / 2.0, rel=1e-9)


def test_one_seed_has_a_mean_and_no_interval_and_no_seed_has_neither():
    np.testing.assert_equal(mean_interval(np.array([3.5])), (3.5, np.nan))
    np.testing.assert_equal(mean_interval(np.array([])), (np.nan, np.nan))


def test_a_target_met_exactly_is_met():
    # Means of .8 and .8 and .8 differ from .8 by rounding only.
    assert time_to_accuracy(np.arange(5.0), np.array([0.7, 0.8, 0.8, 0.8, 0.8]), 0.8) == 3.0
