"""Runs killed at any moment, by SIGKILL: with the same command, or --resume, they end as if nothing
had happened.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import io
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fault_processes import SMALL, Row, forked, sets

from autofl import files
from autofl.cli.main import run as run_cli
from autofl.config import Settings, dump_settings, parse_settings
from autofl.data import ByLabels, load, write_device
from autofl.jobs import many, recording
from autofl.jobs.job import Job
from autofl.jobs.many import run_comparison, run_with_progress
from autofl.records import is_run, read_manifest, tables
from autofl_paper import recipes

ROOT = Path(__file__).parents[1]
REMEMBERING = {
    "arm": "scaffold",
    "compressor": {"name": "top-k"},
    "downlink": {"name": "quantise"},
}
SAME = ("config.toml", "rounds.csv", "ues.csv", "weights.safetensors", "pilots.json", "mnist*.csv")
"""Files of runs, pilots and figures that must not depend on what happened on the way."""
DEPLOYED = {
    "cell": {"num_ue": 4},
    "simulation": {"num_selected": 3},
    "stop": {"rounds": 9, "target_accuracy": 0.01},
    "evaluation": {"every": 2},
    "deploy": {"deadline": 0.1, "join": 0.0},
}
PILOTS = {**SMALL, "cell": {"num_ue": 12}, "stop": {"rounds": 2}}


class Moments:
    """Counts the moments before, in and after each write, fsync and rename; kills this process at
    one of them.
    """

    def __init__(self, kill_at: int | None = None) -> None:
        self.count, self.kill_at = 0, kill_at

    def __enter__(self) -> "Moments":
        self._kept = files.write_all, os.fsync, os.replace
        files.write_all = tables.write_all = self._write
        os.fsync, os.replace = self._around(os.fsync), self._around(os.replace)
        recording.BETWEEN_CHECKPOINTS, recording.MOST_OF_THE_TIME = 0.0, 1e9
        return self

    def __exit__(self, *_: object) -> None:
        files.write_all, os.fsync, os.replace = self._kept
        tables.write_all = files.write_all
        recording.BETWEEN_CHECKPOINTS, recording.MOST_OF_THE_TIME = 10.0, 0.05

    def _pass(self) -> None:
        self.count += 1
        if self.count - 1 == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _around(self, call: Callable[..., object]) -> Callable[..., object]:
        def moment(*args: object) -> object:
            self._pass()
            answer = call(*args)
            self._pass()
            return answer

        return moment

    def _write(self, file: io.RawIOBase, content: bytes) -> None:
        self._pass()
        self._kept[0](file, content[: len(content) // 2])
        self._pass()
        self._kept[0](file, content[len(content) // 2 :])
        self._pass()


def digest(folder: Path) -> dict[str, str]:
    """The SHA-256 of everything in a folder that must not depend on what happened on the way."""
    paths = sorted(path for kind in SAME for path in folder.rglob(kind))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


Work = Callable[[Path, bool], object]
"""work(folder, resume): a command from its beginning, or what goes on with it."""


def works() -> dict[str, Work]:
    """The commands that are killed, small."""
    plain, remembering = parse_settings(SMALL), parse_settings({**SMALL, **REMEMBERING})
    ruled = parse_settings({**SMALL, "stop": {"rounds": 9, "target_accuracy": 0.01}})
    tiny = replace(recipes.SCALES["smoke"], rounds=2, test_samples=5)

    def simulate(settings: Settings, folder: Path, resume: bool) -> None:
        run_with_progress(Job(settings, folder, "", resume=resume), lambda _: None)

    def reproduce(folder: Path, resume: bool) -> None:
        recipes.SCALES["smoke"] = tiny
        words = [
            "reproduce",
            "fig2b",
            "--scale",
            "smoke",
            "--device",
            "cpu",
            "--workers",
            "1",
            "--out",
            str(folder),
        ]
        assert run_cli(words) == 0

    def pilot(folder: Path, resume: bool) -> None:
        words = [
            "pilot",
            "--seeds",
            "1",
            "--workers",
            "1",
            "--out",
            str(folder / "pilots.json"),
            *sets(PILOTS),
        ]
        assert run_cli(words) == 0

    def sweep(folder: Path, resume: bool) -> None:
        words = [
            "sweep",
            "--over",
            "planner.name=paper,exact",
            "--workers",
            "1",
            "--out",
            str(folder),
            *sets(SMALL),
        ]
        assert run_cli(words) == 0

    def command(words: list[str], folder: Path, resume: bool) -> None:
        """With --resume where there is something to go on with, and else as it was given."""
        if not resume or run_cli([*words, "--resume", str(folder)]) != 0:
            assert run_cli([*words, "--out", str(folder), "--force", *sets(SMALL)]) == 0

    def batch(folder: Path, resume: bool) -> None:
        """What a GPU does, on this machine's CPU; one of the three runs leaves the batch before the
        others.
        """
        ends = [{"stop": {"rounds": 3 + 2 * (seed == 1)}, "seed": seed} for seed in (1, 2, 3)]
        runs = [
            Job(parse_settings({**SMALL, **one}), folder / str(one["seed"]), "", resume=resume)
            for one in ends
        ]
        many._run_together(runs, lambda _: None)

    return {
        "a run": lambda folder, resume: simulate(plain, folder, resume),
        "a run, UEs that remember": lambda folder, resume: simulate(remembering, folder, resume),
        "a run, ended by a rule": lambda folder, resume: simulate(ruled, folder, resume),
        "a comparison in one process": lambda folder, resume: run_comparison(
            plain, folder, resume=resume
        ),
        "`autofl simulate`": lambda folder, resume: command(["simulate"], folder, resume),
        "`autofl compare` with two workers": lambda folder, resume: command(
            ["compare", "--workers", "2"], folder, resume
        ),
        "a batch of runs": batch,
        "`autofl sweep`": sweep,
        "`autofl reproduce`": reproduce,
        "`autofl pilot`": pilot,
        **(
            {}
            if importlib.util.find_spec("flwr") is None
            else {"a deployment's server app": serve_once}
        ),
    }


def serve_once(folder: Path, resume: bool) -> None:
    """The server app of a deployment, ended early by a rule; its devices answer in the same
    process.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from flwr.app import Context, RecordDict

    from autofl.deploy.server import serve
    from deploy.loopback import Loopback

    if resume and is_run(folder) and read_manifest(folder)["status"] == "finished":
        return  # as `deploy run --resume` does
    settings = parse_settings(DEPLOYED).resolved()
    nodes = {
        9000 - ue: {"ue": ue, "data": str(_device_data() / f"ue{ue}.npz")}
        for ue in range(settings.cell.count)
    }
    config = {
        "settings": dump_settings(settings),
        "folder": str(folder),
        "resume": resume,
        "attempt": "1",
    }
    serve(Loopback(nodes, config), Context(1, 1, {}, RecordDict(), config))


@cache
def _device_data() -> Path:
    """The files of four devices, for as long as this process lives."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    dataset = load("mnist5k")
    partition = dataset.partition(ByLabels(5), 4, seed=1)
    for ue in range(4):
        write_device(
            Path(place.name) / f"ue{ue}.npz",
            dataset,
            partition.train_of(ue)[:200],
            partition.test_of(ue)[:40],
        )
    return Path(place.name)


@dataclass(frozen=True)
class Death:
    """When a process is killed: at a moment of its writes, or so many seconds after its beginning."""

    moment: int | None = None
    seconds: float | None = None

    def of(self, work: Work, folder: Path, resume: bool, said: Path) -> bool:
        """Whether a child that does this work was killed before its end."""

        def mortal() -> None:
            if self.seconds is not None:
                killer = threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL))
                killer.daemon = True
                killer.start()
            with Moments(self.moment):
                work(folder, resume)

        return forked(mortal, said)[1] == signal.SIGKILL


def kills(place: Path, num: int, dice: random.Random, only: tuple[str, ...] = ()) -> list[Row]:
    """SIGKILL at `num` moments of each: half of them before, in and after writes, spread over all
    of them, half at random times; more of these where there are few writes. What goes on is killed
    once more in every third case, and then goes on to its end.
    """
    rows = []
    for name, work in works().items():
        if only and name not in only:
            continue
        here = place / name.strip("`").replace("`", "")
        whole, said = here / "whole", here / "said.txt"
        here.mkdir(parents=True)
        with (
            Moments() as moments,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            work(whole, False)  # here: what it loads, all children have
        begin = time.perf_counter()
        forked(lambda work=work, here=here: work(here / "timed", False), said)
        spent = time.perf_counter() - begin
        at_writes = min(
            moments.count, num - num // 2
        )  # with workers, most of the writes are theirs
        deaths = [Death(moment=moment) for moment in dice.sample(range(moments.count), at_writes)]
        deaths += [Death(seconds=spent * dice.random()) for _ in range(num - at_writes)]
        same = 0
        for number, death in enumerate(deaths):
            folder = here / str(number)
            while not (died := death.of(work, folder, False, said)) and death.seconds is not None:
                death, folder = (
                    Death(seconds=0.7 * death.seconds),
                    folder.with_name(f"{folder.name}-again"),
                )
            if number % 3 == 0:
                Death(seconds=spent * dice.random()).of(work, folder, True, said)
            ended = forked(lambda work=work, folder=folder: work(folder, True), said)[0] == 0
            parts = list(folder.rglob(f"*{files.PART}"))
            fine = died and ended and digest(folder) == digest(whole) and not parts
            same += fine
            if not fine:
                print(f"{name}, killed at {death}: {said.read_text()[-300:]}", flush=True)
        rows.append(Row(f"SIGKILL of {name}", num, same, "the same bytes"))
    return rows
