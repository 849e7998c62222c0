"""A real deployment on this machine, its command or its server app killed: it goes on to the same
bytes.

`make fault-deploy` starts a SuperLink and three SuperNodes, which takes minutes, and writes
docs/results/faults/deploy-run.json, rows of docs/reliability.md. With --rounds it watches one long
run instead.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fault_kills import digest
from fault_processes import Row, keep_rows
from soak import judge, watch, words_of

from autofl.deploy.commands import ENDING
from autofl.deploy.folder import Deployment, end_all, processes_of
from autofl.records import is_run, read_run
from faults import draw_page

SETTINGS = [
    "stop.rounds=60",
    "evaluation.every=100",
    "deploy.deadline=300",
    "deploy.join=300",
    "preset=physical",
    "cell.num_ue=3",
]


def autofl(*words: object) -> list[str]:
    return [sys.executable, "-m", "autofl", "deploy", *map(str, words)]


def sets(pairs: list[str]) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


def call(*words: object) -> int:
    """The status of a `deploy` command; its words go to a log, and to the screen where it fails."""
    done = subprocess.run(autofl(*words), capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr[-500:], file=sys.stderr)
    return done.returncode


@contextlib.contextmanager
def deployment(folder: Path):  # type: ignore[no-untyped-def]
    """A deployment that is up; nothing of it is left afterwards."""
    try:
        assert call("up", "--folder", folder, *sets(SETTINGS)) == 0
        yield Deployment(folder)
    finally:
        call("down", "--folder", folder)
        end_all(processes_of(folder))


def killed(site: Deployment, out: Path, after: int, seconds: float, server: bool) -> bool:
    """A run whose command, or whose server app, is killed so long after a round; whether that was
    before its end.
    """
    with subprocess.Popen(
        autofl("run", "--folder", site.folder, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        while command.poll() is None and _rounds(out) < after:
            time.sleep(0.01)
        time.sleep(seconds)
        pids = [one.pid for one in site.servers()] if server else [command.pid]
        for pid in pids if command.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids) and command.wait(120) != 0


def gone_on(site: Deployment, out: Path) -> bool:
    """Whether the run comes to its end: begun if it was killed before there was one, else resumed.

    The server app of a command that was killed may still make the run's folder; then it is refused,
    and resumed.
    """
    if not is_run(out) and call("run", "--folder", site.folder, "--out", out) == 0:
        return True
    return call("run", "--folder", site.folder, "--resume", out) == 0


def _left(site: Deployment) -> int:
    """Server apps that are still there ten seconds after the command ended: a run that is over
    closes its streams.
    """
    end = time.monotonic() + ENDING
    while site.servers() and time.monotonic() < end:
        time.sleep(0.2)
    return len(site.servers())


def _rounds(out: Path) -> int:
    """The last round that is on disk; -1 before the first."""
    try:
        return (out / "rounds.csv").read_bytes().count(b"\n") - 2
    except OSError:
        return -1


def kill_runs(
    place: Path, num: int, dice: random.Random, keep: Callable[[list[Row]], None]
) -> list[Row]:
    """Every third time the server app is killed, else the command; then `deploy run --resume`. Each
    is kept at once.
    """
    same = orphans = doubled = done = 0
    with deployment(place / "site") as site:
        begin = time.monotonic()
        assert call("run", "--folder", site.folder, "--out", place / "whole") == 0
        spent = time.monotonic() - begin
        for number in range(num):
            out, after = place / f"run-{number}", (-1, 0, 20, 40)[number % 4]
            seconds = spent / 2 if after < 0 else 0.5  # before the rounds, or among them
            while not killed(site, out, after, dice.uniform(0.0, seconds), server=number % 3 == 2):
                out = out.with_name(f"{out.name}-again")  # it ended before
            done += 1
            ended = gone_on(site, out)
            same += ended and digest(out) == digest(place / "whole")
            orphans += _left(site)
            run = read_run(out)
            asked = list(
                zip(run.devices["round"].tolist(), run.devices["ue"].tolist(), strict=True)
            )
            doubled += len(asked) - len(set(asked))
            print(f"{same} of {done}, {orphans} orphans, {doubled} rounds twice", flush=True)
            keep(_kill_rows(done, same, done - orphans - doubled))
    return _kill_rows(done, same, done - orphans - doubled - len(processes_of(place / "site")))


def _kill_rows(done: int, same: int, clean: int) -> list[Row]:
    return [
        Row(
            "SIGKILL of deploy run, or of its server app",
            done,
            same,
            "goes on, same SHA-256 as without it",
        ),
        Row("server apps left over after 10 s, rounds trained twice", done, clean, "none"),
    ]


def long_run(place: Path, num_rounds: int) -> tuple[Row, dict[str, float]]:
    """The server app of a run of so many rounds, watched."""
    out, settled = place / "long", max(2, num_rounds // 10)
    with deployment(place / "site") as site:
        words = autofl(
            "run", "--folder", site.folder, "--out", out, "--set", f"stop.rounds={num_rounds}"
        )
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as command:
            while not (pids := site.servers()) and command.poll() is None:
                time.sleep(0.2)
            seen = watch(command, out / "rounds.csv", pid=pids[0].pid)
        figures, flat = judge(seen, num_rounds, settled)
    held = int(
        flat and command.returncode == 0 and len(read_run(out).rounds["round"]) == num_rounds + 1
    )
    return Row(
        f"{num_rounds} rounds of a deployment, its server app", 1, held, words_of(figures, settled)
    ), figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.rounds:
            row, figures = long_run(Path(folder), chosen.rounds)
            rows = [row]
            keep_rows("deploy-run", "long", rows, figures)
        else:
            keep = partial(keep_rows, "deploy-run", "kills", figures={})
            keep(rows := kill_runs(Path(folder), chosen.kills, random.Random(15), keep))
    draw_page()
    for row in rows:
        print(f"{row.held} of {row.injected}  {row.fault}: {row.seen}")
    sys.exit(any(row.held < row.injected for row in rows))
