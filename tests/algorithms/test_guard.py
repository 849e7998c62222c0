"""The guard of the meta-gradient: worked by hand, the same in every engine, counted, and it keeps a
run learning.
"""

import numpy as np
import pytest
import torch

from autofl.algorithms import FedAvg, PerFedAvg, is_guarded
from autofl.config import parse_settings
from autofl.core.simulation import simulate
from autofl.data.batch import Batch, MetaBatch
from autofl.data.federated import federate
from autofl.engines import make_engine, pick_engine
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.jobs.run import run
from autofl.models import build, mlp, params_of
from autofl.report import runs as reported
from autofl.rng import stream
from reference.updates import NUM_SAMPLES, UE, InMemory


def curved(params, batch):
    """x w^2 / 2: gradient x w, Hessian x."""
    return (batch.x * params["w"] ** 2 / 2.0).sum()


def steps(*curvatures):
    """Local steps with these curvatures of the inner, the outer and the Hessian batch."""
    roles = torch.tensor(curvatures, dtype=torch.float64).T[..., None]
    return MetaBatch(*(Batch(x, x, torch.ones_like(x)) for x in roles))


# w = 2 and alpha = 0.1: w' = 2 - 0.1 * 1 * 2 = 1.8, v = 1.8, alpha H v = 0.1 * 30 * 1.8 = 5.4 or
# 0.1 * 5 * 1.8 = 0.9.
@pytest.mark.parametrize(
    ("hess", "settings", "gradient", "count"),
    [
        (30.0, {}, -3.6, 0),  # uphill
        (30.0, {"guard": 1.0}, 0.0, 1),
        (30.0, {"guard": 0.5}, 0.9, 1),
        (30.0, {"guard": 4.0}, -3.6, 0),
        (5.0, {"guard": 1.0}, 0.9, 0),
        (5.0, {"guard": 1.0, "grad_clip": 0.4}, 0.4, 1),
        (30.0, {"grad_clip": 0.4}, -0.4, 1),
        (30.0, {"grad_clip": 4.0}, -3.6, 0),
        (30.0, {"guard": 0.5, "grad_clip": 0.4}, 0.4, 1),  # one step, however it was guarded
        (30.0, {"guard": 1.0, "variant": "first-order"}, 1.8, 0),
    ],
)
def test_a_guarded_step_is_the_one_worked_by_hand(hess, settings, gradient, count):
    algorithm = PerFedAvg(0.1, 0.5, **settings)
    params, guarded = algorithm.guarded_update(
        curved, {"w": torch.tensor(2.0).double()}, steps((1.0, 1.0, hess))
    )
    assert float(params["w"]) == pytest.approx(2.0 - 0.5 * gradient, rel=1e-12, abs=1e-12)
    assert int(guarded) == count


def test_a_gradient_that_is_not_finite_makes_no_step_and_is_counted():
    start, good, bad = {"w": torch.tensor(2.0).double()}, (1.0, 1.0, 5.0), (1.0, float("inf"), 5.0)
    algorithm = PerFedAvg(0.1, 0.5, guard=1.0)
    params, guarded = algorithm.guarded_update(curved, start, steps(good, bad, good))
    expected, _ = algorithm.guarded_update(curved, start, steps(good, good))
    assert int(guarded) == 1
    assert float(params["w"]) == float(expected["w"]) != 2.0
    assert not torch.isfinite(
        PerFedAvg(0.1, 0.5).client_update(curved, start, steps(good, bad))["w"]
    )


def test_only_an_algorithm_that_is_set_to_and_computes_its_own_update_is_guarded():
    class Own(PerFedAvg):
        def client_update(self, loss, params, batch):
            return params

    assert is_guarded(PerFedAvg(0.1, 0.1, guard=1.0))
    assert is_guarded(PerFedAvg(0.1, 0.1, grad_clip=1.0))
    assert not is_guarded(PerFedAvg(0.1, 0.1))
    assert not is_guarded(FedAvg(0.1))
    assert not is_guarded(Own(0.1, 0.1))
    with pytest.raises(AutoFLError, match="Own computes its own update, which they do not reach"):
        Own(0.1, 0.1, guard=1.0)


@pytest.fixture(scope="module")
def problem(few_digits, federated):
    model = build(mlp, (784,), 10, stream(1, "init"))
    return federate(few_digits, federated.partition), model, params_of(model)


@pytest.mark.parametrize("variant", ["exact", "first-order", "finite-difference"])
def test_engines_count_the_same_steps(problem, variant):
    data, model, params = problem
    algorithm = PerFedAvg(
        0.1, 0.1, variant, difference=1e-2, split=(0.1, 0.8, 0.1), guard=0.3, grad_clip=4.0
    )
    assert pick_engine("auto", model, algorithm) == "low_rank"
    batches = data.draw(
        UE, NUM_SAMPLES, np.array([4, 2, 4, 3, 4]), seed=1, round_index=2, split=algorithm.split
    )
    counts = []
    for engine in ("loop", "vmap", "low_rank"):
        updates = make_engine(engine, model)(algorithm, params, batches, UE)
        updates.mean(np.ones(5))
        alone = make_engine(engine, model)(algorithm, params, batches, UE)
        assert len(alone.table()) == 5
        np.testing.assert_array_equal(updates.guarded, alone.guarded)
        counts.append(updates.guarded.tolist())
    assert counts[0] == counts[1] == counts[2]
    assert 3 <= sum(counts[0]) < 17  # of 17 steps


@pytest.mark.parametrize("engine", ["loop", "vmap", "low_rank"])
def test_a_ue_whose_gradients_overflow_sends_what_it_got_and_the_others_count(problem, engine):
    data, model, params = problem
    algorithm = PerFedAvg(0.03, 0.07, guard=1.0)
    batch = data.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2).take(np.arange(5))
    spoiled = Batch(batch.x.clone(), batch.y, batch.mask)
    spoiled.x[:, 1] *= 1e30
    healthy, sick = (
        make_engine(engine, model)(algorithm, params, InMemory(b), UE) for b in (batch, spoiled)
    )
    mean, share = sick.mean(np.ones(5)), healthy.mean(np.array([1.0, 0.0, 1.0, 1.0, 1.0]))
    assert sick.guarded[1] == 2
    assert sick.guarded[[0, 2, 3, 4]].tolist() == healthy.guarded[[0, 2, 3, 4]].tolist()
    for name, p in params.items():  # four of five updates, the fifth being w
        torch.testing.assert_close(mean[name], 0.8 * share[name] + 0.2 * p, rtol=1e-4, atol=1e-6)


BOLD = {
    "cell": {"num_ue": 8, "max_energy": 1.0},
    "simulation": {"num_selected": 3},
    "planner": {"name": "fixed", "num_samples": 10},
    "stop": {"rounds": 8},
    "evaluation": {"every": 8, "test_samples": 20},
}
STEPS = {"inner_lr": 0.3, "outer_lr": 0.3, "local_steps": 8}


def test_a_run_of_bold_steps_learns_with_the_guard_and_not_without(tmp_path):
    accuracy, words = {}, {}
    for name, guard in {"off": {}, "on": {"guard": 1.0, "grad_clip": 5.0}}.items():
        kept = run(parse_settings({**BOLD, "learning": {**STEPS, **guard}}), tmp_path / name)
        accuracy[name], words[name] = (
            kept.rounds["adapted_accuracy"][-1],
            reported.guarded_words([kept]),
        )
        assert (kept.ues["guarded"] <= kept.ues["local_steps"]).all()
        assert (kept.ues["guarded"].sum() > 0) == (name == "on")
    assert accuracy["on"] > accuracy["off"] + 0.2
    assert words["off"] is None
    share = kept.ues["guarded"].sum() / (8 * 3 * 8)
    assert f"AutoFL seed 1 {100 * share:.1f} %" in words["on"]


def test_where_a_bound_cuts_every_step_a_warning_says_so_in_words(tmp_path):
    learning = {**STEPS, "grad_clip": 1e-6}
    kept = run(
        parse_settings({**BOLD, "learning": learning, "stop": {"rounds": 1}}), tmp_path / "run"
    )
    words = reported.guarded_words([kept])
    assert words.startswith(
        "careful: learning.guard or learning.grad_clip cut most local steps short"
    )
    assert "AutoFL seed 1 100.0 %" in words


def test_guarded_steps_are_in_the_records_of_every_ue():
    settings = parse_settings(
        {**BOLD, "learning": {**STEPS, "guard": 1.0, "engine": "loop"}, "stop": {"rounds": 2}}
    )
    sim = build_simulation(settings)
    (_, before), *rounds = simulate(sim)
    state = before
    for record, after in rounds:
        batches = sim.data.draw(record.ue, record.plan.num_samples, 8, sim.seed, record.k)
        updates = sim.engine(sim.arm.algorithm, state.params, batches, record.ue)
        updates.mean(np.ones(3))
        assert record.guarded.tolist() == updates.guarded.tolist()
        state = after
    assert sum(int(record.guarded.sum()) for record, _ in rounds) > 0
