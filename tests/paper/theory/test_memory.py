"""Who is heard may depend on who was heard before: Theorem 2, its memory zeta, and what Theorem 1
then misses.
"""

import itertools
import math

import numpy as np
import pytest

from autofl.forecast.participation import Participation, participation
from autofl_paper.theory import (
    Constants,
    bound,
    bound_with_memory,
    markov_participation,
    memory_of,
    meta_of,
)

ONE_OF_TWO = np.array([[True, False], [False, True]])


def walk(transition: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """The states of a chain, started in the first."""
    edges, state, states = np.cumsum(transition, axis=1), 0, np.empty(num, np.int64)
    draws = rng.random(num)
    for k in range(num):
        states[k] = state = min(int(np.searchsorted(edges[state], draws[k])), len(edges) - 1)
    return states


def moments(
    slope: np.ndarray, pull: np.ndarray, transition: np.ndarray, start: float, num_rounds: int
) -> np.ndarray:
    """Mean over rounds of E[w_k^2] and E[w_k] for w <- w - slope_x w + pull_x, x the chain's state,
    exactly.

    Returns:
        Sums over rounds of E[w^2], E[w] and 1, each over num_rounds.
    """
    law = np.linalg.matrix_power(transition, 1 << 20)[0]
    zeroth, first, second = (
        law.copy(),
        start * law,
        start**2 * law,
    )  # by the state of the round to come
    total = np.zeros(3)
    for _ in range(num_rounds):
        total += [second.sum(), first.sum(), zeroth.sum()]
        stay = 1 - slope
        second = (stay**2 * second + 2 * stay * pull * first + pull**2 * zeroth) @ transition
        first = (stay * first + pull * zeroth) @ transition
        zeroth = zeroth @ transition
    return total / num_rounds


def test_persistent_participation_breaks_theorem_1_and_not_theorem_2():
    """f_i = (w - c_i)^2/2, c = 1 and -1; whoever was heard is heard again in 999 rounds of 1000.

    Each UE is heard in half of all rounds, so chi = 0 and Theorem 1 promises 0.018. But w follows
    whoever is heard now.
    """
    alpha, beta, num_rounds = 0.1, 0.01, 20_000
    transition = np.array([[0.999, 0.001], [0.001, 0.999]])
    slope = (1 - alpha) ** 2
    square, _, _ = moments(
        np.full(2, beta * slope), beta * slope * np.array([1.0, -1.0]), transition, 0.0, num_rounds
    )
    measured = slope**2 * square  # grad F = (1 - alpha)^2 w, F(0) is least
    meta = meta_of(Constants(1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0), alpha, 1, 1, 1)
    law, memory = markov_participation(ONE_OF_TWO, transition)
    assert law.skew == pytest.approx(0.0, abs=1e-9)
    assert memory == pytest.approx(0.998 / 0.002)
    assert bound(meta, law, 0.0, beta).after(num_rounds) == pytest.approx(0.0177, abs=1e-4)
    assert measured == pytest.approx(0.52, abs=0.01)
    assert measured <= bound_with_memory(meta, law, memory, 0.0, beta).after(num_rounds)
    small = bound_with_memory(
        meta, law, memory, 0.0, beta / 1e5
    )  # a step much shorter than the memory: it averages out
    assert small.floor < 0.001


def test_theorem_2_is_never_violated_on_200_random_chains():
    """F_i = Q_i (w - c_i)^2/2 without noise; w stays between the c_i, so the constants hold there."""
    nearest = []
    for seed in range(200):
        rng = np.random.default_rng([13, seed])
        num_ue, num_states = int(rng.integers(2, 5)), int(rng.integers(2, 6))
        decoded = rng.random((num_states, num_ue)) < 0.5
        decoded[np.arange(num_states), rng.integers(num_ue, size=num_states)] = True
        sticky = 10.0 ** rng.uniform(-3, 0)
        transition = (1 - sticky) * np.eye(num_states) + sticky * rng.dirichlet(
            np.ones(num_states), num_states
        )
        c, Q = rng.normal(size=num_ue), rng.uniform(0.1, 1.0, num_ue)
        beta, num_rounds = 10.0 ** rng.uniform(-3, 0), int(rng.integers(20, 500))
        weight = decoded / decoded.sum(axis=1, keepdims=True)
        q, r = Q.mean(), (Q * c).mean()
        start = float(rng.uniform(c.min(), c.max()))
        sums = moments(beta * weight @ Q, beta * weight @ (Q * c), transition, start, num_rounds)
        measured = float(np.dot([q**2, -2 * q * r, r**2], sums))  # grad F = q w - r
        ends = np.array([c.min(), c.max()])
        slopes = Q * (ends[:, None] - c)
        spread = (
            ((slopes - slopes.mean(axis=1, keepdims=True)) ** 2).mean(axis=1).max()
        )  # convex in w: largest at an end
        known = Constants(Q.max(), 0.0, np.abs(slopes).max(), 0.0, 0.0, spread, 0.0)
        law, memory = markov_participation(decoded, transition)
        promised = bound_with_memory(
            meta_of(known, 0.0, 1, 1, 1), law, memory, 0.5 * q * (start - r / q) ** 2, beta
        )
        assert measured <= promised.after(num_rounds), seed
        nearest.append(float(promised.after(num_rounds)) / max(measured, 1e-12))
    assert min(nearest) < 5.0


def test_the_memory_is_what_conditional_means_add_up_to():
    """Against sums of powers of the chain, which needs no Poisson equation; independent rounds have
    none.
    """
    rng = np.random.default_rng(5)
    decoded = rng.random((4, 3)) < 0.6
    decoded[:, 0] |= ~decoded.any(axis=1)
    transition = rng.dirichlet(np.ones(4), 4)
    law, memory = markov_participation(decoded, transition)
    weight, power, total = decoded / decoded.sum(axis=1, keepdims=True), np.eye(4), np.zeros((4, 3))
    for _ in range(500):
        power = power @ transition
        total += power @ weight - law.share
    assert memory == pytest.approx(math.sqrt(3 * power[0] @ (total**2).sum(axis=1)), rel=1e-6)
    same = np.tile(rng.dirichlet(np.ones(4)), (4, 1))
    assert markov_participation(decoded, same)[1] == pytest.approx(0.0, abs=1e-9)
    turns = markov_participation(ONE_OF_TWO, np.array([[0.0, 1.0], [1.0, 0.0]]))[
        1
    ]  # periodic: 1, 2, 1, 2, ...
    assert turns == pytest.approx(0.5)


def test_empty_rounds_do_not_count():
    """Whoever was heard is heard again, whatever lies between: the same chain with empty rounds put
    in.
    """
    decoded = np.array([[True, False], [False, True], [False, False], [False, False]])
    p, wait = 0.2, 0.7  # change UE with p, and be silent with `wait` before
    step = np.array([[1 - p, p], [p, 1 - p]])
    transition = np.block(
        [[(1 - wait) * step, wait * np.eye(2)], [(1 - wait) * step, wait * np.eye(2)]]
    )
    law, memory = markov_participation(decoded, transition)
    assert law.heard == pytest.approx(1 - wait)
    assert memory == pytest.approx(markov_participation(ONE_OF_TWO, step)[1])


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.98])
def test_draws_tell_the_memory_of_a_chain_and_none_of_independent_rounds(keep):
    rng = np.random.default_rng(7)
    transition = np.array([[keep, 1 - keep], [1 - keep, keep]])
    decoded = ONE_OF_TWO[walk(transition, 20_000, rng)]
    known = markov_participation(ONE_OF_TWO, transition)[1]
    assert memory_of(decoded) == pytest.approx(known, rel=0.4, abs=0.3)
    some = rng.random((20_000, 20)).argsort(axis=1) < 5
    assert memory_of(some) == 0.0
    assert memory_of(some[:3]) == 0.0


def test_without_memory_theorem_2_has_the_terms_worked_by_hand():
    meta = meta_of(Constants(2.0, 3.0, 5.0, 9.0, 4.0, 16.0, 0.25), 0.5, 3, 9, 2)
    law: Participation = participation(ONE_OF_TWO, np.array([0.9, 0.1]))
    beta, zeta = 0.02, 1.5
    promised = bound_with_memory(meta, law, zeta, 7.0, beta)
    steepest, spread = 2 * 5, math.sqrt(meta.spread)
    R = math.sqrt(meta.variance + (steepest + meta.bias) ** 2)
    assert promised.start == pytest.approx(2 * 7 / beta + 4 * zeta * steepest * spread)
    assert promised.bias == pytest.approx((math.sqrt(0.64) * spread + meta.bias) ** 2)
    assert promised.noise == pytest.approx(
        beta * 15.5 * (R**2 + 2 * zeta * (spread + steepest) * R)
    )


def hidden(
    num_ue: int, num_selected: int, lost: float, back: float
) -> tuple[np.ndarray, np.ndarray]:
    """UEs that fall out of reach and come back; of all, some are selected at random, and those
    within reach are heard.

    Returns:
        decoded and transition over all pairs of who is within reach and who is selected.
    """
    reach = list(itertools.product((0, 1), repeat=num_ue))
    chosen = list(itertools.combinations(range(num_ue), num_selected))
    one = np.array([[1 - back, back], [lost, 1 - lost]])
    turn = np.array(
        [[math.prod(one[a, b] for a, b in zip(x, y, strict=True)) for y in reach] for x in reach]
    )
    decoded = np.array(
        [[bool(x[i]) and i in some for i in range(num_ue)] for x in reach for some in chosen]
    )
    return decoded, np.kron(turn, np.full((len(chosen), len(chosen)), 1 / len(chosen)))


@pytest.mark.parametrize(
    "case", [(4, 1, 0.02, 0.02), (4, 2, 0.02, 0.02), (5, 2, 0.05, 0.02), (4, 2, 0.1, 0.2)]
)
def test_selection_at_random_hides_no_memory_from_the_draws(case):
    """A UE is rarely selected in two rounds running, so its own last round tells little of the
    next.
    """
    decoded, transition = hidden(*case)
    known = markov_participation(decoded, transition)[1]
    rng = np.random.default_rng(11)
    drawn = [memory_of(decoded[walk(transition, 20_000, rng)]) for _ in range(3)]
    assert np.median(drawn) == pytest.approx(known, rel=0.3)


def test_a_memory_that_no_single_round_shows_is_found():
    """One of 20 UEs is heard, of the first ten with 75 % or 25 %; these turn around every 40 rounds
    on average.

    By hand: E[a_i | state] - U = +- 0.025 * 0.95^l after l rounds, so zeta = sqrt(20 * 20) * 0.025
    * 0.95/0.05 = 9.5. From each UE's own last round alone, as an earlier estimate had it, zeta came
    out at 1.5.
    """
    num_ue, likely = 20, np.where(np.arange(20) < 10, 0.075, 0.025)
    law = np.stack([likely, likely[::-1]])
    states = np.kron([[0.975, 0.025], [0.025, 0.975]], np.ones((num_ue, num_ue))) * np.tile(
        law.ravel(), (40, 1)
    )
    decoded = np.tile(np.eye(num_ue, dtype=bool), (2, 1))
    assert markov_participation(decoded, states)[1] == pytest.approx(9.5)
    drawn = [
        memory_of(decoded[walk(states, 20_000, np.random.default_rng([3, seed]))])
        for seed in range(3)
    ]
    assert np.median(drawn) == pytest.approx(9.5, rel=0.3)
