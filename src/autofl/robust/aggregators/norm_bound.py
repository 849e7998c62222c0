"""The mean of updates none of which is much longer than the others."""

from dataclasses import dataclass
from typing import Annotated

import torch

from autofl.engines import moved
from autofl.models import Params
from autofl.ranges import Checked, Range
from autofl.robust.aggregators.base import Arrived
from autofl.robust.aggregators.rows import table_of


@dataclass(frozen=True)
class NormBound(Checked):
    """The weighted mean, each w_i - w cut to a multiple of the median length (Sun et al. 2019).

    Where none is longer it is the mean, to the bit.
    """

    bound: Annotated[float, Range(ge=1), "longest change, as a multiple of the median"] = 3.0

    def __call__(self, sent: Params, arrived: Arrived) -> Params:
        table, weight = table_of(arrived)
        length = table.norm(dim=1)
        most = self.bound * float(length.median())
        if not (length > most).any():
            return arrived.updates.mean(arrived.weight)
        cut = weight * (most / length.clamp(min=1e-300)).clamp(max=1.0)
        return moved(sent, torch.einsum("u,up->p", cut, table))
