"""A sample of the faults of `make faults`: runs killed, bits flipped, disks full, files broken."""

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.lock import FolderLock, Locked, is_locked
from autofl.records import Evaluation, RunWriter, convergence_round, read_manifest
from autofl.rounds.stop import Stop, watched

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fault_files

import faults


@pytest.fixture
def dice():
    return random.Random(7)


def holds(rows):
    """Every fault of these rows ended as it must."""
    assert rows
    assert [row for row in rows if row.held != row.injected] == []


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path, dice):
    holds(faults.kills(tmp_path, 2, dice))


def test_a_damaged_checkpoint_is_seen_and_the_older_one_used(tmp_path, dice):
    holds(faults.flips(tmp_path, 300, dice))


def test_a_finished_run_whose_tables_changed_is_refused(tmp_path, dice):
    holds(faults.flipped_runs(tmp_path, 30, dice))


def test_a_folder_has_one_writer(tmp_path):
    holds(faults.two_writers(tmp_path, 1))


def test_a_run_is_alive_as_long_as_its_lock_is_held(tmp_path):
    holds(faults.liveness(tmp_path))


def test_a_run_told_to_end_leaves_a_checkpoint_and_the_reason(tmp_path):
    holds(faults.signals(tmp_path))


def test_a_full_disk_is_one_line_and_an_honest_manifest(tmp_path):
    holds(faults.full_disk(tmp_path))


@pytest.mark.parametrize("fuzz", [fault_files.fuzz_settings, fault_files.fuzz_runs, fault_files.fuzz_data])
def test_a_broken_file_is_read_or_refused_in_one_line(tmp_path, dice, fuzz):
    holds(fuzz(tmp_path, 150, dice))


def test_a_small_file_cannot_take_much_memory(tmp_path):
    holds(fault_files.bombs(tmp_path, 400_000_000))


def test_an_ascii_terminal_gets_the_whole_table(tmp_path):
    holds(fault_files.ascii_terminals(tmp_path))


def test_mnist_is_not_taken_for_fashion_mnist():
    rows = fault_files.misnamed_data()
    if not rows:
        pytest.skip("the real MNIST is not in AUTOFL_DATA")
    holds(rows)


def test_the_stop_rules_cost_the_same_at_the_end_as_at_the_beginning():
    holds(faults.plateau(4000))


def test_the_rules_stop_where_they_did_with_the_whole_history(rng):
    """The slow, obvious way: every rule reads all evaluations."""
    ends = set()
    for _ in range(200):
        spread = 10 ** rng.uniform(-3, -0.5)
        gaps = rng.choice([1, 5, 7, 25], size=60) if rng.random() < 0.5 else np.full(60, rng.choice([1, 5, 10, 30]))
        rounds = gaps.cumsum()
        accuracy = 0.6 + spread * rng.standard_normal(len(rounds))
        stop = Stop(rounds=10_000, plateau=True, target_accuracy=0.9)
        history, whole, end = (), [], None
        for k, value in zip(rounds.tolist(), accuracy.tolist(), strict=True):
            entry = (k, Evaluation(adapted_accuracy=value))
            whole.append(entry)
            reason = stop.reason(k, 0.0, (*history, entry))
            assert reason == stop.reason(k, 0.0, whole)
            if reason is not None:
                end = reason
                break
            history = watched(history, *entry)
            assert len(history) <= 21
        ends.add(end)
    assert ends == {"plateau", "target_accuracy", None}


def test_convergence_is_still_the_first_quiet_window():
    assert convergence_round(np.arange(40.0), np.array([0.1] * 10 + [0.5] * 30)) == 10.0


def test_a_lock_of_another_boot_counts_until_its_holder_is_silent(tmp_path, monkeypatch):
    lock = FolderLock(tmp_path)
    lock.release()
    path = tmp_path / ".lock"
    note = {**json.loads(path.read_text()), "state": "held", "boot": "another", "machine": "elsewhere"}
    path.write_text(json.dumps(note))
    assert is_locked(tmp_path)
    monkeypatch.setattr("autofl.lock.PATIENCE", 0.0)
    with pytest.raises(Locked, match="on elsewhere"):
        FolderLock(tmp_path)
    os.utime(path, (time.time() - 601, time.time() - 601))
    assert not is_locked(tmp_path)
    second = FolderLock(tmp_path)
    assert second.attempt == lock.attempt + 1
    second.release()


def test_a_removed_folder_stops_its_writer(tmp_path):
    lock = FolderLock(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(AutoFLError, match="gone"):
        lock.check()


def test_a_second_look_at_a_running_run_says_running(tmp_path):
    writer = RunWriter(tmp_path, "seed = 1\n", {"algorithm": "autofl", "seed": 1})
    assert read_manifest(tmp_path)["status"] == "running"
    writer.close()
    assert read_manifest(tmp_path)["status"] == "interrupted"
