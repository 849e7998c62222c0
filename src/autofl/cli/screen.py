"""What people see: tables on standard output, progress and remarks on standard error."""

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from autofl.records import RoundRecord

MOST_ROWS = 50


def say(text: str) -> None:
    """A remark for people; standard output stays clean for JSON."""
    print(text, file=sys.stderr, flush=True)


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A table on standard output, at most 50 rows of it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, heading in enumerate(headings):
        numeric = place > 0 and all(row[place][:1] in "0123456789-–<>" for row in rows[:MOST_ROWS] if row[place])
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows[:MOST_ROWS]:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)
    if len(rows) > MOST_ROWS:
        print(f"... and {len(rows) - MOST_ROWS:,} more rows; --json prints all")


class Progress:
    """A bar over all rounds of a command on a terminal, a line for each finished run everywhere."""

    def __init__(self, total_rounds: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} rounds"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=total_rounds)
        self._finished_line: Callable[[], str] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def on_run(self, algorithm: str, seed: int) -> Callable[[RoundRecord], None]:
        """What to call after each round of this run."""
        self.close_run()
        name, begin, last = f"{algorithm} seed {seed}", time.perf_counter(), RoundRecord(round=0)
        best: dict[str, Any] = {}

        def finished() -> str:
            accuracy = f", adapted {100 * best['accuracy']:.1f} %" if best else ""
            return (
                f"{name}: {last.round} rounds, {last.sim_time:.1f} simulated s{accuracy},"
                f" {time.perf_counter() - begin:.1f} s here"
            )

        def on_round(record: RoundRecord) -> None:
            nonlocal last
            last = record
            if record.evaluation is not None:
                best["accuracy"] = record.evaluation.adapted_accuracy
            if record.round:
                self._bar.update(self._task, advance=1, description=name)

        self._finished_line = finished
        return on_round

    def close_run(self) -> None:
        """Print the line of the run that has ended."""
        if self._finished_line is not None:
            line, self._finished_line = self._finished_line(), None
            (self._bar.console.print if sys.stderr.isatty() else say)(line)
