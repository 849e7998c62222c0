"""What is read off the runs of the joint planner's studies, kept as one small JSON file for each
study.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import parse_settings
from autofl.experiments.cell import build_cell
from autofl.files import opening, read_json, write_whole
from autofl.network import LIMITS
from autofl.quality import reaches, time_to_accuracy
from autofl.records import Run, read_run
from autofl.units import Array, BoolArray
from autofl_paper.joint import DRAWN, JOINT_STUDIES, JointScale
from autofl_paper.recipes import Arm
from autofl_paper.results import busy_time

SLACK = 1e-9
"""Relative rounding that does not count as a violation of a limit."""
LEVELS = tuple(round(0.01 * percent, 2) for percent in range(20, 96))
"""Accuracies of the picture."""


@dataclass(frozen=True)
class JointRow:
    """What was read off one run. NaN where a target was not reached, or nobody was heard."""

    condition: str  # of the study with what the paper leaves out, else empty
    arm: str
    seed: int
    values: dict[str, float]
    way: list[float]  # time [s] to each of LEVELS, in studies that are drawn


@dataclass(frozen=True)
class JointStudy:
    """The results of a study."""

    name: str
    about: dict[str, Any]
    rows: list[JointRow]

    @property
    def targets(self) -> tuple[float, float]:
        first, second = self.about["targets"]
        return first, second

    def arms(self) -> list[tuple[str, str]]:
        """Condition and arm, in order."""
        return list(dict.fromkeys((row.condition, row.arm) for row in self.rows))

    def rows_of(self, arm: str, condition: str = "") -> list[JointRow]:
        """The runs of an arm, by seed."""
        rows = [row for row in self.rows if (row.arm, row.condition) == (arm, condition)]
        return sorted(rows, key=lambda row: row.seed)


def named(quantity: str, target: float) -> str:
    """The name of what is read off at a target: time_85."""
    return f"{quantity}_{100 * target:g}"


def read_off(run: Run, targets: Sequence[float]) -> dict[str, float]:
    """Everything of one run, SI units.

    time, rounds and energy (of all UEs, heard or not) to each target, adapted accuracy smoothed
    over 3 evaluations;
    last: time of the last evaluation; heard: share of those selected; energy_heard: mean of a UE
    that is heard in a round, up to the first target (the whole run where it is not reached); what
    was decided, means over those who send; and how close each UE came to its limits.
    """
    rounds, sim_time, accuracy = run.evaluated("adapted_accuracy")
    values = {"last": float(sim_time[-1]), "best": float(accuracy.max())}
    per_round = {name: column.astype(np.float64) for name, column in run.rounds.items()}
    until = math.inf
    for target in reversed(targets):
        passed = np.flatnonzero(reaches(accuracy, target))
        until = float(rounds[passed[0]]) if len(passed) else math.inf
        spent = float(per_round["energy"][per_round["round"] <= until].sum())
        values |= {
            named("time", target): time_to_accuracy(sim_time, accuracy, target),
            named("rounds", target): until if len(passed) else math.nan,
            named("energy", target): spent if len(passed) else math.nan,
        }
    ues = _floats(run)
    sends = _sends(run)
    heard = (ues["decoded"] == 1.0) & (ues["round"] <= until)
    values |= {
        "heard": _mean(ues["decoded"], ues["round"] > 0.0),
        "energy_heard": _mean(ues["energy"], heard),
        "round_time": float(per_round["round_time"][1:].mean()) if len(rounds) > 1 else math.nan,
        "diverged": float(run.manifest.get("stop") == "diverged"),
        **{
            name: _mean(ues[name], sends)
            for name in ("local_steps", "num_samples", "bits_per_weight")
        },
        **limits(run),
    }
    return values


def _floats(run: Run) -> dict[str, Array]:
    """The columns of UEs that hold numbers."""
    return {
        name: column.astype(np.float64) for name, column in run.ues.items() if name not in LIMITS
    }


def _sends(run: Run) -> BoolArray:
    ues = _floats(run)
    return np.asarray((ues["num_samples"] > 0.0) & (ues["tx_power"] > 0.0))


def _mean(column: Array, where: BoolArray) -> float:
    return float(column[where].mean()) if where.any() else math.nan


def limits(run: Run) -> dict[str, float]:
    """Every UE that sent, in every round, against its own E_max, P_max and range of frequency, and
    their common band.

    checked: UEs times rounds; violations: those of them beyond a limit, or in a round whose band
        was exceeded.
    """
    cell = build_cell(parse_settings(run.config, str(run.folder)))
    ues = _floats(run)
    sends = _sends(run)
    ue = ues["ue"].astype(np.int64)
    k = ues["round"].astype(np.int64)
    energy = ues["energy"] / cell.max_energy[ue]
    power = ues["tx_power"] / cell.max_power[ue]
    frequency = ues["cpu_frequency"]
    band_used = np.bincount(k[sends], ues["bandwidth"][sends], k.max(initial=0) + 1)
    band_there = np.bincount(k, cell.bandwidth[ue], k.max(initial=0) + 1)
    broken = (
        (energy > 1.0 + SLACK)
        | (power > 1.0 + SLACK)
        | (frequency > cell.cpu_frequency[ue] * (1.0 + SLACK))
        | (frequency < cell.min_cpu_frequency[ue] * (1.0 - SLACK))
        | (band_used > band_there * (1.0 + SLACK))[k]
    )
    return {
        "energy_share": float(energy[sends].max(initial=0.0)),
        "power_share": float(power[sends].max(initial=0.0)),
        "frequency_share": _mean(frequency / cell.cpu_frequency[ue], sends),
        "checked": float(sends.sum()),
        "violations": float((broken & sends).sum()),
    }


def collect_joint(
    study: str, scale: JointScale, members: Sequence[tuple[Arm, int, Path]]
) -> JointStudy:
    """The results of a study from its run folders."""
    targets = scale.cifar_targets if study.endswith("cifar10") else scale.targets
    rows = []
    manifests = []
    for arm, seed, folder in members:
        run = read_run(folder)
        _, sim_time, accuracy = run.evaluated("adapted_accuracy")
        way = (
            [time_to_accuracy(sim_time, accuracy, level) for level in LEVELS]
            if study in DRAWN
            else []
        )
        values = {name: kept(value) for name, value in read_off(run, targets).items()}
        rows.append(JointRow(arm.reading, arm.name, seed, values, [kept(time) for time in way]))
        manifests.append(run.manifest)
    about = {
        "scale": scale.name,
        **about_runs(members, manifests, run.config),
        "targets": list(targets),
    }
    return JointStudy(study, about, rows)


def about_runs(
    members: Sequence[tuple[Arm, int, Path]],
    manifests: Sequence[dict[str, Any]],
    config: dict[str, Any],
) -> dict[str, Any]:
    """What was run, where, and how long it took; `config` is that of any of the runs."""
    newest = max(manifests, key=lambda manifest: manifest["ended_at"])
    return {
        "data": manifests[0]["data"],
        "seeds": len({seed for _, seed, _ in members}),
        "rounds": config["stop"]["rounds"],
        "every": config["evaluation"]["every"],
        "num_ue": manifests[0]["num_ue"],
        "num_selected": config["simulation"]["num_selected"],
        "runs": len({folder for _, _, folder in members}),
        "seconds": round(busy_time(manifests), 1),
        **{
            name: newest[name]
            for name in ("version", "commit", "device", "cores", "python", "torch")
        },
    }


def kept(value: float) -> float:
    """A number as it is written: six digits."""
    return float(f"{value:.6g}")


def write_joint(study: JointStudy, folder: Path) -> None:
    """One line for each run, so that a change of one shows as such."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(_plain(asdict(row)), ensure_ascii=False) for row in study.rows]
    about = json.dumps(study.about, indent=2, ensure_ascii=False)
    text = '{"about": ' + about + ',\n"rows": [\n' + ",\n".join(lines) + "\n]}\n"
    write_whole(folder / f"{study.name}.json", text)


def _plain(value: Any) -> Any:
    """NaN as null, which JSON knows."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def read_joint(folder: Path) -> dict[str, JointStudy]:
    """The studies in a folder by name, in their order."""
    paths = [path for name in JOINT_STUDIES if (path := folder / f"{name}.json").is_file()]
    return {path.stem: read_study(path) for path in paths}


def read_study(path: Path) -> JointStudy:
    """A study from its file."""
    with opening(path, "readable results"):
        content = read_json(path)
        rows = [
            JointRow(
                row["condition"],
                row["arm"],
                int(row["seed"]),
                {name: _number(value) for name, value in row["values"].items()},
                [_number(time) for time in row["way"]],
            )
            for row in content["rows"]
        ]
        return JointStudy(path.stem, content["about"], rows)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
