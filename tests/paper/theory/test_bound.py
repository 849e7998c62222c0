"""The corrected bound against simulated learning on problems whose constants are known, and
formulas by hand.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from autofl.forecast.participation import excess_skew, participation
from autofl_paper.theory import (
    Constants,
    bound,
    bound_with_memory,
    choice_for,
    conditions,
    meta_bias,
    meta_of,
    meta_second_moment,
    meta_smoothness,
    meta_spread,
    meta_variance,
    printed_bound,
    printed_meta_smoothness,
    printed_meta_spread,
    printed_meta_variance,
    printed_rounds,
)

SIMPLE = Constants(
    smoothness=2.0,
    hessian_lipschitz=3.0,
    gradient_bound=5.0,
    gradient_variance=9.0,
    hessian_variance=4.0,
    gradient_spread=16.0,
    hessian_spread=0.25,
)


def test_the_lemmas_give_the_values_worked_by_hand():
    assert meta_smoothness(SIMPLE, 0.5) == 2 * 4 + 0.5 * 3 * 5  # (1 + alpha L)^2 = 4
    assert meta_bias(SIMPLE, 0.5, 4) == 2 * min(2 * 0.5 * 3 / 2, 0.5 * 3 * 0.25 * 9 / 4)
    assert meta_bias(SIMPLE, 0.5, 1) == 2 * min(2 * 0.5 * 3, 0.5 * 3 * 0.25 * 9)
    assert meta_variance(SIMPLE, 0.5, 3, 9, 2) == pytest.approx(
        4 * 9 * (1 / 9 + 1 / 3) + 0.25 * 4 / 2 * (25 + 1)
    )
    assert meta_second_moment(SIMPLE, 0.5, 3, 9, 2) == pytest.approx((4 + 0.25 * 4 / 2) * (25 + 1))
    assert meta_spread(SIMPLE, 0.5) == (4 * 4 + 0.5 * 5 * 0.5) ** 2


def test_the_printed_lemmas_give_the_values_worked_by_hand_and_are_looser():
    assert printed_meta_smoothness(SIMPLE, 0.5) == 8 + 7.5
    assert printed_meta_variance(SIMPLE, 0.5, 3, 9, 2) == pytest.approx(
        12 * (25 + 4) * (1 + 4 * 0.25 / 8) - 12 * 25
    )
    assert printed_meta_spread(SIMPLE, 0.5) == 3 * 25 * 0.25 * 0.25 + 192 * 16
    rng = np.random.default_rng(1)
    for _ in range(200):
        c = Constants(*rng.uniform(0.0, 10.0, 7))
        alpha, sizes = rng.uniform(0.0, 1.0 / c.smoothness), rng.integers(1, 30, 3)
        assert meta_smoothness(c, alpha) <= printed_meta_smoothness(c, alpha) * (1 + 1e-12)
        assert meta_spread(c, alpha) <= printed_meta_spread(c, alpha) * (1 + 1e-12)
        assert (
            meta_variance(c, alpha, *sizes)
            <= printed_meta_variance(c, alpha, *sizes) * (1 + 1e-9) + 1e-9
        )
        assert meta_bias(c, alpha, sizes[0]) <= 2 * alpha * c.smoothness * math.sqrt(
            c.gradient_variance / sizes[0]
        )


def test_m_of_n_drawn_uniformly_have_the_known_law():
    num_ue, m = 6, 2
    sets = np.array(
        [
            [i in chosen for i in range(num_ue)]
            for chosen in itertools.combinations(range(num_ue), m)
        ]
    )
    law = participation(sets)
    assert (law.heard, law.inverse_size) == (pytest.approx(1.0), pytest.approx(0.5))
    assert law.skew == pytest.approx(0.0, abs=1e-12)
    assert law.draw_variance == pytest.approx((num_ue - m) / (m * (num_ue - 1)))


def test_the_skew_of_draws_is_freed_of_their_own_scatter():
    rng = np.random.default_rng(2)
    for pull, num_draws in ((np.ones(8), 400), (np.linspace(0.8, 1.2, 8), 400)):
        found = [
            participation(
                np.argsort(pull * rng.random((num_draws, 8)), axis=1).argsort(axis=1) < 3
            ).skew
            for _ in range(200)
        ]
        many = participation(
            np.argsort(pull * rng.random((100_000, 8)), axis=1).argsort(axis=1) < 3
        ).skew
        scatter = 8 * (1 / 3 - 1 / 8) / num_draws  # by which the plain square is too large: 0.0042
        assert (
            np.mean(found) - many < 0.4 * scatter
        )  # what a cut at 0 leaves where there is no skew
    assert abs(np.mean(found) - many) < 0.1 * scatter


def test_unequal_chances_skew_the_law_and_empty_rounds_are_counted_apart():
    sets = np.array([[True, False], [False, True], [True, True], [False, False]])
    law = participation(sets, np.array([0.4, 0.1, 0.3, 0.2]))
    share = np.array([0.4 + 0.15, 0.1 + 0.15]) / 0.8
    assert law.heard == pytest.approx(0.8)
    np.testing.assert_allclose(law.share, share)
    assert law.inverse_size == pytest.approx((0.4 + 0.1 + 0.15) / 0.8)
    assert law.skew == pytest.approx(2 * (share**2).sum() - 1)
    # two UEs: x_2 = -x_1, so the sum is (a_1 - a_2) x_1, whose mean square is that of the sets of
    # one UE
    assert law.draw_variance == pytest.approx(0.5 / 0.8)
    assert law.draw_variance >= law.skew


def test_the_bound_has_the_terms_worked_by_hand():
    law = participation(
        np.array([[True, False], [False, True], [False, False]]), np.array([0.45, 0.45, 0.1])
    )
    meta = meta_of(SIMPLE, 0.5, 3, 9, 2)
    assert (meta.smoothness, law.draw_variance, law.inverse_size) == (
        15.5,
        pytest.approx(1.0),
        pytest.approx(1.0),
    )
    found = bound(meta, law, excess=7.0, outer_lr=0.02)
    s, bias = 0.02 * 15.5, 2 * 0.5 * 3 * 0.25 * 9 / 3
    variance, spread = 4 * 9 * (1 / 9 + 1 / 3) + 0.5 * 26, 4 * 4 + 0.5 * 5 * 0.5
    assert found.start == pytest.approx(2 * 7 / (0.02 * 0.9))
    assert found.bias == pytest.approx((1 - s) * bias**2)
    assert found.noise == pytest.approx(s * (variance + (spread + bias) ** 2))
    assert found.after(10.0) == pytest.approx(found.start / 10 + found.bias + found.noise)
    assert found.holds
    far = bound(meta, law, 7.0, outer_lr=1.5 / 15.5)  # s = 1.5: factor 8/3, tilt 2
    assert far.start == pytest.approx(8 / 3 * 2 * 7 / (1.5 / 15.5 * 0.9))
    assert far.bias == pytest.approx(8 / 3 * 2 * bias**2)
    assert far.noise == pytest.approx(8 / 3 * 1.5 * (variance + (spread + bias) ** 2))
    edge = [bound(meta, law, 7.0, step / 15.5).floor for step in (1 - 1e-9, 1 + 1e-9)]
    assert edge[0] == pytest.approx(edge[1], rel=1e-6)  # the two forms meet at s = 1
    beyond = bound(meta, law, 7.0, outer_lr=2.0 / 15.5)
    assert (beyond.holds, beyond.floor) == (False, math.inf)
    for epsilon in (found.floor * 1.01, found.floor * 3):
        K = found.rounds_to(epsilon)
        assert found.after(K) <= epsilon * (1 + 1e-9) < found.after(K - 1) * (1 + 1e-9)
    assert found.rounds_to(found.floor) == math.inf


def test_more_local_steps_add_drift_and_cut_variance():
    law = participation(np.ones((1, 3), dtype=bool))
    meta = meta_of(SIMPLE, 0.5, 3, 9, 2)
    tau, beta = 4, 1e-3
    drift = 0.5 * 3 * beta * 15.5 * math.sqrt(meta.second_moment)
    found = bound(meta, law, 7.0, beta, tau)
    bias = meta.bias + drift
    deviation = math.sqrt(meta.variance) / 2 + drift + meta.bias * 3 / 4
    assert found.start == pytest.approx(2 * 7 / (beta * tau))
    assert found.floor == pytest.approx(
        (1 - beta * tau * 15.5) * bias**2 + beta * tau * 15.5 * (deviation**2 / 3 + bias**2)
    )


def test_weights_average_over_batches_and_without_them_the_worst_counts():
    sizes, weight = np.array([[3.0, 9.0]]), np.array([[0.75, 0.25]])
    each = [meta_of(SIMPLE, 0.5, size, size, size) for size in (3.0, 9.0)]
    mean = meta_of(SIMPLE, 0.5, sizes, sizes, sizes, weight)
    assert mean.variance == pytest.approx((9 * each[0].variance + each[1].variance) / 10)
    assert mean.bias**2 == pytest.approx(0.75 * each[0].bias ** 2 + 0.25 * each[1].bias ** 2)
    assert mean.bias_in_noise**2 == pytest.approx((9 * each[0].bias ** 2 + each[1].bias ** 2) / 10)
    assert meta_of(SIMPLE, 0.5, sizes, sizes, sizes) == each[0]
    everybody = participation(np.ones((1, 2), dtype=bool))
    tau, beta = (
        2,
        1e-9,
        # so small a step that nothing drifts: only sigma_tau = sigma_F/sqrt(2) + b/2 is left of noise
    )
    noise = bound(mean, everybody, 7.0, beta, tau).noise / (beta * tau * 15.5)
    deviation = math.sqrt(mean.variance / 2) + mean.bias_in_noise / 2
    assert noise == pytest.approx(0.5 * deviation**2 + mean.bias**2, rel=1e-6)


def test_the_printed_theorem_and_its_appendix_differ_by_8_4_and_16():
    share = np.array([0.75, 0.25])
    printed, appendix = (
        printed_bound(
            SIMPLE,
            share,
            7.0,
            inner_lr=0.5,
            outer_lr=0.02,
            inner=3,
            outer=9,
            hess=2,
            appendix=which,
        )
        for which in (False, True)
    )
    square, L = 0.625, 15.5
    variance, spread = 12 * 29 * 1.125 - 300, 3 * 25 * 0.0625 + 3072
    assert printed.start == 4 * 7 / 0.02
    assert printed.noise == pytest.approx(square * 0.02 * L * (variance + spread))
    assert printed.bias == pytest.approx(square * 9 / 3)
    assert appendix.noise == pytest.approx(square * 0.02 * L * (8 * variance + 4 * spread))
    assert appendix.bias == pytest.approx(16 * printed.bias)
    assert printed_rounds(7.0, 0.02, 0.1) == pytest.approx(14000)


def test_conditions_name_what_fails():
    share = np.full(10, 0.1)
    met = {
        each.name: each.met
        for each in conditions(SIMPLE, share, 0.5, 0.03, 1, inner=4, epsilon=0.3)
    }
    # beta L_F = 0.465 < 2; alpha = 1/L; 1/(2 L_F) = 0.032; 0.1 * 9/4 = 0.225; alpha^2 L^2 sigma_G^2
    # = 9
    assert list(met.values()) == [True, True, True, True, False]
    met = [each.met for each in conditions(SIMPLE, share, 0.6, 0.1, 2, inner=1, epsilon=0.3)]
    assert met == [False, False, False, False, False]


@pytest.mark.parametrize(("rho", "power"), [(0.0, 0.0), (0.05, 0.5), (1e9, 1.0)])
def test_corollary_1_keeps_its_promise_with_the_orders_it_states(rho, power):
    """beta = O(eps), K = O(eps^-2); D = O(1/eps), or O(1/sqrt(eps)) by rho, or O(1) for a
    quadratic.
    """
    constants = Constants(
        2.0, rho, 1e-9 if rho > 1 else 5.0, 9e4, 4.0, 1e4, 0.1
    )  # the spread outweighs the noise
    law = participation(
        np.array([[i in pair for i in range(5)] for pair in itertools.combinations(range(5), 2)])
    )
    small = []
    for epsilon in (1e-6, 1e-7):
        choice = choice_for(constants, law, 7.0, 0.1, epsilon)
        meta = meta_of(constants, 0.1, choice.batch, choice.batch, choice.batch)
        promised = bound(meta, law, 7.0, choice.outer_lr)
        assert promised.holds
        assert promised.after(choice.num_rounds) <= epsilon * (1 + 1e-9)
        small.append(choice)
    assert math.log10(small[0].outer_lr / small[1].outer_lr) == pytest.approx(1.0, abs=0.05)
    assert math.log10(small[1].num_rounds / small[0].num_rounds) == pytest.approx(2.0, abs=0.05)
    assert math.log10(small[1].batch / small[0].batch) == pytest.approx(power, abs=0.05)


UNEQUAL = participation(np.array([[True, False], [False, True]]), np.array([0.9, 0.1]))


@pytest.mark.parametrize("above", [1.001, 1.5, 3.9, 4.1, 100.0])
def test_a_choice_exists_for_every_epsilon_above_what_unequal_ues_leave(above):
    """The bound's floor tends to chi^2 gamma_F^2 as beta and 1/D fall, so every epsilon above it
    can be reached.
    """
    epsilon = above * UNEQUAL.skew * meta_spread(SIMPLE, 0.1)
    choice = choice_for(SIMPLE, UNEQUAL, 7.0, 0.1, epsilon)
    meta = meta_of(SIMPLE, 0.1, choice.batch, choice.batch, choice.batch)
    promised = bound(meta, UNEQUAL, 7.0, choice.outer_lr)
    assert choice.num_rounds < math.inf
    assert promised.after(choice.num_rounds) <= epsilon * (1 + 1e-9)


def test_no_choice_helps_where_ues_are_heard_unequally():
    for below in (1e-3, 0.999, 1.0):
        epsilon = below * UNEQUAL.skew * meta_spread(SIMPLE, 0.1)
        assert choice_for(SIMPLE, UNEQUAL, 7.0, 0.1, epsilon).num_rounds == math.inf
        floors = [
            bound(meta_of(SIMPLE, 0.1, D, D, D), UNEQUAL, 7.0, s / 40).floor
            for D in (1, 1e9)
            for s in (1e-9, 1.9)
        ]
        assert min(floors) >= epsilon


def test_disjoint_batches_leave_a_bias_that_no_batch_removes():
    """With few samples a UE the choice is limited by them, and where the bias stays above epsilon
    there is none.
    """
    constants = replace(SIMPLE, hessian_deviation=9.0)
    law = participation(np.ones((1, 3), dtype=bool))
    least = float(meta_bias(constants, 0.1, np.arange(1, 33), 99.0).min()) ** 2
    assert choice_for(constants, law, 7.0, 0.1, 0.99 * least, owned=99.0).num_rounds == math.inf
    choice = choice_for(constants, law, 7.0, 0.1, 1.1 * least, owned=99.0)
    meta = meta_of(constants, 0.1, choice.batch, choice.batch, choice.batch, owned=99.0)
    assert 3 * choice.batch <= 99
    assert bound(meta, law, 7.0, choice.outer_lr).after(choice.num_rounds) <= 1.1 * least * (
        1 + 1e-9
    )
    assert (
        choice_for(SIMPLE, law, 7.0, 0.1, 100.0, owned=99.0).num_rounds == math.inf
    )  # Lambda is not known


@pytest.mark.parametrize(
    "name", [name for name in Constants.__dataclass_fields__ if name != "hessian_deviation"]
)
def test_a_constant_that_is_not_known_promises_nothing(name):
    """rho is NaN where a run has one point alone; the bound then must not say that it holds."""
    meta = meta_of(replace(SIMPLE, **{name: math.nan}), 0.5, 3, 9, 2)
    law = participation(np.array([[True, False], [False, True]]))
    for promised in (bound(meta, law, 7.0, 0.02), bound_with_memory(meta, law, 1.0, 7.0, 0.02)):
        assert (promised.holds, promised.floor, promised.rounds_to(1e9)) == (
            False,
            math.inf,
            math.inf,
        )


def test_who_is_heard_is_judged_by_who_was_selected():
    """In few rounds an even draw is uneven by chance; what selection does is not laid to the
    channel.
    """
    rng = np.random.default_rng(4)
    law = np.array([1.0] * 7 + [0.3])  # one UE of eight is lost in most rounds
    few, plain = [], []
    for _ in range(300):
        selected = rng.random((24, 8)).argsort(axis=1) < 3
        heard = selected & (rng.random((24, 8)) < law)
        few.append(excess_skew(heard, selected))
        plain.append(participation(heard).skew)
        assert excess_skew(selected, selected) == 0.0
    selected = rng.random((200_000, 8)).argsort(axis=1) < 3
    true = participation(selected & (rng.random((200_000, 8)) < law)).skew
    assert np.mean(np.abs(np.array(few) - true)) < 0.8 * np.mean(np.abs(np.array(plain) - true))
    assert np.mean(few) == pytest.approx(true, rel=0.25)
