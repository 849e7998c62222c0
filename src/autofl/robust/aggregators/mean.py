"""The weighted mean, Eq. (15)."""

from dataclasses import dataclass

from autofl.models import Params
from autofl.robust.aggregators.base import Arrived


@dataclass(frozen=True)
class Mean:
    """sum_i a_i w_i / sum_i a_i with the plan's weights; equal ones unless a planner decides
    otherwise.
    """

    def __call__(self, sent: Params, arrived: Arrived) -> Params:
        return arrived.updates.mean(arrived.weight)
