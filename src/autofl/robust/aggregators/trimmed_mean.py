"""The mean without the extremes of each coordinate."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from autofl.robust.aggregators.rows import LIARS, RowRule, num_liars


@dataclass(frozen=True)
class TrimmedMean(RowRule):
    """The mean of w_i - w without the f largest and the f smallest of each weight (Yin et al., ICML
    2018).

    f is the share of the updates, rounded up; the rule withstands as many liars.
    """

    share: Annotated[
        float, LIARS, "share of the updates that may be lies; as many are cut at each end"
    ] = 0.3

    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        num = len(table)
        cut = num_liars(self.share, num, (num - 1) // 2)
        values, order = table.sort(dim=0, stable=True)
        kept = values[cut : num - cut]
        own = weight[order][cut : num - cut]
        return torch.einsum("up,up->p", own, kept) / own.sum(dim=0)
