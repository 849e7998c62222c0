"""The results of a reproduction as small tables, written from run folders and read back without them.

For each study a table of what is read off each run (`STUDY.csv`), for those shown as curves the evaluations
(`STUDY.curves.csv`), and what was run where and how long it took (`STUDY.json`). Only the last holds measured time.
"""

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autofl.files import opening, read_json
from autofl.records import Run, convergence_round, read_run, time_to_accuracy
from autofl.reproduction.recipes import CURVES, TARGETS, Arm
from autofl.units import Array

METRICS = ("adapted", "global")
CURVE_COLUMNS = ("round", "sim_time", "adapted_accuracy", "global_accuracy", "adapted_train_loss", "train_loss")
DIGITS = {"round": 0, "sim_time": 3, "adapted_accuracy": 4, "global_accuracy": 4}
"""Decimals kept of a curve; losses keep four significant digits. What is read off a run is read off what is kept."""
MEASURES = (
    *(f"{name}_{metric}" for metric in METRICS for name in ("time", "rounds", "best", "last", "unrest")),
    "loss_adapted",
    "loss_global",
    "heard",
    "round_time",
)
KEYS = ("reading", "study", "arm", "x", "seed")


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run, rounded."""

    columns: dict[str, Array]

    def evaluated(self, column: str) -> tuple[Array, Array, Array]:
        """Round, simulated time and this column, as `Run.evaluated` gives them."""
        return self.columns["round"], self.columns["sim_time"], self.columns[column]


@dataclass(frozen=True)
class Row:
    """What was read off one run; NaN where a target was not reached."""

    reading: str
    study: str
    arm: str
    x: int
    seed: int
    values: dict[str, float]


@dataclass(frozen=True)
class Study:
    """The results of a study."""

    name: str
    about: dict[str, Any]
    rows: list[Row]
    curves: dict[tuple[str, int], Curve]  # by arm and seed

    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))


def curve_of(run: Run) -> Curve:
    """The evaluations of a run, rounded as they are kept."""
    there = ~np.isnan(run.rounds["adapted_accuracy"].astype(np.float64))
    columns = {name: run.rounds[name][there].astype(np.float64) for name in CURVE_COLUMNS}
    return Curve({name: np.array([float(_text(name, value)) for value in values]) for name, values in columns.items()})


def _text(name: str, value: float) -> str:
    return f"{value:.{DIGITS[name]}f}" if name in DIGITS else f"{value:.4g}"


def measure(curve: Curve, target: float) -> dict[str, float]:
    """What is read off a curve.

    time: to the target accuracy [s]; rounds: K*; best and last: accuracy; unrest: deviation of the change of accuracy
    from one evaluation to the next over the second half; loss: of the last evaluation.
    """
    quantities: dict[str, float] = {}
    for metric in METRICS:
        rounds, sim_time, accuracy = curve.evaluated(f"{metric}_accuracy")
        steps = np.diff(accuracy[len(accuracy) // 2 :])
        quantities[f"time_{metric}"] = time_to_accuracy(sim_time, accuracy, target)
        quantities[f"rounds_{metric}"] = convergence_round(rounds, accuracy)
        quantities[f"best_{metric}"] = float(accuracy.max())
        quantities[f"last_{metric}"] = float(accuracy[-1])
        quantities[f"unrest_{metric}"] = float(steps.std()) if len(steps) else math.nan
    quantities["loss_adapted"] = float(curve.columns["adapted_train_loss"][-1])
    quantities["loss_global"] = float(curve.columns["train_loss"][-1])
    return quantities


def collect(study: str, scale: str, members: Sequence[tuple[Arm, int, Path]]) -> Study:
    """The results of a study from its run folders."""
    rows, curves, manifests = [], {}, []
    for arm, seed, folder in members:
        run = read_run(folder)
        curve = curve_of(run)
        selected = float(run.rounds["num_selected"].sum())
        values = {
            **measure(curve, TARGETS[str(run.manifest["data"])]),
            "heard": float(run.rounds["num_decoded"].sum()) / selected if selected else math.nan,
            "round_time": float(run.rounds["round_time"][1:].mean()),
        }
        rows.append(Row(arm.reading, arm.study, arm.name, arm.x, seed, {k: _kept(v) for k, v in values.items()}))
        if study in CURVES:
            curves[arm.name, seed] = curve
        manifests.append(run.manifest)
    config = run.config
    about = {
        "scale": scale,
        "data": manifests[0]["data"],
        "partition": config["data"]["partition"],
        "seeds": len({row.seed for row in rows}),
        "rounds": config["stop"]["rounds"],
        "num_ue": manifests[0]["num_ue"],
        "num_selected": config["simulation"]["num_selected"],
        "target_accuracy": TARGETS[str(manifests[0]["data"])],
        "runs": len({folder for _, _, folder in members}),
        "seconds": round(busy_time(manifests), 1),
        **{name: manifests[-1][name] for name in ("version", "commit", "device", "cores", "python", "torch")},
    }
    return Study(study, about, rows, curves)


def _kept(value: float) -> float:
    return float(f"{value:.6g}")


def busy_time(manifests: Iterable[dict[str, Any]]) -> float:
    """Seconds in which at least one of these runs was being made, however many at a time and in how many goes."""
    spans = sorted({(m["ended_at"] - m["host_time"], m["ended_at"]) for m in manifests})
    total, until = 0.0, -math.inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def write_study(study: Study, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{study.name}.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow((*KEYS, *MEASURES))
        for row in study.rows:
            keys = (row.reading, row.study, row.arm, row.x, row.seed)
            table.writerow((*keys, *(_cell(row.values[name]) for name in MEASURES)))
    if study.curves:
        with (folder / f"{study.name}.curves.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(("arm", "seed", *CURVE_COLUMNS))
            for (arm, seed), curve in study.curves.items():
                for values in zip(*curve.columns.values(), strict=True):
                    cells = (_text(name, value) for name, value in zip(CURVE_COLUMNS, values, strict=True))
                    table.writerow((arm, seed, *cells))
    (folder / f"{study.name}.json").write_text(json.dumps(study.about, indent=2) + "\n", encoding="utf-8")


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def read_results(folder: Path) -> dict[str, Study]:
    """The studies in a folder, by name."""
    studies = {}
    for path in sorted(folder.glob("*.json")):
        if not path.with_suffix(".csv").is_file():
            continue
        with opening(path.with_suffix(".csv"), "readable results"):
            studies[path.stem] = _read_study(path)
    return studies


def _read_study(path: Path) -> Study:
    about = read_json(path)
    with path.with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        rows = [
            Row(
                line["reading"],
                line["study"],
                line["arm"],
                int(line["x"]),
                int(line["seed"]),
                {name: float(line[name]) if line[name] else math.nan for name in MEASURES},
            )
            for line in csv.DictReader(file)
        ]
    lines: dict[tuple[str, int], list[list[float]]] = {}
    if (curves := path.with_suffix(".curves.csv")).is_file():
        with curves.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                values = [float(line[name]) for name in CURVE_COLUMNS]
                lines.setdefault((line["arm"], int(line["seed"])), []).append(values)
    return Study(
        path.stem,
        about,
        rows,
        {key: Curve(dict(zip(CURVE_COLUMNS, np.array(values).T, strict=True))) for key, values in lines.items()},
    )
