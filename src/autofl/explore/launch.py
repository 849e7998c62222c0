"""Runs that the page starts: `autofl simulate` as a process of its own, with its lock, checkpoints
and signals.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.files import make_folder, open_own, write_whole
from autofl.records import is_run
from autofl.records.run import CONFIG

MOST_AT_ONCE = 4
LOG = "explore.log"
"""What the process of a run printed."""
PATIENCE = 20.0
"""Seconds that runs get for their last checkpoint when the server ends."""

Wish = Literal["run", "pause", "stop"]


class Busy(AutoFLError):
    """What was asked for is not possible in the present state of the run."""


class Started:
    """A run that was started here: its process, and what its user last asked for."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.wish = "run"
        self.process = self._start(*words)

    def _start(self, *words: str) -> "subprocess.Popen[bytes]":
        with os.fdopen(open_own(self.folder / LOG, os.O_WRONLY | os.O_CREAT), "wb") as log:
            log.truncate(0)
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "autofl", "simulate", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the server, which tells its runs to end by itself
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def resume(self) -> None:
        self.wish = "run"
        self.process = self._start("--resume", str(self.folder))

    def end(self, wish: Wish) -> None:
        """SIGTERM: the run keeps a checkpoint and leaves."""
        self.wish = wish
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def status(self, said: str | None) -> str:
        """From the process and the manifest, which is None if there is none yet."""
        if self.is_alive and self.wish != "run":
            return "stopping"
        if self.is_alive:
            return "running" if said == "running" else "starting"
        if said is None:
            return "stopped" if self.wish == "stop" else "failed"
        if said == "interrupted" and self.wish != "run":
            return "paused" if self.wish == "pause" else "stopped"
        return said

    def problem(self) -> str | None:
        """The last line of a process that failed."""
        if self.is_alive or self.process.returncode in (0, 143, -signal.SIGTERM):
            return None
        try:
            lines = (self.folder / LOG).read_text(errors="replace").split("\n")
        except OSError:
            return None
        return next((line.strip()[:400] for line in reversed(lines) if line.strip()), None)


class Launcher:
    """Starts, pauses, stops and resumes runs in folders below one place."""

    def __init__(self, place: Path | None) -> None:
        self.place = place
        self._started: dict[Path, Started] = {}
        self._lock = threading.Lock()

    def folders(self) -> list[Path]:
        return list(self._started)

    def state(self, folder: Path) -> Started | None:
        return self._started.get(folder)

    def start(self, config: str) -> Path:
        """A new run by these settings, in a folder of its own."""
        if self.place is None:
            raise Busy(
                "only single runs were given; start autofl explore with a folder for new ones"
            )
        with self._lock:
            self._check_room()
            folder = make_folder(self.place / "explore").resolve()
            write_whole(folder / CONFIG, config)
            self._started[folder] = Started(folder, str(folder / CONFIG), "--out", str(folder))
            return folder

    def end(self, folder: Path, wish: Wish) -> None:
        with self._lock:
            run = self._started.get(folder)
            if run is None or not run.is_alive:
                raise Busy("this run is not running, or was not started from this page")
            if wish == "pause" and not is_run(folder):
                raise Busy(
                    "the run is still starting; it can be paused from its first round on, or stopped now"
                )
            run.end(wish)

    def resume(self, folder: Path) -> None:
        load_settings(
            folder / CONFIG
        )  # what is wrong with them is answered now; code of its own nobody has asked for
        with self._lock:
            run = self._started.get(folder)
            if run is not None and run.is_alive:
                raise Busy("the run is still running")
            self._check_room()
            if run is None:
                self._started[folder] = Started(folder, "--resume", str(folder))
            else:
                run.resume()

    def _check_room(self) -> None:
        if sum(run.is_alive for run in self._started.values()) >= MOST_AT_ONCE:
            raise Busy(f"{MOST_AT_ONCE} runs are active; wait for one to end, or stop one")

    def close(self) -> None:
        """Tell all runs to end, and wait for their checkpoints."""
        alive = [run for run in self._started.values() if run.is_alive]
        for run in alive:
            run.end("stop")
        for run in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(PATIENCE)
