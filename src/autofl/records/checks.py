"""Whether a run folder is what its run wrote."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def sum_of(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """What reports rely on, of the right kind."""
    if type(manifest.get("seed")) is not int or not isinstance(manifest.get("algorithm"), str):
        raise ValueError(f"{MANIFEST} names no algorithm or no seed")
    if type(manifest.get("num_ue", 1)) is not int:
        raise ValueError(f"num_ue in {MANIFEST} is not a whole number")
    for key in ("label", "stop", "status", "data"):
        if not isinstance(manifest.get(key), str | None):
            raise ValueError(f"{key} in {MANIFEST} is not text")


def check_sums(folder: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse files of a finished run that are not what it wrote."""
    sums = manifest.get("sha256")
    if manifest.get("status") != "finished" or not isinstance(sums, dict):
        return
    for name in sorted(set(names) & set(sums)):
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if sum_of(folder / name) != sums[name]:
            raise ValueError(f"{name} is not what the run wrote: its SHA-256 differs")
