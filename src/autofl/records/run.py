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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    MODELS,
    MOST_CHECKPOINT,
    Kept,
    read_generations,
    remove_generations,
    write_generation,
)
from autofl.records.checks import (
    MANIFEST,
    MOST_UE,
    check_config,
    check_manifest,
    check_seal,
    check_sums,
    sealed,
    sum_of,
)
from autofl.records.devices import NOBODY, DeviceRecord
from autofl.records.tables import Column, GrowingTable, cut, holds, last_round, read_table, text_of
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
LATER = {"downlink_time", "downlink_bits", *STEPS, "adapt_lr"}
"""Columns that runs of earlier versions lack."""
OLDEST_ROUND_TABLE = set(ROUND_COLUMNS) - LATER
UE_TABLE = ("round", *UE_COLUMNS)
OLDEST_UE_TABLE = {"round", "ue", "channel_gain", "num_samples", "tx_power", "snr", "upload_time", "compute_time",
                   "energy", "status", "decoded"}  # fmt: skip
"""Columns that runs of every version have."""
OLDEST_DEVICE_TABLE = {
    "round",
    "ue",
    "outcome",
    "reply_time",
    "train_time",
    "energy",
    "bytes_down",
    "bytes_up",
}
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
            remove_generations(folder)
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
    def go_on(
        cls, folder: PathLike, after: int, kept: Kept | None = None, lock: FolderLock | None = None
    ) -> "RunWriter":
        """A writer that goes on after this round; what was written of later rounds is dropped."""
        folder = Path(folder)
        writer = cls.__new__(cls)
        writer.lock = lock or FolderLock(folder)
        writer._lock_is_ours = lock is None
        writer._tables = {}
        try:
            return writer._take_up(folder, after, kept)
        except BaseException as error:
            if isinstance(error, OSError):
                writer._give_up(error)
            writer.close()
            raise

    def _take_up(self, folder: Path, after: int, kept: Kept | None) -> "RunWriter":
        self.folder = folder
        self._manifest = read_manifest(folder)
        check_begun(folder)
        self._reserve()
        there = [name for name in TABLES if (folder / name).is_file()]
        for name in there:
            cut(
                folder / name,
                after,
                kept.tables[name][0] if kept is not None and name in kept.tables else None,
            )
        number = -1
        for one in read_generations(folder, _most_bytes(folder)):
            if isinstance(one, Kept) and _changed(folder, one):
                (folder / one.name).unlink()  # of rounds that are dropped
            elif isinstance(one, Kept):
                number = max(number, one.number)
        self._sums = {CONFIG: sum_of(folder / CONFIG)}
        self._open({name: GrowingTable(folder / name) for name in there}, number + 1)
        resumed = [*self._manifest.get("resumed", []), after]
        self.finish("running", resumed=resumed, problem=None, sha256=dict(self._sums))
        return self

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
        write_generation(self.folder, self._number, arrays, facts, self._mark)
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
            remove_generations(self.folder)
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
    with opening(folder, "a readable run"):
        check_manifest(manifest)
    sums = manifest.get("sha256")
    if not path.is_file():
        raise AutoFLError(
            f"{folder}: it was killed before its settings were written; give its command again, with --force"
        )
    if isinstance(sums, dict) and CONFIG in sums and sum_of(path) != sums[CONFIG]:
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
    """A run folder, whole rounds only. The files of a finished run must be those it wrote."""
    folder = Path(folder)
    with opening(folder, "a readable run"):
        manifest = read_manifest(folder)
        check_manifest(manifest)
        check_sums(folder, manifest, (CONFIG, *TABLES))
        if not (folder / CONFIG).is_file():
            raise ValueError(f"{CONFIG} is missing")
        config = read_toml(folder / CONFIG)
        check_config(config)
        if manifest.get("status") != "finished":
            _check_kept(folder)
        rounds = read_table(folder / ROUNDS, OLDEST_ROUND_TABLE, text=())
        ues = read_table(folder / UES, OLDEST_UE_TABLE, text=LIMITS)
        measured = (folder / DEVICES).is_file()
        devices = (
            read_table(folder / DEVICES, OLDEST_DEVICE_TABLE, text=("outcome",)) if measured else {}
        )
        if not np.array_equal(rounds["round"], np.arange(len(rounds["round"]))):
            raise ValueError(f"{ROUNDS} does not have its rounds one by one")
        shares = [
            rounds[name].astype(np.float64) for name in ("global_accuracy", "adapted_accuracy")
        ]
        if any((share < 0.0).any() or (share > 1.0).any() for share in shares):
            raise ValueError(f"{ROUNDS} has an accuracy that is not between 0 and 1")
        number = ues["ue"].astype(np.int64)
        if not ((number >= 0) & (number < manifest.get("num_ue", MOST_UE))).all():
            raise ValueError(f"{UES} has a UE that is none")
        number = devices["ue"].astype(np.int64) if measured else number
        if not ((number >= NOBODY) & (number < manifest.get("num_ue", MOST_UE))).all():
            raise ValueError(f"{DEVICES} has a UE that is none")
    last = len(rounds["round"]) - 1

    def whole(table: dict[str, Column]) -> dict[str, Column]:
        return {
            name: column[table["round"].astype(np.int64) <= last] for name, column in table.items()
        }

    return Run(folder, config, manifest, rounds, whole(ues), whole(devices))


def _changed(folder: Path, kept: Kept) -> list[str]:
    """The tables that do not begin with what they were when this checkpoint was written."""
    return [name for name, extent in kept.tables.items() if not holds(folder / name, extent)]


def _check_kept(folder: Path) -> None:
    """Refuse tables that do not begin with what the newest checkpoint says: all else of a run may
    be to come.
    """
    for kept in read_generations(folder, _most_bytes(folder)):
        if isinstance(kept, Kept):
            if other := _changed(folder, kept):
                raise ValueError(
                    f"{other[0]} is not what the run wrote: its SHA-256 in {kept.name} differs"
                )
            return


def read_weights(folder: PathLike) -> dict[str, NDArray[Any]]:
    """The final weights of a run."""
    from safetensors.numpy import load_file

    path = Path(folder) / WEIGHTS
    with opening(path, "readable weights"):
        check_sums(Path(folder), read_manifest(folder) if is_run(folder) else {}, (WEIGHTS,))
        weights: dict[str, NDArray[Any]] = load_file(path)
    return weights


def checkpoints(folder: PathLike) -> Iterator[Kept | AutoFLError]:
    """The checkpoints of a run, newest first; of one that is damaged or whose tables are not there,
    what is wrong.
    """
    folder = Path(folder)
    for kept in read_generations(folder, _most_bytes(folder)):
        if isinstance(kept, Kept):
            if other := _changed(folder, kept):
                yield AutoFLError(f"{folder / kept.name}: {other[0]} is not what it was then")
            elif kept.facts["round"] > (
                last := last_round(folder / ROUNDS, kept.tables[ROUNDS][0])
            ):
                yield AutoFLError(
                    f"{folder / kept.name}: of round {kept.facts['round']}; its table ends with {last}"
                )
            else:
                yield kept
        else:
            yield kept


def _most_bytes(folder: Path) -> int:
    """How long a checkpoint of a run can be, by the weights and UEs that its manifest tells."""
    manifest = read_manifest(folder) if has_begun(folder) else {}
    weights, ues = (manifest.get(key) for key in ("num_weights", "num_ue"))
    if not (isinstance(weights, int) and isinstance(ues, int)):
        return MOST_CHECKPOINT
    return MOST_CHECKPOINT + MODELS * 4 * weights * (1 + ues)


def newest_checkpoint(folder: PathLike) -> tuple[Kept | None, list[str]]:
    """The newest checkpoint that is whole and whose tables are there, and what is wrong with newer
    ones.
    """
    problems: list[str] = []
    for kept in checkpoints(folder):
        if isinstance(kept, Kept):
            return kept, problems
        problems.append(str(kept))
    return None, problems


def read_checkpoint(folder: PathLike) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and facts of the last whole checkpoint of a run; a warning names newer ones that are
    damaged.
    """
    kept, problems = newest_checkpoint(folder)
    for problem in problems:
        logging.getLogger(__name__).warning("%s; going on from an older checkpoint", problem)
    if kept is None:
        raise AutoFLError(
            f"{folder}: no checkpoint to resume from ({'; '.join(problems) or 'there is none'})"
        )
    return kept.arrays, kept.facts
