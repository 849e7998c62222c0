"""Liars whose single updates look honest: known by their history, the same after a resume."""

import numpy as np
import pytest
import torch

from autofl.config import load_settings
from autofl.experiments.build import build_simulation
from autofl.experiments.data import build_data
from autofl.jobs.recording import write_run
from autofl.records import read_weights
from autofl.robust.checks import Bounds, Checks
from autofl.robust.history import History, against, agreements
from autofl.robust.undo import Undo
from autofl.version import __version__

NUM_UE, NUM_WEIGHTS, ROUNDS = 12, 400, 8


def rounds_of(rng, lie=None, liars=()):
    """Honest: a tenth of the common direction, a direction of their own, and noise of the round."""
    common, own = rng.normal(size=NUM_WEIGHTS), rng.normal(size=(NUM_UE, NUM_WEIGHTS))
    for _ in range(ROUNDS):
        ue = np.sort(rng.permutation(NUM_UE)[:8])
        changes = 0.6 * common + own[ue] + rng.normal(size=(8, NUM_WEIGHTS))
        for row, one in enumerate(ue):
            if one in liars:
                changes[row] = lie(changes[row], rng)
        yield ue, torch.tensor(changes, dtype=torch.float32)


LIES = {
    "flip": lambda change, rng: -change,
    "long flip": lambda change, rng: -3.0 * change,
    "noise": lambda change, rng: 20.0 * rng.normal(size=NUM_WEIGHTS),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_who_lies_is_named_and_who_does_not_is_not(lie):
    liars = {1, 5, 9}
    for seed in range(5):
        history = History(0.3)
        for ue, changes in rounds_of(np.random.default_rng(seed), LIES[lie], liars):
            out = {int(ue[row]) for row in history(ue, changes)}
        assert out == liars & set(ue.tolist()), seed


def test_where_nobody_lies_nobody_is_left_out():
    for seed in range(20):
        history = History(0.3)
        for ue, changes in rounds_of(np.random.default_rng(seed)):
            assert history(ue, changes) == {}


def played_with(lie_of, liars=frozenset({1, 5, 9}), rounds=14):
    """Everybody in every round: who was left out in each, with liars who know the mean of the
    honest.
    """
    rng, history = np.random.default_rng(11), History(0.3)
    common, own = rng.normal(size=NUM_WEIGHTS), rng.normal(size=(NUM_UE, NUM_WEIGHTS))
    ue = np.arange(NUM_UE)
    for k in range(rounds):
        changes = 0.6 * common + own + rng.normal(size=(NUM_UE, NUM_WEIGHTS))
        mean = changes.mean(axis=0)
        direction = np.linalg.norm(changes, axis=1).mean() * mean / np.linalg.norm(mean)
        for one in liars:
            changes[one] = lie_of(k, direction * (1.0 + 0.01 * one), changes[one])
        yield k, set(history(ue, torch.tensor(changes, dtype=torch.float32)))


def test_a_liar_that_sends_a_lie_and_its_opposite_by_turns_is_left_out_and_nobody_else():
    """Its sum is 0 after every second round, of which no cosine exists: that used to switch the
    check off for all.
    """
    kept = {}
    for k, out in played_with(lambda k, mean, own: -mean if k % 2 == 0 else mean):
        assert out <= {1, 5, 9}
        kept[k] = {1, 5, 9} - out
    assert all(not kept[k] for k in kept)
    cancelled = History(0.3)
    changes = torch.eye(400)[:6] + 0.05
    for sign in (1.0, -1.0):
        said = cancelled(np.arange(6), torch.cat([changes[:5], sign * changes[5:]]))
    assert list(said) == [5]


def test_a_lie_is_not_paid_for_by_agreeing_in_the_next_round():
    for k, out in played_with(lambda k, mean, own: -mean if k % 3 == 2 else mean):
        assert out <= {1, 5, 9}
        if k % 3 == 2:
            assert out == {1, 5, 9}, k  # the lie itself never gets in


@pytest.mark.parametrize("length", [1e-6, 0.05, 1.0, 4.0])
def test_no_length_of_agreeing_updates_buys_one_long_lie(length):
    for k, out in played_with(
        lambda k, mean, own: -4.0 * mean if k == 12 else length * mean, rounds=13
    ):
        assert out == ({1, 5, 9} if k == 12 else set()), k


def test_long_honest_work_does_not_pay_for_lies_as_long_as_an_honest_update():
    passed = [
        out != {1, 5, 9}
        for k, out in played_with(lambda k, mean, own: -own if k >= 30 else own, rounds=40)
    ]
    assert sum(passed[30:]) <= 3, passed


def test_liars_together_are_seen():
    left_out = [out for _, out in played_with(lambda k, mean, own: -mean)]
    assert all(out <= {1, 5, 9} for out in left_out)
    assert left_out[-1] == {1, 5, 9}


def at_rest(rng, rounds, lies=frozenset(), until=10):
    """A common direction at first; then training rests, and the honest updates of a round add up to
    nothing.
    """
    common, own = rng.normal(size=NUM_WEIGHTS), rng.normal(size=(NUM_UE, NUM_WEIGHTS))
    for k in range(rounds):
        noise = rng.normal(size=(NUM_UE, NUM_WEIGHTS))
        changes = (
            0.6 * common + own + noise
            if k < until
            else own - own.mean(axis=0) - 0.2 * common + 0.3 * noise
        )
        for one in lies:
            changes[one] = -changes[one] if k < until else changes[one]
        yield k, torch.tensor(changes, dtype=torch.float32)


def test_at_rest_where_everybody_opposes_the_others_nobody_is_left_out():
    """Such updates of 15 rounds used to be enough to leave out the honest."""
    history, everybody = History(0.3), np.arange(NUM_UE)
    for k, changes in at_rest(np.random.default_rng(12), 120, until=30):
        assert history(everybody, changes) == {}, k


def test_who_was_left_out_stays_out_at_rest_and_a_new_ue_is_not_judged():
    history, known = History(0.3), np.arange(NUM_UE - 1)
    for k, changes in at_rest(np.random.default_rng(13), 60, {1, 5}, until=20):
        ue = known if k < 40 else np.arange(NUM_UE)  # the last one comes late
        out = {int(ue[row]) for row in history(ue, changes[: len(ue)])}
        assert out == {1, 5} or k < 3, k
        history = History(0.3, {name: array.copy() for name, array in history.state().items()})


def test_where_judging_ends_at_once_nobody_stays_out():
    """Fewer than ten rounds with a common direction: labels may hardly overlap."""
    history, everybody = History(0.3), np.arange(NUM_UE)
    left_out = [
        len(history(everybody, changes))
        for _, changes in at_rest(np.random.default_rng(14), 40, {1, 5}, 4)
    ]
    assert left_out[3] == 2
    assert left_out[-20:] == [0] * 20


def test_lies_of_another_check_have_no_direction_and_count_as_opposition():
    """Crude lies are left out by their length; when one is short at last, its sender is known."""
    history, everybody = History(0.3), np.arange(NUM_UE)
    crude = np.isin(everybody, [1, 5])
    for k, changes in at_rest(np.random.default_rng(15), 12, until=12):
        changes[crude] *= -1000.0
        assert history(everybody, changes, crude) == {}, k
    for _, changes in at_rest(np.random.default_rng(15), 1):
        assert set(history(everybody, changes)) == {1, 5}
    assert (
        history(everybody, changes, np.ones(NUM_UE, dtype=np.bool_)) == {}
    )  # nobody is left to compare with


def test_no_more_than_the_share_are_left_out_though_more_lie():
    history = History(0.2)
    for ue, changes in rounds_of(np.random.default_rng(3), LIES["flip"], {0, 1, 2, 3}):
        assert len(history(ue, changes)) <= 3


def test_agreement_is_the_cosine_with_the_sum_of_the_others():
    rng = np.random.default_rng(4)
    direction = rng.normal(size=(5, 9))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    trusted = np.array([True, True, False, True, True])
    for i, value in enumerate(agreements(direction @ direction.T, trusted)):
        others = direction[[j for j in range(5) if trusted[j] and j != i]].sum(axis=0)
        assert value == pytest.approx(direction[i] @ others / np.linalg.norm(others))


def test_the_turned_ones_by_trying_all():
    """Flipping some rows of a matrix without negative entries: their signs are the best of all 2^n."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        sign = np.where(np.isin(np.arange(7), rng.permutation(7)[:2]), -1.0, 1.0)
        pairs = rng.uniform(0.05, 0.9, (7, 7))
        pairs = (pairs + pairs.T) * np.outer(sign, sign)
        np.fill_diagonal(pairs, 0.0)
        ways = [
            np.array([1.0 if number >> bit & 1 else -1.0 for bit in range(7)])
            for number in range(128)
        ]
        best = max(ways, key=lambda way: way @ pairs @ way)
        expected = best < 0.0 if (best > 0.0).sum() > 3 else best > 0.0
        np.testing.assert_array_equal(against(pairs, np.zeros(7, np.bool_), 3), expected)


def test_checks_go_on_from_their_state_to_the_bit():
    played = list(
        rounds_of(
            np.random.default_rng(6),
            lambda change, rng: 1.5 * rng.normal(size=NUM_WEIGHTS),
            {1, 5, 9},
        )
    )
    whole, parts = (Checks(Bounds(5.0, 0.3)) for _ in range(2))
    undone = 0
    for k, (ue, changes) in enumerate(played):
        ones, norm = np.ones(len(ue), dtype=np.int64), changes.double().norm(dim=1).numpy()
        parts = Checks(
            Bounds(5.0, 0.3), {name: array.copy() for name, array in parts.state().items()}
        )
        said = [
            checks(ue, norm, ones, 50 * ones, 10.0, lambda: changes)  # noqa: B023
            for checks in (whole, parts)
        ]
        (refused, added), (again, added_again) = said
        assert refused == again
        assert (added is None) == (added_again is None)
        assert added is None or torch.equal(added, added_again)
        undone += added is not None
        assert [checks.again(3, k, bytes([k] * 32)) for checks in (whole, parts)] == [None, None]
    assert parts.again(4, 9, bytes([2] * 32)) == "the update of UE 3 in round 2 again"
    for name, array in whole.state().items():
        np.testing.assert_array_equal(parts.state()[name], array)
    assert undone  # the first of these lies passes


def test_a_round_in_which_nobody_answered_is_checked_too():
    """A deployment has no changes then, not even an empty table of them."""
    nobody = np.zeros(0, dtype=np.int64)

    def no_changes():
        raise AssertionError("there are none")

    checks = Checks(Bounds(5.0, 0.3, 0.995, 1.5))
    assert checks(nobody, np.zeros(0), nobody, nobody, 10.0, no_changes) == ({}, None)


def test_what_a_liar_has_put_into_the_model_is_taken_out_once_and_given_back_if_it_was_none():
    undo, rng = Undo(), np.random.default_rng(7)
    first, second = (torch.tensor(rng.normal(size=(3, 6)), dtype=torch.float32) for _ in range(2))
    everybody, honest = np.arange(3), np.arange(2)
    assert undo((), everybody, first) is None
    assert undo((), everybody, second) is None
    put_in = (first[2] + second[2]) / 3
    assert undo({2}, np.arange(0), first[:0]) is None  # nobody is left to carry it
    torch.testing.assert_close(undo({2}, honest, first[:2]), -put_in)
    assert undo({2}, honest, first[:2]) is None
    torch.testing.assert_close(undo((), everybody, first), put_in)
    torch.testing.assert_close(undo({2}, honest, first[:2]), -put_in - first[2] / 3)


def test_no_more_than_the_first_five_updates_of_a_ue_are_taken_back():
    """One that helps for 30 rounds and lies in the 31st would else take its help along."""
    undo, parts = Undo(), Undo()
    everybody, put_in = np.arange(3), torch.zeros(4)
    for k in range(30):
        changes = torch.tensor(np.random.default_rng(k).normal(size=(3, 4)), dtype=torch.float32)
        put_in += changes[2] / 3 if k < 5 else 0.0
        parts = Undo(parts.state())
        for one in (undo, parts):
            assert one((), everybody, changes) is None
    for one in (undo, parts):
        torch.testing.assert_close(one({2}, everybody[:2], changes[:2]), -put_in)


ABOUT = {"algorithm": "autofl", "label": "AutoFL", "seed": 1, "version": __version__}


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["replay", "sign-flip"])
def test_a_run_with_liars_goes_on_with_the_same_bytes(few_digits, tmp_path, attack):
    settings = load_settings(
        overrides=[
            *("cell.num_ue=10", "simulation.num_selected=8", "stop.rounds=6", "evaluation.every=3"),
            *(f"attack.name={attack}", "attack.share=0.3", "checks.history=0.3"),
        ]
    )
    sim = build_simulation(settings, data=build_data(settings, few_digits))

    def stop(record):
        if record.k == 3:
            raise KeyboardInterrupt

    whole = write_run(sim, tmp_path / "whole", "", ABOUT)
    with pytest.raises(KeyboardInterrupt):
        write_run(sim, tmp_path / "parts", "", ABOUT, stop)
    parts = write_run(sim, tmp_path / "parts", "", ABOUT, resume=True)
    assert parts.manifest["resumed"] == [3]
    for name, array in read_weights(whole.folder).items():
        np.testing.assert_array_equal(read_weights(parts.folder)[name], array)
    np.testing.assert_array_equal(parts.ues["decoded"], whole.ues["decoded"])
    assert not whole.ues["decoded"].all()
