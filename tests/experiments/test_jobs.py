"""Lists of runs that differ in anything."""

import pytest

from autofl.config import load_settings
from autofl.experiments import jobs
from autofl.experiments.jobs import Job, run_jobs
from autofl.records import is_run, read_run

SMALL = ["stop.rounds=3", "evaluation.every=3", "evaluation.test_samples=5", "simulation.device=cpu"]
MIXED = (
    ["algorithm=autofl"],
    ["algorithm=autofl", "data.partition=iid"],
    ["algorithm=per-fedavg", "data.standardise=false", "seed=2"],
    ["algorithm=per-fedavg", "cell.distance={disc=900}"],
    ["algorithm=fedavg-1", "simulation.num_selected=10"],
)


def mixed(folder):
    return [
        Job(load_settings(overrides=[*SMALL, *words]), folder / f"{place}.part", str(place), folder / str(place))
        for place, words in enumerate(MIXED)
    ]


def test_runs_that_differ_in_anything_share_batches_and_give_what_they_give_alone(tmp_path, monkeypatch):
    # What a GPU does, on this machine's CPU.
    monkeypatch.setattr(jobs, "BATCH", 3)
    sizes = []
    original = jobs._write_together
    monkeypatch.setattr(jobs, "_write_together", lambda batch, tell: (sizes.append(len(batch)), original(batch, tell)))
    jobs._run_together(mixed(tmp_path / "batch"), lambda _: None)
    run_jobs(mixed(tmp_path / "alone"))
    assert sizes == [3, 1, 1]
    for place in map(str, range(len(MIXED))):
        one, batch = read_run(tmp_path / "alone" / place), read_run(tmp_path / "batch" / place)
        assert (one.folder / "ues.csv").read_bytes() == (batch.folder / "ues.csv").read_bytes()
        assert batch.rounds["train_loss"][-1] == pytest.approx(one.rounds["train_loss"][-1], rel=1e-4)
        assert batch.manifest["status"] == "finished"


def test_a_run_has_its_lasting_name_only_when_it_is_whole(tmp_path):
    [job, *_] = mixed(tmp_path)
    seen = []
    run_jobs([job], on_progress=lambda progress: seen.append((is_run(job.place), job.becomes.exists())))
    assert seen == [(True, False)] * 2
    assert not job.place.exists()
    assert is_run(job.becomes)
    run_jobs([job])  # made again beside a whole one: the whole one stays
    assert not job.place.exists()
