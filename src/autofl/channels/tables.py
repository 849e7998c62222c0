"""Tables over time from .csv or .npz files, checked: what is wrong with one is said in one line."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autofl.errors import AutoFLError
from autofl.files import opening, read_arrays
from autofl.units import Array

BRIDGED = 10.0
"""Median steps that two rows may lie apart, unless a limit is given; more is a gap."""


@dataclass(frozen=True)
class TimeTable:
    """Rows of values, and the times [s] they belong to, the first of them 0; None where rows are
    rounds.
    """

    value: Array  # shape (num_rows, ...)
    time: Array | None

    @property
    def duration(self) -> float:
        assert self.time is not None
        return float(self.time[-1])


def read_table(
    path: Path, array: str = "gain", least: float = 0.0, longest_gap: float | None = None
) -> TimeTable:
    """A table of a .csv with commas, or of the array of this name in an .npz.

    A .csv whose first line begins with `time` (or `#time`, `time [s]`) has the seconds of each row
    in its first column, an .npz in its array `time`; without them a row is a round.

    Args:
        least: no value may be below it.
        longest_gap: seconds that two rows may lie apart; by default 10 times the median.
    """
    with opening(path, "a table of numbers"):
        value, time = _from_npz(path, array) if path.suffix == ".npz" else _from_csv(path)
    if value.ndim < 2 or value.size == 0:
        raise AutoFLError(
            f"{path}: shape {value.shape}; a table needs a row for each round or time, a column for each UE"
        )
    bad = ~np.isfinite(value) | (value < least)
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        wanted = "a finite number" if np.isneginf(least) else f"a number >= {least:g}"
        raise AutoFLError(
            f"{path}: row {place[0] + 1}, column {place[1] + 1}: {value[place]:g}; it must be {wanted}, no gaps"
        )
    return TimeTable(
        value, None if time is None else _checked_time(path, time, len(value), longest_gap)
    )


def _from_npz(path: Path, array: str) -> tuple[Array, Array | None]:
    arrays = read_arrays(path, ("time", array), "a table of numbers")
    if array not in arrays:
        raise AutoFLError(
            f"{path}: array '{array}' is missing; save it with numpy.savez(path, {array}=...)"
        )
    time = np.asarray(arrays["time"], dtype=np.float64) if "time" in arrays else None
    return np.asarray(arrays[array], dtype=np.float64), time


def _from_csv(path: Path) -> tuple[Array, Array | None]:
    lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    timed = bool(lines) and lines[0].split(",")[0].strip('# "').lower().startswith("time")
    rows = lines[1:] if timed else lines
    for number, row in enumerate(rows, 2 if timed else 1):
        if not row.strip() or row.lstrip().startswith("#"):
            raise AutoFLError(
                f"{path}: line {number} is empty or a comment; rows have no gaps, and a header begins with time"
            )
    if not rows:
        return np.empty((0, 0)), None
    table = np.genfromtxt(rows, dtype=np.float64, delimiter=",", ndmin=2)  # NaN for what is none
    return (table[:, 1:], table[:, 0]) if timed else (table, None)


def _checked_time(path: Path, time: Array, num_rows: int, longest_gap: float | None) -> Array:
    """Seconds since the first row; they must rise, without holes."""
    if time.shape != (num_rows,):
        raise AutoFLError(f"{path}: {time.size} times for {num_rows} rows")
    if num_rows < 2:
        raise AutoFLError(f"{path}: one row; a table over time needs at least two")
    bad = np.flatnonzero(~np.isfinite(time))
    if len(bad):
        raise AutoFLError(f"{path}: row {bad[0] + 1}: time is {time[bad[0]]:g}; it must be finite")
    step = np.diff(time)
    if (step <= 0.0).any():
        row = int(np.argmax(step <= 0.0))
        raise AutoFLError(
            f"{path}: row {row + 2}: time {time[row + 1]:g} s follows {time[row]:g} s; times must rise"
        )
    limit = BRIDGED * float(np.median(step)) if longest_gap is None else longest_gap
    if step.max() > limit:
        row = int(np.argmax(step))
        raise AutoFLError(
            f"{path}: a gap of {step[row]:g} s after row {row + 1}; rows may lie {limit:g} s apart (longest_gap)"
        )
    return time - time[0]


def at_time(table: TimeTable, time: float) -> Array:
    """The row at a time [s] between the first and the last, linear between rows."""
    assert table.time is not None
    row = int(np.clip(np.searchsorted(table.time, time, side="right") - 1, 0, len(table.time) - 2))
    share = (time - table.time[row]) / (table.time[row + 1] - table.time[row])
    return (1.0 - share) * table.value[row] + share * table.value[row + 1]
