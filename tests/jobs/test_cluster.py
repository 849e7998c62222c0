"""Ray: the same bytes as here, whether it spreads runs or the UEs of one."""

import hashlib

import numpy as np
import pytest

from autofl.config import parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.jobs.many import run_comparison
from autofl.jobs.run import run

pytestmark = [pytest.mark.deploy, pytest.mark.slow]
ray = pytest.importorskip("ray", reason="needs the extra ray")

SMALL = {
    "cell": {"num_ue": 8},
    "simulation": {"num_selected": 3, "device": "cpu"},
    "stop": {"rounds": 4},
    "evaluation": {"every": 2, "test_samples": 10},
    "compare": {"arms": ["autofl", "fedavg-2"], "seeds": 2},
}


@pytest.fixture(scope="module")
def two_workers():
    """Ray allows its own server half a minute to start: on a busy machine, where its files are read
    for the first time, that may be too little, and a second start is quicker.
    """
    for last in (False, True):
        try:
            ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
            break
        except RuntimeError as error:
            if last or "Timed out" not in str(error):
                raise
            ray.shutdown()
    yield "local"
    ray.shutdown()


def digest(folder):
    names = ("config.toml", "rounds.csv", "ues.csv", "weights.safetensors")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_runs_spread_over_two_workers_are_those_made_here(tmp_path, two_workers):
    settings, told = parse_settings(SMALL), []
    there = run_comparison(settings, tmp_path / "there", ray=two_workers, on_progress=told.append)
    here = run_comparison(settings, tmp_path / "here")
    assert [digest(run.folder) for run in there] == [digest(run.folder) for run in here]
    assert sum(each.finished for each in told) == len(there) == 4


@pytest.mark.parametrize("engine", ["low_rank", "vmap"])
def test_the_ues_of_one_run_spread_over_two_workers_give_the_same_bits(
    tmp_path, rng, two_workers, engine
):
    num_ue, each = 220, 36
    label = np.tile(np.arange(4), num_ue * each // 4)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(len(label), 5)) + label[:, None], y=label)
    table = {
        "cell": {"num_ue": num_ue, "update_bits": 1e5},
        "data": {"name": "npz", "file": str(tmp_path / "own.npz"), "partition": "iid"},
        "simulation": {"num_selected": num_ue, "device": "cpu"},
        "learning": {"engine": engine},
        "arm": "per-fedavg",
        "planner": {"num_samples": 24},
        "stop": {"rounds": 2},
    }
    settings = parse_settings(table)
    sim = build_simulation(settings)
    ue = np.arange(num_ue)
    batches = sim.data.draw(ue, np.full(num_ue, 24), 1, sim.seed, 1)
    assert (
        len(sim.engine(sim.arm.algorithm, sim.params, batches, ue).chunks()) >= 3
    )  # or there is nothing to spread
    run(settings, tmp_path / "here")
    run(settings, tmp_path / "there", ray=two_workers)
    assert digest(tmp_path / "here") == digest(tmp_path / "there")


def test_a_cluster_that_is_not_there_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(AutoFLError, match="--ray local"):
        run(parse_settings(SMALL), tmp_path, ray="nonsense address")
