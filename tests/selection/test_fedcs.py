"""FedCS by hand, against the algorithm written out step by step, and against counting."""

from itertools import combinations

import numpy as np
import pytest

from autofl.algorithms import FedAvg
from autofl.config import load_settings
from autofl.core.arm import Arm
from autofl.errors import AutoFLError
from autofl.jobs.run import run
from autofl.network import Cell, round_cost
from autofl.planner import FixedPlanner
from autofl.rng import stream
from autofl.robust.aggregators.unbiased import Unbiased
from autofl.selection import Candidates
from autofl.selection.fedcs import FedCS


def by_hand(update, upload):
    """A cell whose UEs compute and send for so many seconds: at unit SNR each hertz carries a bit a
    second.
    """
    update, upload = np.asarray(update, dtype=float), np.asarray(upload, dtype=float)
    cell = Cell(
        distance=np.full(len(update), 100.0),
        cycles_per_sample=update * 1e9 / 10.0,
        cpu_frequency=np.array(1e9),
        max_energy=np.array(1e6),
        max_power=np.array(1.0),
        bandwidth=1e6 / upload,
        update_bits=np.array(1e6),
        snr_threshold=0.5,
    )
    gain = cell.noise_power / cell.max_power
    return Candidates(cell, 1, lambda: gain)


def test_the_estimate_is_the_time_that_a_round_takes_with_these_constants():
    cell = Cell.disc(
        12, 250.0, seed=3, data_size=np.array(30.0), max_energy=np.linspace(5e-4, 3e-3, 12)
    )
    gain = np.random.default_rng(1).exponential(1.0, 12) * cell.distance**-3.8
    plan, _ = FixedPlanner(num_samples=40)(cell, gain, {})
    cost = round_cost(cell, gain, plan)
    computing, sending = FedCS(num_samples=40)._times(Candidates(cell, 1, lambda: gain))
    on = plan.feasible
    assert 3 <= on.sum() < 12
    np.testing.assert_allclose(
        (computing + sending)[on], (cost.compute_time + cost.upload_time)[on], rtol=1e-9
    )
    assert np.isinf(sending[~on]).all()


def test_in_turn_by_hand():
    """Computing 1, 4, 2, 9 s and sending 3, 1, 2, 1 s: the first adds 4, then 2 adds 2, then 1 adds
    1; 9 is left out.

    At the start UE 0 and UE 2 both add 4 s; the first is taken. Then Theta = 4: UE 1 adds 1 (it has
    computed meanwhile), UE 2 adds 2, UE 3 adds 1 + 5. So 1 follows (5), then 2 (7), then 3 would
    add 1 + 2 (10).
    """
    candidates = by_hand([1, 4, 2, 9], [3, 1, 2, 1])
    rule = FedCS(deadline=9.0, upload="sequential", num_samples=10)
    assert rule._chosen(candidates, np.arange(4)).tolist() == [0, 1, 2]
    assert rule.probability(candidates).tolist() == [1.0, 1.0, 1.0, 0.0]
    longer = FedCS(deadline=10.0 + 1e-9, upload="sequential", num_samples=10)
    assert longer._chosen(candidates, np.arange(4)).tolist() == [0, 1, 2, 3]
    late = FedCS(deadline=10.0, upload="sequential", num_samples=10, overhead=3.5)
    assert late._chosen(candidates, np.arange(4)).tolist() == [0, 1]


def test_side_by_side_by_hand():
    """Totals 4, 5, 4, 10 s: a deadline of 6 s takes three, one of 3 s nobody, so the quickest
    alone.
    """
    candidates = by_hand([1, 4, 2, 9], [3, 1, 2, 1])
    assert FedCS(deadline=6.0, num_samples=10).draw(candidates, stream(1, "x")).ue.tolist() == [
        0,
        1,
        2,
    ]
    assert FedCS(deadline=6.0, num_samples=10, num_selected=2).draw(
        candidates, stream(1, "x")
    ).ue.tolist() == [0, 2]
    assert FedCS(deadline=3.0, num_samples=10).draw(candidates, stream(1, "x")).ue.tolist() == [0]


def printed(update, upload, deadline):
    """Their Algorithm 3, line by line, without downlink: the set S."""
    left, chosen, theta = set(range(len(update))), set(), 0.0
    while left:
        x = max(sorted(left), key=lambda k: 1.0 / (upload[k] + max(0.0, update[k] - theta)))
        left.remove(x)
        theta_after = theta + upload[x] + max(0.0, update[x] - theta)
        if theta_after < deadline:
            theta, chosen = theta_after, chosen | {x}
    return chosen


@pytest.mark.parametrize("seed", range(30))
def test_it_is_their_algorithm(seed):
    rng = np.random.default_rng(seed)
    update, upload, deadline = (
        rng.uniform(0.1, 5.0, 12),
        rng.uniform(0.1, 2.0, 12),
        rng.uniform(2.0, 15.0),
    )
    rule = FedCS(deadline=deadline, upload="sequential", num_samples=10, num_selected=12)
    ue = rule.draw(by_hand(update, upload), stream(seed, "x")).ue
    expected = printed(update, upload, deadline) or {int(np.argmin(update + upload))}
    assert set(ue.tolist()) == expected


@pytest.mark.parametrize(
    ("share", "most", "deadline"), [(0.5, 2, 6.0), (0.34, 5, 4.5), (0.7, 1, 6.0), (0.5, 5, 0.1)]
)
def test_probabilities_are_those_of_all_draws_of_candidates(share, most, deadline):
    rng = np.random.default_rng(5)
    update, upload = rng.uniform(0.5, 5.0, 8), rng.uniform(0.5, 3.0, 8)
    candidates = by_hand(update, upload)
    rule = FedCS(deadline=deadline, share=share, num_samples=10, num_selected=most)
    draws = list(combinations(range(8), int(np.ceil(share * 8))))
    often = np.zeros(8)
    for draw in draws:
        quick = sorted((update[i] + upload[i], i) for i in draw)
        inside = [i for time, i in quick if time <= deadline][:most] or [quick[0][1]]
        often[inside] += 1
    np.testing.assert_allclose(rule.probability(candidates), often / len(draws), rtol=1e-12, atol=0)
    ue, probability = rule.draw(candidates, stream(1, "x"))
    np.testing.assert_array_equal(probability, rule.probability(candidates)[ue])


def test_what_cannot_be_known_is_said():
    candidates = by_hand([1, 4, 2, 9], [3, 1, 2, 1])
    rule = FedCS(deadline=9.0, upload="sequential", share=0.5, num_samples=10)
    with pytest.raises(AutoFLError, match="nobody knows"):
        rule.probability(candidates)
    assert np.isnan(rule.draw(candidates, stream(1, "x")).probability).all()


def test_unbiased_weights_are_refused():
    with pytest.raises(AutoFLError, match="take the aggregator mean"):
        Arm(FedAvg(0.03), FixedPlanner(), FedCS(), aggregator=Unbiased())


@pytest.mark.parametrize(("upload", "deadline"), [("parallel", 0.17), ("sequential", 0.49)])
def test_a_run_has_rounds_of_several_sizes_within_the_deadline(upload, deadline, tmp_path):
    changes = [
        'selection.name="fedcs"',
        f"selection.deadline={deadline}",
        f'selection.upload="{upload}"',
        "selection.share=0.4",
        "planner.name=fixed",
        "preset=physical",
        "stop.rounds=12",
        "evaluation.every=12",
        "evaluation.test_samples=20",
    ]
    rounds = run(load_settings(overrides=changes), tmp_path / upload).rounds
    assert len(set(rounds["num_selected"][1:].tolist())) > 1
    several = rounds["num_selected"] > 1
    assert several.any()
    assert (rounds["round_time"][several] <= deadline).all()


def test_an_overhead_as_long_as_the_deadline_is_refused():
    with pytest.raises(AutoFLError, match="leave nothing of the deadline"):
        FedCS(overhead=0.2)
