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
"""Manifests from this format on hold a sum of themselves. Two keys say so: no single damage can
take both away.
"""
OWN_SUM = "manifest_sha256"
PIECE = 2**20
SPENT = {"epsilon": 0.0, "delta": 0.0, "releases": 0}
"""What a manifest says of the privacy that a device has given up, where it has any."""
MOST_COUNT = 2**40
MOST_NUMBER = 1e300
MOST_UE = 10_000_000
"""UEs of a run, whether its manifest says how many there are or not."""


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
    said = {key: value for key, value in manifest.items() if key not in ("format", OWN_SUM)} | {
        "format": FORMAT
    }
    said = json.loads(json.dumps(said))  # numbers as keys become text, as a reader sees them
    return said | {OWN_SUM: _own_sum(said)}


def check_seal(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that is not what was written; those of older formats say nothing about it."""
    if OWN_SUM not in manifest and "format" not in manifest:
        return
    if manifest.get(OWN_SUM) != _own_sum(
        {key: value for key, value in manifest.items() if key != OWN_SUM}
    ):
        raise ValueError(f"{MANIFEST} is not what the run wrote: its SHA-256 differs")


def _own_sum(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(
        json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """What reports rely on, of the right kind."""
    if type(manifest.get("seed")) is not int or not isinstance(manifest.get("algorithm"), str):
        raise ValueError(f"{MANIFEST} names no algorithm or no seed")
    for key, most in (("num_ue", MOST_UE), ("num_weights", MOST_COUNT)):
        if type(manifest.get(key, 1)) is not int or not 1 <= manifest.get(key, 1) <= most:
            raise ValueError(f"{key} in {MANIFEST} is not a whole number from 1 to {most:,}")
    for key in ("label", "stop", "status", "data", "problem"):
        if not isinstance(manifest.get(key), str | None):
            raise ValueError(f"{key} in {MANIFEST} is not text")
    for key in ("sim_time", "host_time", "ended_at", "slow", "overhead"):
        if not _is_number(manifest.get(key, 0.0)):
            raise ValueError(f"{key} in {MANIFEST} is not a number")
    if not isinstance(manifest.get("sha256", {}), dict):
        raise ValueError(f"sha256 in {MANIFEST} is not a table")
    for key in ("algorithm", "label", "data"):
        if not (manifest.get(key) or "").isprintable():
            raise ValueError(f"{key} in {MANIFEST} has signs that no screen shows")
    if not isinstance(manifest.get("resumed", []), list):
        raise ValueError(f"resumed in {MANIFEST} is not a list")
    notes = manifest.get("notes", [])
    if not isinstance(notes, list) or not all(
        isinstance(line, str) and line.isprintable() for line in notes
    ):
        raise ValueError(f"notes in {MANIFEST} are not lines of text")
    privacy = manifest.get("privacy", SPENT)
    if not isinstance(privacy, dict) or not all(_is_spent(privacy.get(key)) for key in SPENT):
        raise ValueError(f"privacy in {MANIFEST} does not say what was spent")
    decisions = manifest.get("decisions", [])
    if not isinstance(decisions, list) or not all(_is_decision(row) for row in decisions):
        raise ValueError(f"decisions in {MANIFEST} are not rows of three words")
    devices = manifest.get("devices", {})
    if not isinstance(devices, dict) or not all(_is_asked(entry) for entry in devices.values()):
        raise ValueError(f"devices in {MANIFEST} does not say how each was asked")


def check_config(config: Mapping[str, Any]) -> None:
    """What reports rely on in the settings of a run, of the right kind; the others are only shown."""
    for section in ("cell", "data", "learning", "simulation", "stop"):
        if not isinstance(config.get(section, {}), dict):
            raise ValueError(f"{section} in {CONFIG} is not a section")
    for section, key in (("cell", "update_bits"), ("learning", "outer_lr"), ("stop", "rounds")):
        value = config.get(section, {}).get(key)
        if not _is_number(value) and (key, value) != ("outer_lr", "auto"):
            raise ValueError(f"{section}.{key} in {CONFIG} is not a number")
    if not isinstance(config.get("data", {}).get("partition", ""), str):
        raise ValueError(f"data.partition in {CONFIG} is not text")
    if not all(
        letter.isprintable() or category(letter) == "Zs"
        for text in _texts(config)
        for letter in text
    ):
        raise ValueError(f"a text in {CONFIG} has signs that no screen shows")


def _texts(value: object) -> Iterator[str]:
    """All keys and words of nested tables and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(inner)


def _is_number(value: object) -> bool:
    """Whether it is one that is finite, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value is None
    return abs(value) < MOST_NUMBER


def _is_spent(value: object) -> bool:
    """Whether it is a number; an epsilon may be infinite."""
    return type(value) is float or (type(value) is int and abs(value) < MOST_NUMBER)


def _is_decision(row: object) -> bool:
    """Whether it is a decision, its value and its reason."""
    return (
        isinstance(row, list)
        and len(row) == 3
        and all(isinstance(cell, str) and cell.isprintable() for cell in row)
    )


def _is_asked(entry: object) -> bool:
    """Whether an entry says over what a device of a deployment was asked, and with how much
    overhead.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("transport"), str):
        return False
    return _is_number(entry.get("overhead"))


def check_sums(folder: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse files that are not what the run wrote: its settings at any time, all of them once it
    has finished.
    """
    sums = manifest.get("sha256")
    if not isinstance(sums, dict):
        return
    known = set(sums) if manifest.get("status") == "finished" else {CONFIG}
    for name in sorted(set(names) & set(sums) & known):
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if sum_of(folder / name) != sums[name]:
            raise ValueError(f"{name} is not what the run wrote: its SHA-256 differs")
