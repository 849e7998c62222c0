"""Checkpoints of a run: two generations in turn, each with a checksum of its own.

A file is a line `autofl-checkpoint 1 SHA256`, a line of JSON, and arrays as safetensors; the sum is over all that
follows the first line. The newer one is never overwritten, so one whole checkpoint is there whatever happens.
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
from autofl.files import parse_json, write_whole
from autofl.units import PathLike

GENERATIONS = ("checkpoint-0", "checkpoint-1")
FIRST_WORDS = b"autofl-checkpoint 1 "


@dataclass(frozen=True)
class Kept:
    """A checkpoint that was read: arrays, facts, how far the tables were, and its number."""

    name: str
    number: int
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]
    tables: dict[str, tuple[int, str]]


def write_generation(
    folder: Path,
    number: int,
    arrays: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any],
    tables: Mapping[str, tuple[int, str]],
) -> None:
    """The checkpoint of this number, in place of the one before the last."""
    from safetensors.numpy import save

    names = list(arrays)  # the file sorts them, and compressors go by the order of the weights
    about = json.dumps({"number": number, "names": names, "tables": tables, "facts": facts})
    packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    body = about.encode("utf-8") + b"\n" + packed
    digest = hashlib.sha256(body).hexdigest().encode()
    write_whole(folder / GENERATIONS[number % 2], FIRST_WORDS + digest + b"\n" + body)


def read_generations(folder: PathLike) -> Iterator[Kept | AutoFLError]:
    """The checkpoints of a run, the newest first; of one that is damaged, what is wrong with it."""
    outcomes = [_read(Path(folder) / name) for name in GENERATIONS if (Path(folder) / name).is_file()]
    damaged = [outcome for outcome in outcomes if isinstance(outcome, AutoFLError)]
    whole = [outcome for outcome in outcomes if isinstance(outcome, Kept)]
    yield from damaged
    yield from sorted(whole, key=lambda kept: -kept.number)


def has_checkpoint(folder: PathLike) -> bool:
    """Whether a run has ever kept one and is not finished, damaged or not."""
    return any((Path(folder) / name).is_file() for name in GENERATIONS)


def remove_generations(folder: Path) -> None:
    for name in GENERATIONS:
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> Kept | AutoFLError:
    from safetensors.numpy import load

    try:
        content = path.read_bytes()
        first, _, body = content.partition(b"\n")
        if first != FIRST_WORDS + hashlib.sha256(body).hexdigest().encode():
            return AutoFLError(f"{path}: damaged (its SHA-256 differs)")
        about, _, packed = body.partition(b"\n")
        said = parse_json(about.decode("utf-8"))
        arrays = load(packed)
        tables = {name: (int(size), str(digest)) for name, (size, digest) in said["tables"].items()}
        return Kept(path.name, said["number"], {name: arrays[name] for name in said["names"]}, said["facts"], tables)
    except Exception as error:  # the library has its own error type
        return AutoFLError(f"{path}: cannot be read ({error})")
