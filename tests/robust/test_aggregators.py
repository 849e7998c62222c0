"""Robust aggregators against slow references, and how many liars each stands."""

import itertools

import numpy as np
import pytest
import torch

from autofl.registry import find
from autofl.robust.aggregators import Arrived, Mean
from reference.updates import received

SENT = {
    "w": torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).reshape(2, 3),
    "b": torch.zeros(2, dtype=torch.float64),
}
ROBUST = ["median", "trimmed-mean", "krum", "geometric-median", "centred-clipping", "mixed"]
FAR = 1e12


def aggregated(name, table, weight=None, **settings):
    """What a rule makes of changes given as rows of 8 numbers."""
    stack = {
        "w": torch.tensor(table[:, :6]).reshape(-1, 2, 3) + SENT["w"],
        "b": torch.tensor(table[:, 6:]),
    }
    weight = np.ones(len(table)) if weight is None else weight
    arrived = Arrived(
        received(np.arange(len(table)), stack, SENT),
        weight,
        np.full(len(table), 0.5),
        len(table),
    )
    made = find("aggregator", name).build(settings, {"heard_probability": 1.0})(SENT, arrived)
    return np.concatenate([(made["w"] - SENT["w"]).numpy().ravel(), made["b"].numpy()])


def slow_median(table, weight):
    """Each coordinate by counting: the mean of all points that split the weight in halves."""
    result = []
    for column in table.T:
        pairs = sorted(zip(column, weight, strict=True))
        total, below, middle = sum(weight), 0.0, []
        for place, (value, own) in enumerate(pairs):
            below += own
            if abs(below - total / 2) < 1e-9:
                middle = [value, pairs[place + 1][0]]
                break
            if below > total / 2:
                middle = [value]
                break
        result.append(np.mean(middle))
    return np.array(result)


def slow_trimmed(table, weight, cut):
    result = []
    for column in table.T:
        pairs = sorted(zip(column, weight, strict=True))[cut : len(column) - cut]
        result.append(sum(value * own for value, own in pairs) / sum(own for _, own in pairs))
    return np.array(result)


def slow_krum(table, weight, liars):
    score = []
    for i, one in enumerate(table):
        away = sorted(np.sum((one - other) ** 2) for j, other in enumerate(table) if j != i)
        score.append(sum(away[: len(table) - liars - 2]))
    kept = sorted(range(len(table)), key=lambda i: score[i])[: len(table) - liars]
    return np.average(table[kept], axis=0, weights=weight[kept])


def slow_mixed(table, weight, liars):
    mixed = []
    for one in table:
        near = sorted(range(len(table)), key=lambda j: np.sum((one - table[j]) ** 2))[
            : len(table) - liars
        ]
        mixed.append(np.average(table[near], axis=0, weights=weight[near]))
    return slow_trimmed(np.array(mixed), np.ones(len(table)), liars)


@pytest.mark.parametrize("num", [5, 8, 11])
@pytest.mark.parametrize("equal", [True, False])
def test_rules_are_those_of_slow_loops(rng, num, equal):
    table = rng.normal(size=(num, 8))
    weight = np.ones(num) if equal else rng.uniform(0.5, 2.0, num)
    liars = {5: 1, 8: 2, 11: 3}[num]
    share = liars / num
    np.testing.assert_allclose(
        aggregated("median", table, weight), slow_median(table, weight), rtol=1e-12
    )
    if equal:
        np.testing.assert_allclose(
            aggregated("median", table), np.median(table, axis=0), rtol=1e-12
        )
    for name, slow in (("trimmed-mean", slow_trimmed), ("krum", slow_krum), ("mixed", slow_mixed)):
        np.testing.assert_allclose(
            aggregated(name, table, weight, share=share),
            slow(table, weight, liars),
            rtol=1e-9,
            err_msg=name,
        )


def test_the_geometric_median_has_the_least_sum_of_distances(rng):
    from scipy.optimize import minimize

    table, weight = rng.normal(size=(7, 8)), rng.uniform(0.5, 2.0, 7)

    def total(z):
        return float(weight @ np.linalg.norm(table - z, axis=1))

    found_by_search = minimize(total, table.mean(axis=0), method="BFGS", options={"gtol": 1e-10}).x
    ours = aggregated("geometric-median", table, weight)
    np.testing.assert_allclose(ours, found_by_search, atol=1e-4)
    assert total(ours) <= total(found_by_search) * (1 + 1e-9)


def test_centred_clipping_by_hand():
    """On a line: centre 1, distances 1, 0, 99, median 1: each pulls at most 1, by a third."""
    table = np.zeros((3, 8))
    table[:, 0] = [0.0, 1.0, 100.0]
    assert aggregated("centred-clipping", table, steps=1)[0] == pytest.approx(
        1.0 + (-1.0 + 0.0 + 1.0) / 3
    )
    assert aggregated("centred-clipping", table, steps=1, radius=30.0)[0] == pytest.approx(
        1.0 + (-1.0 + 30.0) / 3
    )


def test_a_norm_bound_cuts_by_hand_and_is_the_mean_to_the_bit_where_nobody_is_long(rng):
    table = np.zeros((3, 8))
    table[:, 0] = [1.0, -2.0, 60.0]  # median length 2
    assert aggregated("norm-bound", table, bound=3.0)[0] == pytest.approx((1.0 - 2.0 + 6.0) / 3)
    honest, weight = rng.normal(size=(9, 8)), rng.uniform(0.5, 2.0, 9)
    np.testing.assert_array_equal(
        aggregated("norm-bound", honest, weight), aggregated("mean", honest, weight)
    )


def attacked(rng, liars, num=11):
    """Honest updates around (1, ..., 1), and liars far away together."""
    table = 1.0 + 0.1 * rng.normal(size=(num, 8))
    table[:liars] = -FAR * (1.0 + 0.01 * rng.normal(size=(liars, 8)))
    return table


BREAKS = {
    "median": 6,
    "trimmed-mean": 5,
    "krum": 5,
    "geometric-median": 6,
    "centred-clipping": 6,
    "mixed": 5,
}
"""Of 11 updates, how many liars carry a rule away; share 4/11 where it has one (krum: f is cut to
4).
"""


@pytest.mark.parametrize("name", ROBUST)
def test_a_rule_stands_as_many_liars_as_it_promises_and_breaks_with_more(rng, name):
    settings = {"share": 4 / 11} if name in ("trimmed-mean", "krum", "mixed") else {}
    for liars in range(BREAKS[name]):
        away = np.abs(aggregated(name, attacked(rng, liars), **settings) - 1.0).max()
        # sure of the honest hull, up to what 1e12 leaves of a double (centred clipping) and the
        # iteration's tolerance
        assert away < 0.5, (name, liars, away)
    broken = np.abs(aggregated(name, attacked(rng, BREAKS[name]), **settings) - 1.0).max()
    assert broken > 1e3, (name, broken)


def test_one_liar_is_enough_for_the_mean(rng):
    stack = {
        "w": torch.tensor(attacked(rng, 1)[:, :6]).reshape(-1, 2, 3),
        "b": torch.zeros(11, 2, dtype=torch.float64),
    }
    arrived = Arrived(received(np.arange(11), stack, SENT), np.ones(11), np.full(11, 0.5), 11)
    assert Mean()(SENT, arrived)["w"].abs().max() > 1e3


@pytest.mark.parametrize(
    ("name", "num"), list(itertools.product([*ROBUST, "norm-bound"], [1, 2, 3]))
)
def test_few_updates_are_aggregated_too(rng, name, num):
    table = rng.normal(size=(num, 8))
    made = aggregated(name, table)
    assert np.isfinite(made).all()
    if num == 1:
        np.testing.assert_allclose(made, table[0], rtol=1e-9, atol=1e-12)
