"""What a sweep gave: a tidy table with a row for each combination and seed, as CSV, JSON, text and
a picture.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autofl.experiments.sweep import Point, short, value_text
from autofl.files import write_whole
from autofl.quality import mean_interval
from autofl.report.table import Table, drawn_text
from autofl.units import Array
from autofl.version import __version__, commit_of_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = Mapping[str, float]
FORECAST = ("forecast_rounds", "forecast_time", "forecast_energy")
"""Medians of a forecast to the target; `_low_95` and `_high_95` stand beside them."""
QUANTITIES = {
    "round_time": ("round time [s]", 1.0),
    "energy": ("energy of all UEs [mJ]", 1e3),
    "num_samples": ("samples, sum over UEs", 1.0),
    "num_feasible": ("UEs that take part", 1.0),
    "forecast_rounds": ("forecast rounds to target", 1.0),
    "forecast_time": ("forecast time to target [s]", 1.0),
    "forecast_energy": ("forecast energy of a UE to target [mJ]", 1e3),
    "time_adapted": ("time to target adapted [s]", 1.0),
    "final_adapted": ("final adapted accuracy [%]", 100.0),
    "energy_to_target": ("energy of a UE to target [mJ]", 1e3),
}
"""What is shown of the columns, in words, and the factor to the unit shown."""
SHOWN = {
    "planned": ("round_time", "energy", "num_samples", "num_feasible"),
    "forecast": ("round_time", "num_feasible", "forecast_time", "forecast_energy"),
    "simulated": ("time_adapted", "final_adapted", "energy_to_target"),
}
GEOMETRIC = 20.0
"""Ratio of the ends of an axis from which it is drawn logarithmic."""


@dataclass(frozen=True)
class Sweep:
    """A row for each point: its values, its seed, the name of its run, and what came of it in SI
    units.

    The end of a name is the start of a SHA-256 of all settings of that row.
    """

    kind: str  # planned, forecast or simulated
    points: tuple[Point, ...]
    results: tuple[Values, ...]
    target: float | None = None

    @property
    def keys(self) -> list[str]:
        return list(self.points[0].values)

    def rows(self) -> list[dict[str, Any]]:
        """Plain values; None for what is not there."""
        return [
            {**point.values, "seed": point.settings.seed, "name": point.name}
            | {name: None if math.isnan(value) else value for name, value in result.items()}
            for point, result in zip(self.points, self.results, strict=True)
        ]

    def grouped(self) -> list[tuple[Mapping[str, Any], dict[str, Array]]]:
        """The rows of each combination together: its values, and each column over seeds."""
        members: dict[str, list[int]] = {}
        for place, point in enumerate(self.points):
            members.setdefault(json.dumps(point.values), []).append(place)
        return [
            (
                self.points[places[0]].values,
                {
                    name: np.array([self.results[place][name] for place in places])
                    for name in self.results[0]
                },
            )
            for places in members.values()
        ]

    def heading(self, name: str) -> str:
        """A quantity in words; where it has a target, which."""
        words = QUANTITIES[name][0]
        return words if self.target is None else words.replace("target", f"{100 * self.target:g} %")

    @property
    def table(self) -> Table:
        """A line for each combination: means over seeds, ± half a 95 % interval."""
        shown = SHOWN[self.kind]
        headings = [*map(short, self.keys), *(self.heading(name) for name in shown)]
        rows = [
            [
                *(value_text(value) for value in values.values()),
                *(_cell(columns[name], name) for name in shown),
            ]
            for values, columns in self.grouped()
        ]
        return Table(headings, rows)


def _cell(values: Array, name: str) -> str:
    """Mean and half its interval, over the seeds that have a value; how many do, where some do not."""
    there = values[~np.isnan(values)] * QUANTITIES[name][1]
    if not len(there):
        return "–"
    mean, half = mean_interval(there)
    text = f"{mean:.4g}" + ("" if math.isnan(half) else f" ± {half:.2g}")
    return text if len(there) == len(values) else f"{text} ({len(there)} of {len(values)})"


def write_sweep(sweep: Sweep, folder: Path, base: str) -> list[Path]:
    """sweep.csv, sweep.json, sweep.png and sweep.svg; `base` is the TOML that every row varies."""
    from autofl.report.plots import save

    folder.mkdir(parents=True, exist_ok=True)
    rows = sweep.rows()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows)
    about = {
        "kind": sweep.kind,
        "over": {key: _distinct(sweep, key) for key in sweep.keys},
        "seeds": sorted({point.settings.seed for point in sweep.points}),
        "target_accuracy": sweep.target,
        "version": __version__,
        "commit": commit_of_source(),
        "settings_sha256": hashlib.sha256(base.encode()).hexdigest(),
        "sweep.csv_sha256": write_whole(folder / "sweep.csv", text.getvalue()),
        "rows": rows,
    }
    write_whole(folder / "sweep.json", json.dumps(about, indent=2) + "\n")
    return [folder / "sweep.csv", folder / "sweep.json", *save(draw_sweep(sweep), folder / "sweep")]


def _plain(value: Any) -> Any:
    """A cell of a CSV file: lists and laws as JSON, nothing for None."""
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _distinct(sweep: Sweep, key: str) -> list[Any]:
    texts = dict.fromkeys(json.dumps(point.values[key]) for point in sweep.points)
    return [json.loads(text) for text in texts]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def along(sweep: Sweep) -> str:
    """The setting on the horizontal axis: of those with numbers alone the one with most values,
    else the first.
    """
    numeric = [
        key for key in sweep.keys if all(_is_number(value) for value in _distinct(sweep, key))
    ]
    return max(numeric or sweep.keys[:1], key=lambda key: len(_distinct(sweep, key)))


def draw_sweep(sweep: Sweep) -> "Figure":
    """Each quantity over one setting, a curve for each combination of the others: mean and range
    over seeds.
    """
    from autofl.report.plots import band, figure_of, legend

    key = along(sweep)
    shown = SHOWN[sweep.kind]
    values = _distinct(sweep, key)
    numeric = all(_is_number(value) for value in values)
    curves: dict[str, list[tuple[float, dict[str, Array]]]] = {}
    for point, columns in sweep.grouped():
        others = [
            drawn_text(f"{short(name)} = {value_text(v)}")
            for name, v in point.items()
            if name != key
        ]
        where = float(point[key]) if numeric else float(values.index(point[key]))
        curves.setdefault(", ".join(others), []).append((where, columns))
    with figure_of(3.0 * len(shown) + 0.6, 3.2) as figure:
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, name in zip(panels, shown, strict=True):
            for place, (label, points) in enumerate(curves.items()):
                points.sort(key=lambda pair: pair[0])
                x = np.array([place_on_axis for place_on_axis, _ in points])
                over_seeds = np.stack([columns[name] for _, columns in points], axis=-1)
                band(axes, x, QUANTITIES[name][1] * over_seeds, place, label)
            axes.set_xlabel(key)
            axes.set_title(sweep.heading(name), fontsize=9)
            if not numeric:
                axes.set_xticks(
                    range(len(values)),
                    [drawn_text(value_text(value)) for value in values],
                    rotation=30,
                    ha="right",
                )
            elif min(values) > 0 and max(values) >= GEOMETRIC * min(values):
                axes.set_xscale("log")
        if len(curves) > 1:
            legend(panels[-1])
        figure.suptitle(drawn_text(_title(sweep)), fontsize=10)
        return figure


def _title(sweep: Sweep) -> str:
    seeds = len({point.settings.seed for point in sweep.points})
    first = sweep.points[0].settings
    words = {
        "planned": "Planned rounds",
        "forecast": "Planned rounds and forecasts",
        "simulated": "Simulated runs",
    }
    names = [] if "algorithm" in sweep.keys else [first.algorithm]
    target = [] if sweep.target is None else [f"target {100 * sweep.target:g} %"]
    return ", ".join(
        [words[sweep.kind], *names, *target, f"{seeds} seed{'s' if seeds > 1 else ''}"]
    )
