"""A sample of the faults of `make faults`: runs killed, bits flipped, disks full, files broken."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from autofl.cli.main import run as run_cli
from autofl.config import dump_settings, load_settings, parse_settings
from autofl.core.stop import Stop, watched
from autofl.core.suspects import suspects_of
from autofl.engines import ReceivedUpdates
from autofl.errors import AutoFLError, Terminated, raise_when_told_to_end
from autofl.experiments.build import build_simulation
from autofl.jobs.recording import Recording, play_into
from autofl.jobs.run import run
from autofl.lock import FolderLock
from autofl.quality import Evaluation, convergence_round
from autofl.records import RunWriter, read_manifest, read_weights
from autofl.records.checks import OWN_SUM, sealed
from autofl.robust.aggregators import Mean

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fault_files
import fault_kills
import fault_processes
import soak
from fault_commands import fuzz_commands
from fault_processes import SMALL
from fault_rows import SEEN

import faults

pytestmark = pytest.mark.slow


@pytest.fixture
def dice():
    return random.Random(7)


def holds(rows):
    """Every fault of these rows ended as it must."""
    assert rows
    assert [row for row in rows if row.held != row.injected] == []


def test_the_page_is_drawn_from_the_counts_beside_it(tmp_path):
    faults.draw_page(page=tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == faults.PAGE.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", fault_kills.works())
def test_a_killed_command_goes_on_to_the_same_bytes(tmp_path, dice, name):
    holds(faults.kills(tmp_path, 2, dice, (name,)))


def test_a_run_stopped_after_its_last_round_only_ends(tmp_path):
    """A rule ended it: what goes on must not play the rounds that the rule ruled out."""
    settings = parse_settings({**SMALL, "stop": {"rounds": 9, "target_accuracy": 0.01}})

    def stopped(record):
        if record.stop is not None:
            raise KeyboardInterrupt

    whole = run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", on_round=stopped)
    again = run(settings, tmp_path / "run", resume=True)
    assert fault_kills.digest(tmp_path / "run") == fault_kills.digest(tmp_path / "whole")
    assert again.manifest["rounds"] == whole.manifest["rounds"] < 9
    assert again.manifest["stop"] == whole.manifest["stop"] == "target_accuracy"


def test_a_planner_that_remembers_a_number_goes_on_to_the_same_bytes(tmp_path):
    """A checkpoint once made an array of it."""
    settings = parse_settings({**SMALL, "arm": "autofl-j", "stop": {"rounds": 6}})

    def stopped(record):
        if record.k == 3:
            raise KeyboardInterrupt

    run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", on_round=stopped)
    run(settings, tmp_path / "run", resume=True)
    assert fault_kills.digest(tmp_path / "run") == fault_kills.digest(tmp_path / "whole")


def test_a_damaged_checkpoint_is_seen_and_the_older_one_used(tmp_path, dice):
    holds(faults.flips(tmp_path, 300, dice))


def test_a_finished_run_whose_tables_changed_is_refused(tmp_path, dice):
    holds(faults.flipped_runs(tmp_path, 30, dice))


def test_a_folder_has_one_writer(tmp_path):
    holds(faults.two_writers(tmp_path, 1))


def test_a_run_is_alive_as_long_as_its_lock_is_held(tmp_path):
    """In a process of its own: threads that other tests left behind may not survive the fork into a
    PID namespace.
    """
    words = "import pathlib, sys, faults; rows = faults.liveness(pathlib.Path(sys.argv[1])); print(rows)"
    words += "; sys.exit(any(row.held < row.injected for row in rows))"
    paths = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", words, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a live run" in done.stdout


def test_a_run_told_to_end_leaves_a_checkpoint_and_the_reason(tmp_path):
    holds(faults.signals(tmp_path))


def test_a_signal_that_comes_while_an_object_is_destroyed_is_not_lost(tmp_path):
    class Dying:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)  # the exception is raised here, where Python drops it

    def work():
        raise_when_told_to_end()
        Dying()
        try:
            time.sleep(30.0)
        except Terminated as error:
            sys.exit(error.number)

    assert fault_processes.forked(work, tmp_path / "said") == (signal.SIGTERM, 0)
    assert (tmp_path / "said").read_text() == ""


def test_a_signal_that_a_library_drops_ends_the_run_after_the_round(tmp_path):
    """Seen once: a run that was told to pause went on for 60 s, as if nobody had said a word."""

    def drop(record):
        if record.k == 3:
            with contextlib.suppress(BaseException):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.01)

    def work():
        raise_when_told_to_end()
        try:
            run(parse_settings({**SMALL, "stop": {"rounds": 9}}), tmp_path / "run", on_round=drop)
        except Terminated as error:
            sys.exit(error.number)

    assert fault_processes.forked(work, tmp_path / "said") == (signal.SIGTERM, 0)
    manifest = read_manifest(tmp_path / "run")
    assert (manifest["status"], manifest["rounds"]) == ("interrupted", 3)


def test_a_run_told_to_end_at_its_end_is_finished(tmp_path, monkeypatch):
    write_weights = RunWriter.write_weights

    def told(self, weights):
        os.kill(os.getpid(), signal.SIGTERM)
        write_weights(self, weights)

    def work():
        monkeypatch.setattr(RunWriter, "write_weights", told)
        raise_when_told_to_end()
        try:
            run(parse_settings(SMALL), tmp_path / "run")
        except Terminated as error:
            sys.exit(error.number)

    assert fault_processes.forked(work, tmp_path / "said") == (signal.SIGTERM, 0)
    assert read_manifest(tmp_path / "run")["status"] == "finished"


def test_a_full_disk_is_one_line_and_an_honest_manifest(tmp_path):
    holds(faults.full_disk(tmp_path))


@pytest.mark.parametrize(
    "fuzz", [fault_files.fuzz_settings, fault_files.fuzz_runs, fault_files.fuzz_data]
)
def test_a_broken_file_is_read_or_refused_in_one_line(tmp_path, dice, fuzz):
    holds(fuzz(tmp_path, 150, dice))


def test_any_command_line_works_or_ends_in_one_line(tmp_path, dice):
    holds(fuzz_commands(tmp_path, 25, dice))


def test_a_small_file_cannot_take_much_memory(tmp_path):
    holds(fault_files.bombs(tmp_path, 400_000_000))


class Fragile:
    """The mean, but not finite where an update is huge, as sums in low precision are."""

    def __call__(self, held, arrived):
        average = Mean()(held, arrived)
        return {name: torch.where(p.abs() > 1e10, torch.inf, p) for name, p in average.items()}


def test_a_divergence_caused_by_a_few_is_rolled_back_and_names_them(tmp_path):
    settings = parse_settings(
        {
            **SMALL,
            "cell": {"num_ue": 6},
            "simulation": {"num_selected": 6, "device": "cpu"},
            "attack": {"name": "scaled", "scale": 1e20, "share": 0.34},
            "checks": {"norm_bound": 0.0, "shorten": 0.0},
        }
    )

    def stopped(record):
        if record.stop is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # between its last round and its end
        run(settings, tmp_path / "run", aggregator=Fragile(), on_round=stopped)
    diverged = run(settings, tmp_path / "run", aggregator=Fragile(), resume=True)
    assert diverged.manifest["stop"] == "diverged"
    assert sorted(diverged.manifest["suspects"]) == diverged.manifest["liars"]
    assert diverged.manifest["problem"].startswith(
        "diverged; suspects, by the length of their last updates: UE "
    )
    assert all(np.isfinite(weights).all() for weights in read_weights(tmp_path / "run").values())


@pytest.mark.parametrize(
    ("lengths", "suspects"),
    [
        ([1.0, 1.0, 2.0, 1.0], ()),
        ([9.0, 9.0, 9.0, 9.0], ()),
        ([1.0, 50.0, 1.0, 1.0], ((11, 50.0),)),
        ([1.0, 50.0], ((11, 50.0),)),
        ([1.0, 4.0, 1.0, float("nan")], ((13, float("inf")), (11, 4.0))),
        ([float("nan"), float("nan")], ()),  # all alike: a step too long, not a liar
    ],
)
def test_a_suspect_is_far_longer_than_the_others(lengths, suspects):
    changes = [torch.tensor([0.0, length]) for length in lengths]
    num, sent = len(lengths), {"w": torch.zeros(2)}
    ue, steps = 10 + np.arange(num), np.ones(num, dtype=np.int64)
    updates = ReceivedUpdates(ue, changes, sent, steps, 0 * steps)
    assert suspects_of(updates) == suspects


def test_a_command_killed_between_its_manifest_and_its_tables_begins_anew(tmp_path, capsys):
    whole = run(parse_settings(SMALL), tmp_path / "whole").folder
    begun = run(parse_settings(SMALL), tmp_path / "begun").folder
    for name in ("rounds.csv", "ues.csv", "weights.safetensors"):
        (begun / name).unlink()
    manifest = {**json.loads((begun / "manifest.json").read_text()), "status": "running"}
    (begun / "manifest.json").write_text(json.dumps(sealed(manifest)))
    assert run_cli(["simulate", "--resume", str(begun)]) == 0
    assert fault_kills.digest(begun) == fault_kills.digest(whole)
    (begun / "rounds.csv").unlink()
    (begun / "config.toml").unlink()
    capsys.readouterr()
    assert run_cli(["simulate", "--resume", str(begun)]) == 2
    assert "give its command again, with --force" in capsys.readouterr().err


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def go_on_alone(settings, folder):
    run(settings, folder, resume=True)


def go_on_in_a_batch(settings, folder):
    sim = build_simulation(settings)
    recording = Recording(sim, folder, dump_settings(settings), {}, resume=True)
    play_into([recording], lambda *_: None)


@pytest.mark.parametrize("go_on", [go_on_alone, go_on_in_a_batch])
def test_rounds_whose_checkpoints_are_all_damaged_are_not_lost_without_a_question(go_on, tmp_path):
    settings = parse_settings(SMALL).resolved()

    def interrupt(record):
        if record.k == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", on_round=interrupt)
    checkpoint = tmp_path / "run" / "checkpoint-0"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    before = contents(tmp_path / "run")
    with pytest.raises(
        AutoFLError,
        match=r"checkpoint-0: not a whole checkpoint .* to begin the run anew, .* --force",
    ):
        go_on(settings, tmp_path / "run")
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    "change", ["another version", "a comment in its settings", "a damaged manifest"]
)
def test_a_finished_run_is_not_lost_without_a_question(change, tmp_path):
    settings = parse_settings(SMALL)
    folder = run(settings, tmp_path / "run").folder
    manifest = json.loads((folder / "manifest.json").read_text())
    if change == "another version":
        (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, "version": "0.0.1"})))
    elif change == "a damaged manifest":
        (folder / "manifest.json").write_text(json.dumps({**manifest, "seed": 5}))
    else:
        with open(folder / "config.toml", "a") as file:
            file.write("# mine\n")
    before = contents(folder)
    with pytest.raises(AutoFLError):
        run(settings, folder, resume=True)
    assert contents(folder) == before


def test_a_link_as_lock_is_refused_and_what_it_points_at_stays(tmp_path):
    """Also where a run that seems to have been killed is only read, which marks it."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work " * 100)
    (tmp_path / "new").mkdir()
    RunWriter(tmp_path / "old", "seed = 1\n", {"algorithm": "autofl", "seed": 1}).close()
    for folder in ("new", "old"):
        (tmp_path / folder / ".lock").unlink(missing_ok=True)
        (tmp_path / folder / ".lock").symlink_to(thesis)
    for act in (lambda: FolderLock(tmp_path / "new"), lambda: read_manifest(tmp_path / "old")):
        with pytest.raises(AutoFLError, match=r"\.lock: .*; remove it$"):
            act()
    assert thesis.read_text() == "years of work " * 100


@pytest.mark.parametrize("value", ["nan", "-1e999", "inf"])
def test_a_setting_of_an_attack_is_finite(value):
    with pytest.raises(AutoFLError, match="scale: must be a finite number"):
        load_settings(None, ["attack.name=scaled", f"attack.scale={value}"])


@pytest.mark.parametrize(
    "words", [["--attack"], ["--aggregator"], ["--set", "data.partition={}"], ["--planner"]]
)
def test_a_function_of_pythons_own_is_no_part(tmp_path, capfd, words):
    last = words[-1].format("os:system") if "{}" in words[-1] else words[-1]
    words = [*words[:-1], last, *([] if "os:system" in last else ["os:system"])]
    status = run_cli(
        ["simulate", "--out", str(tmp_path / "run"), *fault_processes.sets(SMALL), *words]
    )
    said = capfd.readouterr().err
    assert (status, said.count("autofl: ")) == (2, 1)
    assert "os:system" in said


def test_a_manifest_without_its_seal_is_refused(tmp_path):
    folder = run(parse_settings(SMALL), tmp_path).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[OWN_SUM]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(AutoFLError, match="not what the run wrote"):
        read_manifest(folder)


def test_an_ascii_terminal_gets_the_whole_table(tmp_path):
    holds(fault_files.ascii_terminals(tmp_path))


def test_mnist_is_not_taken_for_fashion_mnist():
    rows = fault_files.misnamed_data()
    if not rows:
        pytest.skip("the real MNIST is not in AUTOFL_DATA")
    holds(rows)


def test_the_stop_rules_cost_the_same_at_the_end_as_at_the_beginning():
    holds(faults.plateau(4000))


def test_a_long_run_takes_no_more_memory_and_time_than_a_short_one(tmp_path):
    holds(
        [soak.soak(tmp_path, 600, 200, pause=0.05, most=1.5)[0]]
    )  # so few rounds feel what else runs here


def test_growth_is_seen():
    """A leak of 1 kB a round and rounds that take longer and longer are not flat."""
    rounds = np.arange(500.0, 20_000.0)
    cpu = 0.005 * rounds
    assert soak.judge(np.column_stack([rounds, np.full_like(rounds, 2.7e8), cpu]), 20_000)[1]
    assert not soak.judge(np.column_stack([rounds, 2.7e8 + 1000.0 * rounds, cpu]), 20_000)[1]
    assert not soak.judge(
        np.column_stack([rounds, np.full_like(rounds, 2.7e8), cpu + 1e-7 * rounds**2]), 20_000
    )[1]


def test_every_row_of_the_page_names_tests_that_are_there():
    tests = Path(__file__).parents[1]
    for _, names in SEEN:
        for name in names:
            file, _, function = name.partition("::")
            assert f"def {function}(" in (tests / file).read_text(encoding="utf-8"), name


def test_the_rules_stop_where_they_did_with_the_whole_history(rng):
    """The slow, obvious way: every rule reads all evaluations."""
    ends = set()
    for _ in range(200):
        spread = 10 ** rng.uniform(-3, -0.5)
        gaps = (
            rng.choice([1, 5, 7, 25], size=60)
            if rng.random() < 0.5
            else np.full(60, rng.choice([1, 5, 10, 30]))
        )
        rounds = gaps.cumsum()
        accuracy = 0.6 + spread * rng.standard_normal(len(rounds))
        stop = Stop(rounds=10_000, plateau=rng.random() < 0.8, target_accuracy=0.9, stalled=60)
        history, whole, end = (), [], None
        for k, value in zip(rounds.tolist(), accuracy.tolist(), strict=True):
            entry = (k, Evaluation(adapted_accuracy=value))
            whole.append(entry)
            reason = stop.reason(k, 0.0, (*history, entry))
            assert reason == stop.reason(k, 0.0, whole)
            if reason is not None:
                end = reason
                break
            history = watched(history, *entry, stop.window)
            assert len(history) <= 61
        ends.add(end)
    assert ends == {"plateau", "target_accuracy", "stalled", None}


def test_a_run_that_rises_slowly_has_not_stalled_and_one_that_only_scatters_has(rng):
    stop, rounds = Stop(rounds=1500, stalled=300), range(0, 1500, 5)

    def ends(rise):
        history = ()
        for k in rounds:
            entry = (k, Evaluation(adapted_accuracy=0.5 + rise * k + 0.02 * rng.standard_normal()))
            if (reason := stop.reason(k, 0.0, (*history, entry))) is not None:
                return k, reason
            history = watched(history, *entry, stop.window)
        return None

    assert all(ends(2e-4) is None for _ in range(20))  # 3 % over the window, noise of 2 %
    ended = [ends(0.0) for _ in range(20)]
    assert all(end is not None and end[0] <= 600 and end[1] == "stalled" for end in ended)


def test_convergence_is_still_the_first_quiet_window():
    assert convergence_round(np.arange(40.0), np.array([0.1] * 10 + [0.5] * 30)) == 10.0


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
