"""Simulated liars: what they send, by hand; who they are; what the server's checks leave of them."""

import copy
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from autofl.config import load_settings
from autofl.core.liars import Lies
from autofl.core.simulation import simulate, simulated
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.experiments.data import build_data
from autofl.robust.attacks import Attacked
from autofl.robust.attacks.little_is_enough import LittleIsEnough
from autofl.robust.attacks.simple import LabelFlip, Noise, SignFlip
from autofl.robust.attacks.together import Together
from autofl.robust.checks import Bounds, Checks
from autofl.robust.screen import Screen

RNG = np.random.default_rng(1)


def attacked(honest, liars):
    table = torch.tensor(honest, dtype=torch.float64)
    return Attacked(
        table, np.array(liars), 5.0 * torch.ones(len(liars), table.shape[1], dtype=torch.float64)
    )


def test_lies_by_hand():
    honest = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert SignFlip(10.0)(attacked(honest, [1]), RNG).tolist() == [[-30.0, -40.0]]
    assert Noise(3.0)(attacked(honest, [1, 2]), RNG).norm(dim=1).tolist() == pytest.approx(
        [15.0, 3 * math.sqrt(61)]
    )
    assert LabelFlip().labels(torch.tensor([0, 3, 9]), 10).tolist() == [9, 6, 0]


def test_liars_together_send_one_direction_against_the_others_each_as_long_as_its_own_update():
    """The honest mean is (3, 4), of length 5; the liars' own lengths are 13 and 10."""
    told = Together()(attacked([[2.0, 4.0], [5.0, 12.0], [4.0, 4.0], [6.0, -8.0]], [1, 3]), RNG)
    np.testing.assert_allclose(told.numpy(), [[-7.8, -10.4], [-6.0, -8.0]])
    alone = Together(2.0)(
        attacked([[3.0, 4.0]], [0]), RNG
    )  # nobody is honest: against their own mean
    np.testing.assert_allclose(alone.numpy(), [[-6.0, -8.0]])


def test_little_is_enough_by_the_papers_formula():
    """m = 50, f = 24 (their example): s = 2, Phi(z) = 24/26 = 0.923, z = 1.43."""
    rng = np.random.default_rng(3)
    honest = rng.normal(size=(50, 3))
    told = LittleIsEnough()(attacked(honest, list(range(24))), RNG)
    others = honest[24:]
    expected = others.mean(axis=0) - 1.4261 * others.std(axis=0, ddof=1)
    np.testing.assert_allclose(told.numpy(), np.tile(expected, (24, 1)), rtol=1e-3)


def test_little_is_enough_with_a_spread_draws_its_deviations_anew_for_every_weight_and_liar():
    """With normal draws the number of deviations has mean z and standard deviation z times the
    spread.
    """
    honest = np.random.default_rng(3).normal(size=(12, 20_000))
    told = LittleIsEnough(z=2.0, spread=0.5)(attacked(honest, [0, 1]), RNG).numpy()
    deviations = (honest[2:].mean(axis=0) - told) / honest[2:].std(axis=0, ddof=1)
    assert deviations.mean(axis=1) == pytest.approx([2.0, 2.0], abs=0.03)  # 4 standard errors
    assert deviations.std(axis=1) == pytest.approx([1.0, 1.0], abs=0.02)
    assert abs(np.corrcoef(deviations)[0, 1]) < 0.03


def test_a_bound_by_the_median_by_hand():
    steps, samples = np.array([1, 1, 2, 1]), np.array([10, 10, 10, 10])

    def left_out(*norm, bound=2.0, screen=None):
        num = len(norm)
        return list(
            (screen or Screen(bound))(
                np.arange(num), np.array(norm), steps[:num], samples[:num], 1.0
            )
        )

    # l = 1, 1, 1.5, x: the median is 1.25 for large x; the bound is 2 * (1 + 5/10) * 1.25 = 3.75
    assert left_out(1.0, 1.0, 3.0, 3.7) == []
    assert left_out(1.0, 1.0, 3.0, 3.8) == [3]
    assert left_out(1.0, 1.0, 3.0, 1e9, bound=0.0) == []
    assert left_out(np.nan, 1.0, 1.0) == [0]
    assert left_out(1.0, np.inf, 2.0) == [1]
    # Of two nothing is usual yet: 10 times 1 + the model, which is 20.
    assert left_out(1.0, 21.0) == [1]
    assert left_out(1.0, 19.0) == []
    # The second round has three liars of four; usual is 1, so what was 1.5 at most counts: 2 * 1.5
    # * 1.5 = 4.5.
    screen = Screen(2.0)
    assert left_out(1.0, 1.0, 2.0, 1.0, screen=screen) == []
    assert left_out(1.0, 7.0, 14.0, 7.0, screen=screen) == [1, 2, 3]
    # And of two it is 1: UE 1, which was long once before, may not be longer than 3 a second time.
    assert left_out(1.0, 3.1, screen=screen) == [1]
    assert left_out(1.0, 2.9, screen=screen) == []


def test_one_long_update_among_short_ones_is_no_lie_and_a_third_is():
    ones = np.ones(4, dtype=np.int64)
    screen = Screen(2.0)

    def left_out(*norm):
        return list(
            screen(np.arange(4), np.array(norm), ones, 5 * ones, 1.0)
        )  # the bound is 4 medians

    for _ in range(3):
        assert left_out(1.0, 1.0, 1.0, 1.0) == []
    for _ in range(40):
        assert (
            left_out(0.1, 0.1, 0.1, 0.1) == []
        )  # usual is 0.1, and counts as a third of the longest
    assert left_out(0.1, 0.1, 0.1, 1.4) == []  # more than 4/3, once
    assert left_out(0.1, 0.1, 0.1, 0.1) == []
    assert left_out(0.1, 0.1, 0.1, 4.1) == [3]  # more than 4 times the longest there was
    assert left_out(0.1, 0.1, 0.1, 1.4) == [3]  # the third of five
    assert left_out(0.1, 0.1, 0.1, 1.3) == []
    for _ in range(3):
        left_out(0.1, 0.1, 0.1, 0.1)
    assert left_out(0.1, 0.1, 0.1, 1.4) == []  # forgiven


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["autofl", "per-fedavg", "fedavg-1"])
def test_where_nobody_lies_the_bound_changes_no_bit(few_digits, algorithm):
    """Three UEs with few samples: their lengths have the heaviest tail there is, 80 medians and
    more.
    """
    settings = load_settings(
        overrides=[
            *(
                "cell.num_ue=3",
                "stop.rounds=120",
                "evaluation.every=120",
                "evaluation.test_samples=5",
            ),
            f"arm={algorithm}",
        ]
    )
    made = build_simulation(settings, data=build_data(settings, few_digits))
    nobody = np.zeros(0, dtype=np.int64)
    off, on = (
        list(simulate(replace(made, lies=Lies(None, nobody, Bounds(bound)))))[-1][1]
        for bound in (0.0, 5.0)
    )
    for name, array in off.params.items():
        np.testing.assert_array_equal(array.numpy(), on.params[name].numpy())


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["autofl", "per-fedavg", "fedavg-1"])
def test_where_nobody_lies_the_default_checks_change_no_bit_unless_they_shorten(
    few_digits, algorithm
):
    """Ten UEs in a round: enough for the check of evenness, which needs five updates."""
    names = (
        "cell.num_ue=10",
        "simulation.num_selected=10",
        "stop.rounds=40",
        "evaluation.every=40",
    )
    settings = load_settings(overrides=[*names, f"arm={algorithm}"])
    made = build_simulation(settings, data=build_data(settings, few_digits))
    usual = Bounds(**settings.checks.model_dump())
    assert usual.norm_bound > 0.0
    assert usual.evenness > 0.0
    nobody = np.zeros(0, dtype=np.int64)
    whole = replace(usual, shorten=0.0)
    off, on = (
        list(simulate(replace(made, lies=Lies(None, nobody, bounds))))[-1][1]
        for bounds in (Bounds(), whole)
    )
    for name, array in off.params.items():
        np.testing.assert_array_equal(array.numpy(), on.params[name].numpy())


def test_a_long_update_counts_no_more_than_one_of_the_usual_length_for_each_local_step_by_hand():
    steps = np.array([1, 2, 1, 1, 1])
    norm = np.array([1.0, 4.0, 2.0, 2.0, 4.0])  # l = 1, 2, 2, 2, 4: the median is 2
    for bound in (5.0, 0.0):  # with or without leaving out
        screen = Screen(bound, 1.5)
        assert screen(np.arange(5), norm, steps, 10 * steps, 1.0) == {}
        np.testing.assert_allclose(
            screen.parts(norm, steps), [1.0, 1.0, 1.0, 1.0, 3.0 / 4.0], rtol=1e-12
        )
    checks = Checks(Bounds(5.0, shorten=1.5))
    changes = torch.from_numpy(norm[:, None] * np.eye(5))
    refused, added = checks(np.arange(5), norm, steps, 10 * steps, 1.0, lambda: changes)
    assert refused == {}
    np.testing.assert_allclose(changes + added, np.diag([1.0, 4.0, 2.0, 2.0, 3.0]), rtol=1e-12)
    assert not added[:4].any()  # nothing of the others is touched
    short = checks(np.arange(4), norm[:4], steps[:4], 10 * steps[:4], 1.0, lambda: changes[:4])
    assert short == ({}, None)


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["attack.at=4.9", "attack.scale=4.0"])
def test_one_liar_of_ten_just_below_the_bound_does_not_keep_the_default_from_learning(
    few_digits, lie
):
    name = "together" if lie.startswith("attack.at") else "sign-flip"
    rounds = ("stop.rounds=15", "evaluation.every=15")
    usual, unshortened = (
        liars_of(few_digits, f"attack.name={name}", lie, "attack.share=0.1", *rounds, *more)[1][-1][
            0
        ].evaluation
        for more in ([], ["checks.shorten=0"])
    )
    assert usual.adapted_accuracy > 0.6
    assert unshortened.adapted_accuracy < 0.5


def liars_of(few_digits, *overrides):
    settings = load_settings(
        overrides=[
            *(
                "cell.num_ue=10",
                "simulation.num_selected=10",
                "stop.rounds=4",
                "evaluation.every=4",
            ),
            *overrides,
        ]
    )
    sim = build_simulation(settings, data=build_data(settings, few_digits))
    return sim, list(simulate(sim))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("attack", ["not-a-number", "huge", "scaled", "sign-flip"])
def test_who_is_left_out_is_who_lies(few_digits, attack, share):
    sim, records = liars_of(few_digits, f"attack.name={attack}", f"attack.share={share}")
    assert len(sim.lies.ue) == round(10 * share)
    for record, _ in records[1:]:
        assert record.ue[~record.arrived].tolist() == sim.lies.ue.tolist()
    accuracy = [record.evaluation.adapted_accuracy for record, _ in (records[0], records[-1])]
    assert accuracy[1] > accuracy[0] + 0.1


@pytest.mark.slow
def test_liars_that_begin_later_are_honest_before(few_digits):
    lying = ("attack.name=huge", "attack.share=0.2")
    honest = [
        state.params for _, state in liars_of(few_digits, "attack.name=huge", "attack.share=0.0")[1]
    ]
    sim, late = liars_of(few_digits, *lying, "attack.begin=3")
    for k, (record, state) in enumerate(late):
        left_out = record.ue[~record.arrived].tolist()
        assert left_out == (sim.lies.ue.tolist() if k >= 3 else [])
        same = all(torch.equal(p, honest[k][name]) for name, p in state.params.items())
        assert same == (k < 3)


def test_a_lie_in_the_training_data_cannot_begin_later():
    why = "begin: a lie in the training data begins in round 1; leave it out"
    with pytest.raises(AutoFLError, match=why):  # when the settings are read, so nothing is written
        load_settings(overrides=["attack.name=label-flip", "attack.begin=2"])


@dataclass(frozen=True)
class Forgetful:
    """A user's own attack that uses what it has not asked to be kept."""

    def __call__(self, attacked, rng):
        return attacked.first + attacked.own


@dataclass(frozen=True)
class Mindful(Forgetful):
    remembers: ClassVar[bool] = True


def test_an_own_attack_gets_the_first_updates_if_it_says_so_and_then_checkpoints_keep_them(
    few_digits,
):
    sim, _ = liars_of(few_digits, "attack.name=zeros")
    with pytest.raises(
        AutoFLError, match=r"attacked.first: only for an attack with `remembers = True`"
    ):
        list(simulate(replace(sim, lies=replace(sim.lies, attack=Forgetful()))))
    sim = replace(sim, lies=replace(sim.lies, attack=Mindful(), bounds=Bounds()))
    whole = [(record, copy.deepcopy(past)) for _, record, past in simulated(sim)]
    middle = whole[2][1]
    assert {f"liars.#{ue}" for ue in sim.lies.ue.tolist()} <= set(middle.world)
    *_, (_, _, rest) = simulated(sim, middle)
    for name, p in whole[-1][1].state.params.items():
        assert torch.equal(rest.state.params[name], p)


def test_nobody_lies_with_a_share_of_nothing(few_digits):
    plain = liars_of(few_digits)[1][-1][1].params
    nobody = liars_of(few_digits, "attack.name=sign-flip", "attack.share=0.0")[1][-1][1].params
    for name, p in plain.items():  # another order of sums
        torch.testing.assert_close(nobody[name], p, rtol=1e-5, atol=5e-7)


def test_flipped_labels_are_the_liars_training_labels_and_no_others(few_digits):
    settings = load_settings(overrides=["cell.num_ue=10"])
    data = build_data(settings, few_digits)
    other = Lies(LabelFlip(), np.array([2, 5])).data(data)
    wrong = np.concatenate([data.partition.train_of(ue) for ue in (2, 5)])
    rest = np.setdiff1d(np.arange(len(data.y)), wrong)
    assert (other.y[wrong] == 9 - data.y[wrong]).all()
    assert (other.y[rest] == data.y[rest]).all()


@pytest.mark.slow
def test_a_robust_rule_learns_where_the_mean_does_not(few_digits):
    """Flips of the length of an honest update, which no bound sees, 3 of 10."""
    lie = (
        "attack.name=sign-flip",
        "attack.scale=4.0",
        "attack.share=0.3",
        "stop.rounds=15",
        "evaluation.every=15",
    )
    last = {}
    for rule in ("mean", "mixed"):
        last[rule] = liars_of(few_digits, *lie, f"aggregator.name={rule}")[1][-1][
            0
        ].evaluation.adapted_accuracy
    assert last["mixed"] > last["mean"] + 0.2, last
