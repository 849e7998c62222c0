"""Lists of runs that differ in anything."""

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.managers import SyncManager
from pathlib import Path

import pytest

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.jobs import many, processes
from autofl.jobs.job import Job
from autofl.jobs.many import run_jobs, run_with_progress
from autofl.records import read_manifest, read_run

pytestmark = pytest.mark.slow

SMALL = [
    "stop.rounds=3",
    "evaluation.every=3",
    "evaluation.test_samples=5",
    "simulation.device=cpu",
]
MIXED = (
    ["arm=autofl"],
    ["arm=autofl", "data.partition=iid"],
    ["arm=per-fedavg", "data.standardise=false", "seed=2"],
    ["arm=per-fedavg", "cell.distance={disc=900}"],
    ["arm=fedavg-1", "simulation.num_selected=10"],
)


def mixed(folder):
    return [
        Job(load_settings(overrides=[*SMALL, *words]), folder / str(place), str(place))
        for place, words in enumerate(MIXED)
    ]


def test_runs_that_differ_in_anything_share_batches_and_give_what_they_give_alone(
    tmp_path, monkeypatch
):
    # What a GPU does, on this machine's CPU.
    monkeypatch.setattr(many, "BATCH", 3)
    sizes = []
    original = many._write_together
    monkeypatch.setattr(
        many,
        "_write_together",
        lambda batch, tell: (sizes.append(len(batch)), original(batch, tell)),
    )
    for batch in many.batches_of(mixed(tmp_path / "batch")):
        many._run_together(batch, lambda _: None)
    run_jobs(mixed(tmp_path / "alone"))
    assert sorted(sizes, reverse=True) == [3, 1, 1]
    for place in map(str, range(len(MIXED))):
        one, batch = read_run(tmp_path / "alone" / place), read_run(tmp_path / "batch" / place)
        assert (one.folder / "ues.csv").read_bytes() == (batch.folder / "ues.csv").read_bytes()
        assert batch.rounds["train_loss"][-1] == pytest.approx(
            one.rounds["train_loss"][-1], rel=1e-4
        )
        assert batch.manifest["status"] == "finished"


def test_a_finished_run_is_kept_and_one_of_other_settings_is_not_gone_on_with(tmp_path):
    job, other, *_ = mixed(tmp_path)
    run_jobs([job])
    ended = read_manifest(job.folder)["ended_at"]
    run_jobs([replace(job, resume=True)])
    assert read_manifest(job.folder)["ended_at"] == ended
    run_jobs([job])
    assert read_manifest(job.folder)["ended_at"] > ended
    with pytest.raises(AutoFLError, match=r"other settings is there \(data.partition"):
        run_jobs([replace(other, folder=job.folder, resume=True)])


def test_a_worker_told_to_end_between_two_runs_says_nothing_and_takes_no_other(capfd):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, processes._begin_worker) as pool:
        os.kill(pool.submit(os.getpid).result(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(
                processes._pool_unit, run_with_progress, mixed(Path("nowhere"))[0], print
            ).result()
    assert capfd.readouterr().err == ""


def test_what_carries_the_words_of_workers_outlives_a_signal_to_all_processes():
    """A worker that was just handed a job could not reach it, and ended in a traceback above the
    command's own line.
    """
    with_manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
    with_manager.start(processes._begin_manager)
    with with_manager as manager:
        queue = manager.Queue()
        os.kill(manager._process.pid, signal.SIGTERM)
        manager._process.join(0.5)
        queue.put("a round")
        assert queue.get() == "a round"
