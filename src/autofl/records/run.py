"""A run is a folder: config.toml as resolved, manifest.json, rounds.csv, ues.csv,
weights.safetensors.

Both tables grow round by round, so a run that was stopped, even by force, can be read up to its
last whole round.
They hold no measured time: the same seed gives the same bytes. pandas and polars read them as they
are. A deployment adds devices.csv, which is all measured. One process at a time writes into the
folder, and leaves checkpoints from which the run can go on.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.core.round import UE_COLUMNS, Round
from autofl.errors import AutoFLError
from autofl.files import clear_parts, opening, read_json, read_toml, write_whole
from autofl.lock import FolderLock, Locked, is_locked
from autofl.network import LIMITS
from autofl.quality import Evaluation
from autofl.records import checks, tables
from autofl.records.checkpoints import (
    GENERATIONS,
    Kept,
    checkpoints,
    remove_checkpoints,
    whole_checkpoints,
    write_checkpoint,
)
from autofl.records.checks import MANIFEST, check_seal, check_sums, check_words, sealed, sum_of
from autofl.records.devices import DeviceRecord
from autofl.records.tables import Column, GrowingTable, cut, read_table, text_of
from autofl.units import PathLike

CONFIG = checks.CONFIG
WEIGHTS = "weights.safetensors"
TABLES = ROUNDS, UES, DEVICES = tables.TABLES
RESERVE = ".reserve"
"""Room on the disk for the last words of a run that fills it."""
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


class RunWriter:
    """Writes one run folder, a round at a time, holding its lock."""

    def __init__(
        self,
        folder: PathLike,
        config_text: str,
        manifest: Mapping[str, Any],
        lock: FolderLock | None = None,
        keep: bool = False,
    ) -> None:
        """Begin a run in a folder; what an earlier one left there is removed, or with `keep` an
        error.

        The manifest comes first, so that an earlier run in the same place does not pass as finished
        any more; the checkpoints go before it, so that nothing goes on with them under another
        manifest. A `lock` that is given is the caller's to release.
        """
        folder = Path(folder)
        self.lock = lock or FolderLock(folder)
        self._lock_is_ours = lock is None
        self.folder = folder
        self._tables: dict[str, GrowingTable] = {}
        try:
            if keep:
                check_no_run(folder)
        except BaseException:
            self.close()
            raise
        self._sums = {CONFIG: hashlib.sha256(config_text.encode("utf-8")).hexdigest()}
        self._manifest = {**manifest, "sha256": dict(self._sums)}
        try:
            self._reserve()
            remove_checkpoints(folder)
            self._say("running", sync=False)
            for path in (folder / name for name in (CONFIG, WEIGHTS, *TABLES)):
                path.unlink(missing_ok=True)
            write_whole(folder / CONFIG, config_text, sync=False)
            headers: dict[str, Sequence[str]] = {ROUNDS: ROUND_COLUMNS, UES: UE_TABLE}
            self._open(
                {name: GrowingTable(folder / name, header) for name, header in headers.items()},
                number=0,
            )
        except BaseException as error:
            for path in (
                folder / name for name in (CONFIG, *TABLES)
            ):  # it has no rounds, and the words need room
                path.unlink(missing_ok=True)
            self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        """A run that could not begin says so, if it had got as far as its manifest."""
        with contextlib.suppress(OSError, AutoFLError):
            if _manifest_there(self.folder).get("status") == "running":
                told = isinstance(error, KeyboardInterrupt)
                self._manifest["problem"] = problem_of(error)
                self._say("interrupted" if told else "failed", sync=False)
        with contextlib.suppress(OSError):
            (self.folder / RESERVE).unlink(missing_ok=True)
        self.close()

    @classmethod
    def go_on(cls, folder: PathLike, after: int, lock: FolderLock | None = None) -> "RunWriter":
        """A writer that goes on from the checkpoint of this round; what was written later is dropped."""
        writer = cls.__new__(cls)
        writer.folder = Path(folder)
        writer.lock = lock or FolderLock(folder)
        writer._lock_is_ours = lock is None
        writer._tables = {}
        try:
            writer._take_up(after)
        except BaseException as error:
            if isinstance(error, OSError):
                writer._give_up(error)
            writer.close()
            raise
        return writer

    def _take_up(self, after: int) -> None:
        self._manifest = read_manifest(self.folder)
        check_begun(self.folder)
        usable, _ = checkpoints(self.folder)
        (kept,) = [kept for kept in usable if kept.round == after]
        self._reserve()

        # First the other checkpoint, which may know of rounds that the tables are about to lose.
        for name in GENERATIONS:
            if name != kept.path.name:
                (self.folder / name).unlink(missing_ok=True)
        for name in TABLES:
            if name in kept.tables:
                cut(self.folder / name, kept.tables[name][0])
            else:
                (self.folder / name).unlink(missing_ok=True)

        self._sums = {CONFIG: sum_of(self.folder / CONFIG)}
        number = 1 + GENERATIONS.index(kept.path.name)
        self._open({name: GrowingTable(self.folder / name) for name in kept.tables}, number)
        resumed = [*self._manifest.get("resumed", []), after]
        self.finish("running", resumed=resumed, problem=None, sha256=dict(self._sums))

    def _open(self, tables: dict[str, GrowingTable], number: int) -> None:
        self._tables = tables
        self._number = number
        self._config_lasts = False
        self._mark = {name: table.extent for name, table in tables.items()}

    def _reserve(self) -> None:
        """Room for the last words, before anything else takes it."""
        clear_parts(self.folder)
        write_whole(self.folder / RESERVE, b"0" * 2**13, sync=False)

    def write(self, this: Round) -> None:
        quality = Evaluation() if this.evaluation is None else this.evaluation
        row = (
            this.k,
            this.sim_time,
            float(this.cost.time),
            len(this.ue),
            int(this.arrived.sum()),
            int(this.plan.num_samples.sum()),
            float(this.cost.energy.sum()),
            *(text_of(getattr(quality, name)) for name in QUALITY),
            float(this.cost.downlink_time),
            text_of(float(this.downlink_bits)),
            *(text_of(float(getattr(this, name))) for name in STEPS),
        )
        ues = zip(*this.ue_columns().values(), strict=True)
        self.lock.check()
        self._tables[UES].add((this.k, *ue) for ue in ues)
        self._tables[ROUNDS].add([row])
        self._mark = {name: table.extent for name, table in self._tables.items()}

    def write_devices(self, round_index: int, devices: Sequence[DeviceRecord]) -> None:
        """What was measured on the devices of a round, in a table of its own."""
        self.lock.check()
        if DEVICES not in self._tables:
            self._tables[DEVICES] = GrowingTable(self.folder / DEVICES, DEVICE_COLUMNS)
        cells = [
            [text_of(v) if isinstance(v, float) else v for v in asdict(device).values()]
            for device in devices
        ]
        self._tables[DEVICES].add((round_index, *row) for row in cells)
        self._mark = {name: table.extent for name, table in self._tables.items()}

    def write_checkpoint(
        self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
    ) -> None:
        """What a run needs to go on, as one file that is whole or not there; the one before it
        stays.
        """
        self.lock.check()
        self._sync()
        path = self.folder / GENERATIONS[self._number % len(GENERATIONS)]
        write_checkpoint(path, arrays, facts, self._mark)
        self._number += 1

    def write_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        from safetensors.numpy import save

        self.lock.check()
        content = save({name: np.ascontiguousarray(array) for name, array in weights.items()})
        self._sums[WEIGHTS] = write_whole(self.folder / WEIGHTS, content)

    def finish(self, status: str, **facts: Any) -> None:
        """Say in the manifest how things stand: running, finished, interrupted or failed.

        A finished run's manifest holds the SHA-256 of its files, and its checkpoints are removed.
        """
        self.lock.check()
        if status == "finished":
            self._sync()
            facts["sha256"] = self._sums | {
                name: table.extent[1] for name, table in self._tables.items()
            }
        self._manifest.update(facts)
        self._say(status)
        if status == "finished":
            remove_checkpoints(self.folder)
        if status != "running":
            (self.folder / RESERVE).unlink(missing_ok=True)

    def _say(self, status: str, sync: bool = True) -> None:
        self._manifest["status"] = status
        text = json.dumps(sealed(self._manifest), indent=2) + "\n"
        try:
            write_whole(self.folder / MANIFEST, text, sync)
        except OSError as error:
            if (
                error.errno not in (errno.ENOSPC, errno.EDQUOT)
                or not (self.folder / RESERVE).exists()
            ):
                raise
            (self.folder / RESERVE).unlink()
            write_whole(self.folder / MANIFEST, text, sync)

    def _sync(self) -> None:
        """What a checkpoint or a finished run stands on must outlast a power cut."""
        for table in self._tables.values():
            table.sync()
        if not self._config_lasts:
            for name in (CONFIG, MANIFEST):
                with open(self.folder / name, "rb") as file:
                    os.fsync(file.fileno())
            self._config_lasts = True

    def close(self) -> None:
        for table in self._tables.values():
            table.close()
        if self._lock_is_ours:
            self.lock.release()


def problem_of(error: BaseException) -> str:
    """What went wrong, with the file where a disk was full."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def mark_run(folder: PathLike, status: str, problem: str | None = None) -> None:
    """Record how a run ended whose writer is gone; a writer that is alive does so itself."""
    try:
        lock = FolderLock(folder)
    except Locked:
        return
    try:
        manifest = _manifest_there(Path(folder))
        if manifest.get("status") != "finished":
            said = {**manifest, "status": status} | (
                {} if problem is None else {"problem": problem}
            )
            write_whole(Path(folder) / MANIFEST, json.dumps(sealed(said), indent=2) + "\n")
    finally:
        lock.release()


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
        inside = (
            [place]
            if is_run(place)
            else sorted(path.parent for path in place.rglob(MANIFEST) if is_run(path.parent))
        )
        if not inside:
            raise AutoFLError(
                f"{place}: no run in it (a run is a folder with {MANIFEST} and {ROUNDS})"
            )
        folders += inside
    return list(dict.fromkeys(folders))


def read_manifest(folder: PathLike) -> dict[str, Any]:
    """What a run says of itself. One that says "running" though nobody writes it was killed, and is
    marked so.
    """
    manifest = _manifest_there(Path(folder))
    if manifest.get("status") == "running" and not is_locked(folder):
        manifest = _manifest_there(Path(folder))  # it may have ended between the two looks
        if manifest.get("status") == "running":
            manifest |= {"status": "interrupted", "problem": KILLED}
            try:
                mark_run(folder, "interrupted", KILLED)
            except OSError:  # a folder that is only to be read
                logging.getLogger(__name__).debug("%s cannot be written to", folder)
    return manifest


def _manifest_there(folder: Path) -> dict[str, Any]:
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
        rounds = read_table(folder / ROUNDS, ROUND_COLUMNS)
        ues = read_table(folder / UES, UE_TABLE, text=LIMITS)
        devices: dict[str, Column] = {}
        if (folder / DEVICES).is_file():
            devices = read_table(folder / DEVICES, DEVICE_COLUMNS, text=("outcome",))

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
