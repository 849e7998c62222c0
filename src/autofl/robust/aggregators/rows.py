"""The updates of a round as a table, for aggregators that look at each of them."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from autofl.engines import moved
from autofl.models import Params
from autofl.ranges import Checked, Range
from autofl.robust.aggregators.base import Arrived

LIARS = Range(ge=0, lt=0.5)
"""Of the share of the updates that may be lies: no rule withstands half of them."""


class RowRule(Checked, ABC):
    """An aggregator that is a rule for the table of the updates; a frozen dataclass of its
    settings.
    """

    def __call__(self, sent: Params, arrived: Arrived) -> Params:
        return moved(sent, self.rule(*table_of(arrived)))

    @abstractmethod
    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        """What the server takes for the mean change, shape (num_weights,), from those of
        `table_of`.
        """


def table_of(arrived: Arrived) -> tuple[Tensor, Tensor]:
    """w_i - w of each update in one row, in the order of the UEs' numbers, and the plan's weights,
    of sum 1.

    In double precision, shapes (num_updates, num_weights) and (num_updates,): distances are sums of
    many squares.
    """
    order = np.argsort(arrived.updates.ue, kind="stable")
    table = arrived.updates.table().double()[torch.from_numpy(order)]
    weight = torch.from_numpy(arrived.weight[order] / arrived.weight[order].sum())
    return table, weight.to(table)


def num_liars(share: float, num: int, most: int) -> int:
    """How many of `num` updates may be lies: their share, rounded up, but no more than the rule
    withstands.
    """
    return max(0, min(int(np.ceil(share * num - 1e-9)), most))


def distances_sq(table: Tensor) -> Tensor:
    """|x_i - x_j|^2 of all pairs."""
    return torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist").square()
