"""Checkpoints of a run: two safetensors files in turn, so that one is whole whatever happens.

The metadata of a file hold what is not an array, and the SHA-256 of all that it says.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.files import opening, write_whole
from autofl.records.tables import Extent, holds
from autofl.units import PathLike

GENERATIONS = ("checkpoint-0", "checkpoint-1")


@dataclass(frozen=True)
class Kept:
    """A checkpoint as its file holds it: arrays, facts, and how far the tables were then."""

    path: Path
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]
    tables: dict[str, Extent]

    @property
    def round(self) -> int:
        return int(self.facts["round"])

    def check_tables(self) -> None:
        """Refuse tables that do not begin with what they were when this was written."""
        for name, extent in self.tables.items():
            if not holds(self.path.parent / name, extent):
                raise AutoFLError(
                    f"{self.path}: {name} is not what the run wrote, its SHA-256 differs"
                )


def write_checkpoint(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any],
    tables: Mapping[str, Extent],
) -> None:
    """A file that `whole_checkpoints` reads, in place of what is there."""
    from safetensors.numpy import save

    names = list(arrays)  # the file sorts them, and compressors go by the order of the weights
    about = json.dumps({"names": names, "tables": tables, "facts": facts})
    metadata = {"about": about, "sha256": _sum_of(about, arrays)}
    packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_whole(path, save(packed, metadata))


def whole_checkpoints(folder: PathLike) -> Iterator[Kept | AutoFLError]:
    """The checkpoints of a run, the newest first; before them what is wrong with damaged ones."""
    whole: list[Kept] = []
    for path in (Path(folder) / name for name in GENERATIONS):
        if path.is_file():
            try:
                whole.append(_read(path))
            except AutoFLError as error:
                yield error
    yield from sorted(whole, key=lambda kept: -kept.round)


def checkpoints(folder: PathLike) -> tuple[list[Kept], list[str]]:
    """The checkpoints from which a run can go on, the newest first, and what is wrong with others."""
    usable: list[Kept] = []
    problems: list[str] = []
    for kept in whole_checkpoints(folder):
        try:
            if isinstance(kept, AutoFLError):
                raise kept
            kept.check_tables()
            usable.append(kept)
        except AutoFLError as error:
            problems.append(str(error))
    return usable, problems


def has_checkpoint(folder: PathLike) -> bool:
    """Whether a run has ever kept one and is not finished, damaged or not."""
    return any((Path(folder) / name).is_file() for name in GENERATIONS)


def remove_checkpoints(folder: Path) -> None:
    for name in GENERATIONS:
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> Kept:
    from safetensors import safe_open

    with opening(path, "a whole checkpoint"), safe_open(path, "numpy") as file:
        metadata = file.metadata()
        about = json.loads(metadata["about"])
        arrays = {name: file.get_tensor(name) for name in about["names"]}
        if metadata["sha256"] != _sum_of(metadata["about"], arrays):
            raise ValueError("its SHA-256 differs")
        extents = {name: (size, digest) for name, (size, digest) in about["tables"].items()}
        return Kept(path, arrays, about["facts"], extents)


def _sum_of(about: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(about.encode())
    for array in arrays.values():
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
