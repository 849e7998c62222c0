"""Which updates of a round are the others' mean, moved as far as the others differ: lies that hide
among them.
"""

import numpy as np
import torch
from torch import Tensor

from autofl.units import Array

FEWEST = 5
"""Fewest updates of a round: the deviation of fewer than four others says little."""
WEIGHTS = 1000
"""Fewest weights: the cosine of two short vectors may be large by chance."""
SHORT = 0.25
"""The part of the others' deviation below which an update is too short to be judged: it differs
from their mean as 0 does, and where one long update makes both mean and deviation, that is even.
"""
COMMON = 0.9
"""The median evenness of a round above which nobody is judged: its honest updates have one
direction in common.
"""


def too_even(changes: Tensor, norm: Array, limit: float) -> dict[int, str]:
    """The rows that lie as many deviations from the others' mean in every weight, and why.

        e_i = cos(|x_i - mean_{j != i} x_j|, std_{j != i} x_j),    weight by weight

    Little-is-enough sends mean - z std (Baruch et al., NeurIPS 2019): e_i = 1, whatever z and the
    signs are. With z drawn anew for every weight, of relative deviation s, e_i = 1/sqrt(1 + s^2).
    Where honest updates deviate from each other in many directions, |x_i - mean| follows std only
    on average: e_i = sqrt(2/pi) = 0.80 if the deviations are normal and the weights many, less if
    their tails are heavier. Where they differ mostly in one direction, x_i = c_i g, as with two
    classes and many samples, e_i is near 1 for all of them. So nobody is judged if the median of a
    round's e_i is above 0.9.

    Args:
        changes: x_i = w_i - w, finite, shape (num_updates, num_weights).
        norm: |x_i|, shape (num_updates,).
        limit: e_i above which a row is named; 0 switches the check off.

    Note:
        One update far longer than the others makes mean and deviation of them all, so it blinds the
        check for a round.
    """
    num = len(norm)
    if limit == 0.0 or num < FEWEST or changes.shape[1] < WEIGHTS:
        return {}
    table = changes.double()

    # Mean and deviation of the others are those of all without one row.
    total = table.sum(dim=0)
    square = table.square().sum(dim=0)
    evenness: dict[int, float] = {}
    short = set()
    for row in range(num):
        mean = (total - table[row]) / (num - 1)
        variance = (square - table[row].square()) / (num - 1) - mean.square()
        spread = variance.clamp(min=0.0).sqrt()
        away = (table[row] - mean).abs()
        if (scale := float(spread.norm() * away.norm())) > 0.0:
            evenness[row] = float(torch.dot(spread, away)) / scale
        if norm[row] < SHORT * float(spread.norm()):
            short.add(row)

    # Where the honest have one direction in common, all are even.
    if not evenness or float(np.median(list(evenness.values()))) > COMMON:
        return {}
    return {
        row: f"too even: all its weights differ by as much from the others' mean (cosine {cosine:.3f})"
        for row, cosine in evenness.items()
        if cosine > limit and row not in short
    }
