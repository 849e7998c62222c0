"""Checkpoints of a run: two generations in turn, each with a checksum of its own.

A file is a line `autofl-checkpoint 1 SHA256`, a line of JSON, and arrays as safetensors; the sum is
over all that follows the first line. The newer one is never overwritten, so one whole checkpoint is
there whatever happens.
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
from autofl.files import MOST_TEXT, parse_json, write_whole
from autofl.records.checks import PIECE
from autofl.records.tables import ROUNDS, TABLES, UES
from autofl.units import PathLike

GENERATIONS = ("checkpoint-0", "checkpoint-1")
FIRST_WORDS = b"autofl-checkpoint 1 "
MOST_CHECKPOINT = 64 * 2**20
MODELS = 16
"""Bytes of a checkpoint apart from weights, and how many models it may hold for the server and for
each UE.
"""
MOST_ROUND = 2**53


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
    packed = save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()}
    )  # a number stays one
    body = about.encode("utf-8") + b"\n" + packed
    digest = hashlib.sha256(body).hexdigest().encode()
    write_whole(folder / GENERATIONS[number % 2], FIRST_WORDS + digest + b"\n" + body)


def read_generations(folder: PathLike, most: int) -> Iterator[Kept | AutoFLError]:
    """The checkpoints of a run of at most `most` bytes, the newest first; of one that is damaged,
    what is wrong.
    """
    outcomes = [
        _read(Path(folder) / name, most) for name in GENERATIONS if (Path(folder) / name).is_file()
    ]
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


def _read(path: Path, most: int) -> Kept | AutoFLError:
    """A checkpoint; its sum is made piece by piece, so that only what is whole takes memory."""
    from safetensors.numpy import load

    try:
        size = path.stat().st_size
        if size > most:
            return AutoFLError(
                f"{path}: {size:,} bytes; a checkpoint of this run has at most {most:,}"
            )
        with open(path, "rb") as file:
            first = file.readline(len(FIRST_WORDS) + 65)
            digest = hashlib.sha256()
            while piece := file.read(PIECE):
                digest.update(piece)
            if first != FIRST_WORDS + digest.hexdigest().encode() + b"\n":
                return AutoFLError(f"{path}: damaged (its SHA-256 differs)")
            file.seek(len(first))
            about = file.readline(MOST_TEXT)
            said = parse_json(about.decode("utf-8"))
            arrays = load(file.read())
        return _checked(path, said, arrays)
    except Exception as error:  # the library has its own error type
        return AutoFLError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:200] or type(error).__name__})"
        )


def _checked(path: Path, said: Any, arrays: Mapping[str, NDArray[Any]]) -> Kept:
    """What a file with the right sum says, of the right kind: a sum is no proof that we wrote it."""
    if not isinstance(said, dict) or {"number", "names", "tables", "facts"} - set(said):
        raise ValueError("a part of it is missing")
    number = said["number"]
    names = said["names"]
    tables = said["tables"]
    facts = said["facts"]
    if not _is_count(number):
        raise ValueError(f"number {number!r} is not a whole number >= 0")
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(arrays):
        raise ValueError("its names are not those of its arrays")
    if not isinstance(tables, dict) or not {ROUNDS, UES} <= set(tables) <= set(TABLES):
        raise ValueError("its tables are not those of a run")
    for name, extent in tables.items():
        fits = (
            isinstance(extent, list)
            and len(extent) == 2
            and _is_count(extent[0])
            and isinstance(extent[1], str)
        )
        if not fits:
            raise ValueError(f"{name}: neither length nor SHA-256")
    if not isinstance(facts, dict) or not _is_count(facts.get("round")):
        raise ValueError("it tells no round")
    extents = {name: (size, digest) for name, (size, digest) in tables.items()}
    return Kept(path.name, number, {name: arrays[name] for name in names}, facts, extents)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_ROUND
