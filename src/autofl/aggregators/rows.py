"""The updates of a round as a table, for aggregators that look at each of them."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from autofl.aggregators.base import Arrived
from autofl.engines import moved
from autofl.errors import AutoFLError
from autofl.models import Params


def table_of(sent: Params, arrived: Arrived) -> tuple[Tensor, Tensor]:
    """w_i - w of each update in one row, in the order of the UEs' numbers, and the plan's weights,
    of sum 1.

    In double precision, shapes (num_updates, num_weights) and (num_updates,): distances are sums of
    many squares.
    """
    updates = arrived.updates
    order = np.argsort(updates.ue, kind="stable")
    table = updates.table().double()[torch.from_numpy(order)]
    weight = torch.from_numpy(arrived.weight[order] / arrived.weight[order].sum())
    return table, weight.to(table)


def aggregate(rule: Callable[[Tensor, Tensor], Tensor], sent: Params, arrived: Arrived) -> Params:
    """The model moved by what a rule makes of the table and the weights."""
    return moved(sent, rule(*table_of(sent, arrived)))


def num_liars(share: float, num: int, most: int) -> int:
    """How many of `num` updates may be lies: their share, rounded up, but no more than the rule
    withstands.
    """
    return max(0, min(int(np.ceil(share * num - 1e-9)), most))


def check_share(share: float) -> None:
    if not 0.0 <= share < 0.5:
        raise AutoFLError(
            f"share: {share} is not >= 0 and < 0.5; no rule withstands half of the updates"
        )


def distances_sq(table: Tensor) -> Tensor:
    """|x_i - x_j|^2 of all pairs."""
    return torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist").square()
