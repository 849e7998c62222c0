"""How good a model is, as an evaluation says it, and what a curve of accuracies tells.

Time to a target, the round of convergence, intervals over seeds.
"""

from dataclasses import dataclass

import numpy as np

from autofl.units import Array, BoolArray

NAN = float("nan")


@dataclass(frozen=True)
class Evaluation:
    """Quality of a model, means over UEs; NaN where it was not measured."""

    train_loss: float = NAN  # f(w), Eq. (1)
    adapted_train_loss: float = NAN  # F(w), Eq. (3)
    global_accuracy: float = NAN
    adapted_accuracy: float = NAN
    gradient_norm_sq: float = NAN  # ||grad F(w)||^2
    adapt_lr: float = NAN  # alpha of the adaptation


SMOOTHING = 3
"""Evaluations in the running mean that must pass a target accuracy."""
PLATEAU_STD = 0.01
"""Deviation of accuracy within which a run counts as converged ("test accuracy std +-1%", Section
V-D).
"""
PLATEAU_ROUNDS = 20
"""Rounds over which it must stay there. The paper does not say; 20 is two to five evaluations of
headroom.
"""


def smoothed(accuracy: Array) -> Array:
    """Mean of each value and the two before it; the first two average what there is."""
    return np.array(
        [np.mean(accuracy[max(end - SMOOTHING, 0) : end]) for end in range(1, len(accuracy) + 1)]
    )


def reaches(accuracy: Array, target: float) -> BoolArray:
    """Where the smoothed accuracy is at the target or above."""
    return passes(smoothed(accuracy), target)


def passes(smooth: Array, target: float) -> BoolArray:
    """Where accuracy that is smoothed already is at the target or above; the slack is for the
    rounding of a mean.
    """
    return np.asarray(smooth >= target - 1e-12)


def time_to_accuracy(sim_time: Array, accuracy: Array, target: float) -> float:
    """First simulated time [s] at which the smoothed accuracy passes the target; NaN if it never
    does.
    """
    passed = np.flatnonzero(reaches(accuracy, target))
    return float(sim_time[passed[0]]) if len(passed) else float("nan")


def convergence_round(
    round_index: Array, accuracy: Array, std: float = PLATEAU_STD, num_rounds: int = PLATEAU_ROUNDS
) -> float:
    """K*: the first evaluated round from which accuracy stays within `std` over `num_rounds`; NaN
    if it never does.

    The window holds the evaluations of rounds k to k + num_rounds; it must have run its full length
    and hold at least three of them.
    """
    for begin, k in enumerate(round_index):
        inside = accuracy[begin:][round_index[begin:] <= k + num_rounds]
        if round_index[-1] < k + num_rounds:
            break
        if len(inside) >= 3 and float(np.std(inside)) <= std:
            return float(k)
    return float("nan")


def mean_interval(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Mean over seeds and half the width of its Student t interval; NaN width for fewer than two
    values.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) == 0:
        return float("nan"), float("nan")
    if len(values) == 1:
        return float(values[0]), float("nan")
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, 0.5 + level / 2.0))
    return float(values.mean()), quantile * float(values.std(ddof=1)) / np.sqrt(len(values))
