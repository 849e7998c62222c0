"""How `Results` are shown: the columns of a table and the cells of an arm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofl.quality import mean_interval
from autofl.report.table import NONE
from autofl.results import Results
from autofl.units import Array


@dataclass(frozen=True)
class Column:
    """A quantity as people read it: its heading, its name in `Results`, and the factor to the unit
    shown.

    Fields:
        digits: after the point; None for four digits in all.
    """

    heading: str
    name: str
    factor: float
    digits: int | None = None


def cell_text(values: Array, column: Column) -> str:
    """Mean ± half the 95 % interval over the seeds that have a value; how many do, where some do
    not.
    """
    there = values[~np.isnan(values)] * column.factor
    if len(there) == 0:
        return NONE
    mean, half = mean_interval(there)

    # A column of seconds with one digit may hold milliseconds.
    digits = column.digits
    if digits == 1 and abs(mean) < 1.0:
        digits = 3
    form, form_of_half = (".4g", ".2g") if digits is None else (f".{digits}f", f".{digits}f")
    text = format(mean, form)
    if not math.isnan(half):
        text += f" ± {half:{form_of_half}}"
    if len(there) < len(values):
        text += f" ({len(there)} of {len(values)})"
    return text


def cells(arm: Results, columns: Sequence[Column]) -> list[str]:
    """The cells of an arm's line."""
    return [cell_text(arm.values[column.name], column) for column in columns]
