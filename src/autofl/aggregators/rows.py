"""The updates of a round as a table, for aggregators that look at each of them."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from autofl.aggregators.base import Arrived
from autofl.engines.compressed import flat, shaped
from autofl.models import Params
from autofl.ranges import Range

LIARS = Range(ge=0, lt=0.5)
"""Of the share of the updates that may be lies: no rule withstands half of them."""


def table_of(sent: Params, arrived: Arrived) -> tuple[Tensor, Tensor]:
    """w_i - w of each update in one row, in the order of the UEs' numbers, and the plan's weights,
    of sum 1.

    In double precision, shapes (num_updates, num_weights) and (num_updates,): distances are sums of
    many squares.
    """
    rows: list[Tensor | None] = [None] * len(arrived.updates.ue)
    for places, changes in arrived.updates.each():
        for place, row in enumerate(places.tolist()):
            rows[row] = flat({name: changes[name][place] for name in sent}).double()
    order = np.argsort(arrived.updates.ue, kind="stable")
    weight = torch.from_numpy(arrived.weight[order] / arrived.weight[order].sum())
    there = [row for row in (rows[place] for place in order.tolist()) if row is not None]
    table = torch.stack(there)
    return table, weight.to(table)


def moved(sent: Params, change: Tensor) -> Params:
    """w with a change in one row added to it."""
    like = next(iter(sent.values()))
    return {name: sent[name] + p for name, p in shaped(change.to(like), sent).items()}


def aggregate(rule: Callable[[Tensor, Tensor], Tensor], sent: Params, arrived: Arrived) -> Params:
    """The model moved by what a rule makes of the table and the weights."""
    return moved(sent, rule(*table_of(sent, arrived)))


def num_liars(share: float, num: int, most: int) -> int:
    """How many of `num` updates may be lies: their share, rounded up, but no more than the rule
    withstands.
    """
    return max(0, min(int(np.ceil(share * num - 1e-9)), most))


def distances_sq(table: Tensor) -> Tensor:
    """|x_i - x_j|^2 of all pairs."""
    return torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist").square()
