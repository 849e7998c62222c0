"""What is read off the runs of the study `radio`: how far learning came by when, and what the radio
did meanwhile.
"""

import math
from collections.abc import Sequence

import numpy as np

from autofl.config import parse_settings
from autofl.experiments.cell import build_cell
from autofl.network import compute_cost, snr
from autofl.quality import convergence_round, time_to_accuracy
from autofl.records import Run
from autofl.units import Array, BoolArray
from autofl_paper.results import Curve, named


def read_radio(run: Run, targets: Sequence[float]) -> tuple[dict[str, float], Curve | None]:
    """What was learned, and what the radio did."""
    return {**learned(run, targets), **on_air(run)}, None


def learned(run: Run, targets: Sequence[float]) -> dict[str, float]:
    """What is read off the curve of adapted accuracy, smoothed over 3 evaluations where a target is
    meant.

    time to each target [s], NaN where it is not reached; last: time of the last evaluation; best
    accuracy; K*, the last round where there is none; unrest: deviation of the change from one
    evaluation to the next over the second half.
    """
    rounds, sim_time, accuracy = run.evaluated("adapted_accuracy")
    values = {}
    for target in targets:
        values[named("time", target)] = time_to_accuracy(sim_time, accuracy, target)
    converged = convergence_round(rounds, accuracy)
    values["last"] = float(sim_time[-1])
    values["best"] = float(accuracy.max())
    values["rounds"] = float(rounds[-1]) if math.isnan(converged) else converged
    values["unrest"] = float(np.diff(accuracy[len(accuracy) // 2 :]).std())
    return values


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
    there = cell.take(ues["ue"].astype(np.int64))
    power = _floats(run, "tx_power")
    samples = _floats(run, "num_samples")
    energy = np.maximum(_floats(run, "energy"), 1e-30)
    sends = power > 0.0
    values = {}

    full = snr(there, _floats(run, "channel_gain"), there.max_power)
    decibel = 10.0 * np.log10(np.maximum(full, 1e-30))
    for percent in (25, 50, 75):
        values[f"snr_{percent}"] = float(np.percentile(decibel, percent))
    values["planned"] = float(sends.mean())
    values["heard"] = float((_floats(run, "decoded") == 1.0).mean())

    # Round 0 is the untrained model; it takes no time.
    round_time = run.rounds["round_time"].astype(np.float64)[1:]
    whole = float(round_time.sum())
    computing, sending = _parts(run)
    receiving = float(run.rounds["downlink_time"].astype(np.float64)[1:].sum())
    values["round_time"] = float(round_time.mean())
    for name, time in (("computing", computing), ("sending", sending), ("receiving", receiving)):
        values[name] = time / whole if whole > 0.0 else math.nan

    values["samples"] = _mean(samples, sends)
    values["power_share"] = _mean(power / there.max_power, sends)
    values["samples_by_energy"] = _mean(ues["samples_limit"] == "energy", sends)
    values["power_by_energy"] = _mean(ues["power_limit"] == "energy", sends)
    values["energy_of_computing"] = _mean(compute_cost(there, samples).energy / energy, sends)
    return values


def _floats(run: Run, name: str) -> Array:
    return np.asarray(run.ues[name].astype(np.float64))


def _parts(run: Run) -> tuple[float, float]:
    """Time that the UEs that end last in their rounds compute and send, summed over rounds."""
    compute = _floats(run, "compute_time")
    upload = _floats(run, "upload_time")
    k = _floats(run, "round")
    slowest = []
    for index in np.unique(k):
        members = np.flatnonzero(k == index)
        slowest.append(members[np.argmax((compute + upload)[members])])
    return float(compute[slowest].sum()), float(upload[slowest].sum())


def _mean(column: Array | BoolArray, where: BoolArray) -> float:
    return float(column[where].mean()) if where.any() else math.nan
