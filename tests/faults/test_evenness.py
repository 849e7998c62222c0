"""Lies that hide among the honest: the mean of the others, moved by as many deviations in every
weight.
"""

import numpy as np
import pytest
import torch

from autofl.config import load_settings, parse_settings
from autofl.core.simulation import simulate
from autofl.data import load
from autofl.experiments.build import build_simulation
from autofl.experiments.data import build_data
from autofl.robust.checks import Bounds, Checks
from autofl.robust.evenness import too_even

LIMIT, NUM_WEIGHTS = 0.995, 3000
HONEST = {
    "normal": lambda rng: rng.normal(size=(9, NUM_WEIGHTS)) * rng.uniform(0.1, 3.0, NUM_WEIGHTS),
    "heavy tails": lambda rng: rng.standard_t(2.0, size=(9, NUM_WEIGHTS)),
    "a common direction": lambda rng: (
        rng.normal(size=(9, NUM_WEIGHTS)) + 2.0 * rng.normal(size=NUM_WEIGHTS)
    ),
    "sparse": lambda rng: rng.normal(size=(9, NUM_WEIGHTS)) * (rng.random((9, NUM_WEIGHTS)) < 0.02),
    "other lengths": lambda rng: (
        rng.normal(size=(9, NUM_WEIGHTS)) * 10.0 ** rng.uniform(-2.0, 1.0, (9, 1))
    ),
    "sparse, other lengths": lambda rng: (
        rng.normal(size=(9, NUM_WEIGHTS))
        * (rng.random((9, NUM_WEIGHTS)) < 0.02)
        * 10.0 ** rng.uniform(-2.0, 1.0, (9, 1))
    ),
}


def judged(table, limit=LIMIT):
    return too_even(torch.tensor(table), np.linalg.norm(table, axis=1), limit)


@pytest.mark.parametrize("honest", list(HONEST))
def test_honest_updates_are_not_even(honest):
    for seed in range(10):
        assert judged(HONEST[honest](np.random.default_rng(seed))) == {}


@pytest.mark.parametrize("honest", ["normal", "heavy tails", "a common direction"])
@pytest.mark.parametrize("z", [0.3, 1.0, -1.5])
@pytest.mark.parametrize("num_liars", [1, 3])
def test_the_mean_moved_by_as_many_deviations_in_every_weight_is_named(honest, z, num_liars):
    """Also where each weight is moved up or down at will, and where several send nearly the same."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        table = HONEST[honest](rng)
        moved = table.mean(axis=0) - z * table.std(axis=0) * rng.choice([-1.0, 1.0], NUM_WEIGHTS)
        lies = moved * (1.0 + 1e-3 * rng.normal(size=(num_liars, NUM_WEIGHTS)))
        assert sorted(judged(np.concatenate([table, lies]))) == list(range(9, 9 + num_liars))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
def test_honest_updates_that_differ_in_one_direction_are_not_named(noise):
    """All are even then: x_i = c_i g."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        one = rng.normal(size=(9, 1)) * rng.normal(size=NUM_WEIGHTS) + noise * rng.normal(
            size=(9, NUM_WEIGHTS)
        )
        assert judged(one) == {}


@pytest.mark.slow
def test_with_two_classes_many_samples_and_raw_pixels_no_honest_ue_is_left_out(tmp_path):
    """Threes and eights, unevenly divided: every fourth honest update is more even than the limit."""
    digits, rng = load("mnist5k"), np.random.default_rng(1)
    y, index, label = digits.y, [], []
    for _ in range(10):
        label.append(rng.choice(2, 250, p=rng.dirichlet([0.5, 0.5])))
        index.append([rng.choice(np.flatnonzero(y == (3, 8)[one])) for one in label[-1]])
    ue = np.repeat(np.arange(10), 250)
    np.savez(
        tmp_path / "two.npz", x=digits.x[np.concatenate(index)], y=np.concatenate(label), ue=ue
    )
    settings = parse_settings(
        {
            "arm": "fedavg-1",
            "data": {
                "name": "npz",
                "file": str(tmp_path / "two.npz"),
                "partition": "own",
                "standardise": False,
            },
            "cell": {"num_ue": 10, "max_energy": 10.0, "snr_threshold_db": -60.0, "distance": 50.0},
            "simulation": {"num_selected": 10},
            "planner": {"name": "fixed", "num_samples": 200},
            "stop": {"rounds": 10},
            "evaluation": {"every": 10},
            "attack": {"name": "zeros", "share": 0.0},  # nobody lies, and the checks are made
        }
    )
    records = [record for record, _ in simulate(build_simulation(settings))][1:]
    assert sum(len(record.ue) for record in records) == 100
    assert all(record.arrived.all() for record in records)


def test_evenness_is_the_cosine_with_the_deviation_of_the_others():
    rng = np.random.default_rng(3)
    table = rng.normal(size=(7, 1000))
    for row in range(7):
        others = np.delete(table, row, axis=0)
        away, spread = np.abs(table[row] - others.mean(axis=0)), others.std(axis=0)
        cosine = away @ spread / np.linalg.norm(away) / np.linalg.norm(spread)
        assert row in judged(table, limit=cosine * (1.0 - 1e-9))
        assert row not in judged(table, limit=cosine * (1.0 + 1e-9))


def test_few_updates_short_ones_and_a_limit_of_0_are_not_judged():
    rng = np.random.default_rng(4)
    table = rng.normal(size=(9, NUM_WEIGHTS))
    lie = table.mean(axis=0) - 0.5 * table.std(axis=0)
    assert list(judged(np.vstack([table, lie]))) == [9]
    assert judged(np.vstack([table, lie]), limit=0.0) == {}
    assert judged(np.vstack([table[:3], lie])) == {}
    assert judged(np.vstack([table, 1e-3 * lie])) == {}
    assert judged(np.zeros((6, 2000))) == judged(np.ones((6, 2000))) == {}
    assert judged(np.vstack([table, lie])[:, :900]) == {}


def test_the_checks_of_a_server_name_it_and_need_no_history():
    rng = np.random.default_rng(5)
    table = rng.normal(size=(9, NUM_WEIGHTS))
    changes = torch.tensor(
        np.vstack([table, table.mean(axis=0) - 0.5 * table.std(axis=0)]), dtype=torch.float32
    )
    norm, ones = changes.double().norm(dim=1).numpy(), np.ones(10, dtype=np.int64)
    said, _ = Checks(Bounds(5.0, 0.0, LIMIT))(
        np.arange(20, 30), norm, ones, 50 * ones, 10.0, lambda: changes
    )
    assert list(said) == [29]
    assert said[29].startswith("too even")


@pytest.mark.slow
def test_in_a_run_every_liar_is_left_out_in_every_round_and_nobody_else(few_digits):
    settings = load_settings(
        overrides=[
            *("cell.num_ue=10", "simulation.num_selected=8", "stop.rounds=6", "evaluation.every=6"),
            *("attack.name=little-is-enough", "attack.share=0.2"),
        ]
    )
    sim = build_simulation(settings, data=build_data(settings, few_digits))
    lied = 0
    for record, _ in simulate(sim):
        liars = np.isin(record.ue, sim.lies.ue)
        lied += liars.sum()
        np.testing.assert_array_equal(record.arrived, ~liars)
    assert lied


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["autofl", "autofl-j", "fedavg-1"])
def test_where_nobody_lies_nobody_is_even(few_digits, algorithm):
    settings = load_settings(
        overrides=[
            *(
                "cell.num_ue=12",
                "simulation.num_selected=9",
                "stop.rounds=40",
                "evaluation.every=40",
            ),
            *(
                f"arm={algorithm}",
                "attack.name=zeros",
                "attack.share=0.01",
            ),  # of 12 UEs that is nobody
        ]
    )
    sim = build_simulation(settings, data=build_data(settings, few_digits))
    assert sim.lies.bounds.evenness == LIMIT
    assert not len(sim.lies.ue)
    sent = [record.arrived.size for record, _ in simulate(sim) if record.arrived.all()]
    assert len(sent) > 30
