"""What is read off the runs of the study `radio`: how far learning came by when, and what the radio
did meanwhile.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_cell
from autofl.network import compute_cost, snr
from autofl.quality import convergence_round, time_to_accuracy
from autofl.records import Run, read_run
from autofl.units import Array, BoolArray
from autofl_paper.joint_results import (
    JointRow,
    JointStudy,
    about_runs,
    kept,
    named,
    read_study,
)
from autofl_paper.radio import CELLS, RADIO, RadioScale, shares_that_can_send
from autofl_paper.recipes import Arm


def learned(run: Run, targets: Sequence[float]) -> dict[str, float]:
    """What is read off the curve of adapted accuracy, smoothed over 3 evaluations where a target is
    meant.

    time to each target [s], NaN where it is not reached; last: time of the last evaluation; best
    accuracy; K*, the last round where there is none; unrest: deviation of the change from one
    evaluation to the next over the second half.
    """
    rounds, sim_time, accuracy = run.evaluated("adapted_accuracy")
    converged = convergence_round(rounds, accuracy)
    return {
        **{
            named("time", target): time_to_accuracy(sim_time, accuracy, target)
            for target in targets
        },
        "last": float(sim_time[-1]),
        "best": float(accuracy.max()),
        "rounds": float(rounds[-1]) if math.isnan(converged) else converged,
        "unrest": float(np.diff(accuracy[len(accuracy) // 2 :]).std()),
    }


def on_air(run: Run) -> dict[str, float]:
    """What the radio did, over all UEs that were selected in all rounds.

    snr_25, snr_50, snr_75: quartiles at P_max, by the true gain [dB]; planned and heard: shares
    that may send and that are decoded; round_time [s], and the shares of it that the UE that ends
    last computes and sends, and that the model takes to come down; of those that send: mean d, mean
    p / P_max, shares whose d is cut by energy and whose p is, and share of their energy that
    computing takes.
    """
    cell = build_cell(parse_settings(run.config, str(run.folder)))
    ues = run.ues
    ue = ues["ue"].astype(np.int64)
    there = cell.take(ue)
    gain = _floats(run, "channel_gain")
    power = _floats(run, "tx_power")
    full = 10.0 * np.log10(np.maximum(snr(there, gain, there.max_power), 1e-30))
    samples = _floats(run, "num_samples")
    sends = power > 0.0
    rounds = {name: column.astype(np.float64)[1:] for name, column in run.rounds.items()}
    parts = _parts(run, rounds["round"])
    whole = float(rounds["round_time"].sum())
    return {
        **{f"snr_{percent}": float(np.percentile(full, percent)) for percent in (25, 50, 75)},
        "planned": float(sends.mean()),
        "heard": float((_floats(run, "decoded") == 1.0).mean()),
        "round_time": float(rounds["round_time"].mean()),
        **{
            name: float(time.sum()) / whole if whole > 0.0 else math.nan
            for name, time in parts.items()
        },
        "receiving": float(rounds["downlink_time"].sum()) / whole if whole > 0.0 else math.nan,
        "samples": _mean(samples, sends),
        "power_share": _mean(power / there.max_power, sends),
        "samples_by_energy": _mean(ues["samples_limit"] == "energy", sends),
        "power_by_energy": _mean(ues["power_limit"] == "energy", sends),
        "energy_of_computing": _mean(
            compute_cost(there, samples).energy / np.maximum(_floats(run, "energy"), 1e-30), sends
        ),
    }


def _floats(run: Run, name: str) -> Array:
    return np.asarray(run.ues[name].astype(np.float64))


def _parts(run: Run, rounds: Array) -> dict[str, Array]:
    """Time that the UE that ends last in each round computes and sends."""
    k, compute, upload = (_floats(run, name) for name in ("round", "compute_time", "upload_time"))
    parts = {"computing": np.zeros(len(rounds)), "sending": np.zeros(len(rounds))}
    for place, index in enumerate(rounds):
        members = np.flatnonzero(k == index)
        last = members[np.argmax((compute + upload)[members])]
        parts["computing"][place], parts["sending"][place] = compute[last], upload[last]
    return parts


def _mean(column: Array | BoolArray, where: BoolArray) -> float:
    return float(column[where].mean()) if where.any() else math.nan


def collect_radio(scale: RadioScale, members: Sequence[tuple[Arm, int, Path]]) -> JointStudy:
    """The results of the study from its run folders; a row's condition is its cell."""
    rows = []
    manifests = []
    for arm, seed, folder in members:
        run = read_run(folder)
        values = {**learned(run, scale.targets), **on_air(run)}
        rows.append(
            JointRow(
                arm.reading,
                arm.name,
                seed,
                {name: kept(value) for name, value in values.items()},
                [],
            )
        )
        manifests.append(run.manifest)
    about: dict[str, Any] = {
        "scale": scale.name,
        **about_runs(members, manifests, run.config),
        "targets": list(scale.targets),
        "sizes": list(scale.sizes),
        "budgets": {name: shares_that_can_send(CELLS[name], scale.seeds) for name in scale.cells},
    }
    return JointStudy(RADIO, about, rows)


def read_radio(folder: Path) -> JointStudy:
    """The study in a folder."""
    path = folder / f"{RADIO}.json"
    if not path.is_file():
        raise AutoFLError(f"{folder}: no results of the study radio in it")
    return read_study(path)
