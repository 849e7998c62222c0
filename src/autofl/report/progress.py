"""How far long work is: a bar on a terminal or in a notebook, lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.status import Status

    from autofl.experiments.jobs import Progress as Told


def say(text: str) -> None:
    """A remark for people; standard output stays clean for JSON."""
    print(text, file=sys.stderr, flush=True)


def can_show() -> bool:
    """Whether something that changes can be shown: on a terminal, or in a notebook."""
    from rich.console import Console

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
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()


class ProgressBar(Shown):
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
            disable=not can_show(),
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
