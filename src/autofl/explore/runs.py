"""Runs below the given folders: listed, read and compared by the readers and checks of `autofl
report`.
"""

import csv
import hashlib
import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import flat_settings
from autofl.errors import AutoFLError
from autofl.explore.launch import Launcher
from autofl.explore.planning import FILES
from autofl.files import read_toml
from autofl.records import Run, is_run, read_manifest, read_run
from autofl.records.checkpoints import GENERATIONS
from autofl.records.checks import MANIFEST, check_sums
from autofl.records.run import CONFIG, ROUNDS, TABLES, WEIGHTS
from autofl.report.runs import newest_of_equal, with_labels
from autofl.report.summary import as_json, note, summarise, table

QUIET = ("starting", "running", "stopping", "paused", "stopped")
"""States that need no explanation beyond their name."""
MOST_RUNS = 500
"""Most runs that are listed: the newest ones."""
MOST_KEPT = 64
"""Most runs whose tables are kept in memory."""
MOST_ROUNDS = 400
"""Most rounds of which the page shows who took part: the last ones."""
MOST_SHOWN = 200
"""Most UEs, likewise: the first ones."""
MOST_TABLE = 256 * 2**20
"""Most bytes of a table that is read for the page."""
SHOWN = ("round", "sim_time", "round_time", "num_selected", "num_decoded", "num_samples", "energy", "train_loss",
         "adapted_train_loss", "global_accuracy", "adapted_accuracy")  # fmt: skip
"""Columns of rounds.csv that the page draws."""
CSV = ("label", "seed", "time_adapted", "time_global", "final_adapted", "final_global", "rounds_adapted", "energy",
       "energy_to_target", "sim_time")  # fmt: skip


class NoSuchRun(AutoFLError):
    """There is no run with this id."""


class Store:
    """The runs below some folders. A request names a run by its id, never by a path."""

    def __init__(self, roots: Sequence[Path], launcher: Launcher) -> None:
        self.roots = [root.resolve() for root in roots]
        self.launcher = launcher

    def folders(self) -> dict[str, Path]:
        """Run folders by id."""
        there = (folder for root in self.roots for folder in _runs_below(root))
        inside = [folder for folder in there if self._is_inside(folder)]
        return {
            id_of(folder): folder for folder in dict.fromkeys([*inside, *self.launcher.folders()])
        }

    def _is_inside(self, folder: Path) -> bool:
        """Whether all files that would be read lie below a given folder: a link may lead elsewhere."""
        return all(
            any((folder / name).resolve().is_relative_to(root) for root in self.roots)
            for name in ("", MANIFEST, CONFIG, WEIGHTS, *TABLES, *GENERATIONS)
        )

    def folder(self, run_id: str) -> Path:
        try:
            return self.folders()[run_id]
        except KeyError:
            raise NoSuchRun(f"{run_id}: no such run; /api/runs lists them") from None

    def rows(self) -> tuple[list[dict[str, Any]], int]:
        """The newest runs, and how many more there are."""
        folders = sorted(self.folders().values(), key=_changed_at, reverse=True)
        return [self.row(folder) for folder in folders[:MOST_RUNS]], max(
            len(folders) - MOST_RUNS, 0
        )

    def row(self, folder: Path) -> dict[str, Any]:
        """The entry of a run in a list."""
        own = self.launcher.state(folder)
        row: dict[str, Any] = {
            "id": id_of(folder),
            "name": self._name(folder),
            "label": spelled(folder.name),
            "own": own is not None,
            "seed": None,
            "rounds": None,
            "planned_rounds": None,
            "resumable": False,
            "settings": {},
        }
        try:
            manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else {}
            settings = _plain_settings(folder, _state(folder))
        except AutoFLError as error:
            return row | {"status": "damaged", "problem": spelled(str(error))}

        # What its process says counts before its manifest, and what its files say before both.
        status = str(manifest.get("status") or "damaged")
        problem = manifest.get("problem")
        if own is not None:
            status = own.status(status if manifest else None)
            problem = own.problem() or problem
        if (damage := _damage(folder, _state(folder))) is not None:
            status = "damaged"
            problem = damage

        label = manifest.get("label") or manifest.get("algorithm")
        seed = manifest.get("seed")
        rounds = settings.get("stop.rounds")
        return row | {
            "label": str(label or settings.get("arm", "autofl")),
            "settings": settings,
            "seed": seed if isinstance(seed, int) else None,
            "status": status,
            "problem": spelled(str(problem)) if problem and status not in QUIET else None,
            "rounds": _last_round(folder),
            "planned_rounds": rounds if isinstance(rounds, int) else None,
            "resumable": status in ("paused", "stopped", "interrupted") and is_run(folder),
        }

    def check_files(self, folder: Path) -> None:
        """Refuse a run that would read a file outside the given folders, and might quote it."""
        for key, value in flat_settings(read_toml(folder / CONFIG)).items():
            if key.rpartition(".")[2] not in FILES or not isinstance(value, str):
                continue
            path = Path(value.replace("\0", "")).resolve()
            if not any(path.is_relative_to(root) for root in self.roots):
                raise AutoFLError(
                    f"{key}: a file outside the folders of this page; resume it on the command line"
                )

    def _name(self, folder: Path) -> str:
        for root in self.roots:
            if folder == root:
                return spelled(root.name)
            if folder.is_relative_to(root):
                return spelled(str(folder.relative_to(root)))
        return spelled(folder.name)

    def read(self, folder: Path) -> Run:
        """A run, read again when its files have changed."""
        if not is_run(folder):
            raise NoSuchRun(f"{self._name(folder)}: no round is written yet")
        state = _state(folder)
        if any(size > MOST_TABLE for _, _, size in state):
            raise AutoFLError(
                f"{self._name(folder)}: its tables are too long for the page; autofl report reads them"
            )
        return _run_in(folder, state)

    def rounds(self, folder: Path, after: int = -1) -> dict[str, Any]:
        """The rounds of a run after this one, as columns, and who took part in them."""
        run = self.read(folder)
        later = run.rounds["round"].astype(np.int64) > after
        columns = _columns({name: column[later] for name, column in run.rounds.items()})
        num_ue = int(run.manifest.get("num_ue") or run.ues["ue"].max(initial=-1) + 1)
        spent = np.bincount(
            run.ues["ue"].astype(np.int64), run.ues["energy"].astype(float), minlength=num_ue
        )
        return {
            "run": self.row(folder),
            "rounds": columns,
            "num_ue": num_ue,
            "who": _who(run, after),
            "energy_per_ue": spent[:MOST_SHOWN].tolist(),
        }

    def compare(self, ids: Iterable[str], target: float) -> dict[str, Any]:
        """Runs side by side: the table of `autofl report`, and their curves."""
        there: list[Run] = []
        left_out: dict[str, str] = {}
        for run_id in dict.fromkeys(ids):
            folder = self.folder(run_id)
            try:
                there.append(self.read(folder))
            except AutoFLError as error:  # the others can be compared all the same
                left_out[run_id] = spelled(str(error))
        if not there:
            raise AutoFLError(next(iter(left_out.values())))
        runs, older = newest_of_equal(there)
        results = summarise(runs, target)
        shown = table(results)
        return {
            "target_accuracy": target,
            "headings": shown.headings,
            "table": shown.rows,
            "older": older,
            "left_out": left_out,
            "note": note(results),
            "rows": as_json(results)["rows"],
            "curves": _curves(runs),
        }

    def compare_csv(self, ids: Iterable[str], target: float) -> str:
        """A line for each run; empty where a target was not reached."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow((*CSV[:2], "target_accuracy", *CSV[2:]))
        runs, _ = newest_of_equal([self.read(self.folder(run_id)) for run_id in dict.fromkeys(ids)])
        for row in summarise(runs, target).rows():
            cells = ("" if row[name] is None else row[name] for name in CSV[2:])
            writer.writerow((as_text(row["algorithm"]), row["seed"], target, *cells))
        return text.getvalue()


def _curves(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What the page draws of each run."""
    curves = []
    for label, run in with_labels(runs):
        curve = {"id": id_of(run.folder), "label": label, "seed": run.manifest["seed"]}
        curves.append(curve | _columns(run.rounds))
    return curves


def _columns(rounds: Mapping[str, Any]) -> dict[str, list[float | None]]:
    return {name: _plain(rounds[name]) for name in SHOWN if name in rounds}


State = tuple[tuple[str, int, int], ...]
"""What changes when the files of a run do: name, time and size of each."""


def _state(folder: Path) -> State:
    files = []
    for name in (MANIFEST, CONFIG, *TABLES):
        if (folder / name).is_file():
            stat = (folder / name).stat()
            files.append((name, stat.st_mtime_ns, stat.st_size))
    return tuple(files)


@lru_cache(MOST_KEPT)
def _run_in(folder: Path, state: State) -> Run:
    return read_run(folder)


@lru_cache(MOST_RUNS)
def _damage(folder: Path, state: State) -> str | None:
    """Why the files of a run are not those it wrote."""
    if not (folder / MANIFEST).is_file():
        return None
    try:
        check_sums(folder, read_manifest(folder), (CONFIG, *TABLES))
    except (OSError, ValueError) as error:
        return str(error)
    return None


@lru_cache(MOST_RUNS)
def _plain_settings(folder: Path, state: State) -> dict[str, Any]:
    """Settings of a run by their dotted keys; lists of many values are left out."""
    if not (folder / CONFIG).is_file():
        return {}
    flat = flat_settings(read_toml(folder / CONFIG))
    return {key: value for key, value in flat.items() if _is_plain(value)}


def as_text(label: str) -> str:
    """A label in a CSV file; an apostrophe goes before what a spreadsheet takes for a formula, in
    any cell of it.
    """
    return re.sub(r"(^|[;,\t\r])(?=\s*[=+@\t\r-])", r"\1'", label)


def spelled(text: str) -> str:
    """Words as UTF-8 has them; the odd bytes of a file's name become question marks."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def id_of(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]


def _runs_below(root: Path) -> list[Path]:
    if is_run(root):
        return [root]
    return [
        Path(folder)
        for folder, _, files in os.walk(root)
        if MANIFEST in files and is_run(Path(folder))
    ]


def _changed_at(folder: Path) -> float:
    times = [path.stat().st_mtime for name in (ROUNDS, CONFIG) if (path := folder / name).is_file()]
    return max(times, default=0.0)


def _last_round(folder: Path) -> int | None:
    """The number of the last whole round, from the end of its table."""
    try:
        with open(folder / ROUNDS, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - 4096, 0))
            whole = file.read().rpartition(b"\n")[0]
        return int(whole.rpartition(b"\n")[2].partition(b",")[0])
    except (OSError, ValueError):
        return None


def _who(run: Run, after: int) -> list[tuple[int, int, int]]:
    """Round, UE and what became of it: 0 left out, 1 selected but not decoded, 2 decoded."""
    index = run.ues["round"].astype(np.int64)
    ue = run.ues["ue"].astype(np.int64)
    first = max(after, int(run.rounds["round"].max(initial=0)) - MOST_ROUNDS)
    shown = (index > first) & (ue < MOST_SHOWN)
    away = np.isin(run.ues["status"], ("infeasible", "left_out"))
    fate = np.where(run.ues["decoded"].astype(float) == 1.0, 2, np.where(away, 0, 1))
    return list(zip(index[shown].tolist(), ue[shown].tolist(), fate[shown].tolist(), strict=True))


def _plain(column: Any) -> list[float | None]:
    """Numbers for JSON: what is not measured or not finite is null."""
    return [
        value if math.isfinite(value) else None
        for value in np.asarray(column, dtype=np.float64).tolist()
    ]


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | bool) or (
        isinstance(value, float) and math.isfinite(value)
    )
