"""A run is a folder: config.toml as resolved, manifest.json, rounds.csv, ues.csv, weights.safetensors.

Both tables grow round by round, so a run that was stopped, even by force, can be read up to its last whole round.
They hold no measured time: the same seed gives the same bytes. pandas and polars read them as they are. A deployment
adds devices.csv, which is all measured, and checkpoint.safetensors, from which it can go on.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.network import LIMITS
from autofl.records.round import UE_COLUMNS, DeviceRecord, Evaluation, RoundRecord
from autofl.units import PathLike

CONFIG, MANIFEST, ROUNDS, UES, DEVICES, WEIGHTS, CHECKPOINT = (
    "config.toml",
    "manifest.json",
    "rounds.csv",
    "ues.csv",
    "devices.csv",
    "weights.safetensors",
    "checkpoint.safetensors",
)
QUALITY = tuple(field.name for field in fields(Evaluation))
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
)
OLDEST_ROUND_TABLE = {name for name in ROUND_COLUMNS if name != "downlink_time"}
UE_TABLE = ("round", *UE_COLUMNS)
OLDEST_UE_TABLE = {"round", "ue", "channel_gain", "num_samples", "tx_power", "snr", "upload_time", "compute_time",
                   "energy", "status", "decoded"}  # fmt: skip
"""Columns that runs of every version have."""
DEVICE_COLUMNS = ("round", *(field.name for field in fields(DeviceRecord)))
Column = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.str_]


@dataclass(frozen=True)
class Run:
    """A run read back: its settings, manifest, and two tables as columns (pandas.DataFrame(run.rounds) works).

    `devices` is empty but for a deployment.
    """

    folder: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    rounds: dict[str, Column]
    ues: dict[str, Column]
    devices: dict[str, Column]

    def evaluated(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Round, simulated time and this column at the evaluated rounds."""
        values = self.rounds[column].astype(np.float64)
        there = ~np.isnan(values)
        return (
            self.rounds["round"][there].astype(np.float64),
            self.rounds["sim_time"][there].astype(np.float64),
            values[there],
        )


class RunWriter:
    """Writes one run folder, a round at a time."""

    def __init__(self, folder: PathLike, config_text: str, manifest: Mapping[str, Any]) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._manifest = folder, dict(manifest)
        self.finish("running")  # first: an earlier run in the same place must not pass as finished any more
        for name in (WEIGHTS, DEVICES, CHECKPOINT):
            (folder / name).unlink(missing_ok=True)
        _write_whole(folder / CONFIG, config_text)
        for name, columns in ((ROUNDS, ROUND_COLUMNS), (UES, UE_TABLE)):
            (folder / name).write_text(_line(columns), encoding="utf-8", newline="")
        self._open()

    @classmethod
    def go_on(cls, folder: PathLike, after: int) -> "RunWriter":
        """A writer that goes on after this round; what was written of later rounds is dropped."""
        folder = Path(folder)
        for name in (ROUNDS, UES, DEVICES):
            if (folder / name).is_file():
                header, *rows = _whole_lines(folder / name)
                kept = [row for row in rows if int(row[0]) <= after]
                _write_whole(folder / name, "".join(_line(row) for row in (header, *kept)))
        writer = cls.__new__(cls)
        writer.folder, writer._manifest = folder, read_manifest(folder)
        writer.finish("running")
        writer._open()
        return writer

    def _open(self) -> None:
        self._rounds, self._ues = (
            (self.folder / name).open("a", newline="", encoding="utf-8") for name in (ROUNDS, UES)
        )

    def write(self, record: RoundRecord) -> None:
        quality = asdict(record.evaluation) if record.evaluation is not None else {}
        shared = (
            record.round,
            record.sim_time,
            float(record.cost.time),
            len(record.ue),
            int(record.decoded.sum()),
            int(record.plan.num_samples.sum()),
            float(record.cost.energy.sum()),
        )
        rows = zip(*record.ue_columns().values(), strict=True)
        csv.writer(self._ues).writerows((record.round, *row) for row in rows)
        measured = (_text(quality.get(name, math.nan)) for name in QUALITY)
        csv.writer(self._rounds).writerow((*shared, *measured, float(record.cost.downlink_time)))
        self._ues.flush()
        self._rounds.flush()

    def write_devices(self, round_index: int, devices: Sequence[DeviceRecord]) -> None:
        """What was measured on the devices of a round, in a table of its own."""
        path = self.folder / DEVICES
        lines = [] if path.is_file() else [_line(DEVICE_COLUMNS)]
        for device in devices:
            cells = (_text(value) if isinstance(value, float) else value for value in asdict(device).values())
            lines.append(_line((round_index, *cells)))
        with path.open("a", newline="", encoding="utf-8") as file:
            file.writelines(lines)

    def write_checkpoint(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """What a run needs to go on, as one file that is whole or not there."""
        from safetensors.numpy import save_file

        part = self.folder / f"{CHECKPOINT}.part"
        names = json.dumps(list(arrays))  # the file sorts them, and compressors go by the order of the weights
        save_file(dict(arrays), part, metadata={"facts": json.dumps(facts), "names": names})
        os.replace(part, self.folder / CHECKPOINT)

    def write_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(array) for name, array in weights.items()}, self.folder / WEIGHTS)

    def finish(self, status: str, **facts: Any) -> None:
        """Say in the manifest how things stand: running, finished, interrupted or failed."""
        self._manifest.update(status=status, **facts)
        _write_whole(self.folder / MANIFEST, json.dumps(self._manifest, indent=2) + "\n")

    def close(self) -> None:
        self._rounds.close()
        self._ues.close()


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue()


def _whole_lines(path: Path) -> list[list[str]]:
    content = path.read_bytes().decode("utf-8")
    content = content[: content.rfind("\n") + 1]  # a killed run may leave half a line
    return list(csv.reader(io.StringIO(content, newline="")))


def _text(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8", newline="")
    os.replace(part, path)


def mark_run(folder: PathLike, status: str) -> None:
    """Say of a run whose writer is gone how it ended."""
    folder = Path(folder)
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if manifest["status"] != "finished":
        _write_whole(folder / MANIFEST, json.dumps({**manifest, "status": status}, indent=2) + "\n")


def is_run(folder: PathLike) -> bool:
    return all((Path(folder) / name).is_file() for name in (MANIFEST, ROUNDS))


def find_runs(places: PathLike | Iterable[PathLike]) -> list[Path]:
    """The run folders at or below this place or these, sorted."""
    folders: list[Path] = []
    for place in map(Path, [places] if isinstance(places, str | os.PathLike) else places):
        if not place.exists():
            raise AutoFLError(f"{place}: no such folder")
        inside = (
            [place] if is_run(place) else sorted(path.parent for path in place.rglob(MANIFEST) if is_run(path.parent))
        )
        if not inside:
            raise AutoFLError(f"{place}: no run in it (a run is a folder with {MANIFEST} and {ROUNDS})")
        folders += inside
    return list(dict.fromkeys(folders))


def read_manifest(folder: PathLike) -> dict[str, Any]:
    """What a run says of itself."""
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AutoFLError(f"{folder}: not a readable run ({error})") from None
    if not isinstance(manifest, dict):
        raise AutoFLError(f"{folder}: not a readable run ({MANIFEST} is no table)")
    return manifest


def read_run(folder: PathLike) -> Run:
    """A run folder, whole rounds only."""
    import tomllib

    folder = Path(folder)
    try:
        manifest = read_manifest(folder)
        config = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        rounds = _read_table(folder / ROUNDS, OLDEST_ROUND_TABLE, text=())
        ues = _read_table(folder / UES, OLDEST_UE_TABLE, text=LIMITS)
        measured = (folder / DEVICES).is_file()
        devices = _read_table(folder / DEVICES, set(DEVICE_COLUMNS), text=("outcome",)) if measured else {}
    except (OSError, ValueError, KeyError) as error:
        raise AutoFLError(f"{folder}: not a readable run ({error})") from None
    last = int(rounds["round"].max(initial=-1))

    def whole(table: dict[str, Column]) -> dict[str, Column]:
        return {name: column[table["round"].astype(np.int64) <= last] for name, column in table.items()}

    return Run(folder, config, manifest, rounds, whole(ues), whole(devices))


def read_weights(folder: PathLike) -> dict[str, NDArray[Any]]:
    """The final weights of a run."""
    from safetensors.numpy import load_file

    path = Path(folder) / WEIGHTS
    try:
        weights: dict[str, NDArray[Any]] = load_file(path)
    except Exception as error:  # the library has its own error type
        raise AutoFLError(f"{path}: cannot be read ({error})") from None
    return weights


def read_checkpoint(folder: PathLike) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and facts of the last checkpoint of a run."""
    from safetensors import safe_open

    try:
        with safe_open(Path(folder) / CHECKPOINT, framework="numpy") as file:
            said = file.metadata()
            names = json.loads(said["names"]) if "names" in said else file.keys()
            return {name: file.get_tensor(name) for name in names}, json.loads(said["facts"])
    except Exception as error:  # the library has its own error type
        raise AutoFLError(f"{folder}: no checkpoint to go on from ({error})") from None


def _read_table(path: Path, needed: set[str], text: tuple[str, ...]) -> dict[str, Column]:
    """The columns of a table by name; those that are needed must be there."""
    header, *rows = _whole_lines(path) or [[]]
    if missing := sorted(needed - set(header)):
        raise ValueError(f"{path.name} lacks the column {missing[0]}")
    cells = list(zip(*rows, strict=True)) or [()] * len(header)
    return {name: _column(name, cell, name in text) for name, cell in zip(header, cells, strict=True)}


WHOLE = {"round", "ue", "num_selected", "num_decoded", "num_samples", "local_steps", "decoded", "guarded"}


def _column(name: str, cells: tuple[str, ...], is_text: bool) -> Column:
    if is_text:
        return np.array(cells, dtype=np.str_)
    if name in WHOLE:
        return np.array(cells, dtype=np.int64)
    return np.array([float(cell) if cell else math.nan for cell in cells], dtype=np.float64)
