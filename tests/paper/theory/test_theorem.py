"""Theorem 1 on problems whose constants are known: the corrected bound always holds, the printed
one does not.
"""

import math

import numpy as np
import pytest

from autofl.forecast.participation import participation
from autofl_paper.theory import Constants, bound, meta_of, meta_smoothness, printed_bound
from reference.quadratics import learn, random_problem

NUM_PROBLEMS = 200


def test_the_corrected_bound_is_never_violated_on_200_random_problems():
    tightest = []
    for seed in range(NUM_PROBLEMS):
        rng = np.random.default_rng([5, seed])
        problem = random_problem(rng, disjoint=seed % 2 == 1)
        L_F = problem.smoothness * (1 + problem.alpha * problem.smoothness) ** 2  # rho = 0
        beta = rng.uniform(0.02, 1.9) / (problem.tau * L_F)
        num_rounds = int(rng.integers(5, 80))
        measured, constants = learn(problem, beta, num_rounds, num_runs=20, rng=rng)
        owned = float(problem.linear.shape[1]) if problem.disjoint else math.inf
        meta = meta_of(constants, problem.alpha, *problem.sizes, owned=owned)
        promised = bound(meta, problem.law, problem.excess(), beta, problem.tau)
        assert promised.holds
        assert measured <= promised.after(num_rounds), f"problem {seed}"
        tightest.append(float(promised.after(num_rounds)) / measured)
    assert min(tightest) < 5.0  # a bound far above everything would prove nothing


def test_with_two_unequal_ues_the_bound_is_near_and_the_printed_one_is_violated():
    """f_i = (w - c_i)^2 / 2 with c = 1, -1, all data in every batch, UE 1 heard in nine rounds of
    ten.

    E[w] goes to U_1 - U_2 = 0.8 whatever K and beta are, and there grad F = (1 - alpha)^2 0.8. The
    printed noise falls with beta, so a small beta and many rounds bring the printed bound below it.
    """
    alpha, beta, num_rounds = 0.1, 2e-4, 500_000
    share = np.array([0.9, 0.1])
    law = participation(np.array([[True, False], [False, True]]), share)
    constants = Constants(1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0)
    slope = (1 - alpha) ** 2
    mean_w = 0.8 * (1 - (1 - beta * slope) ** np.arange(num_rounds))  # E[w_k] from w_0 = 0
    measured = float(np.mean((slope * mean_w) ** 2))  # ||grad F(E w)||^2 <= E||grad F(w)||^2
    excess = 0.0  # F(0) is the least value of F
    printed = printed_bound(constants, share, excess, alpha, beta, 1, 1, 1)
    appendix = printed_bound(constants, share, excess, alpha, beta / 4, 1, 1, 1, appendix=True)
    corrected = bound(meta_of(constants, alpha, 1, 1, 1), law, excess, beta)
    assert printed.holds
    assert printed.after(num_rounds) < 0.4 * measured
    assert appendix.noise < 0.4 * measured  # the coefficients of the appendix do not save it
    assert measured <= corrected.after(num_rounds) < 2.5 * measured
    assert meta_smoothness(constants, alpha) * beta < 1


@pytest.mark.parametrize("s", [1.0, 0.5, 0.1])
def test_noise_alone_attains_the_bound_at_s_1_and_half_of_it_for_small_steps(s):
    """f = w^2/2, alpha = 0, gradients w + xi with E xi^2 = 1: E||grad F||^2 tends to s/(2 - s), the
    bound to s.
    """
    num_rounds, start = 100_000, 0.0
    second = measured = start**2
    for _ in range(num_rounds - 1):
        second = (1 - s) ** 2 * second + s**2
        measured += second
    measured /= num_rounds
    constants = Constants(1.0, 0.0, 1e9, 1.0, 0.0, 0.0, 0.0)
    law = participation(np.ones((1, 1), dtype=bool))
    promised = float(
        bound(meta_of(constants, 0.0, 1, 1, 1), law, start**2 / 2, s).after(num_rounds)
    )
    assert measured <= promised
    assert measured / promised == pytest.approx(1 / (2 - s), rel=1e-3)


def test_the_start_is_attained_up_to_a_factor_of_2_and_the_bias_exactly():
    """Without noise, s -> 0: a slope of length 1 gives 2 for 1; unequal UEs, alpha = 0, give chi^2
    gamma_F^2 itself.
    """
    everybody = participation(np.ones((1, 1), dtype=bool))
    beta, num_rounds = (
        1e-3,
        1000,
    )  # f = -w as long as it lasts: F falls by beta a round, ||grad F|| = 1
    slope = bound(
        meta_of(Constants(1e-9, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0), 0.0, 1, 1, 1),
        everybody,
        beta * num_rounds,
        beta,
    )
    assert slope.after(num_rounds) == pytest.approx(2.0, rel=1e-6)
    share, beta, num_rounds = np.array([0.9, 0.1]), 1e-5, 10_000_000
    law = participation(np.array([[True, False], [False, True]]), share)
    gap = (1 - beta) ** np.array(
        [0.0, num_rounds]
    )  # f_i = (w - c_i)^2/2 from w_0 = 0: E w_k = 0.8 (1 - (1 - beta)^k)
    sums = (1 - gap[1]) / beta, (1 - gap[1] ** 2) / (1 - (1 - beta) ** 2)
    measured = 0.64 * (num_rounds - 2 * sums[0] + sums[1]) / num_rounds
    promised = bound(
        meta_of(Constants(1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0), 0.0, 1, 1, 1), law, 0.0, beta
    )
    assert measured <= promised.after(num_rounds) < 1.03 * measured
