import numpy as np
import pytest
from scipy import special, stats

from autofl.channels import (
    Channel,
    Exponential,
    NoFading,
    OwnFading,
    PathLoss,
    Rayleigh,
    success_probability,
)
from autofl.errors import AutoFLError
from autofl.network import channel_gain, decoded, drop_in_disc, printed_success_probability
from autofl.rng import stream
from reference.cells import cell_at

TWO_BRANCHES = OwnFading(
    lambda rng, shape: rng.gamma(2.0, 0.5, shape), stats.gamma(2.0, scale=0.5).sf
)


@pytest.mark.parametrize(
    ("fading", "radius"),
    [(Rayleigh(40.0), 1500.0), (Exponential(1.0), 500.0), (TWO_BRANCHES, 500.0)],
    ids=["rayleigh", "exponential", "own"],
)
def test_success_probability_is_the_share_of_channel_draws_that_are_decoded(fading, radius):
    cell = cell_at(
        np.array([0.1, 0.3, 0.5, 0.7, 0.85, 1.0]) * radius,
        max_power=[0.01, 0.02, 0.01, 0.005, 0.01, 0.01],
    )
    num_draws = 200_000
    gain = channel_gain(cell, fading.draw(np.random.default_rng(1), (num_draws, cell.num_ue)))
    share = decoded(cell, gain, cell.max_power).mean(axis=0)
    probability = success_probability(cell, PathLoss(fading), cell.max_power)
    assert probability.shape == (6,)
    assert probability.min() < 0.5 < probability.max()
    error = np.sqrt(probability * (1.0 - probability) / num_draws)  # of a binomial share
    # One draw more where a UE nearly never fails and the normal law of the share breaks down.
    assert (np.abs(share - probability) <= 5.0 * error + 1.0 / num_draws).all()


def test_without_fading_success_is_certain_up_to_a_distance_and_impossible_beyond():
    # SNR 0.01 r^-2 / (1e-15 * 1e6) = 1e7 r^-2 falls to phi = 1000 at r = 100 m.
    cell = cell_at([99.9, 100.1], noise_psd=1e-15, path_loss_exponent=2.0)
    np.testing.assert_array_equal(
        success_probability(cell, PathLoss(NoFading()), cell.max_power), [1.0, 0.0]
    )


def test_success_probability_worked_by_hand():
    # Least gain phi N0 B r^kappa / p = 1000 * 1e-21 * 1e6 * 100^3 / 0.01 = 1e-4
    cell = cell_at([100.0], noise_psd=1e-21, path_loss_exponent=3.0)
    np.testing.assert_allclose(
        success_probability(cell, PathLoss(Exponential(1e-4)), cell.max_power),
        np.exp(-1.0),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        success_probability(cell, PathLoss(Rayleigh(1e-4)), cell.max_power),
        np.exp(-0.5),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        success_probability(cell, PathLoss(Exponential(1e-4)), np.array([0.02])),
        np.exp(-0.5),
        rtol=1e-12,
    )


def test_a_ue_selected_one_round_in_four_succeeds_a_fourth_as_often():
    cell = cell_at([100.0, 300.0])
    always = success_probability(cell, PathLoss(Exponential(1.0)), cell.max_power)
    np.testing.assert_allclose(
        success_probability(
            cell, PathLoss(Exponential(1.0)), cell.max_power, select_probability=0.25
        ),
        0.25 * always,
        rtol=1e-14,
    )


@pytest.mark.parametrize("fading", [Rayleigh(40.0), Exponential(1.0), NoFading()])
def test_nothing_arrives_that_is_sent_with_no_power(fading):
    cell = cell_at([100.0, 300.0])
    np.testing.assert_array_equal(
        success_probability(cell, PathLoss(fading), np.zeros(2)), [0.0, 0.0]
    )


def test_success_probability_broadcasts_over_leading_axes_of_power():
    cell = cell_at([100.0, 300.0, 500.0])
    power = np.random.default_rng(2).uniform(1e-3, 1e-2, (4, 3))
    expected = [success_probability(cell, PathLoss(Exponential(1.0)), row) for row in power]
    np.testing.assert_array_equal(
        success_probability(cell, PathLoss(Exponential(1.0)), power), expected
    )


def test_an_own_law_without_survival_has_no_success_probability():
    cell = cell_at([100.0])
    with pytest.raises(AutoFLError, match="survival"):
        success_probability(
            cell, PathLoss(OwnFading(lambda rng, shape: rng.random(shape))), cell.max_power
        )


def test_a_channel_without_a_law_has_no_success_probability():
    class Trace(Channel):
        def gain(self, cell, seed, k):
            return np.ones(cell.num_ue)

    cell = cell_at([100.0])
    with pytest.raises(AutoFLError, match="Trace has no law"):
        success_probability(cell, Trace(), cell.max_power)


def test_the_gains_of_a_round_are_path_loss_times_fading_and_can_be_drawn_alone():
    cell = cell_at([100.0, 300.0, 500.0])
    channel = PathLoss(Rayleigh(40.0))
    expected = (
        Rayleigh(40.0).draw(stream(3, "fading", 40), (3,)) * np.array([100.0, 300.0, 500.0]) ** -3.8
    )
    np.testing.assert_allclose(channel.gain(cell, 3, 40), expected, rtol=1e-14)
    assert (channel.gain(cell, 3, 41) != channel.gain(cell, 3, 40)).all()
    assert channel.estimate(cell, 3, 40, expected) is expected  # perfect knowledge by default


def test_the_printed_formula_worked_by_hand():
    # (1/4) / (1 + 2 * 3 / p) at p = 6 and 2
    np.testing.assert_allclose(
        printed_success_probability(4, 2.0, 3.0, np.array([6.0, 2.0])), [0.125, 0.0625], rtol=1e-14
    )


def test_the_printed_formula_is_one_over_n_for_every_sensible_power():
    power = np.geomspace(1e-6, 1.0, 13)  # from a microwatt on; N0 phi is 4e-18 W/Hz
    np.testing.assert_allclose(
        printed_success_probability(20, 10.0**-20.4, 1000.0, power), 0.05, rtol=1e-11
    )


# What DESIGN.md says of the two fading presets, UEs uniform in the disc, all sending at P_max = 10
# mW. The last number
# is half a unit of the last digit given there; "never fails" we take as fewer than one update in
# 100,000.
CLAIMS = [
    pytest.param(Exponential(1.0), 200.0, 0.93, 0.005, id="physical, 200 m"),
    pytest.param(Exponential(1.0), 300.0, 0.73, 0.005, id="physical, 300 m"),
    pytest.param(Exponential(1.0), 400.0, 0.48, 0.005, id="physical, 400 m"),
    pytest.param(Rayleigh(40.0), 200.0, 1.0, 0.00001, id="paper, 200 m"),
    pytest.param(Rayleigh(40.0), 600.0, 1.0 - 0.013, 0.0005, id="paper, 600 m"),
    pytest.param(Rayleigh(40.0), 800.0, 1.0 - 0.10, 0.005, id="paper, 800 m"),
    pytest.param(Rayleigh(40.0), 1000.0, 1.0 - 0.33, 0.005, id="paper, 1000 m"),
]


@pytest.mark.parametrize(("fading", "radius", "claimed", "half_digit"), CLAIMS)
def test_the_share_of_decoded_updates_in_a_disc_is_the_one_we_state(
    fading, radius, claimed, half_digit
):
    num_ue = 500_000
    position = drop_in_disc(stream(1, "position"), num_ue, radius)
    cell = cell_at(np.hypot(position[:, 0], position[:, 1]))
    gain = channel_gain(cell, fading.draw(stream(1, "fading"), (num_ue,)))
    share = decoded(cell, gain, cell.max_power).mean()
    error = np.sqrt(claimed * (1.0 - claimed) / num_ue)  # of a binomial share
    assert share == pytest.approx(claimed, abs=half_digit + 5.0 * error)


def share_decoded_in_disc(fading, radius):
    """Integral over the disc in closed form: with u = r^2 / R^2 uniform, the mean of exp(-x u^s)
    over u in [0, 1] is

    x^(-1/s) Gamma(1/s) P(1/s, x) / s, P the regularised incomplete gamma function.
    """
    least_gain_at_rim = 1000.0 * 10.0**-20.4 * 1e6 * radius**3.8 / 1e-2
    if isinstance(fading, Exponential):
        x, s = least_gain_at_rim, 1.9
    else:
        x, s = least_gain_at_rim**2 / (2.0 * 40.0**2), 3.8
    return x ** (-1.0 / s) * special.gamma(1.0 / s) * special.gammainc(1.0 / s, x) / s


@pytest.mark.parametrize(("fading", "radius", "claimed", "half_digit"), CLAIMS)
def test_mean_success_probability_over_a_disc_is_its_integral(fading, radius, claimed, half_digit):
    num_ue = 20_000
    area = (np.arange(num_ue) + 0.5) / num_ue  # midpoint rule: its error is about 1/(24 n^2)
    cell = cell_at(radius * np.sqrt(area))
    mean = success_probability(cell, PathLoss(fading), cell.max_power).mean()
    expected = share_decoded_in_disc(fading, radius)
    np.testing.assert_allclose(mean, expected, rtol=1e-8)
    assert expected == pytest.approx(claimed, abs=half_digit)
