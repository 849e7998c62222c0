"""What people see: tables on standard output, progress and remarks on standard error."""

import sys
import time
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from autofl.report.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.status import Status

    from autofl.experiments.jobs import Progress as Told

MOST_ROWS = 50


def say(text: str) -> None:
    """A remark for people; standard output stays clean for JSON."""
    print(text, file=sys.stderr, flush=True)


def show_table(table: Table) -> None:
    """A table on standard output, at most 50 rows of it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    rows = table.rows[:MOST_ROWS]
    drawn = RichTable(title=table.title, box=box.SIMPLE_HEAD, title_justify="left")
    for heading, right in zip(table.headings, replace(table, rows=rows).numeric, strict=True):
        drawn.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(drawn)
    if len(table.rows) > MOST_ROWS:
        print(f"... and {len(table.rows) - MOST_ROWS:,} more rows; --json prints all")


class _Shown:
    """Something of Rich's that is on the screen while a `with` lasts, where standard error is a terminal."""

    def __init__(self, shown: "Progress | Status") -> None:
        self._shown = shown

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()


class ProgressBar(_Shown):
    """A bar over all rounds of a command on a terminal.

    Where runs are few, a line for each that is finished. Where they are many, and there is no terminal, a line for each
    twentieth of the rounds with the time that remains.
    """

    def __init__(self, total_rounds: int, each_run: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} rounds"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        super().__init__(self._bar)
        self._task = self._bar.add_task("starting", total=total_rounds)
        self._total = total_rounds
        self._each_run = each_run
        self._done: dict[str, int] = {}
        self._said = 0
        self._begin = time.monotonic()

    def __call__(self, progress: "Told") -> None:
        """Move the bar; a run that stops early counts as whole."""
        self._done[progress.label] = progress.num_rounds if progress.finished else progress.round
        done = sum(self._done.values())
        self._bar.update(self._task, completed=done, description=progress.label)
        if progress.finished and self._each_run:
            line = (
                f"{progress.label}: {progress.round} rounds, {progress.sim_time:.1f} simulated s,"
                f" adapted {100 * progress.adapted_accuracy:.1f} %, {progress.host_time:.1f} s here"
            )
            (self._bar.console.print if sys.stderr.isatty() else say)(line)
        elif not self._each_run and not sys.stderr.isatty() and 20 * done // self._total > self._said:
            self._said = 20 * done // self._total
            left = (time.monotonic() - self._begin) * (self._total - done) / done
            say(f"{5 * self._said} % of the rounds done, about {left / 60:.0f} min left")


class Stages(_Shown):
    """The stage a long command is in: one changing line on a terminal; elsewhere a line at most every 10 s."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.status import Status

        self._status = Status("starting", console=Console(stderr=True, highlight=False))
        super().__init__(self._status)
        self._said = -10.0

    def __call__(self, stage: str) -> None:
        if sys.stderr.isatty():
            self._status.update(stage)
        elif time.monotonic() - self._said >= 10.0:
            self._said = time.monotonic()
            say(stage)


class DownloadBar(_Shown):
    """The progress of downloads, in the form pooch asks for."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._bar = Progress(
            TextColumn(name),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        super().__init__(self._bar)
        self._task = self._bar.add_task(name, total=None)
        self.total = 0

    def update(self, num_bytes: int) -> None:
        self._bar.update(self._task, advance=num_bytes, total=self.total)

    def reset(self) -> None:
        self._bar.reset(self._task)

    def close(self) -> None:
        """One file is done; the next one begins anew."""
        self._bar.reset(self._task)
