"""Pilot runs in one small file: what a forecast needs of them, and where they come from."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autofl.errors import AutoFLError
from autofl.records.metrics import passes, smoothed
from autofl.units import Array, PathLike


@dataclass(frozen=True)
class Pilot:
    """One pilot: the learning problem, how noisy its rounds were, and how its accuracy grew."""

    problem: dict[str, Any]  # data, partition, model, step sizes and so on: a forecast needs the same
    labels: int
    local_steps: int  # tau
    num_samples: int  # d
    num_selected: int
    seed: int
    noise: float  # mean over rounds of sum_i a_i^2/d_i
    skew: float  # chi^2: how unequally UEs were heard
    round: tuple[int, ...]  # evaluated rounds
    accuracy: tuple[float, ...]  # adapted accuracy at them
    rounding: float = 0.0  # mean over rounds of sum_i a_i^2 omega_i, omega the variance of the compressor

    @property
    def share(self) -> float:
        """Mean over rounds of 1/m; a pilot's UEs all use d samples."""
        return self.noise * self.num_samples

    @cached_property
    def _smoothed(self) -> Array:
        return smoothed(np.array(self.accuracy))  # once for all targets

    def rounds_to(self, target: float) -> float:
        """First evaluated round at which the smoothed accuracy passes the target; NaN if it never does."""
        passed = np.flatnonzero(passes(self._smoothed, target))
        return float(self.round[passed[0]]) if len(passed) else float("nan")


STEADY = ("split", "lr_decay", "guard", "grad_clip")
"""Settings of learning that change how fast it is, beside the step sizes."""
RATED = ("none", "entropy")
"""Compressors that are no part of a learning problem: their variance is known at every rate, and is in the fit."""


def problem_of(config: dict[str, Any]) -> dict[str, Any]:
    """What decides how fast a model is learned, apart from d, m, tau and l, out of resolved settings."""
    data, learning = config["data"], config["learning"]
    others = {"downlink": "none", "aggregator": "mean", "selection": "uniform"}
    if config.get("compressor", {}).get("name", "none") not in RATED:
        others["compressor"] = "none"
    changed = {kind: config[kind] for kind, name in others.items() if config.get(kind, {}).get("name", name) != name}
    return {
        "data": data.get("file") or data["name"],
        "standardise": data["standardise"],
        "partition": data["partition"],
        "concentration": data["concentration"] if data["partition"] == "dirichlet" else None,
        "num_ue": config["cell"]["num_ue"],
        "model": config["model"]["name"],
        "update": _update(config),
        "inner_lr": learning["inner_lr"],
        "outer_lr": learning["outer_lr"],
        **{key: learning[key] for key in STEADY if learning.get(key)},
        **changed,
    }


def _update(config: dict[str, Any]) -> str:
    """The client update in words; an algorithm of one's own with its settings."""
    name, learning = config["algorithm"], config["learning"]
    if name in ("autofl", "per-fedavg", "autofl-j"):
        return f"Per-FedAvg, {learning['variant']}"
    if name in ("fedavg-1", "fedavg-2", "fedavg-j"):
        return "FedAvg"
    usual = ("inner_lr", "outer_lr", "local_steps", "engine", "variant", *STEADY)
    own = {key: value for key, value in learning.items() if key not in usual}
    return f"{name} {own}" if own else str(name)


def write_pilots(path: PathLike, pilots: list[Pilot], command: str) -> None:
    path = Path(path)
    text = ",\n".join("  " + json.dumps(asdict(pilot)) for pilot in pilots)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"command": {json.dumps(command)}, "pilots": [\n{text}\n]}}\n', encoding="utf-8")


def read_pilots(path: PathLike) -> tuple[list[Pilot], str]:
    """The pilots of a file, or of all files in a folder, and the command that made them."""
    try:
        tables = [json.loads(file.read_text(encoding="utf-8")) for file in _files(Path(path))]
        pilots = [Pilot(**row) for table in tables for row in table["pilots"]]
        if not pilots:
            raise ValueError("no pilots in it")
        return pilots, "; ".join(str(table["command"]) for table in tables)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AutoFLError(f"{path}: not a file of pilots ({error}); make one with autofl pilot") from None


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.json")) if path.is_dir() else [path]
