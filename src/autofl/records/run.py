"""A run is a folder: config.toml as resolved, manifest.json, rounds.csv, ues.csv,
weights.safetensors.

Both tables grow round by round, so a run that was stopped, even by force, can be read up to its
last whole round.
They hold no measured time: the same seed gives the same bytes. pandas and polars read them as they
are. A deployment adds devices.csv, which is all measured. One process at a time writes into the
folder, and leaves checkpoints from which the run can go on.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.core.round import UE_COLUMNS
from autofl.errors import AutoFLError
from autofl.files import opening, read_json, read_toml, write_whole
from autofl.lock import FolderLock, Locked, is_locked
from autofl.network import LIMITS
from autofl.quality import Evaluation
from autofl.records import checks, tables
from autofl.records.checkpoints import Kept, checkpoints, whole_checkpoints
from autofl.records.checks import MANIFEST, check_seal, check_sums, check_words, sealed, sum_of
from autofl.records.devices import DeviceRecord
from autofl.records.tables import Column, read_table
from autofl.units import PathLike

CONFIG = checks.CONFIG
WEIGHTS = "weights.safetensors"
TABLES = ROUNDS, UES, DEVICES = tables.TABLES
OWN_DATA = "the devices' own data"
"""What a manifest calls data that a deployment has not dealt out; the settings of data are not
about them.
"""
KILLED = "its process ended without a word: killed, or the machine went down"
QUALITY = tuple(field.name for field in fields(Evaluation))
STEPS = ("inner_lr", "outer_lr", "step_length")
ROUND_COLUMNS = (
    "round",
    "sim_time",
    "round_time",
    "num_selected",
    "num_decoded",
    "num_samples",
    "energy",
    *QUALITY,
    "downlink_time",
    "downlink_bits",
    *STEPS,
)
UE_TABLE = ("round", *UE_COLUMNS)
DEVICE_COLUMNS = ("round", *(field.name for field in fields(DeviceRecord)))


@dataclass(frozen=True)
class Run:
    """A run read back: its settings, manifest, and two tables as columns
    (pandas.DataFrame(run.rounds) works).

    `devices` is empty unless the run is a deployment.
    """

    folder: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    rounds: dict[str, Column]
    ues: dict[str, Column]
    devices: dict[str, Column]

    def evaluated(
        self, column: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Round, simulated time and this column at the evaluated rounds."""
        values = self.rounds[column].astype(np.float64)
        there = ~np.isnan(values)
        return (
            self.rounds["round"][there].astype(np.float64),
            self.rounds["sim_time"][there].astype(np.float64),
            values[there],
        )


def mark_run(folder: PathLike, status: str, problem: str | None = None) -> None:
    """Record how a run ended whose writer is gone; a writer that is alive does so itself."""
    with contextlib.suppress(Locked), FolderLock(folder):
        manifest = sealed_manifest(Path(folder))
        if manifest["status"] == "finished":
            return
        manifest["status"] = status
        if problem is not None:
            manifest["problem"] = problem
        write_whole(Path(folder) / MANIFEST, json.dumps(sealed(manifest), indent=2) + "\n")


def is_run(folder: PathLike) -> bool:
    return all((Path(folder) / name).is_file() for name in (MANIFEST, ROUNDS))


def check_no_run(folder: PathLike) -> None:
    """Refuse a folder in which a run is; what is certain only while nobody else can write there."""
    if is_run(folder):
        raise AutoFLError(
            f"{folder}: a run is there already; name another folder (--out), overwrite it (--force) or resume what is"
            " there (--resume)"
        )


def has_begun(folder: PathLike) -> bool:
    """Whether a run was begun in a folder, though perhaps killed before its tables were there."""
    return (Path(folder) / MANIFEST).is_file()


def check_begun(folder: PathLike) -> None:
    """Refuse to go on where the settings are not those the run began with, which would mix two
    runs.
    """
    manifest = read_manifest(folder)
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise AutoFLError(
            f"{folder}: it was killed before its settings were written; give its command again, with --force"
        )
    if sum_of(path) != manifest["sha256"][CONFIG]:
        raise AutoFLError(
            f"{path}: not what the run began with, its SHA-256 differs; put the right file back, or begin anew with"
            " --force"
        )


def find_runs(places: PathLike | Iterable[PathLike]) -> list[Path]:
    """The run folders at or below these places: places as given, what lies below one of them by
    name.
    """
    folders: list[Path] = []
    for place in map(Path, [places] if isinstance(places, str | os.PathLike) else places):
        if not place.exists():
            raise AutoFLError(f"{place}: no such folder")
        if is_run(place):
            folders.append(place)
            continue
        below = sorted(path.parent for path in place.rglob(MANIFEST) if is_run(path.parent))
        if not below:
            raise AutoFLError(
                f"{place}: no run in it (a run is a folder with {MANIFEST} and {ROUNDS})"
            )
        folders += below
    return list(dict.fromkeys(folders))


def read_manifest(folder: PathLike) -> dict[str, Any]:
    """What a run says of itself. One that says "running" though nobody writes it was killed, and is
    marked so.
    """
    manifest = sealed_manifest(Path(folder))
    if manifest.get("status") == "running" and not is_locked(folder):
        manifest = sealed_manifest(Path(folder))  # it may have ended between the two looks
        if manifest.get("status") == "running":
            manifest |= {"status": "interrupted", "problem": KILLED}
            try:
                mark_run(folder, "interrupted", KILLED)
            except OSError:  # a folder that is only to be read
                logging.getLogger(__name__).debug("%s cannot be written to", folder)
    return manifest


def sealed_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = read_json(folder / MANIFEST)
    except AutoFLError as error:
        raise AutoFLError(f"{folder}: not a readable run ({error})") from None
    with opening(folder, "a readable run"):
        if not isinstance(manifest, dict):
            raise ValueError(f"{MANIFEST} is not a table")
        check_seal(manifest)
    return manifest


def read_run(folder: PathLike) -> Run:
    """A run folder, whole rounds only. The files of a finished run must be those it wrote, the tables
    of another must begin with what its checkpoints tell.
    """
    folder = Path(folder)
    with opening(folder, "a readable run"):
        manifest = read_manifest(folder)
        check_sums(folder, manifest, (CONFIG, *TABLES))
        config = read_toml(folder / CONFIG)
        check_words(config)
        if manifest["status"] != "finished":
            for kept in whole_checkpoints(folder):
                if isinstance(kept, Kept):
                    kept.check_tables()
        rounds = read_table(folder / ROUNDS)
        ues = read_table(folder / UES, text=LIMITS)
        devices: dict[str, Column] = {}
        if (folder / DEVICES).is_file():
            devices = read_table(folder / DEVICES, text=("outcome",))

    # A run that was killed may tell the UEs of a round whose own row is not there yet.
    def whole(table: dict[str, Column]) -> dict[str, Column]:
        there = np.isin(table["round"], rounds["round"]) if table else None
        return {name: column[there] for name, column in table.items()}

    return Run(folder, config, manifest, rounds, whole(ues), whole(devices))


def read_weights(folder: PathLike) -> dict[str, NDArray[Any]]:
    """The final weights of a run."""
    from safetensors.numpy import load_file

    path = Path(folder) / WEIGHTS
    with opening(path, "readable weights"):
        check_sums(Path(folder), read_manifest(folder) if is_run(folder) else {}, (WEIGHTS,))
        weights: dict[str, NDArray[Any]] = load_file(path)
    return weights


def read_checkpoint(folder: PathLike) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and facts of the last checkpoint from which a run can go on; a warning names newer ones
    that are damaged.
    """
    usable, problems = checkpoints(folder)
    if not usable:
        raise AutoFLError(
            f"{folder}: no checkpoint to resume from ({'; '.join(problems) or 'there is none'})"
        )
    for problem in problems:
        logging.getLogger(__name__).warning("%s; going on from an older checkpoint", problem)
    return usable[0].arrays, usable[0].facts
