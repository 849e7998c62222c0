"""Theorem 1 on problems whose constants are known: the corrected bound always holds, the printed one does not."""

import numpy as np

from autofl.theory import Constants, bound, meta_of, meta_smoothness, participation, printed_bound
from reference.quadratics import learn, random_problem

NUM_PROBLEMS = 200


def test_the_corrected_bound_is_never_violated_on_200_random_problems():
    tightest = []
    for seed in range(NUM_PROBLEMS):
        rng = np.random.default_rng([5, seed])
        problem = random_problem(rng)
        L_F = problem.smoothness * (1 + problem.alpha * problem.smoothness) ** 2  # rho = 0
        beta = rng.uniform(0.02, 1.9) / (problem.tau * L_F)
        num_rounds = int(rng.integers(5, 80))
        measured, constants = learn(problem, beta, num_rounds, num_runs=20, rng=rng)
        meta = meta_of(constants, problem.alpha, *problem.sizes)
        promised = bound(meta, problem.law, problem.excess(), beta, problem.tau)
        assert promised.holds
        assert measured <= promised.after(num_rounds), f"problem {seed}"
        tightest.append(float(promised.after(num_rounds)) / measured)
    assert min(tightest) < 5.0  # a bound far above everything would prove nothing


def test_with_two_unequal_ues_the_bound_is_near_and_the_printed_one_is_violated():
    """f_i = (w - c_i)^2 / 2 with c = 1, -1, all data in every batch, UE 1 heard in nine rounds of ten.

    E[w] goes to U_1 - U_2 = 0.8 whatever K and beta are, and there grad F = (1 - alpha)^2 0.8. The printed noise falls
    with beta, so a small beta and many rounds bring the printed bound below it.
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
