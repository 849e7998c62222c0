"""Which updates of a round are the others' mean, moved as far as the others differ: lies that hide among them."""

import torch
from torch import Tensor

from autofl.units import Array

FEWEST = 5
"""Fewest updates of a round: the deviation of fewer than four others says little."""
WEIGHTS = 1000
"""Fewest weights: the cosine of two short vectors may be large by chance."""
SHORT = 0.25
"""The part of the others' deviation below which an update is too short to be judged: it differs from their mean as 0
does, and where one long update makes both mean and deviation, that is even."""


def too_even(changes: Tensor, norm: Array, limit: float) -> dict[int, str]:
    """The rows that lie as many deviations from the others' mean in every weight, and why.

        e_i = cos(|x_i - mean_{j != i} x_j|, std_{j != i} x_j),    weight by weight

    Little-is-enough sends mean - z std (Baruch et al., NeurIPS 2019): e_i = 1, whatever z and the signs are. With z
    drawn anew for every weight, of relative deviation s, e_i = 1/sqrt(1 + s^2). The deviations of an honest update are
    drawn anew for every weight, so |x_i - mean| follows std only on average: e_i = sqrt(2/pi) = 0.80 if they are normal
    and the weights many, less if their tails are heavier.

    Args:
        changes: x_i = w_i - w, finite, shape (num_updates, num_weights).
        norm: |x_i|, shape (num_updates,).
        limit: e_i above which a row is named; 0 switches the check off.
    """
    num = len(norm)
    if limit == 0.0 or num < FEWEST or changes.shape[1] < WEIGHTS:
        return {}
    table = changes.double()
    total, square = table.sum(dim=0), table.square().sum(dim=0)
    rows = {}
    for row in range(num):
        mean = (total - table[row]) / (num - 1)
        variance = (square - table[row].square()) / (num - 1) - mean.square()
        spread, away = variance.clamp(min=0.0).sqrt(), (table[row] - mean).abs()
        scale = float(spread.norm() * away.norm())
        if scale == 0.0 or norm[row] < SHORT * float(spread.norm()):
            continue
        if (evenness := float(torch.dot(spread, away)) / scale) > limit:
            rows[row] = f"too even: all its weights differ by as much from the others' mean (cosine {evenness:.3f})"
    return rows
