"""What is read off the curve of one run: times to five accuracies, K*, the best and the last of it.

Accuracy is first averaged over the evaluations within a few rounds on either side, which delays
nothing, and crossings
are interpolated between evaluations: their grid hides no difference between two algorithms.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autofl.quality import convergence_round
from autofl.records import Run
from autofl.units import Array
from autofl_paper.results import Curve, curve_of

METRICS = ("adapted", "global")
NUM_TARGETS = 5
HALF_WINDOW = 5
"""Rounds on either side over which accuracy is averaged; one evaluation on either side where they
are farther apart.
"""
BAND = 0.01
"""Distance from the last accuracy within which a run counts as on its plateau (the paper's "std +-
1 %").
"""
LAST_SHARE = 0.1
"""Share of the evaluations whose mean is the last accuracy."""
LATEST_ENTRY = 0.75
"""Share of the run by which the plateau must be entered: later than that, the end of the run would
decide where it is, and the run counts as not finished.
"""
LEVELS = {"mnist-iid": 0.90, "mnist": 0.90, "cifar10": 0.35, "radius": 0.85, "labels": 0.90}
"""The accuracy whose first round is K*, by study: the highest multiple of five points that all four
algorithms reach in more than half of the seeds, at every point of an axis. It is the same for all
and does not move with a run's length.
"""
CONVERGED = {"mnist": 0.90, "mnist5k": 0.90, "cifar10": 0.39}
"""By data, the highest accuracy in whole points that all four reach in more than half of the seeds
of Fig. 2.
"""
SHIFTS = (-1, 1)
"""Steps by which all targets are moved together, to see whether a verdict hangs on them: 5 points,
near targets 1.
"""
NEAR_STEP = 0.01
DIVERGED_LOSS = 10.0
"""A run has diverged if it ended early or its last loss is above this many times the first."""


def centred(rounds: Array, accuracy: Array) -> Array:
    """Mean of the evaluations within HALF_WINDOW rounds on either side, or of the next one on
    either side.
    """
    reach = max(HALF_WINDOW, float(rounds[1] - rounds[0])) if len(rounds) > 1 else HALF_WINDOW
    first = np.searchsorted(rounds, rounds - reach - 1e-9)
    last = np.searchsorted(rounds, rounds + reach + 1e-9)
    sums = np.concatenate([[0.0], np.cumsum(accuracy)])
    return np.asarray((sums[last] - sums[first]) / (last - first))


def crossing(place: Array, level: Array, target: float) -> float:
    """Where a curve first reaches a target, interpolated between its points; NaN if it never does."""
    reached = np.flatnonzero(level >= target - 1e-12)
    if not len(reached):
        return math.nan
    k = int(reached[0])
    if k == 0:
        return float(place[0])
    share = (target - level[k - 1]) / (level[k] - level[k - 1])
    return float(place[k - 1] + min(share, 1.0) * (place[k] - place[k - 1]))


def plateau_round(rounds: Array, accuracy: Array, planned: int) -> float:
    """The round of the last entry into the last accuracy +- 1 point; NaN for a run not finished.

    Note: on a curve that creeps upwards it grows with the length of the run, so it is shown and
        decides nothing.
    """
    if rounds[-1] < planned:
        return math.nan
    smooth = centred(rounds, accuracy)
    end = float(np.mean(accuracy[-max(3, round(LAST_SHARE * len(accuracy))) :]))
    outside = np.flatnonzero(np.abs(smooth - end) > BAND + 1e-12)
    if not len(outside):
        return 0.0
    k = int(outside[-1])
    if k + 1 == len(rounds):
        return math.nan
    edge = end + math.copysign(BAND, smooth[k] - end)
    share = (edge - smooth[k]) / (smooth[k + 1] - smooth[k])
    entry = float(rounds[k] + share * (rounds[k + 1] - rounds[k]))
    return entry if entry <= LATEST_ENTRY * planned else math.nan


def measure(curve: Curve, targets: Sequence[float], planned: int) -> dict[str, float]:
    """What is read off the curve of a run of `planned` rounds.

    time1 to time5: to the targets [s]; plateau: round of the last entry into the last accuracy +- 1
    point; quiet: the first of 20 rounds in which accuracy deviates by at most 1 %; best and last:
    accuracy; unrest: deviation of the change of accuracy from one evaluation to the next over the
    second half; loss and first_loss: of the last and the first evaluation; diverged: 0 or 1.
    """
    quantities: dict[str, float] = {}
    for metric in METRICS:
        rounds, sim_time, accuracy = curve.evaluated(f"{metric}_accuracy")
        smooth = centred(rounds, accuracy)
        steps = np.diff(accuracy[len(accuracy) // 2 :])
        loss = curve.columns["adapted_train_loss" if metric == "adapted" else "train_loss"]
        for place, target in enumerate(targets, 1):
            quantities[f"time{place}_{metric}"] = crossing(sim_time, smooth, target)
        quantities[f"plateau_{metric}"] = plateau_round(rounds, accuracy, planned)
        quantities[f"quiet_{metric}"] = convergence_round(rounds, accuracy)
        quantities[f"best_{metric}"] = float(accuracy.max())
        quantities[f"last_{metric}"] = float(accuracy[-1])
        quantities[f"unrest_{metric}"] = float(steps.std()) if len(steps) else math.nan
        quantities[f"loss_{metric}"] = float(loss[-1])
        quantities[f"first_loss_{metric}"] = float(loss[0])
        fine = rounds[-1] >= planned and loss[-1] <= DIVERGED_LOSS * loss[0]
        quantities[f"diverged_{metric}"] = 0.0 if fine else 1.0
    return quantities


def read_figure(
    run: Run, targets_of: Mapping[str, Sequence[float]], keep: bool
) -> tuple[dict[str, float], Curve | None]:
    """What is read off a run of the paper's figures: its curve, and what the radio did.

    heard: share of updates heard; at_max_power: of those not heard, the share that P_max limited;
    num_samples: mean d; round_time: mean time of a round [s].

    Args:
        targets_of: accuracies by data.
        keep: whether the curve itself is part of the results.
    """
    curve = curve_of(run)
    targets = targets_of[str(run.manifest["data"])]
    values = measure(curve, targets, int(run.config["stop"]["rounds"]))

    selected = float(run.rounds["num_selected"].sum())
    decoded = float(run.rounds["num_decoded"].sum())
    heard = run.ues["decoded"] != 0
    values["heard"] = decoded / selected if selected else math.nan
    values["at_max_power"] = _mean(run.ues["power_limit"][~heard] == "power")
    values["num_samples"] = _mean(run.ues["num_samples"][heard])
    values["round_time"] = float(run.rounds["round_time"][1:].mean())
    return values, curve if keep else None


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else math.nan


def time_at(curve: Curve, column: str, levels: Array) -> Array:
    """Interpolated times at which a curve first reaches each of these accuracies."""
    rounds, sim_time, accuracy = curve.evaluated(column)
    smooth = centred(rounds, accuracy)
    return np.array([crossing(sim_time, smooth, level) for level in levels])


def near_targets(data: str) -> Array:
    """Five accuracies, one point apart, up to the highest that all four algorithms reach: they
    "start to converge".
    """
    return np.asarray(CONVERGED[data] - NEAR_STEP * np.arange(NUM_TARGETS)[::-1])


def moved(name: str, shift: int) -> str:
    """The column of a quantity with all targets moved by so many steps."""
    return f"{name}@{shift:+d}" if shift else name


def derived(
    values: dict[str, float], study: str, data: str, targets: Sequence[float], curve: Curve | None
) -> dict[str, float]:
    """What follows from a row and its curve: rounds, K*, and near1 to near5, the times to the near
    targets [s]; all of them, and time1 to time5, with targets moved by a step each way.

    K* is the time to its level in mean rounds, within 2 % of the round itself, which not all tables
    hold. Without a curve a moved target is one of the others, or unknown; K* at an unknown level is
    left out.
    """
    place = _place_of(LEVELS.get(study, -1.0), targets)
    result: dict[str, float] = {}
    for metric in METRICS:
        for shift in (0, *SHIFTS):
            times = _moved_times(values, metric, targets, curve, shift)
            if shift:
                for k, time in enumerate(times, 1):
                    result[f"{moved(f'time{k}', shift)}_{metric}"] = float(time)

            # K* at its level, in mean rounds; unknown where the moved level is no target.
            if place is not None and (curve is not None or 0 <= place + shift < NUM_TARGETS):
                rounds = float(times[place]) / values["round_time"]
                result[f"{moved('rounds', shift)}_{metric}"] = rounds

            if curve is not None and data in CONVERGED:
                levels = near_targets(data) + shift * NEAR_STEP
                for k, time in enumerate(time_at(curve, f"{metric}_accuracy", levels), 1):
                    result[f"{moved(f'near{k}', shift)}_{metric}"] = float(time)
    return result


def _place_of(level: float, targets: Sequence[float]) -> int | None:
    return next((k for k, target in enumerate(targets) if math.isclose(target, level)), None)


def _moved_times(
    values: dict[str, float], metric: str, targets: Sequence[float], curve: Curve | None, shift: int
) -> Array:
    """Times to the targets, moved by so many steps; NaN where that is not known or never reached."""
    known = np.array([values[f"time{k}_{metric}"] for k in range(1, NUM_TARGETS + 1)])
    if not shift:
        return known
    if curve is not None:
        return time_at(
            curve, f"{metric}_accuracy", np.asarray(targets) + shift * (targets[1] - targets[0])
        )
    places = np.arange(NUM_TARGETS) + shift
    return np.where(
        (places >= 0) & (places < NUM_TARGETS), known[np.clip(places, 0, NUM_TARGETS - 1)], math.nan
    )
