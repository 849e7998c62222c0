"""Runs in one batch give what they give alone."""

import dataclasses

import numpy as np
import pytest
import torch

from autofl.algorithms import FedAvg, State
from autofl.config import parse_settings
from autofl.core.simulation import simulate
from autofl.core.together import _settings_of, fit_together
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.experiments.data import build_data
from autofl.network import make_plan
from autofl.planner import Memoryless
from autofl.registry import find
from reference.runs import simulate_together

pytestmark = pytest.mark.slow


def simulations(few_digits, algorithms, **sections):
    """Two seeds of each algorithm over one pool of 1,000 digits; 300 m under Exp(1) loses updates."""
    base = {
        "cell": {"num_ue": 8, "distance": {"disc": 300.0}},
        "simulation": {"num_selected": 3},
        "stop": {"rounds": 7},
        "evaluation": {"every": 3},
        "preset": "physical",
        **sections,
    }
    sims, pool = [], None
    for name in algorithms:
        for seed in (1, 2):
            settings = parse_settings({**base, "arm": name, "seed": seed})
            data = build_data(settings, few_digits)
            pool = pool or data
            sim = build_simulation(settings, data=dataclasses.replace(data, x=pool.x, y=pool.y))
            if (
                settings.learning.variant == "finite-difference"
            ):  # over a short step rounding decides on kinks
                longer = dataclasses.replace(sim.arm.algorithm, difference=1e-2)
                sim = dataclasses.replace(sim, arm=dataclasses.replace(sim.arm, algorithm=longer))
            sims.append(sim)
    return sims


@pytest.mark.parametrize(
    ("algorithms", "sections"),
    [
        (["autofl", "per-fedavg"], {}),
        (["fedavg-1", "fedavg-2"], {}),
        (["autofl"], {"learning": {"local_steps": 2}}),
        (["autofl", "per-fedavg"], {"learning": {"lr_decay": 2.0, "split": [0.1, 0.8, 0.1]}}),
        (
            ["autofl", "per-fedavg"],
            {"learning": {"local_steps": 3, "guard": 0.2, "grad_clip": 3.0}},
        ),
        (["fedavg-1"], {"learning": {"lr_decay": 2.0, "split": [0.1, 0.8, 0.1]}}),
        (["autofl"], {"learning": {"local_steps": 2, "batches": "independent"}}),
        (["autofl"], {"learning": {"variant": "finite-difference"}, "planner": {"name": "exact"}}),
        (
            ["autofl", "per-fedavg"],
            {"stop": {"rounds": 20, "sim_time": 1.5}},
        ),  # runs end at different rounds
        (
            ["autofl"],
            {"planner": {"name": "contracts.own_parts:Watchful"}},
        ),  # it is told of each evaluation
    ],
)
def test_runs_in_one_batch_give_the_records_they_give_alone(few_digits, algorithms, sections):
    sims = simulations(few_digits, algorithms, **sections)
    together: dict[int, list] = {}
    for r, record, state in simulate_together(sims):
        together.setdefault(r, []).append((record, state))
    ends = set()
    for r, sim in enumerate(sims):
        alone = list(simulate(sim))
        assert len(alone) == len(together[r])
        ends.add(len(alone))
        for (left, after), (right, expected) in zip(together[r], alone, strict=True):
            ours, theirs = left.ue_columns(), right.ue_columns()
            assert {
                "ue",
                "channel_gain",
                "num_samples",
                "tx_power",
                "energy",
                "decoded",
                "status",
            } <= set(ours)
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
            assert (left.sim_time, left.cost.time, left.stop) == (
                right.sim_time,
                right.cost.time,
                right.stop,
            )
            assert (left.evaluation is None) == (right.evaluation is None)
            for (
                name,
                p,
            ) in after.params.items():  # batched products sum in another order than single ones
                torch.testing.assert_close(p, expected.params[name], rtol=1e-3, atol=2e-5)
    assert len(ends) > 1 or "sim_time" not in sections.get("stop", {})


def test_runs_with_convolutions_in_one_batch_give_what_they_give_alone(few_digits):
    images = type(few_digits)("images", few_digits.x.reshape(-1, 1, 28, 28), few_digits.y, 10)
    settings = {
        "model": {"name": "lenet5"},
        "stop": {"rounds": 2},
        "evaluation": {"every": 1, "adapt_samples": 7},
    }
    sims = simulations(images, ["autofl", "per-fedavg"], **settings)
    together: dict[int, list] = {}
    for r, record, state in simulate_together(sims):
        together.setdefault(r, []).append((record, state))
    for r, sim in enumerate(sims):
        for (left, after), (right, expected) in zip(together[r], simulate(sim), strict=True):
            for name in ("train_loss", "adapted_train_loss", "global_accuracy", "adapted_accuracy"):
                np.testing.assert_allclose(
                    getattr(left.evaluation, name), getattr(right.evaluation, name), rtol=1e-4
                )
            for name, p in after.params.items():
                torch.testing.assert_close(p, expected.params[name], rtol=1e-3, atol=2e-5)


def test_runs_that_do_not_fit_together_are_refused(few_digits):
    one, other = simulations(few_digits, ["autofl"])[0], simulations(few_digits, ["fedavg-1"])[0]
    for pair in (
        [one, other],
        [one, simulations(few_digits, ["autofl"])[0]],
    ):  # another algorithm, another pool
        with pytest.raises(AutoFLError, match="one by one"):
            list(simulate_together(pair))


def assert_as_alone(sims):
    """Runs in one batch against the same runs one by one."""
    together: dict[int, list] = {}
    for r, record, state in simulate_together(sims):
        together.setdefault(r, []).append((record, state))
    for r, sim in enumerate(sims):
        for (left, after), (right, expected) in zip(together[r], simulate(sim), strict=True):
            assert left.sim_time == right.sim_time
            np.testing.assert_array_equal(left.plan.local_steps, right.plan.local_steps)
            for name, p in after.params.items():
                torch.testing.assert_close(p, expected.params[name], rtol=1e-3, atol=2e-5)


def with_cell(sim, cell):
    return dataclasses.replace(sim, air=dataclasses.replace(sim.air, cell=cell))


def with_arm(sim, **parts):
    return dataclasses.replace(sim, arm=dataclasses.replace(sim.arm, **parts))


def test_a_batch_calls_the_algorithm_s_own_init_and_server_update(few_digits):
    sims = simulations(few_digits, ["fedavg-2"])
    momentum = find("algorithm", "contracts.own_parts:ServerMomentum").build(
        {"outer_lr": 0.07, "momentum": 0.8}
    )
    moved = [with_arm(sim, algorithm=momentum) for sim in sims]
    assert fit_together(*moved)
    assert_as_alone(moved)
    *_, (_, plain) = simulate(sims[0])
    *_, (_, ours) = simulate(moved[0])
    assert any(
        (plain.params[name] - p).norm() > 0.05 * p.norm() for name, p in ours.params.items()
    )  # it matters


def test_runs_of_one_batch_may_take_different_numbers_of_local_steps(few_digits):
    pool = simulations(few_digits, ["fedavg-2"])
    sims = [
        with_cell(sim, sim.cell.having(local_steps=np.full(8, float(tau))))
        for sim, tau in zip(pool, (1, 3), strict=True)
    ]
    assert fit_together(*sims)
    assert_as_alone(sims)


def test_ues_of_one_round_may_take_different_numbers_of_local_steps(few_digits):
    steps = np.array([1.0, 2.0, 3.0, 1.0, 4.0, 2.0, 1.0, 3.0])
    sims = [
        with_cell(sim, sim.cell.having(local_steps=steps))
        for sim in simulations(few_digits, ["per-fedavg"])
    ]
    assert_as_alone(sims)


@pytest.mark.parametrize(
    "part",
    [
        ("algorithm", "ditto"),
        ("algorithm", "scaffold"),
        ("compressor", "quantise"),
        ("downlink", "quantise"),
        ("aggregator", "unbiased"),
    ],
)
def test_what_needs_single_updates_or_a_memory_is_not_run_in_a_batch(few_digits, part):
    kind, name = part
    sims = simulations(few_digits, ["fedavg-2"])
    made = find("compressor" if kind == "downlink" else kind, name).build(
        {}, {"outer_lr": 0.07, "heard_probability": 1.0}
    )
    changed = [with_arm(sim, **{kind: made}) for sim in sims]
    assert not fit_together(*changed)
    with pytest.raises(AutoFLError, match="one by one"):
        list(simulate_together(changed))


@dataclasses.dataclass(frozen=True)
class Looking(State):
    """A server that sends down another point than it keeps."""

    @property
    def sent(self):
        return {name: 0.9 * p for name, p in self.params.items()}


@dataclasses.dataclass(frozen=True)
class LooksAhead(FedAvg):
    def init(self, params):
        return Looking(params)


@dataclasses.dataclass(frozen=True)
class Slow(State):
    """A state that goes half the way."""

    def with_params(self, params):
        return dataclasses.replace(
            self, params={name: 0.5 * (p + params[name]) for name, p in self.params.items()}
        )


@dataclasses.dataclass(frozen=True)
class GoesSlowly(FedAvg):
    def init(self, params):
        return Slow(params)


def test_a_server_that_sends_something_else_is_not_run_in_a_batch_and_one_that_keeps_something_else_is_right(
    few_digits,
):
    sims = simulations(few_digits, ["fedavg-2"])
    assert not fit_together(*(with_arm(sim, algorithm=LooksAhead(0.07)) for sim in sims))
    assert_as_alone([with_arm(sim, algorithm=GoesSlowly(0.07)) for sim in sims])


def test_runs_on_other_labels_numbers_or_models_are_not_run_in_one_batch(few_digits):
    one, other = simulations(few_digits, ["fedavg-2"])
    assert fit_together(one, other)
    relabelled = dataclasses.replace(other.data, y=other.data.y.clone())
    assert not fit_together(one, dataclasses.replace(other, data=relabelled))
    assert not fit_together(
        one, dataclasses.replace(other, data=dataclasses.replace(other.data, dtype=torch.float64))
    )
    models = [
        torch.nn.Sequential(torch.nn.AvgPool2d(2, divisor_override=by), torch.nn.Flatten())
        for by in (4, 16)
    ]
    assert str(models[0]) == str(models[1])
    assert _settings_of(models[0]) != _settings_of(models[1])


class PerUnit(Memoryless):
    """A planner of a user's own that sums over the UEs: it must not see those of other runs."""

    def __call__(self, cell, channel_gain, memory):
        band = cell.bandwidth * channel_gain / channel_gain.sum()
        return make_plan(
            cell, num_samples=np.full(cell.num_ue, 5), tx_power=cell.max_power, bandwidth=band
        ), memory


def test_a_planner_that_did_not_say_it_takes_leading_axes_plans_each_run_alone(few_digits):
    assert_as_alone(
        [with_arm(sim, planner=PerUnit()) for sim in simulations(few_digits, ["fedavg-2"])]
    )
