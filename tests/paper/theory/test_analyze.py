"""Which theorem speaks of a run: whether who is heard depends on earlier rounds, and what is not
covered at all.
"""

from dataclasses import replace

import numpy as np
import pytest

import autofl
from autofl.core.horizon import draw_horizon
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.selection import Uniform
from autofl_paper.theory.analyze import analyze, remembers

FAR = ["preset=physical", "cell.distance={disc=400}"]


def drawn(*overrides, rounds=50):
    sim = build_simulation(autofl.load_settings(overrides=list(overrides)))
    return sim, draw_horizon(sim, rounds)


def test_one_law_in_every_round_is_checked_against_planner_selection_and_channel():
    assert (
        remembers(*drawn()) == []
    )  # the paper's planner remembers, but everybody selected is heard
    assert (
        remembers(*drawn(*FAR, "planner.name=exact")) == []
    )  # UEs are lost, and nothing is remembered
    sim, horizon = drawn(*FAR)
    assert remembers(sim, horizon) == ["planner PaperPlanner remembers earlier rounds"]
    radio = drawn("channel.name=radio", "planner.name=exact", "cell.distance={disc=900}", rounds=5)
    assert any("gains of" in reason for reason in remembers(*radio))


class Steady(Uniform):
    """The same UEs in every round."""

    def draw(self, candidates, rng):
        del rng
        return super().draw(candidates, np.random.default_rng(1))


def test_a_selection_that_is_not_ours_may_remember():
    sim, horizon = drawn(*FAR, "planner.name=exact")
    own = replace(sim, arm=replace(sim.arm, selection=Steady(5)))
    assert remembers(own, horizon) == ["selection Steady may look at the number of the round"]


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
