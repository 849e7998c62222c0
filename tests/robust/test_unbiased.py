"""Weights 1/(n q_i): by hand, unbiased in the mean of many rounds, and q_i counted right."""

import numpy as np
import pytest
import torch

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation, heard_probability
from autofl.robust.aggregators import Arrived, Mean
from autofl.robust.aggregators.unbiased import Unbiased
from reference.updates import received


def arrived(ue, moves, probability, num_ue):
    stack = {"w": torch.tensor(moves, dtype=torch.float64)[:, None]}
    updates = received(np.array(ue), stack, {"w": torch.zeros(1, dtype=torch.float64)})
    return Arrived(updates, np.ones(len(ue)), np.array(probability), num_ue)


SENT = {"w": torch.zeros(1, dtype=torch.float64)}


def test_by_hand():
    heard = np.array([1.0, 0.5, 0.25, 1.0])
    # UE 1: 1 / (4 * 0.5 * 0.5) = 1; UE 2: 1 / (4 * 0.5 * 0.25) = 2
    together = Unbiased(heard)(SENT, arrived([1, 2], [3.0, 10.0], [0.5, 0.5], 4))
    assert together["w"].item() == pytest.approx(3.0 * 1.0 + 10.0 * 2.0)
    capped = Unbiased(heard, largest=6.0)(SENT, arrived([1, 2], [3.0, 10.0], [0.5, 0.5], 4))
    assert capped["w"].item() == pytest.approx(3.0 * 1.0 + 10.0 * 1.5)


def test_over_many_rounds_every_ue_counts_the_same_and_with_the_mean_it_does_not():
    rng = np.random.default_rng(1)
    moves, heard, select = np.array([1.0, 5.0, -3.0, 8.0]), np.array([0.9, 0.3, 0.5, 0.1]), 0.5
    unbiased, plain = [], []
    for _ in range(20_000):
        there = np.flatnonzero((rng.random(4) < select) & (rng.random(4) < heard))
        if len(there) == 0:
            unbiased.append(0.0)
            continue
        sent = arrived(there, moves[there], np.full(len(there), select), 4)
        unbiased.append(Unbiased(heard)(SENT, sent)["w"].item())
        plain.append(Mean()(SENT, sent)["w"].item())
    error = np.std(unbiased) / np.sqrt(len(unbiased))
    assert abs(np.mean(unbiased) - moves.mean()) < 4 * error
    assert abs(np.mean(plain) - moves.mean()) > 0.5


def test_how_often_a_ue_is_heard_is_counted_in_the_network_alone():
    settings = load_settings(
        overrides=[
            "preset=physical",
            "cell.distance={disc=500}",
            "planner.name=exact",
            "aggregator.name=unbiased",
        ]
    )
    sim = build_simulation(settings)
    counted = heard_probability(sim)
    np.testing.assert_array_equal(sim.arm.aggregator.heard_probability, counted)
    # Brute force: plan every UE in 4,000 drawn channels of this cell.
    cell, planner = sim.cell, sim.arm.planner
    gains = np.stack([sim.channel.gain(cell, 77, k) for k in range(4000)])
    feasible = planner(cell, gains, planner.init(cell))[0].feasible.mean(axis=0)
    assert np.abs(np.maximum(feasible, 1 / 500) - counted).max() < 4 * np.sqrt(0.25 / 500)
    assert counted.min() < 0.3 < 0.9 < counted.max()


def test_it_is_counted_among_the_rounds_a_ue_was_selected_in_whatever_the_rule():
    overrides = [
        "preset=physical",
        "cell.distance={disc=300}",
        "planner.name=exact",
        "aggregator.name=unbiased",
    ]
    uniform, by_data = (
        load_settings(overrides=[*overrides, f"selection.name={name}"])
        for name in ("uniform", "by-data")
    )
    sims = [build_simulation(settings) for settings in (uniform, by_data)]
    left, right = (sim.arm.aggregator.heard_probability for sim in sims)
    enough = sims[0].cell.data_size > 100  # who is hardly ever selected is hardly ever counted
    assert np.abs(left - right)[enough].max() < 0.15


def test_a_ue_that_is_never_heard_has_no_weight():
    with pytest.raises(AutoFLError, match="heard_probability: must be > 0 and <= 1"):
        Unbiased(heard_probability=np.array([0.5, 0.0]))
