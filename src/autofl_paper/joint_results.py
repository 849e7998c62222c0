"""What is read off the runs of the joint planner's studies."""

import math
from collections.abc import Sequence

import numpy as np

from autofl.config import parse_settings
from autofl.experiments.cell import build_cell
from autofl.network import LIMITS
from autofl.quality import reaches, time_to_accuracy
from autofl.records import Run
from autofl.units import Array, BoolArray
from autofl_paper.results import Curve, named

SLACK = 1e-9
"""Relative rounding that does not count as a violation of a limit."""
LEVELS = tuple(round(0.01 * percent, 2) for percent in range(20, 96))
"""Accuracies of the picture."""


def read_joint(
    run: Run, targets: Sequence[float], levels: Sequence[float]
) -> tuple[dict[str, float], Curve | None]:
    """Everything of one run, SI units.

    time, rounds and energy (of all UEs, heard or not) to each target, adapted accuracy smoothed
    over 3 evaluations; last: time of the last evaluation; heard: share of those selected;
    energy_heard: mean of a UE that is heard in a round, up to the first target (the whole run where
    it is not reached); what was decided, means over those who send; how close each UE came to its
    limits; and the time to each of the levels.
    """
    rounds, sim_time, accuracy = run.evaluated("adapted_accuracy")
    values = {"last": float(sim_time[-1]), "best": float(accuracy.max())}

    # The first target comes last, so that `until` is its round afterwards.
    until = math.inf
    k = run.rounds["round"].astype(np.float64)
    energy = run.rounds["energy"].astype(np.float64)
    for target in reversed(targets):
        passed = np.flatnonzero(reaches(accuracy, target))
        until = float(rounds[passed[0]]) if len(passed) else math.inf
        spent = float(energy[k <= until].sum())
        values[named("time", target)] = time_to_accuracy(sim_time, accuracy, target)
        values[named("rounds", target)] = until if len(passed) else math.nan
        values[named("energy", target)] = spent if len(passed) else math.nan

    ues = _floats(run)
    sends = _sends(ues)
    heard = (ues["decoded"] == 1.0) & (ues["round"] <= until)
    round_time = run.rounds["round_time"].astype(np.float64)
    values["heard"] = _mean(ues["decoded"], ues["round"] > 0.0)
    values["energy_heard"] = _mean(ues["energy"], heard)
    values["round_time"] = float(round_time[1:].mean()) if len(rounds) > 1 else math.nan
    values["diverged"] = float(run.manifest.get("stop") == "diverged")
    for name in ("local_steps", "num_samples", "bits_per_weight"):
        values[name] = _mean(ues[name], sends)
    values |= limits(run)
    for level in levels:
        values[named("time", level)] = time_to_accuracy(sim_time, accuracy, level)
    return values, None


def _floats(run: Run) -> dict[str, Array]:
    """The columns of UEs that hold numbers."""
    return {name: col.astype(np.float64) for name, col in run.ues.items() if name not in LIMITS}


def _sends(ues: dict[str, Array]) -> BoolArray:
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
    sends = _sends(ues)
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
