"""Centred clipping: every update may pull as far as the median one."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from autofl.ranges import Range
from autofl.robust.aggregators.median import weighted_median
from autofl.robust.aggregators.rows import RowRule


@dataclass(frozen=True)
class CentredClipping(RowRule):
    """v <- v + sum_i a_i (x_i - v) min(1, r / |x_i - v|), a few times (Karimireddy, He and Jaggi,
    ICML 2021).

    Note:
        The paper starts at the last round's aggregate and takes the radius as given. Here v starts
        at the coordinate median and r is a multiple of the median distance to it, so nothing is
        remembered and nothing must be tuned.
    """

    radius: Annotated[
        float, Range(gt=0), "as a multiple of the median distance from the centre"
    ] = 1.0
    steps: Annotated[int, Range(ge=1), "steps of the iteration"] = 3

    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        centre = weighted_median(table, weight)
        for _ in range(self.steps):
            away = table - centre
            distance = away.norm(dim=1)
            reach = self.radius * float(distance.median())
            pull = weight * (reach / distance.clamp(min=1e-300)).clamp(max=1.0)
            centre = centre + torch.einsum("u,up->p", pull, away)
        return centre
