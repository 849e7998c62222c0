"""Which theorem speaks of a run: whether who is heard depends on earlier rounds, and what is not covered at all."""

import pytest

import autofl
from autofl.analysis.analyze import analyze, remembers
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.rounds.horizon import draw_horizon

FAR = ["preset=physical", "cell.distance={disc=400}"]


def drawn(*overrides, rounds=50):
    sim = build_simulation(autofl.load_settings(overrides=list(overrides)))
    return sim, draw_horizon(sim.network(sim.air), rounds)


def test_one_law_in_every_round_is_checked_against_planner_selection_and_channel():
    assert remembers(*drawn()) == []  # the paper's planner remembers, but everybody selected is heard
    assert remembers(*drawn(*FAR, "planner.name=exact")) == []  # UEs are lost, and nothing is remembered
    sim, horizon = drawn(*FAR)
    assert remembers(sim, horizon) == ["planner PaperPlanner remembers earlier rounds"]
    radio = drawn("channel.name=radio", "planner.name=exact", "cell.distance={disc=900}", rounds=5)
    assert any("gains of" in reason for reason in remembers(*radio))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("learning.variant=first-order", "exact meta-gradients"),
        ("learning.grad_clip=1.0", "plain steps"),
        ("aggregator.name=unbiased", "leave out aggregator"),
        ("compressor.name=quantise", "leave out compressor"),
    ],
)
def test_what_no_theorem_speaks_of_is_refused(override, words):
    with pytest.raises(AutoFLError, match=words):
        analyze(autofl.load_settings(overrides=[override]))
