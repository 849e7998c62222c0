"""The results of a study as one tidy table, written from run folders and read back without them.

A row for each run, keyed by reading, study, arm, x and seed (`STUDY.csv`); where evaluations are
kept, they are in `STUDY.curves.csv.gz`; what was run where and how long it took is in `STUDY.json`.
Only the last holds measured time.
"""

import csv
import gzip
import hashlib
import io
import json
import math
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autofl.errors import starting_pythons
from autofl.files import opening, read_json, write_whole
from autofl.records import Run, read_run
from autofl.units import Array

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
ENOUGH_TO_SHARE = 32
"""Fewest runs that are read by several processes at once."""
MACHINE = ("version", "commit", "device", "cores", "python", "torch")
"""What the newest manifest says of code and machine."""


class Key(NamedTuple):
    """Which run a row is of."""

    reading: str
    study: str
    arm: str
    x: int
    seed: int


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
    curve: Curve | None = None

    @property
    def key(self) -> Key:
        return Key(self.reading, self.study, self.arm, self.x, self.seed)


@dataclass(frozen=True)
class Results:
    """The table of a study, and what was run."""

    name: str
    about: dict[str, Any]
    rows: list[Row]

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))

    @property
    def readings(self) -> list[str]:
        return list(dict.fromkeys(row.reading for row in self.rows))

    @property
    def places(self) -> list[int]:
        """The points of the axis."""
        return sorted({row.x for row in self.rows})

    def rows_of(self, arm: str, reading: str = "", x: int = 0) -> list[Row]:
        """The runs of an arm, by seed."""
        rows = [row for row in self.rows if (row.arm, row.reading, row.x) == (arm, reading, x)]
        return sorted(rows, key=lambda row: row.seed)

    def column(self, name: str, arm: str, reading: str = "", x: int = 0) -> Array:
        """A quantity of an arm, one value for each seed."""
        return np.array([row.values[name] for row in self.rows_of(arm, reading, x)])


Reader = Callable[[Run], tuple[dict[str, float], Curve | None]]
"""What is read off a run. It is sent to other processes, so it is a function of a module."""


def named(quantity: str, target: float) -> str:
    """The name of what is read off at a target: time_85."""
    return f"{quantity}_{100 * target:g}"


def curve_of(run: Run) -> Curve:
    """The evaluations of a run, rounded as they are kept."""
    there = ~np.isnan(run.rounds["adapted_accuracy"].astype(np.float64))
    columns = {}
    for name in CURVE_COLUMNS:
        values = run.rounds[name][there].astype(np.float64)
        columns[name] = np.array([float(_text(name, value)) for value in values])
    return Curve(columns)


def _text(name: str, value: float) -> str:
    return f"{value:.{DIGITS[name]}f}" if name in DIGITS else f"{value:.4g}"


class _Read(NamedTuple):
    values: dict[str, float]
    curve: Curve | None
    manifest: dict[str, Any]
    config: dict[str, Any]


def _read_off(reader: Reader, folder: Path) -> _Read:
    run = read_run(folder)
    values, curve = reader(run)
    kept = {name: float(f"{value:.6g}") for name, value in values.items()}
    return _Read(kept, curve, run.manifest, run.config)


def collect(
    name: str,
    keys: Sequence[tuple[str, str, str, int, int]],
    folders: Sequence[Path],
    reader: Reader,
    workers: int = 1,
) -> Results:
    """The results of a study from a run folder for each key, read by this many processes."""
    once = list(dict.fromkeys(folders))
    read_one = partial(_read_off, reader)
    if min(workers, len(once) // ENOUGH_TO_SHARE) > 1:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            with starting_pythons():
                results = pool.map(read_one, once, chunksize=ENOUGH_TO_SHARE // 4)
            read = dict(zip(once, results, strict=True))
    else:
        read = {folder: read_one(folder) for folder in once}

    rows = []
    for key, folder in zip(keys, folders, strict=True):
        rows.append(Row(*key, read[folder].values, read[folder].curve))

    manifests = [one.manifest for one in read.values()]
    config = read[folders[-1]].config
    newest = max(manifests, key=lambda manifest: manifest["ended_at"])
    about = {
        "data": manifests[0]["data"],
        "partition": config["data"]["partition"],
        "seeds": len({row.seed for row in rows}),
        "rounds": config["stop"]["rounds"],
        "every": config["evaluation"]["every"],
        "num_ue": manifests[0]["num_ue"],
        "num_selected": config["simulation"]["num_selected"],
        "runs": len(once),
        "made_of": made_of(once),
        "seconds": round(busy_time(manifests), 1),
        **{item: newest[item] for item in MACHINE},
    }
    return Results(name, about, rows)


def made_of(places: Iterable[Path]) -> str:
    """A hash of the names of a study's runs, which follow from their settings: it tells whose
    results these are.
    """
    names = sorted({place.name for place in places})
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def is_collected(folder: Path, study: str, places: Iterable[Path]) -> bool:
    """Whether the results of exactly these runs are in a folder, so that the runs themselves are
    not needed.
    """
    about = folder / f"{study}.json"
    if not (about.is_file() and about.with_suffix(".csv").is_file()):
        return False
    return read_json(about).get("made_of") == made_of(places)


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


def write_results(results: Results, folder: Path) -> None:
    """The files of a study."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(results.rows, folder / f"{results.name}.csv")
    curves = [row for row in results.rows if row.curve is not None]
    if curves:
        lines = []
        for row in curves:
            assert row.curve is not None
            for values in zip(*row.curve.columns.values(), strict=True):
                texts = map(_text, CURVE_COLUMNS, values)
                lines.append((*row.key, *texts))
        packed = gzip.compress(_csv((*Key._fields, *CURVE_COLUMNS), lines).encode("utf-8"), mtime=0)
        write_whole(folder / f"{results.name}.curves.csv.gz", packed)
    about = json.dumps(results.about, indent=2, ensure_ascii=False)
    write_whole(folder / f"{results.name}.json", about + "\n")


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Rows of the same quantities; an empty cell is a NaN."""
    lines = []
    for row in rows:
        cells = ("" if math.isnan(value) else f"{value:.6g}" for value in row.values.values())
        lines.append((*row.key, *cells))
    write_whole(path, _csv((*Key._fields, *rows[0].values), lines))


def _csv(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(headings)
    table.writerows(lines)
    return text.getvalue()


def read_results(folder: Path, names: Iterable[str]) -> dict[str, Results]:
    """Those of the named studies that are in a folder, by name."""
    studies = {}
    for name in names:
        about = folder / f"{name}.json"
        if about.is_file() and about.with_suffix(".csv").is_file():
            curves = _read_curves(about.with_suffix(".curves.csv.gz"))
            rows = read_rows(about.with_suffix(".csv"), curves)
            studies[name] = Results(name, read_json(about), rows)
    return studies


def read_rows(path: Path, curves: dict[Key, Curve] | None = None) -> list[Row]:
    """The rows of a file, with their curves."""
    rows = []
    with opening(path, "readable results"), path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if tuple(table.fieldnames or ())[: len(Key._fields)] != Key._fields:
            raise ValueError("its columns are others")
        for line in table:
            key = _key(line)
            values = {
                name: float(text or "nan") for name, text in line.items() if name not in Key._fields
            }
            rows.append(Row(*key, values, (curves or {}).get(key)))
    return rows


def _read_curves(path: Path) -> dict[Key, Curve]:
    if not path.is_file():
        return {}
    lines: dict[Key, list[list[float]]] = {}
    with (
        opening(path, "readable results"),
        gzip.open(path, "rt", newline="", encoding="utf-8") as file,
    ):
        for line in csv.DictReader(file):
            values = [float(line[name]) for name in CURVE_COLUMNS]
            lines.setdefault(_key(line), []).append(values)
    curves = {}
    for key, several in lines.items():
        columns = np.array(several).T
        curves[key] = Curve(dict(zip(CURVE_COLUMNS, columns, strict=True)))
    return curves


def _key(line: dict[str, str]) -> Key:
    return Key(line["reading"], line["study"], line["arm"], int(line["x"]), int(line["seed"]))
