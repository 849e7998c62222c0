"""What people see: tables on standard output, progress and remarks on standard error."""

import codecs
import io
import sys
import time
from dataclasses import replace

from autofl.report.progress import ProgressBar, Shown, say
from autofl.report.table import Table

__all__ = ["DownloadBar", "ProgressBar", "Stages", "say", "show_table"]

MOST_ROWS = 50
PLAIN = {"–": "-", "²": "^2", "‖": "|", "×": "x", "±": "+-", "≤": "<=", "≥": ">=", "…": "...", "µ": "u"}
"""How the characters of our tables are written where only ASCII can be."""


def write_anywhere() -> None:
    """Let standard output and error take any text: what their encoding lacks is spelled out."""
    codecs.register_error("autofl", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="autofl")


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    spelled = "".join(PLAIN.get(character, "?") for character in lost)
    return spelled, error.end


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


class Stages(Shown):
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


class DownloadBar(Shown):
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
