"""The results of a reproduction as small tables, written from run folders and read back without
them.

For each study a table of what is read off each run (`STUDY.csv`), for those shown as curves the
evaluations (`STUDY.curves.csv.gz`), and what was run where and how long it took (`STUDY.json`).
Only the last holds measured time.
"""

import csv
import gzip
import hashlib
import io
import json
import math
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autofl.errors import starting_pythons
from autofl.files import opening, read_json, write_whole
from autofl.records import Run, read_run
from autofl_paper.curves import METRICS, NUM_TARGETS, Curve, derived, measure
from autofl_paper.recipes import CURVES, TARGETS, Arm

CURVE_COLUMNS = (
    "round",
    "sim_time",
    "adapted_accuracy",
    "global_accuracy",
    "adapted_train_loss",
    "train_loss",
)
DIGITS = {"round": 0, "sim_time": 3, "adapted_accuracy": 4, "global_accuracy": 4}
"""Decimals kept of a curve; losses keep four significant digits. What is read off a run is read off
what is kept.
"""
OF_CURVE = (
    *(f"time{place}" for place in range(1, NUM_TARGETS + 1)),
    *("plateau", "quiet", "best", "last", "unrest", "loss", "first_loss", "diverged"),
)
OF_RUN = ("heard", "at_max_power", "num_samples", "round_time")
"""Share of updates heard; of those not heard, the share that P_max limited; mean d; mean time of a
round [s].
"""
MEASURES = (*(f"{name}_{metric}" for metric in METRICS for name in OF_CURVE), *OF_RUN)
ENOUGH_TO_SHARE = 32
"""Fewest runs that are read by several processes at once."""
KEYS = ("reading", "study", "arm", "x", "seed")
Key = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class Row:
    """What was read off one run; NaN where a target was not reached."""

    reading: str
    study: str
    arm: str
    x: int
    seed: int
    values: dict[str, float]

    @property
    def key(self) -> Key:
        return self.reading, self.study, self.arm, self.x, self.seed


@dataclass(frozen=True)
class Study:
    """The results of a study."""

    name: str
    about: dict[str, Any]
    rows: list[Row]
    curves: dict[Key, Curve]

    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))


def curve_of(run: Run) -> Curve:
    """The evaluations of a run, rounded as they are kept."""
    there = ~np.isnan(run.rounds["adapted_accuracy"].astype(np.float64))
    columns = {name: run.rounds[name][there].astype(np.float64) for name in CURVE_COLUMNS}
    return Curve(
        {
            name: np.array([float(_text(name, value)) for value in values])
            for name, values in columns.items()
        }
    )


def _text(name: str, value: float) -> str:
    return f"{value:.{DIGITS[name]}f}" if name in DIGITS else f"{value:.4g}"


class _ReadOff(NamedTuple):
    """What one run folder gives."""

    values: dict[str, float]
    curve: Curve
    manifest: dict[str, Any]
    config: dict[str, Any]


def _read_off(folder: Path) -> _ReadOff:
    run = read_run(folder)
    curve = curve_of(run)
    targets = TARGETS[str(run.manifest["data"])]
    values = {**measure(curve, targets, int(run.config["stop"]["rounds"])), **_of_run(run)}
    return _ReadOff(
        {name: _kept(value) for name, value in values.items()}, curve, run.manifest, run.config
    )


def _of_run(run: Run) -> dict[str, float]:
    """What is read off a run apart from its curve."""
    selected = float(run.rounds["num_selected"].sum())
    unheard = run.ues["decoded"] == 0
    at_max = run.ues["power_limit"][unheard] == "power"
    return {
        "heard": float(run.rounds["num_decoded"].sum()) / selected if selected else math.nan,
        "at_max_power": float(at_max.mean()) if len(at_max) else math.nan,
        "num_samples": float(run.ues["num_samples"][~unheard].mean())
        if (~unheard).any()
        else math.nan,
        "round_time": float(run.rounds["round_time"][1:].mean()),
    }


def collect(
    study: str, scale: str, members: Sequence[tuple[Arm, int, Path]], workers: int = 1
) -> Study:
    """The results of a study from its run folders, read by this many processes."""
    folders = list(dict.fromkeys(folder for _, _, folder in members))
    if min(workers, len(folders) // ENOUGH_TO_SHARE) > 1:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            with starting_pythons():
                results = pool.map(_read_off, folders, chunksize=ENOUGH_TO_SHARE // 4)
            read = dict(zip(folders, results, strict=True))
    else:
        read = {folder: _read_off(folder) for folder in folders}
    rows = []
    curves = {}
    for arm, seed, folder in members:
        rows.append(Row(arm.reading, arm.study, arm.name, arm.x, seed, read[folder].values))
        if study in CURVES:
            curves[rows[-1].key] = read[folder].curve
    manifests = [read[folder].manifest for folder in folders]
    config = read[members[-1][2]].config
    about = {
        "scale": scale,
        "data": manifests[0]["data"],
        "partition": config["data"]["partition"],
        "seeds": len({row.seed for row in rows}),
        "rounds": config["stop"]["rounds"],
        "num_ue": manifests[0]["num_ue"],
        "num_selected": config["simulation"]["num_selected"],
        "targets": TARGETS[str(manifests[0]["data"])],
        "steps": [config["learning"]["outer_lr"], config["planner"]["epsilon"]],
        "runs": len(folders),
        "made_of": made_of(folders),
        "seconds": round(busy_time(manifests), 1),
        **{
            name: manifests[-1][name]
            for name in ("version", "commit", "device", "cores", "python", "torch")
        },
    }
    return Study(study, about, rows, curves)


def made_of(places: Iterable[Path]) -> str:
    """A hash of the names of a study's runs, which follow from their settings: it tells whose
    results these are.
    """
    return hashlib.sha256("\n".join(sorted({place.name for place in places})).encode()).hexdigest()[
        :16
    ]


def is_collected(folder: Path, study: str, places: Iterable[Path]) -> bool:
    """Whether the results of exactly these runs are in a folder, so that the runs themselves are
    not needed.
    """
    about = folder / f"{study}.json"
    if not (about.is_file() and about.with_suffix(".csv").is_file()):
        return False
    return read_json(about).get("made_of") == made_of(places)


def _kept(value: float) -> float:
    return float(f"{value:.6g}")


def busy_time(manifests: Iterable[dict[str, Any]]) -> float:
    """Seconds in which at least one of these runs was being made, however many at a time and
    however often stopped.
    """
    spans = sorted({(m["ended_at"] - m["host_time"], m["ended_at"]) for m in manifests})
    total = 0.0
    until = -math.inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def write_study(study: Study, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow((*KEYS, *MEASURES))
    for row in study.rows:
        table.writerow((*row.key, *(_cell(row.values[name]) for name in MEASURES)))
    write_whole(folder / f"{study.name}.csv", text.getvalue())
    if study.curves:
        lines = io.StringIO()
        table = csv.writer(lines, lineterminator="\n")
        table.writerow((*KEYS, *CURVE_COLUMNS))
        for key, curve in study.curves.items():
            for values in zip(*curve.columns.values(), strict=True):
                cells = (
                    _text(name, value) for name, value in zip(CURVE_COLUMNS, values, strict=True)
                )
                table.writerow((*key, *cells))
        packed = gzip.compress(lines.getvalue().encode("utf-8"), mtime=0)
        write_whole(folder / f"{study.name}.curves.csv.gz", packed)
    write_whole(folder / f"{study.name}.json", json.dumps(study.about, indent=2) + "\n")


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
    lines: dict[Key, list[list[float]]] = {}
    if (curves := path.with_suffix(".curves.csv.gz")).is_file():
        with gzip.open(curves, "rt", newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                key = (
                    line["reading"],
                    line["study"],
                    line["arm"],
                    int(line["x"]),
                    int(line["seed"]),
                )
                lines.setdefault(key, []).append([float(line[name]) for name in CURVE_COLUMNS])
    kept = {
        key: Curve(dict(zip(CURVE_COLUMNS, np.array(values).T, strict=True)))
        for key, values in lines.items()
    }
    for row in rows:
        row.values.update(
            derived(row.values, row.study, about["data"], about["targets"], kept.get(row.key))
        )
    return Study(path.stem, about, rows, kept)
