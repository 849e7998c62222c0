"""The geometric median, by Weiszfeld's iteration."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from autofl.ranges import Range
from autofl.robust.aggregators.rows import RowRule


@dataclass(frozen=True)
class GeometricMedian(RowRule):
    """argmin_z sum_i a_i |w_i - z|, smoothed: RFA (Pillutla, Kakade and Harchaoui, IEEE Trans.
    Signal Process. 2022).

        z <- sum_i b_i x_i / sum_i b_i,    b_i = a_i / max(nu, |x_i - z|)

    nu is 1e-6 of the median distance. Liars with less than half of the weight cannot carry it away.
    """

    steps: Annotated[int, Range(ge=1), "most steps of Weiszfeld's iteration"] = 100
    tolerance: Annotated[
        float, Range(gt=0), "length of the last step, relative to the median distance"
    ] = 1e-6

    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        centre = table.median(dim=0).values  # the mean would begin where liars put it
        for _ in range(self.steps):
            distance = (table - centre).norm(dim=1)
            scale = float(distance.median())
            if scale == 0.0:
                return centre  # more than half are the same
            pull = weight / distance.clamp(min=1e-6 * scale)
            after = torch.einsum("u,up->p", pull / pull.sum(), table)
            if float((after - centre).norm()) <= self.tolerance * scale:
                return after
            centre = after
        return centre
