"""How far long work has got: a bar on a terminal or in a notebook, lines elsewhere."""

import logging
import math
import shutil
import sys
import time
from textwrap import fill
from types import TracebackType
from typing import TYPE_CHECKING, Self

from autofl.report.table import printable

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.status import Status

    from autofl.jobs.job import Progress as Told


QUIET, USUAL, VERBOSE = range(3)
_loudness = USUAL
log = logging.getLogger("autofl.said")
"""Where messages also go, for a log file."""


def speak(loudness: int) -> None:
    """How much is printed from here on: only errors, the usual, or every round."""
    global _loudness
    _loudness = loudness


def say(text: str, whole: bool = False) -> None:
    """A message on standard error, since standard output is kept clean for JSON; the log file gets
    it in one line.

    Args:
        whole: do not wrap it, such as a command that is to be copied.
    """
    log.info(text)
    if _loudness != QUIET:
        print(printable(text if whole else wrapped(text)), file=sys.stderr, flush=True)


def wrapped(text: str) -> str:
    """Lines no wider than the terminal, 80 columns elsewhere (or COLUMNS); words, such as paths,
    are never broken.
    """
    return fill(
        text, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False
    )


def can_show() -> bool:
    """Whether something that changes can be shown: on a terminal, or in a notebook."""
    from rich.console import Console

    if _loudness == QUIET:
        return False
    return sys.stderr.isatty() or Console(stderr=True).is_jupyter


class Shown:
    """Something of Rich's that is on the screen while a `with` lasts, where it can be shown."""

    def __init__(self, shown: "Progress | Status") -> None:
        self._shown = shown

    def __enter__(self) -> Self:
        if can_show():
            self._shown.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shown.stop()


class ProgressBar(Shown):
    """A bar over all rounds of a command on a terminal.

    Where runs are few, a line for each that is finished. Where they are many, and there is no
    terminal, a line for each twentieth of the rounds with the time that remains. A line for each
    round of a single run without a terminal, and of every run with VERBOSE.
    """

    def __init__(self, total_rounds: int, each_run: bool = True, each_round: bool = False) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} rounds"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            disable=not can_show(),
            transient=True,
        )
        super().__init__(self._bar)
        self._task = self._bar.add_task("starting", total=total_rounds)
        self._total = self._planned = total_rounds
        self._each_run = each_run
        self._each_round = each_round
        self._done: dict[str, int] = {}
        self._said = 0
        self._begin = time.monotonic()

    def __call__(self, progress: "Told") -> None:
        """Move the bar; the rounds that a run did not need are no longer in its total."""
        if progress.finished:
            self._total -= progress.num_rounds - progress.round
        self._done[progress.label] = progress.round
        done = sum(self._done.values())
        self._bar.update(self._task, completed=done, total=self._total, description=progress.label)
        adapted = ""
        if not math.isnan(progress.adapted_accuracy):
            adapted = f", adapted {100 * progress.adapted_accuracy:.1f} %"
        so_far = (
            f"{progress.label}: round {progress.round} of {progress.num_rounds},"
            f" {progress.sim_time:.3f} simulated s{adapted}"
        )
        if _loudness == VERBOSE or (self._each_round and not sys.stderr.isatty()):
            self._line(so_far)
        else:
            log.debug(so_far)
        if self._each_run:
            if progress.finished:
                self._line(
                    f"{progress.label}: {progress.round} rounds, {progress.sim_time:.1f} simulated s{adapted},"
                    f" {progress.host_time:.1f} s here"
                )
        elif not sys.stderr.isatty():
            self._say_share(done)

    def _say_share(self, done: int) -> None:
        """A line for each twentieth of the rounds; runs that are not finished may still stop early."""
        twentieths = 20 * done // max(self._total, 1)
        if twentieths <= self._said:
            return
        self._said = twentieths
        left = (time.monotonic() - self._begin) * (self._total - done) / max(done, 1) / 60.0
        words = "less than a minute left"
        if left >= 1.0:
            most = "at most " if self._total < self._planned else ""
            words = f"{most}about {left:.0f} min left"
        say(f"{5 * twentieths} % of the rounds done, {words}")

    def _line(self, line: str) -> None:
        """Above the bar where there is one."""
        if can_show() and sys.stderr.isatty():
            log.info(line)
            self._bar.console.print(printable(line))
        else:
            say(line)
