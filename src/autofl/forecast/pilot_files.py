"""Pilot runs in one small file: what a forecast needs of them, and where they come from."""

import json
import shlex
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from autofl.config import Settings
from autofl.config.arms import read_arm
from autofl.config.load import written
from autofl.config.parts import DownlinkSettings, ModelSettings
from autofl.config.settings import DataSettings, EvaluationSettings
from autofl.experiments.data import contents_of
from autofl.files import opening, read_json, write_whole
from autofl.quality import passes, smoothed
from autofl.units import Array, PathLike

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Amount = Annotated[float, Field(ge=0.0, le=1e6)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Round = Annotated[int, Field(ge=0, le=10_000_000)]


@dataclass(frozen=True)
class Pilot:
    """One pilot: the learning problem, how noisy its rounds were, and how its accuracy grew."""

    __pydantic_config__ = ConfigDict(
        extra="forbid", allow_inf_nan=False
    )  # for what is read from a file

    problem: dict[
        str, Any
    ]  # data, partition, model, step sizes and so on: a forecast needs the same
    labels: Count
    local_steps: Count  # tau
    num_samples: Count  # d
    num_selected: Count
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    noise: Annotated[float, Field(ge=1e-9, le=1e6)]  # mean over rounds of sum_i a_i^2/d_i
    skew: Amount  # chi^2: how unequally UEs were heard
    round: Annotated[tuple[Round, ...], Field(min_length=1)]  # evaluated rounds
    accuracy: tuple[Share, ...]  # adapted accuracy at them, or global where `problem` says so
    rounding: Amount = (
        0.0  # mean over rounds of sum_i a_i^2 omega_i, omega the variance of the compressor
    )
    rarest: Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)] = (
        1.0  # exposure of the label that was heard least, rounded
    )

    @property
    def share(self) -> float:
        """Mean over rounds of 1/m; a pilot's UEs all use d samples."""
        return self.noise * self.num_samples

    @cached_property
    def _smoothed(self) -> Array:
        return smoothed(np.array(self.accuracy))  # once for all targets

    def rounds_to(self, target: float, every: int | None = None) -> float:
        """First evaluated round at which the smoothed accuracy passes the target; NaN if it never
        does.

        Args:
            every: rounds from evaluation to evaluation, as if the pilot had been looked at so
                often; by default as it was. Between its evaluations accuracy is a straight line.
        """
        rounds = np.array(self.round)
        smooth = self._smoothed
        if every is not None and every != self.every:
            rounds = np.arange(0, self.round[-1] + 1, every)
            smooth = smoothed(np.interp(rounds, self.round, self.accuracy))
        passed = np.flatnonzero(passes(smooth, target))
        return float(rounds[passed[0]]) if len(passed) else float("nan")

    def reaches(self, target: float, every: int | None = None) -> bool:
        return not np.isnan(self.rounds_to(target, every))

    def is_coarse(self, target: float, every: int | None = None) -> bool:
        """Whether the first evaluation is at the target: the rounds to it then only say how often
        it was looked at.
        """
        first = max(every or self.every, self.every)
        return first > 1 and float(np.interp(first, self.round, self.accuracy)) >= target

    @property
    def every(self) -> int:
        """Rounds from one evaluation to the next."""
        return int(self.round[1] - self.round[0]) if len(self.round) > 1 else 1


STEADY = ("split", "batches", "lr_decay", "guard", "grad_clip")
"""Settings of learning that change how fast it is, beside the step sizes."""
RATED = ("none", "entropy")
"""Compressors that are no part of a learning problem: their variance is known at every rate, and is
in the fit.
"""


def problem_of(config: dict[str, Any]) -> dict[str, Any]:
    """What decides how fast a model is learned, apart from d, m, tau and l, out of resolved
    settings.
    """
    data = config["data"]
    learning = config["learning"]
    others = {"downlink": "none", "aggregator": "mean", "selection": "uniform", "attack": "none"}
    if config.get("compressor", {}).get("name", "none") not in RATED:
        others["compressor"] = "none"
    metric = config.get("stop", {}).get("metric", "adapted")
    changed = {}
    for kind, name in others.items():
        if config.get(kind, {}).get("name", name) != name:
            changed[kind] = config[kind]

    # A forecast knows what an open downlink costs; without liars a simulation makes no checks.
    if "downlink" in changed and DownlinkSettings(**changed["downlink"]).is_open:
        del changed["downlink"]
    if "attack" in changed:
        changed["checks"] = config.get("checks", {})

    return {
        "data": contents_of(DataSettings.model_validate(data).source())
        or data.get("file")
        or data["name"],
        "standardise": data["standardise"],
        **({"values": data["values"]} if data.get("values", "auto") != "auto" else {}),
        "partition": data["partition"],
        "concentration": data["concentration"] if data["partition"] == "dirichlet" else None,
        "num_ue": config["cell"]["num_ue"],
        "model": config["model"]["name"],
        "update": _update(config),
        "inner_lr": learning["inner_lr"],
        "outer_lr": learning["outer_lr"],
        **{key: learning[key] for key in STEADY if learning.get(key)},
        **({"metric": metric} if metric != "adapted" else {}),
        **_judged(config),
        **_own_settings(config),
        **changed,
    }


def _judged(config: dict[str, Any]) -> dict[str, Any]:
    """How a model is judged, where not as usual: another adaptation, or at some of the UEs only."""
    judged = {}
    evaluation = config.get("evaluation", {})
    usual = EvaluationSettings().adapt_samples
    adapt = evaluation.get("adapt_samples", usual)
    if adapt != usual:
        judged["adapt_samples"] = adapt
    num_ue = evaluation.get("num_ue")
    if num_ue is not None and num_ue < config["cell"]["num_ue"]:
        judged["judged_ues"] = num_ue
    return judged


def _own_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Settings of a user's own data set, partition or model, beside its name."""
    known = {"data": set(DataSettings.model_fields), "model": set(ModelSettings.model_fields)}
    own = {}
    for kind, fields in known.items():
        others = {key: value for key, value in config[kind].items() if key not in fields}
        if others:
            own[f"own_{kind}"] = others
    return own


def _update(config: dict[str, Any]) -> str:
    """The client update in words; an algorithm of one's own with its settings."""
    name = read_arm(config["arm"])["algorithm"]
    learning = config["learning"]
    if name == "per-fedavg":
        return f"Per-FedAvg, {learning['variant']}"
    if name == "fedavg":
        return "FedAvg"
    usual = ("inner_lr", "outer_lr", "local_steps", "engine", "variant", *STEADY)
    own = {key: value for key, value in learning.items() if key not in usual}
    return f"{name} {own}" if own else str(name)


DECIDES: dict[str, tuple[str, ...] | None] = {
    "cell": ("num_ue",),
    "data": None,
    "model": None,
    "learning": None,
    "stop": ("metric",),
    "evaluation": ("adapt_samples", "num_ue"),
    **dict.fromkeys(("compressor", "downlink", "aggregator", "selection", "attack", "checks")),
}
"""Settings that decide how fast a model is learned: keys of sections, or all of them."""
FREE = ("local_steps", "engine")
"""Settings of these sections that a pilot sets itself, or that change no number."""


def pilot_advice(settings: Settings, target: float) -> str:
    """How to make pilots and use them, in a file that is not there yet: those that are there cost
    much to make.
    """
    out = "pilots.json"
    num = 1
    while Path(out).exists():
        num += 1
        out = f"pilots-{num}.json"
    return f"{pilot_command(settings, target, out)} and add --pilots {out}"


def pilot_command(settings: Settings, target: float, out: str = "pilots.json") -> str:
    """The complete command that makes pilots for these settings; they run until they reach the
    target.
    """
    settings = settings.resolved()
    if settings.decides_downlink:
        settings = settings.model_copy(update={"downlink": DownlinkSettings()})
    named: dict[str, Any] = {
        "arm": settings.arm,
        "data": {"name": settings.data.name, "file": settings.data.file},
    }
    plain = Settings.model_validate(named)
    is_replaced = settings.planner.name == "joint" and plain.planner.name != "joint"
    if is_replaced:  # it brings settings along and needs pilots of its own
        named["planner"] = {"name": "joint"}
    ours = settings.table()
    usual = Settings.model_validate(named).resolved().table()
    first = Settings().resolved().table()
    changed = {"arm": ours["arm"]} if ours["arm"] != first["arm"] else {}
    changed |= {
        f"data.{key}": ours["data"][key]
        for key in ("name", "file")
        if ours["data"].get(key) != first["data"].get(key)
    }
    if is_replaced:
        changed["planner.name"] = "joint"
    for section, keys in DECIDES.items():
        its = ours.get(section, {})
        others = usual.get(section, {})
        names = [
            key
            for key in keys or its
            if key in its and key not in FREE and its[key] != others.get(key)
        ]
        changed |= {f"{section}.{key}": its[key] for key in names}
    words = [f"--set {shlex.quote(f'{key}={written(value)}')}" for key, value in changed.items()]
    return " ".join(["autofl pilot", *words, f"--target {target:g} --out {out}"])


def write_pilots(path: PathLike, pilots: list[Pilot], command: str) -> None:
    path = Path(path)
    text = ",\n".join("  " + json.dumps(asdict(pilot)) for pilot in pilots)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f'{{"command": {json.dumps(command)}, "pilots": [\n{text}\n]}}\n')


def read_pilots(path: PathLike) -> tuple[list[Pilot], str]:
    """The pilots of a file, and the command that made them."""
    with opening(path, "a file of pilots", "; make one with autofl pilot"):
        table = read_json(Path(path), "a file of pilots")
        if (
            not isinstance(table, dict)
            or not isinstance(table.get("pilots"), list)
            or not table["pilots"]
        ):
            raise ValueError("no pilots in it")
        pilots = [_read(number, row) for number, row in enumerate(table["pilots"])]
        return pilots, str(table["command"])


def _read(number: int, row: Any) -> Pilot:
    """One of the pilots in a file, every number of the right kind and size."""
    try:
        pilot = TypeAdapter(Pilot).validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"pilot {number}: {where}: {first['msg']}") from None
    if len(pilot.round) != len(pilot.accuracy) or any(np.diff(pilot.round) <= 0):
        raise ValueError(
            f"pilot {number}: an accuracy for each round is needed, and rounds that rise"
        )
    return pilot
