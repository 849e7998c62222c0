"""Run folders: the same seed gives the same bytes, killed runs can be read, frames come out of
them.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from autofl.config import load_settings, parse_settings
from autofl.core.simulation import simulate
from autofl.errors import AutoFLError
from autofl.jobs.many import run_comparison
from autofl.jobs.run import run
from autofl.records import find_runs, read_run, read_weights
from autofl.records.checks import sealed
from reference.waiting import PATIENCE

pytestmark = pytest.mark.slow

SMALL = {
    "cell": {"num_ue": 8},
    "simulation": {"num_selected": 3},
    "stop": {"rounds": 6},
    "evaluation": {"every": 2, "test_samples": 10},
    "preset": "physical",
}
FRESH = """
import json, sys
from autofl.config import parse_settings
from autofl.jobs.run import run
from autofl.records.checks import sealed
run(parse_settings(json.loads(sys.argv[1])), sys.argv[2])
"""


def digest(folder):
    names = ("config.toml", "rounds.csv", "ues.csv", "weights.safetensors")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_the_same_seed_gives_the_same_bytes_twice_and_in_a_fresh_process(tmp_path):
    settings = parse_settings(SMALL)
    for name in ("one", "two"):
        run(settings, tmp_path / name)
    subprocess.run(
        [sys.executable, "-c", FRESH, json.dumps(SMALL), str(tmp_path / "fresh")], check=True
    )
    other = run(parse_settings({**SMALL, "seed": 2}), tmp_path / "other")
    assert digest(tmp_path / "one") == digest(tmp_path / "two") == digest(tmp_path / "fresh")
    assert digest(other.folder)["rounds.csv"] != digest(tmp_path / "one")["rounds.csv"]


def test_how_many_threads_there_happen_to_be_changes_no_bit_and_how_many_were_set_is_in_the_manifest(
    tmp_path,
):
    """The bits of a sum may depend on how many threads share it: so a run has what its settings
    say, 1 if nothing.
    """
    before = torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            made = run(parse_settings(SMALL), tmp_path / str(number))
            assert made.manifest["threads"] == 1
        two = {**SMALL, "simulation": {"num_selected": 3, "threads": 2}}
        assert run(parse_settings(two), tmp_path / "two").manifest["threads"] == 2
    finally:
        torch.set_num_threads(before)
    assert digest(tmp_path / "1") == digest(tmp_path / "3")
    assert "threads = 2" in (tmp_path / "two" / "config.toml").read_text()


def test_the_resolved_config_reproduces_the_run_to_the_bit(tmp_path):
    run(parse_settings(SMALL), tmp_path / "one")
    run(load_settings(tmp_path / "one" / "config.toml"), tmp_path / "again")
    assert digest(tmp_path / "one") == digest(tmp_path / "again")


def test_a_run_reads_back_what_was_simulated_and_as_a_frame(tmp_path):
    from autofl.experiments.build import build_simulation

    settings = parse_settings(SMALL)
    found = run(settings, tmp_path / "run")
    records = [record for record, _ in simulate(build_simulation(settings))]
    frame, lazy = pd.DataFrame(found.rounds), pl.DataFrame(found.rounds)
    pd.testing.assert_frame_equal(
        frame, pd.read_csv(tmp_path / "run" / "rounds.csv"), check_dtype=False
    )
    assert (
        lazy.shape == pl.read_csv(tmp_path / "run" / "rounds.csv").shape == (7, len(frame.columns))
    )
    np.testing.assert_array_equal(frame["sim_time"], [record.sim_time for record in records])
    ues = pd.DataFrame(found.ues)
    np.testing.assert_array_equal(
        ues["energy"], np.concatenate([record.cost.energy for record in records])
    )
    assert ues.groupby("round").size().tolist() == [3] * 6
    assert frame["adapted_accuracy"].notna().tolist() == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]
    assert found.manifest["status"] == "finished"
    assert found.manifest["stop"] == "rounds"
    weights = read_weights(found.folder)
    assert sum(w.size for w in weights.values()) == 79_510


def test_a_comparison_gives_the_runs_one_would_get_one_by_one(tmp_path):
    table = {**SMALL, "compare": {"arms": ["autofl", "fedavg-1"], "seeds": 2}}
    runs = run_comparison(parse_settings(table), tmp_path / "all")
    assert [path.name for path in find_runs([tmp_path / "all"])] == [
        "autofl-seed1",
        "autofl-seed2",
        "fedavg-1-seed1",
        "fedavg-1-seed2",
    ]
    for each in runs:
        alone = parse_settings(
            {**table, "arm": each.manifest["algorithm"], "seed": each.manifest["seed"]}
        )
        run(alone, tmp_path / "alone")
        assert digest(tmp_path / "alone") == digest(each.folder)


def test_runs_in_parallel_processes_are_the_same_to_the_bit_and_tell_their_progress(tmp_path):
    settings = parse_settings({**SMALL, "compare": {"arms": ["autofl", "fedavg-1"], "seeds": 2}})
    one_by_one, parallel = [], []
    run_comparison(settings, tmp_path / "one", on_progress=one_by_one.append)
    run_comparison(settings, tmp_path / "two", workers=2, on_progress=parallel.append)
    for folder in find_runs([tmp_path / "one"]):
        assert digest(folder) == digest(tmp_path / "two" / folder.name)
    told = [
        {(p.label, p.round, p.sim_time, p.finished) for p in each}
        for each in (one_by_one, parallel)
    ]
    assert told[0] == told[1]
    assert sum(p.finished for p in parallel) == 4


def test_a_comparison_as_one_batch_writes_the_same_runs(tmp_path, monkeypatch):
    # What a GPU does, on this machine's CPU: only the rounding of sums may differ.
    from autofl.jobs import many as module

    settings = parse_settings(
        {**SMALL, "compare": {"seeds": 2}, "simulation": {"num_selected": 3, "device": "cpu"}}
    )
    run_comparison(settings, tmp_path / "one")
    told = []
    module._run_together(list(module.comparison(settings, tmp_path / "batch")), told.append)
    assert sum(progress.finished for progress in told) == 10
    for folder in find_runs([tmp_path / "one"]):
        one, batch = read_run(folder), read_run(tmp_path / "batch" / folder.name)
        assert (folder / "ues.csv").read_bytes() == (batch.folder / "ues.csv").read_bytes()
        assert batch.manifest["status"] == "finished"
        for name in ("train_loss", "adapted_accuracy"):
            np.testing.assert_allclose(batch.evaluated(name)[2], one.evaluated(name)[2], rtol=1e-3)
        for name, weights in read_weights(folder).items():
            np.testing.assert_allclose(
                read_weights(batch.folder)[name], weights, rtol=1e-3, atol=2e-5
            )


def test_runs_are_not_overwritten_unless_told_to(tmp_path):
    settings = parse_settings({**SMALL, "compare": {"arms": ["fedavg-1"], "seeds": 1}})
    run_comparison(settings, tmp_path)
    with pytest.raises(AutoFLError, match="--force"):
        run_comparison(settings, tmp_path)
    run_comparison(settings, tmp_path, force=True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_can_be_read_up_to_its_last_whole_round(tmp_path, how):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "autofl", "simulate", "--out", str(folder), "--set", "stop.rounds=100000",
               "--set", "evaluation.every=5", "--set", "evaluation.test_samples=5"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not (folder.exists() and len(list(folder.glob("rounds.csv"))) and
                                          (folder / "rounds.csv").read_text().count("\n") > 12):  # fmt: skip
        time.sleep(0.05)
    os.kill(process.pid, how)
    _, errors = process.communicate(timeout=PATIENCE)
    found = read_run(folder)
    assert len(found.rounds["round"]) >= 11
    assert set(found.ues["round"].tolist()) == set(found.rounds["round"].tolist()) - {0}
    assert "Traceback" not in errors
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert found.manifest["status"] == "interrupted"
        assert "interrupted" in errors
        assert len(read_weights(folder)) == 4
    done = subprocess.run(
        [sys.executable, "-m", "autofl", "report", str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupted_comparison_stops_at_once_and_starts_nothing_more(tmp_path):
    endless = ["stop.rounds=1000000", "evaluation.every=100", "evaluation.test_samples=5"]
    options = [word for setting in endless for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "autofl",
        "compare",
        "--workers",
        "2",
        "--out",
        str(tmp_path),
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and len(list(tmp_path.glob("*/rounds.csv"))) < 2:
        time.sleep(0.1)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in errors
    runs = [read_run(folder) for folder in find_runs([tmp_path])]
    assert [run.manifest["status"] for run in runs] == ["interrupted", "interrupted"]


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
def test_a_comparison_interrupted_while_its_workers_still_import_ends_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "autofl", "compare", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def num_workers():
        """Processes of the session that `spawn` started: one is the manager of the queue."""
        lines = [path.read_bytes() for path in session_of(process.pid)]
        return sum(b"spawn_main" in line for line in lines) - 1

    while num_workers() < 1 and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted" in errors.splitlines()[-1]


def session_of(leader):
    """The command lines of a session's processes."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                yield stat.with_name("cmdline")


def test_half_a_line_at_the_end_is_left_out(tmp_path):
    found = run(parse_settings(SMALL), tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    killed = sealed({**manifest, "status": "interrupted"})
    (tmp_path / "manifest.json").write_text(json.dumps(killed))
    for name in ("rounds.csv", "ues.csv"):
        path = tmp_path / name
        path.write_text(path.read_text()[:-7])
    again = read_run(tmp_path)
    assert len(again.rounds["round"]) == len(found.rounds["round"]) - 1
    assert again.ues["round"].max() == 5


def test_what_is_no_run_is_one_clear_line(tmp_path):
    with pytest.raises(AutoFLError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(AutoFLError, match="no run"):
        find_runs([tmp_path])
    run(parse_settings(SMALL), tmp_path / "run")
    (tmp_path / "run" / "rounds.csv").write_text("a,b\n1,2\n")
    with pytest.raises(AutoFLError, match="not a readable run"):
        read_run(tmp_path / "run")
