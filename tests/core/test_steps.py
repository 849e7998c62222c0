"""rounds.csv holds the step sizes of each round."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autofl.config import dump_settings, load_settings
from autofl.core.simulation import simulate
from autofl.evaluation.evaluator import RATES
from autofl.experiments.build import build_simulation
from autofl.jobs.recording import write_run
from autofl.jobs.run import manifest_of
from reference.runs import simulate_together

SHORT = [
    "stop.rounds=3",
    "evaluation.every=1",
    "evaluation.test_samples=20",
    "evaluation.train_samples=60",
]


def played(*overrides):
    sim = build_simulation(load_settings(overrides=[*SHORT, *overrides]))
    return sim, list(simulate(sim))


def length(params):
    return math.sqrt(sum(float((p.double() ** 2).sum()) for p in params.values()))


def test_steps_by_the_rule_have_a_length_that_falls_and_no_beta(tmp_path):
    settings = load_settings(overrides=[*SHORT, "arm=autofl-j"]).resolved()
    sim = build_simulation(settings)
    run = write_run(sim, tmp_path, dump_settings(settings), manifest_of(settings, sim, {}))
    rounds = list(simulate(sim))
    sent = [length(state.params) for _, state in rounds[:-1]]
    expected = [0.3 / math.sqrt(k) * norm for k, norm in enumerate(sent, start=1)]
    np.testing.assert_allclose(run.rounds["step_length"][1:], expected, rtol=1e-5)  # float32 norms
    assert np.isnan(run.rounds["outer_lr"]).all()
    assert run.rounds["inner_lr"][1:].tolist() == [0.03] * 3
    assert np.isnan(run.rounds["inner_lr"][0])  # round 0 trains nobody
    assert [record.step_length for record, _ in rounds[1:]] == run.rounds["step_length"][
        1:
    ].tolist()
    assert ((run.rounds["adapt_lr"] >= min(RATES)) & (run.rounds["adapt_lr"] <= max(RATES))).all()


def test_with_numbers_they_are_those_of_the_settings():
    (_, paper), (_, falling) = (
        played(),
        played("arm=fedavg-2", "learning.lr_decay=1.0", "learning.grad_clip=2.0"),
    )
    for record, _ in paper[1:]:
        assert (record.inner_lr, record.outer_lr, record.evaluation.adapt_lr) == (0.03, 0.07, 0.03)
        assert math.isnan(record.step_length)
    for record, _ in falling[1:]:
        beta = 0.07 / math.sqrt(record.k)
        assert (record.outer_lr, record.step_length) == pytest.approx((beta, 2.0 * beta), rel=1e-12)
        assert math.isnan(record.inner_lr)  # FedAvg has no alpha


def test_a_bound_is_told_beside_the_number_it_bounds():
    sim, rounds = played("arm=autofl-j", "learning.outer_lr=0.25")
    last = rounds[1][0]
    assert (last.outer_lr, last.step_length) == pytest.approx(
        (0.25, 0.3 * length(sim.params)), rel=1e-5
    )


def test_a_batch_of_runs_writes_the_same_columns():
    sim, _ = played()
    sims = [sim, replace(sim, seed=2)]
    for r, record, _ in simulate_together(sims):
        alone = list(simulate(sims[r]))[record.k][0]
        told = [(one.inner_lr, one.outer_lr, one.evaluation.adapt_lr) for one in (record, alone)]
        np.testing.assert_array_equal(*told)
