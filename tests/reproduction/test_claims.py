"""Rules and claims on made-up numbers."""

import math

import numpy as np
import pytest

from autofl.reproduction.claims import CLAIMS
from autofl.reproduction.results import MEASURES, Row
from autofl.reproduction.verdicts import (
    MEANINGS,
    About,
    Above,
    Interval,
    View,
    difference,
    judge,
    median_interval,
    ratio,
)


def test_the_interval_of_the_median_is_known_for_five_and_ten_seeds():
    five = median_interval(np.array([3.0, 1.0, 2.0, 5.0, 4.0]))
    assert (five.median, five.low, five.high, five.coverage) == (3.0, 1.0, 5.0, 1 - 2 / 32)
    ten = median_interval(np.arange(10.0))
    assert (ten.median, ten.low, ten.high) == (4.5, 1.0, 8.0)  # second smallest and second largest
    assert ten.coverage == pytest.approx(1 - 2 * 11 / 1024)
    one = median_interval(np.array([7.0]))
    assert (one.median, one.low, one.high, one.coverage) == (7.0, 7.0, 7.0, 0.0)


def test_the_interval_covers_the_true_median_as_often_as_it_says(rng):
    draws = rng.exponential(size=(4000, 8))
    found = [median_interval(values) for values in draws]
    share = np.mean([each.low <= math.log(2) <= each.high for each in found])
    assert share == pytest.approx(found[0].coverage, abs=4 * math.sqrt(0.07 * 0.93 / 4000))


def test_infinite_times_count_and_pairs_without_any_time_do_not():
    never = math.inf
    np.testing.assert_array_equal(ratio(np.array([never, 4.0]), np.array([2.0, never])), [never, 0.0])
    assert np.isnan(ratio(np.array([never]), np.array([never])))
    assert np.isnan(difference(np.array([never]), np.array([never])))
    assert median_interval(np.array([never, 1.0, never])).median == never


@pytest.mark.parametrize(
    ("rule", "found", "verdict"),
    [
        (Above(1.0), (1.5, 1.1, 2.0), "holds"),
        (Above(1.0), (1.5, 0.9, 2.0), "partly"),
        (Above(1.0), (1.0, 1.0, 1.0), "does not hold"),
        (Above(1.0), (0.9, 0.5, 2.0), "does not hold"),
        (Above(2.0, weak=1.0), (1.5, 1.1, 1.9), "partly"),
        (Above(2.0, weak=1.0), (1.5, 0.9, 1.9), "does not hold"),
        (Above(2.0, weak=1.0), (2.5, 2.1, math.inf), "holds"),
        (About(50), (50, 36, 64), "holds"),
        (About(50), (50, 20, 64), "partly"),
        (About(50), (34, 20, 40), "does not hold"),
        (About(50), (math.inf, 40, math.inf), "does not hold"),
    ],
)
def test_each_rule_gives_the_stated_verdict(rule, found, verdict):
    assert rule.verdict(Interval(*found, coverage=0.9375)) == verdict


TIMES = {"AutoFL": 5.0, "Per-FedAvg": 12.0, "FedAvg-1": 15.0, "FedAvg-2": 10.0}
ROUNDS = {"AutoFL": 50, "Per-FedAvg": 70, "FedAvg-1": 100, "FedAvg-2": 100}


def row(study, arm, x, seed, **values):
    every = dict.fromkeys(MEASURES, 0.5)
    for name, value in values.items():
        every |= {f"{name}_{metric}": value * (1 + 0.001 * seed) for metric in ("adapted", "global")}
    return Row("", study, arm, x, seed, every)


def world(right):
    """Results as the paper tells them, or with the order of everything turned round."""
    sign = 1.0 if right else -1.0
    rows = []
    for seed in range(1, 6):
        for study, slower in (("mnist-iid", 1.0), ("mnist", 2.0), ("cifar10", 4.0)):
            for arm, time in TIMES.items():
                maml = 1.0 if "AutoFL" in arm or "Per" in arm or study != "cifar10" else 2.0
                rows.append(row(study, arm, 0, seed, time=(slower * time * maml) ** sign,
                                unrest=(0.01 * slower) ** sign,
                                rounds=ROUNDS[arm] if right else 500 / ROUNDS[arm], best=0.9 - sign * 0.01 * time,
                                loss=0.5 + sign * 0.02 * time))  # fmt: skip
        for study, gain in (("samples-mnist", 1.0), ("samples-cifar10", 2.0)):
            rows.append(row(study, "AutoFL", 0, seed, time=1.0))
            for d, time in ((5, 20.0), (20, 12.0), (40, 9.0), (60, 30.0)):
                rows.append(row(study, f"Per-FedAvg, d = {d}", 0, seed, time=(time**gain) ** sign))
        for arm, time in TIMES.items():
            for radius in (50, 200, 600, 1000):
                far = (radius / 1000) ** 3
                rows.append(row("radius", arm, radius, seed, rounds=300 + sign * 200 * far,
                                best=0.5 - sign * (0.1 + 0.01 * time) * far))  # fmt: skip
            for labels in (1, 5, 10):
                rows.append(row("labels", arm, labels, seed, rounds=300 - sign * 20 * labels,
                                best=0.5 + sign * 0.02 * labels - sign * 0.01 * time / labels))  # fmt: skip
    return rows


@pytest.mark.parametrize("meaning", MEANINGS)
def test_where_the_paper_is_right_every_claim_holds(meaning):
    judged = {claim.name: judge(claim, View(world(True), meaning)).verdict for claim in CLAIMS}
    assert set(judged.values()) == {"holds"}, {name: v for name, v in judged.items() if v != "holds"}


def test_where_everything_is_the_other_way_round_no_claim_holds():
    judged = {claim.name: judge(claim, View(world(False))).verdict for claim in CLAIMS}
    assert set(judged.values()) == {"does not hold"}, {n: v for n, v in judged.items() if v != "does not hold"}


def test_a_claim_without_its_runs_or_without_any_time_is_not_measured():
    rows = [each for each in world(True) if each.study != "cifar10"]
    judged = {claim.name: judge(claim, View(rows)) for claim in CLAIMS}
    assert judged["twice-cifar10"].verdict == judged["maml-more-on-cifar10"].verdict == "not measured"
    assert judged["twice-mnist"].verdict == "holds"
    never = [row("mnist", arm, 0, seed, time=math.nan) for arm in TIMES for seed in range(1, 6)]
    assert {judge(claim, View(never)).verdict for claim in CLAIMS if claim.name == "twice-mnist"} == {"not measured"}


def test_mixed_judges_maml_adapted_and_fedavg_global():
    values = {"time_adapted": 1.0, "time_global": 2.0}
    rows = [Row("", "mnist", arm, 0, 1, values) for arm in TIMES]
    view = View(rows, "mixed")
    assert [float(view("time", "mnist", arm)[0]) for arm in TIMES] == [1.0, 1.0, 2.0, 2.0]


def test_every_claim_has_a_name_of_its_own():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) >= 45
