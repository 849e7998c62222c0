"""Runs in one batch give what they give alone."""

import dataclasses

import numpy as np
import pytest
import torch

from autofl.config import parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.data import build_data
from autofl.experiments.run import build_simulation
from autofl.simulation import simulate, simulate_together


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
            settings = parse_settings({**base, "algorithm": name, "seed": seed})
            data = build_data(settings, few_digits)
            pool = pool or data
            sim = build_simulation(settings, data=dataclasses.replace(data, x=pool.x, y=pool.y))
            if settings.learning.variant == "finite-difference":  # over a short step rounding decides on kinks
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
        (["autofl"], {"learning": {"variant": "finite-difference"}, "planner": {"name": "exact"}}),
        (["autofl", "per-fedavg"], {"stop": {"rounds": 20, "sim_time": 1.5}}),  # runs end at different rounds
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
            assert {"ue", "channel_gain", "num_samples", "tx_power", "energy", "decoded", "status"} <= set(ours)
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
            assert (left.sim_time, left.cost.time, left.stop) == (right.sim_time, right.cost.time, right.stop)
            assert (left.evaluation is None) == (right.evaluation is None)
            for name, p in after.params.items():  # batched products sum in another order than single ones
                torch.testing.assert_close(p, expected.params[name], rtol=1e-3, atol=2e-5)
    assert len(ends) > 1 or "sim_time" not in sections.get("stop", {})


def test_runs_with_convolutions_in_one_batch_give_what_they_give_alone(few_digits):
    images = type(few_digits)("images", few_digits.x.reshape(-1, 1, 28, 28), few_digits.y, 10)
    settings = {"model": {"name": "lenet5"}, "stop": {"rounds": 2}, "evaluation": {"every": 1, "adapt_samples": 7}}
    sims = simulations(images, ["autofl", "per-fedavg"], **settings)
    together: dict[int, list] = {}
    for r, record, state in simulate_together(sims):
        together.setdefault(r, []).append((record, state))
    for r, sim in enumerate(sims):
        for (left, after), (right, expected) in zip(together[r], simulate(sim), strict=True):
            for name in ("train_loss", "adapted_train_loss", "global_accuracy", "adapted_accuracy"):
                np.testing.assert_allclose(getattr(left.evaluation, name), getattr(right.evaluation, name), rtol=1e-4)
            for name, p in after.params.items():
                torch.testing.assert_close(p, expected.params[name], rtol=1e-3, atol=2e-5)


def test_runs_that_do_not_fit_together_are_refused(few_digits):
    one, other = simulations(few_digits, ["autofl"])[0], simulations(few_digits, ["fedavg-1"])[0]
    for pair in ([one, other], [one, simulations(few_digits, ["autofl"])[0]]):  # another algorithm, another pool
        with pytest.raises(AutoFLError, match="one by one"):
            list(simulate_together(pair))
