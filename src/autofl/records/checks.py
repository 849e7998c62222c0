"""Whether a run folder is what its run wrote: the manifest by a sum of itself, the other files by
the manifest.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unicodedata import category

MANIFEST = "manifest.json"
CONFIG = "config.toml"
FORMAT = 2
"""Of manifests: those with a sum of themselves."""
OWN_SUM = "manifest_sha256"
PIECE = 2**20


def sum_of(path: Path, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first bytes, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        left = path.stat().st_size if size is None else size
        while left > 0 and (piece := file.read(min(PIECE, left))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with the sum of all it says as its last key."""
    said = {key: value for key, value in manifest.items() if key not in ("format", OWN_SUM)}
    said = json.loads(json.dumps(said | {"format": FORMAT}))  # numbers as keys become text
    return said | {OWN_SUM: _own_sum(said)}


def check_seal(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that is not what was written."""
    said = {key: value for key, value in manifest.items() if key != OWN_SUM}
    if manifest.get(OWN_SUM) != _own_sum(said):
        raise ValueError(f"{MANIFEST} is not what the run wrote: its SHA-256 differs")


def _own_sum(said: Mapping[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_sums(folder: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse files that are not what the run wrote: its settings at any time, all of them once it
    has finished.
    """
    sums = manifest["sha256"]
    known = set(sums) if manifest["status"] == "finished" else {CONFIG}
    for name in sorted(set(names) & set(sums) & known):
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if sum_of(folder / name) != sums[name]:
            raise ValueError(f"{name} is not what the run wrote: its SHA-256 differs")


def check_words(config: Mapping[str, Any]) -> None:
    """Refuse words among the settings that no screen shows: a line break would end a comment of
    LaTeX, and what follows it would be a command.
    """
    letters = (letter for text in _texts(config) for letter in text)
    if not all(letter.isprintable() or category(letter) == "Zs" for letter in letters):
        raise ValueError(f"a text in {CONFIG} has signs that no screen shows")


def _texts(value: object) -> Iterator[str]:
    """All keys and words of nested tables and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
