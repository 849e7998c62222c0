import numpy as np
import pytest
from scipy import stats

from autofl.channels import Exponential, NoFading, OwnFading, Rayleigh
from autofl.errors import AutoFLError

LAWS = [
    pytest.param(Rayleigh(40.0), stats.rayleigh(scale=40.0), id="rayleigh"),
    pytest.param(Exponential(1.0), stats.expon(), id="exponential"),
    pytest.param(Exponential(2.5), stats.expon(scale=2.5), id="exponential of mean 2.5"),
]


@pytest.mark.parametrize(("fading", "law"), LAWS)
def test_gains_follow_the_law_they_are_named_after(fading, law):
    gain = fading.draw(np.random.default_rng(1), (100, 500))
    assert gain.shape == (100, 500)
    assert (
        stats.kstest(gain.ravel(), law.cdf).pvalue > 1e-3
    )  # fixed seed; 1 % off in scale gives p < 1e-4


@pytest.mark.parametrize(("fading", "law"), LAWS)
def test_survival_is_the_chance_of_a_gain_at_least_this_large(fading, law):
    gain = law.ppf(np.linspace(0.0, 0.999, 50)).reshape(5, 10)
    np.testing.assert_allclose(fading.survival(gain), law.sf(gain), rtol=1e-12)


def test_half_of_the_gains_exceed_the_median_worked_by_hand():
    np.testing.assert_allclose(
        Rayleigh(40.0).survival(np.array(40.0 * np.sqrt(2.0 * np.log(2.0)))), 0.5, rtol=1e-14
    )
    np.testing.assert_allclose(
        Exponential(3.0).survival(np.array(3.0 * np.log(2.0))), 0.5, rtol=1e-14
    )


@pytest.mark.parametrize("fading", [Rayleigh(40.0), Exponential(1.0), NoFading()])
def test_every_gain_exceeds_zero_and_none_exceeds_infinity(fading):
    np.testing.assert_array_equal(fading.survival(np.array([-5.0, 0.0, np.inf])), [1.0, 1.0, 0.0])


def test_the_mean_power_gain_is_the_one_each_law_promises():
    rng = np.random.default_rng(2)
    num = 200_000
    rayleigh = Rayleigh(40.0).draw(rng, (num,))
    exponential = Exponential(2.5).draw(rng, (num,))
    # Means s sqrt(pi/2) and m, deviations s sqrt(2 - pi/2) and m; 5 standard errors each.
    tolerance = 5.0 / np.sqrt(num)
    assert rayleigh.mean() == pytest.approx(
        50.1325654926, abs=40.0 * np.sqrt(2.0 - np.pi / 2.0) * tolerance
    )
    assert exponential.mean() == pytest.approx(2.5, abs=2.5 * tolerance)


@pytest.mark.parametrize("fading", [Rayleigh(40.0), Exponential(1.0)])
def test_the_same_generator_gives_the_same_gains(fading):
    ours, theirs = (fading.draw(np.random.default_rng(3), (4, 5)) for _ in range(2))
    np.testing.assert_array_equal(ours, theirs)


def test_without_fading_every_gain_is_the_given_one():
    rng = np.random.default_rng(4)
    np.testing.assert_array_equal(NoFading().draw(rng, (2, 3)), np.ones((2, 3)))
    np.testing.assert_array_equal(
        NoFading(np.array([1.0, 2.0, 3.0])).draw(rng, (2, 3)), [[1.0, 2.0, 3.0]] * 2
    )


def test_without_fading_survival_steps_from_one_to_zero_after_the_gain():
    fading = NoFading(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(fading.survival(np.array([1.5, 1.5])), [0.0, 1.0])
    np.testing.assert_array_equal(fading.survival(np.array([1.0, 2.0])), [1.0, 1.0])
    np.testing.assert_array_equal(
        fading.survival(np.array([0.5, np.nextafter(2.0, 3.0)])), [1.0, 0.0]
    )


def test_an_own_law_draws_and_survives_by_its_functions():
    nakagami = OwnFading(
        lambda rng, shape: rng.gamma(2.0, 0.5, shape), stats.gamma(2.0, scale=0.5).sf
    )
    gain = nakagami.draw(np.random.default_rng(5), (20_000,))
    assert stats.kstest(gain, stats.gamma(2.0, scale=0.5).cdf).pvalue > 1e-3
    # P(h >= x) = (1 + 2 x) exp(-2 x) for two branches of mean 1/2
    np.testing.assert_allclose(nakagami.survival(np.array([1.0])), 3.0 * np.exp(-2.0), rtol=1e-12)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, shape: rng.random(shape[:-1]),
        lambda rng, shape: -rng.random(shape),
        lambda rng, shape: np.full(shape, np.nan),
        lambda rng, shape: np.full(shape, np.inf),
    ],
    ids=["shape", "negative", "NaN", "infinite"],
)
def test_an_own_law_that_draws_nonsense_is_refused(draw):
    with pytest.raises(AutoFLError, match=r"finite gains >= 0 of shape \(4, 3\)"):
        OwnFading(draw).draw(np.random.default_rng(6), (4, 3))


def test_an_own_law_without_survival_says_what_to_give():
    fading = OwnFading(lambda rng, shape: rng.random(shape))
    assert fading.draw(np.random.default_rng(7), (3,)).shape == (3,)
    with pytest.raises(AutoFLError, match="survival"):
        fading.survival(np.array([0.5]))
