"""What a sweep gave, as a table, CSV, JSON and a picture: views of its `Results`."""

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autofl.files import write_whole
from autofl.jobs.sweep import short, value_text
from autofl.report.results import Column, cells
from autofl.report.table import Table, counted, drawn_text
from autofl.results import Results
from autofl.version import __version__, commit_of_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORECAST = ("forecast_rounds", "forecast_time", "forecast_energy")
"""Medians of a forecast to the target; `_low_95` and `_high_95` stand beside them."""
TITLES = {
    "planned": "Planned rounds",
    "forecast": "Planned rounds and forecasts",
    "simulated": "Simulated runs",
}
GEOMETRIC = 20.0
"""Ratio of the ends of an axis from which it is drawn logarithmic."""


def kind_of(results: Results) -> str:
    """Whether rounds were planned, planned with a forecast, or simulated."""
    if "time_adapted" in results.values:
        return "simulated"
    return "planned" if results.target is None else "forecast"


def columns(results: Results) -> list[Column]:
    """What is shown of a sweep of this kind."""
    round_time = Column("round time [s]", "round_time", 1.0)
    feasible = Column("UEs that take part", "num_feasible", 1.0)
    if results.target is None:
        return [
            round_time,
            Column("energy of all UEs [mJ]", "energy", 1e3),
            Column("samples, sum over UEs", "num_samples", 1.0),
            feasible,
        ]
    target = results.target_text
    if kind_of(results) == "forecast":
        return [
            round_time,
            feasible,
            Column(f"forecast time to {target} [s]", "forecast_time", 1.0),
            Column(f"forecast energy of a UE to {target} [mJ]", "forecast_energy", 1e3),
        ]
    return [
        Column(f"time to {target} adapted [s]", "time_adapted", 1.0),
        Column("final adapted accuracy [%]", "final_adapted", 100.0),
        Column(f"energy of a UE to {target} [mJ]", "energy_to_target", 1e3),
    ]


def sweep_table(results: Results) -> Table:
    """A line for each combination: means over seeds, ± half a 95 % interval."""
    shown = columns(results)
    headings = [*map(short, results.arms[0]), *(column.heading for column in shown)]
    rows = [
        [*map(value_text, arm.arms[0].values()), *cells(arm, shown)] for arm in results.by_arm()
    ]
    return Table(headings, rows)


def sweep_json(results: Results) -> dict[str, Any]:
    return {
        "kind": kind_of(results),
        "target_accuracy": results.target,
        "rows": results.rows(),
    }


def write_sweep(results: Results, arm: str, base: str, folder: Path) -> list[Path]:
    """sweep.csv, sweep.json, sweep.png and sweep.svg.

    Args:
        arm: of all rows, unless it is varied.
        base: the TOML that every row varies.
    """
    from autofl.report.plots import save

    folder.mkdir(parents=True, exist_ok=True)
    said = sweep_json(results)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(said["rows"][0]), lineterminator="\n")
    writer.writeheader()
    for row in said["rows"]:
        writer.writerow({key: _csv_cell(value) for key, value in row.items()})

    about = {
        "kind": said["kind"],
        "over": {key: values_of(results, key) for key in results.arms[0]},
        "seeds": sorted(set(results.seeds)),
        "target_accuracy": said["target_accuracy"],
        "version": __version__,
        "commit": commit_of_source(),
        "settings_sha256": hashlib.sha256(base.encode()).hexdigest(),
        "sweep.csv_sha256": write_whole(folder / "sweep.csv", text.getvalue()),
        "rows": said["rows"],
    }
    write_whole(folder / "sweep.json", json.dumps(about, indent=2) + "\n")
    pictures = save(draw_sweep(results, arm), folder / "sweep")
    return [folder / "sweep.csv", folder / "sweep.json", *pictures]


def _csv_cell(value: Any) -> Any:
    """Lists and laws as JSON, nothing for None."""
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def values_of(results: Results, key: str) -> list[Any]:
    """The values of a setting, each once, in their order."""
    texts = dict.fromkeys(json.dumps(arm[key]) for arm in results.arms)
    return [json.loads(text) for text in texts]


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def along(results: Results) -> str:
    """The setting on the horizontal axis: of those with numbers alone the one with most values,
    else the first.
    """
    keys = list(results.arms[0])
    numeric = [key for key in keys if _are_numbers(values_of(results, key))]
    return max(numeric or keys[:1], key=lambda key: len(values_of(results, key)))


def draw_sweep(results: Results, arm: str) -> "Figure":
    """Each quantity over one setting, a curve for each combination of the others: mean and range
    over seeds.
    """
    from autofl.report.plots import band, figure_of, legend

    shown = columns(results)
    key = along(results)
    curves = _curves(results, key)
    with figure_of(3.0 * len(shown) + 0.6, 3.2) as figure:
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, column in zip(panels, shown, strict=True):
            for index, (label, points) in enumerate(curves.items()):
                x = np.array([where for where, _ in points])
                values = np.stack([arm.values[column.name] for _, arm in points], axis=-1)
                band(axes, x, column.factor * values, index, label)
            axes.set_xlabel(key)
            axes.set_title(column.heading, fontsize=9)
            _scale(axes, values_of(results, key))
        if len(curves) > 1:
            legend(panels[-1])
        figure.suptitle(drawn_text(_title(results, arm)), fontsize=10)
        return figure


def _curves(results: Results, key: str) -> dict[str, list[tuple[float, Results]]]:
    """For each combination of the other settings the arms along this one, and where they lie."""
    values = values_of(results, key)
    curves: dict[str, list[tuple[float, Results]]] = {}
    for arm in results.by_arm():
        settings = arm.arms[0]
        others = [f"{short(name)} = {value_text(v)}" for name, v in settings.items() if name != key]
        value = settings[key]
        where = float(value) if _are_numbers(values) else float(values.index(value))
        curves.setdefault(", ".join(map(drawn_text, others)), []).append((where, arm))
    for points in curves.values():
        points.sort(key=lambda point: point[0])
    return curves


def _scale(axes: Any, values: Sequence[Any]) -> None:
    """Words have a place each; numbers far apart lie on a logarithmic axis."""
    if not _are_numbers(values):
        words = [drawn_text(value_text(value)) for value in values]
        axes.set_xticks(range(len(values)), words, rotation=30, ha="right")
    elif min(values) > 0 and max(values) >= GEOMETRIC * min(values):
        axes.set_xscale("log")


def _title(results: Results, arm: str) -> str:
    words = [TITLES[kind_of(results)]]
    if "arm" not in results.arms[0]:
        words.append(arm)
    if results.target is not None:
        words.append(f"target {results.target_text}")
    num_seeds = len(set(results.seeds))
    words.append(counted(num_seeds, "seed"))
    return ", ".join(words)
