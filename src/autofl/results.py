"""What runs gave, as one tidy table; what is printed, drawn or written are views of it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofl.units import Array


@dataclass(frozen=True)
class Results:
    """A row for each run: its arm, its seed, and a value of each quantity.

    Fields:
        arms: what a run stands for beside its seed, by name: {"algorithm": "AutoFL"}, or the
            settings that a sweep varies.
        seeds: of each run.
        values: of each quantity, SI units, shape (num_runs,); NaN where there is none.
        names: of the runs' folders.
        target: the accuracy that times and energies to a target are about.
    """

    arms: Sequence[Mapping[str, Any]]
    seeds: Sequence[int]
    values: Mapping[str, Array]
    names: Sequence[str]
    target: float | None

    @classmethod
    def of(
        cls,
        arms: Sequence[Mapping[str, Any]],
        seeds: Sequence[int],
        measured: Sequence[Mapping[str, float]],
        names: Sequence[str],
        target: float | None,
    ) -> "Results":
        """From what was read off each run."""
        values = {name: np.array([one[name] for one in measured]) for name in measured[0]}
        return cls(arms, seeds, values, names, target)

    def by_arm(self) -> list["Results"]:
        """The rows of each arm as results of their own, in the order in which the arms come."""
        rows: dict[str, list[int]] = {}
        for row, arm in enumerate(self.arms):
            rows.setdefault(json.dumps(arm), []).append(row)
        return [self._take(of_arm) for of_arm in rows.values()]

    def _take(self, rows: Sequence[int]) -> "Results":
        return Results(
            arms=[self.arms[row] for row in rows],
            seeds=[self.seeds[row] for row in rows],
            values={name: column[list(rows)] for name, column in self.values.items()},
            names=[self.names[row] for row in rows],
            target=self.target,
        )

    @property
    def label(self) -> str:
        """What to call the arm, where there is one."""
        return ", ".join(str(value) for value in self.arms[0].values())

    @property
    def target_text(self) -> str:
        return "" if self.target is None else f"{100 * self.target:g} %"

    def rows(self) -> list[dict[str, Any]]:
        """Plain values, row by row; None for what is not there."""
        rows: list[dict[str, Any]] = [
            {**arm, "seed": seed, "name": name}
            for arm, seed, name in zip(self.arms, self.seeds, self.names, strict=True)
        ]
        for name, column in self.values.items():
            for row, value in zip(rows, column.tolist(), strict=True):
                row[name] = plain(value)
        return rows


def plain(value: float) -> float | None:
    """A value as JSON has it."""
    return None if math.isnan(value) else value
