"""Nearest-neighbour mixing before the trimmed mean: the rule that copes with data that are not
i.i.d.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from autofl.robust.aggregators.rows import LIARS, RowRule, distances_sq, num_liars
from autofl.robust.aggregators.trimmed_mean import TrimmedMean


@dataclass(frozen=True)
class Mixed(RowRule):
    """Each update is replaced by the mean of its m - f nearest, itself among them; then the trimmed
    mean.

    Allouah et al., AISTATS 2023: mixing removes most of the differences between honest UEs, so the
    trimmed mean loses little of them and what is still far away is a lie. f is the share of the
    updates, rounded up.
    """

    share: Annotated[float, LIARS, "share of the updates that may be lies"] = 0.3

    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        num = len(table)
        near = num - num_liars(self.share, num, (num - 1) // 2)
        nearest = distances_sq(table).sort(dim=1, stable=True).indices[:, :near].sort(dim=1).values
        own = weight[nearest]
        mixed = torch.einsum("un,unp->up", own / own.sum(dim=1, keepdim=True), table[nearest])
        return TrimmedMean(self.share).rule(mixed, torch.full_like(weight, 1.0 / num))
