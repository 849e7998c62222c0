"""Writing a run folder, a round at a time."""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.core.round import Round
from autofl.errors import AutoFLError
from autofl.files import clear_parts, write_whole
from autofl.lock import FolderLock
from autofl.quality import Evaluation
from autofl.records.checkpoints import (
    GENERATIONS,
    checkpoints,
    remove_checkpoints,
    write_checkpoint,
)
from autofl.records.checks import CONFIG, MANIFEST, sealed, sum_of
from autofl.records.devices import DeviceRecord
from autofl.records.run import (
    DEVICE_COLUMNS,
    QUALITY,
    ROUND_COLUMNS,
    STEPS,
    UE_TABLE,
    WEIGHTS,
    check_begun,
    check_no_run,
    read_manifest,
    sealed_manifest,
)
from autofl.records.tables import DEVICES, ROUNDS, TABLES, UES, GrowingTable, cut, text_of
from autofl.units import PathLike

RESERVE = ".reserve"
"""Room on the disk for the last words of a run that fills it."""


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
        self._open_folder(folder, lock)
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
            remove_checkpoints(self.folder)
            self._say("running", sync=False)
            self._remove(CONFIG, WEIGHTS, *TABLES)
            write_whole(self.folder / CONFIG, config_text, sync=False)
            tables = {
                ROUNDS: GrowingTable(self.folder / ROUNDS, ROUND_COLUMNS),
                UES: GrowingTable(self.folder / UES, UE_TABLE),
            }
            self._begin(tables, number=0)
        except BaseException as error:
            self._remove(CONFIG, *TABLES)  # there are no rounds, and the last words need room
            self._give_up(error)
            raise

    def _open_folder(self, folder: PathLike, lock: FolderLock | None) -> None:
        self.folder = Path(folder)
        self.lock = lock or FolderLock(folder)
        self._lock_is_ours = lock is None
        self._tables: dict[str, GrowingTable] = {}

    def _remove(self, *names: str) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def _give_up(self, error: BaseException) -> None:
        """A run that could not begin says so, if it had got as far as its manifest."""
        with contextlib.suppress(OSError, AutoFLError):
            if sealed_manifest(self.folder).get("status") == "running":
                told = isinstance(error, KeyboardInterrupt)
                self._manifest["problem"] = problem_of(error)
                self._say("interrupted" if told else "failed", sync=False)
        with contextlib.suppress(OSError):
            self._remove(RESERVE)
        self.close()

    @classmethod
    def go_on(cls, folder: PathLike, after: int, lock: FolderLock | None = None) -> "RunWriter":
        """A writer that goes on from the checkpoint of this round; what was written later is dropped."""
        writer = cls.__new__(cls)
        writer._open_folder(folder, lock)
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
        kept = next(kept for kept in usable if kept.round == after)  # or two of the same round
        self._reserve()

        # First the other checkpoint, which may know of rounds that the tables are about to lose.
        self._remove(*(name for name in GENERATIONS if name != kept.path.name))
        there = [name for name in TABLES if name in kept.tables]
        self._remove(*(name for name in TABLES if name not in there))
        for name in there:
            size, _ = kept.tables[name]
            cut(self.folder / name, size)

        self._sums = {CONFIG: sum_of(self.folder / CONFIG)}
        number = 1 + GENERATIONS.index(kept.path.name)
        self._begin({name: GrowingTable(self.folder / name) for name in there}, number)
        resumed = [*self._manifest.get("resumed", []), after]
        self.finish("running", resumed=resumed, problem=None, sha256=dict(self._sums))

    def _begin(self, tables: dict[str, GrowingTable], number: int) -> None:
        """With these tables and a checkpoint of this number."""
        self._tables = tables
        self._number = number
        self._config_lasts = False
        self._note_whole_rounds()

    def _note_whole_rounds(self) -> None:
        """How far the tables are, for checkpoints: a signal may come between two of them."""
        self._extents = {name: table.extent for name, table in self._tables.items()}

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
        self._note_whole_rounds()

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
        self._note_whole_rounds()

    def write_checkpoint(
        self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
    ) -> None:
        """What a run needs to go on, as one file that is whole or not there; the one before it
        stays.
        """
        self.lock.check()
        self._sync()
        path = self.folder / GENERATIONS[self._number % len(GENERATIONS)]
        write_checkpoint(path, arrays, facts, self._extents)
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
            tables = {name: table.extent[1] for name, table in self._tables.items()}
            facts["sha256"] = self._sums | tables
        self._manifest.update(facts)
        self._say(status)
        if status == "finished":
            remove_checkpoints(self.folder)
        if status != "running":
            self._remove(RESERVE)

    def _say(self, status: str, sync: bool = True) -> None:
        self._manifest["status"] = status
        text = json.dumps(sealed(self._manifest), indent=2) + "\n"
        try:
            write_whole(self.folder / MANIFEST, text, sync)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not is_full or not (self.folder / RESERVE).exists():
                raise
            self._remove(RESERVE)
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
