"""What people see: tables on standard output, progress and remarks on standard error."""

import codecs
import io
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import fill

from autofl.report.progress import QUIET, USUAL, VERBOSE, ProgressBar, Shown, say, speak, wrapped
from autofl.report.table import Table, printable

__all__ = ["DownloadBar", "ProgressBar", "Stages", "say", "show_entry", "show_line", "show_table"]

MOST_ROWS = 50
PLAIN = {
    "–": "-",
    "²": "^2",
    "‖": "|",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "…": "...",
    "µ": "u",
}
"""How the characters of our tables are written on an ASCII terminal."""


def write_anywhere() -> None:
    """Let standard output and error take any text: characters that their encoding lacks are spelled
    out.

    A stream that was closed (`2>&-`) leads nowhere from now on, and so do those of processes that
    are started: else the next file that is opened, perhaps a table, would have its number and get
    what is printed there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(
                os.devnull, os.O_RDWR
            )  # the lowest number that is free: the one of this stream
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode))
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


class _Printable(logging.Formatter):
    """Log messages, which may name what is in a run folder."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@contextmanager
def listening(quiet: bool, verbose: bool, log_file: Path | None) -> Iterator[None]:
    """How much is printed inside this context, and the log file, which gets every line with its
    time.
    """
    ours = logging.getLogger("autofl")
    before = ours.level
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    handlers[0].setLevel(logging.DEBUG if verbose else logging.WARNING)
    handlers[0].setFormatter(_Printable())
    handlers[0].addFilter(
        lambda record: not record.name.startswith("autofl.said")
    )  # is on the screen already
    if log_file is not None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        kept = logging.FileHandler(log_file, encoding="utf-8", errors="backslashreplace")
        kept.setFormatter(_Printable("%(asctime)s %(levelname)s %(message)s"))
        handlers.append(kept)
    if verbose or log_file is not None:
        ours.setLevel(logging.DEBUG)
    for handler in handlers:
        ours.addHandler(handler)
    speak(QUIET if quiet else VERBOSE if verbose else USUAL)
    try:
        yield
    finally:
        speak(USUAL)
        ours.setLevel(before)
        for handler in handlers:
            ours.removeHandler(handler)
            handler.close()


def show_table(table: Table) -> None:
    """A table on standard output, at most 50 rows of it, as wide as the terminal (or COLUMNS)."""
    from rich.console import Console

    width = shutil.get_terminal_size().columns
    console = Console(width=width, markup=False, highlight=False)
    replace(table, rows=table.rows[:MOST_ROWS]).show_on(console)
    if len(table.rows) > MOST_ROWS:
        print(f"... and {len(table.rows) - MOST_ROWS:,} more rows; --json prints all")


def show_line(text: str) -> None:
    """A result in words, on standard output below its table; --quiet keeps it."""
    print(f"\n{printable(wrapped(text))}")


def show_entry(text: str, indent: int = 0) -> None:
    """An entry of a list on standard output; its further lines are indented by four more."""
    width = shutil.get_terminal_size().columns
    print(fill(text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4)))


class Stages(Shown):
    """The current stage of a long command: one changing line on a terminal, elsewhere a line every
    10 s at most.
    """

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
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

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
