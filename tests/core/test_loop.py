"""The promises of a run; rounds worked by hand are in test_loop_by_hand."""

import dataclasses

import numpy as np
import pytest
import torch

import autofl
from autofl.algorithms import PerFedAvg
from autofl.channels import OwnFading, PathLoss
from autofl.config import parse_settings
from autofl.core.round import ChannelAir
from autofl.core.simulation import simulate
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.network import STATUS_NAMES, Cell, Status
from autofl.planner import ExactPlanner
from autofl.selection import Candidates, Uniform


def small(few_digits, **changes):
    """Eight UEs, three a round, on 1,000 digits; changes are dotted settings."""
    table = {
        "cell": {"num_ue": 8},
        "simulation": {"num_selected": 3},
        "stop": {"rounds": 6},
        "evaluation": {"every": 2},
    }
    own = {
        key: changes.pop(key)
        for key in ("algorithm_object", "channel", "planner")
        if key in changes
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            table.setdefault(section, {})[name] = value
        else:
            table[section] = value
    renamed = {
        "algorithm" if key == "algorithm_object" else key: value for key, value in own.items()
    }
    return build_simulation(parse_settings(table), dataset=few_digits, **renamed)


def test_selection_is_uniform_without_repetition(rng):
    counts = np.zeros(10)
    for _ in range(2000):
        chosen, probability = Uniform(3).draw(
            Candidates(Cell(np.ones(10)), 1, lambda: np.ones(10)), rng
        )
        assert (probability == 0.3).all()
        assert len(set(chosen.tolist())) == 3
        assert (np.diff(chosen) > 0).all()
        counts[chosen] += 1
    # Each count is about binomial(2000, 0.3): five standard deviations are 102.
    np.testing.assert_allclose(counts, 600, atol=102)


def test_all_algorithms_of_a_seed_see_the_same_network_fading_selection_and_first_weights(
    few_digits,
):
    sims = [
        small(few_digits, arm=name) for name in ("autofl", "per-fedavg", "fedavg-1", "fedavg-2")
    ]
    runs = [list(simulate(sim)) for sim in sims]
    for run, sim in zip(runs[1:], sims[1:], strict=True):
        np.testing.assert_array_equal(sim.cell.distance, sims[0].cell.distance)
        for name, p in sim.params.items():
            assert torch.equal(p, sims[0].params[name])
        for (one, _), (two, _) in zip(runs[0], run, strict=True):
            np.testing.assert_array_equal(one.ue, two.ue)
            np.testing.assert_array_equal(one.gain, two.gain)
        assert run[0][0].evaluation.global_accuracy == runs[0][0][0].evaluation.global_accuracy


def test_fedavg_2_uses_autofls_samples_and_power(few_digits):
    one, two = (list(simulate(small(few_digits, arm=name))) for name in ("autofl", "fedavg-2"))
    for (left, _), (right, _) in zip(one, two, strict=True):
        np.testing.assert_array_equal(left.plan.num_samples, right.plan.num_samples)
        np.testing.assert_array_equal(left.plan.tx_power, right.plan.tx_power)
    fixed = [record for record, _ in simulate(small(few_digits, arm="per-fedavg"))][1:]
    assert all(
        (record.plan.num_samples == 5).all() and (record.plan.tx_power == 0.01).all()
        for record in fixed
    )


def test_the_planner_remembers_each_ues_own_last_power(few_digits):
    seen = []

    class Remembering:
        def init(self, cell):
            return {"power": cell.max_power}

        def __call__(self, cell, gain, memory):
            plan, _ = ExactPlanner(0.02)(cell, gain, {})
            seen.append((cell.distance, memory["power"][cell.ue], plan.tx_power))
            power = memory["power"].copy()
            power[cell.ue] = plan.tx_power
            return plan, {"power": power}

    list(simulate(small(few_digits, planner=Remembering(), stop__rounds=12)))
    last: dict[float, float] = {}
    for distance, previous, carried in seen:
        for who, before, after in zip(distance, previous, carried, strict=True):
            assert before == last.get(who, 0.01)
            last[who] = after
    assert len(set(last.values())) > 4


def test_when_nobody_is_heard_the_model_stays_and_time_passes(few_digits):
    silent = OwnFading(lambda rng, shape: np.zeros(shape))
    sim = small(few_digits, channel=PathLoss(silent))
    *_, (last, state) = simulate(sim)
    for name, p in state.params.items():
        assert torch.equal(p, sim.params[name])
    # Z / (B log2(1 + 1000)) = 2,544,320 / 1e6 / 9.967226 s a round
    assert last.sim_time == pytest.approx(6 * 0.25526861, rel=1e-6)
    assert last.cost.energy.sum() == 0.0
    assert set(last.plan.status) == {Status.INFEASIBLE}
    assert {STATUS_NAMES[code] for code in last.plan.status} == {"infeasible"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "rounds"),
        ({"stop__target_accuracy": 0.2, "stop__rounds": 200}, "target_accuracy"),
        ({"stop__sim_time": 0.5, "stop__rounds": 200}, "sim_time"),
        ({"stop__gradient_norm_sq": 1e6}, "gradient_norm_sq"),
        ({"stop__plateau": True, "stop__rounds": 300, "learning__outer_lr": 1e-6}, "plateau"),
        ({"stop__stalled": 40, "stop__rounds": 300, "learning__outer_lr": 1e-6}, "stalled"),
    ],
)
def test_each_stopping_rule_stops_for_its_own_reason(few_digits, changes, reason):
    *_, (last, _) = simulate(small(few_digits, **changes))
    assert last.stop == reason
    assert last.evaluation is not None  # the last round is always judged
    if reason == "sim_time":
        assert last.sim_time - last.cost.time < 0.5 <= last.sim_time


def test_a_diverging_run_stops_with_the_last_finite_model(few_digits):
    sim = small(few_digits, algorithm_object=PerFedAvg(0.03, 1e30), stop__rounds=50)
    *_, (last, state) = simulate(sim)
    assert last.stop == "diverged"
    assert all(torch.isfinite(p).all() for p in state.params.values())


def test_four_local_steps_take_four_times_the_computing(few_digits):
    def first_round(tau):
        sim = small(few_digits, learning__local_steps=tau, arm="per-fedavg")
        return next(record for record, _ in simulate(sim) if record.k == 1)

    one, four = first_round(1), first_round(4)
    np.testing.assert_allclose(four.cost.compute_time, 4 * one.cost.compute_time, rtol=1e-12)


def test_a_cell_and_data_that_do_not_fit_are_refused(few_digits):
    sim = small(few_digits)
    nine = dataclasses.replace(sim, arm=dataclasses.replace(sim.arm, selection=Uniform(9)))
    with pytest.raises(AutoFLError, match="num_selected: 9 is not between 1 and the 8 UEs"):
        list(simulate(nine))
    with pytest.raises(AutoFLError, match="UEs"):
        dataclasses.replace(sim, air=ChannelAir(sim.cell.take(np.arange(5)), sim.channel))


def test_autofl_learns_real_digits(digits):
    settings = parse_settings(
        {"stop": {"rounds": 60}, "evaluation": {"every": 20, "test_samples": 50}}
    )
    *_, (last, _) = autofl.simulate(build_simulation(settings, dataset=digits))
    # Chance is 10 %; 60 rounds bring it to about 87 % with either set of digits.
    assert last.evaluation.adapted_accuracy > 0.75
    assert last.evaluation.adapted_accuracy > last.evaluation.global_accuracy - 0.02
