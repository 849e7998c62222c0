"""What an aggregator is: from the updates that arrived to what the server takes for their average."""

from dataclasses import dataclass
from typing import Protocol

from autofl.engines import Updates
from autofl.models import Params
from autofl.units import Array


@dataclass(frozen=True)
class Arrived:
    """The updates a server has received in a round, and what it knows of their senders, in the
    order of `updates.ue`.

    Fields:
        weight: of the plan.
        probability: with which each sender was selected.
        num_ue: n of the whole cell.
    """

    updates: Updates
    weight: Array
    probability: Array
    num_ue: int


class Aggregator(Protocol):
    """An aggregator: a frozen dataclass of settings with this one function."""

    def __call__(self, sent: Params, arrived: Arrived) -> Params:
        """The aggregate, in the form of what was sent down; at least one update has arrived.

        `arrived.updates.mean(weight)` forms no single update where the engine can do without;
        `arrived.updates.table()` has them all, w_i - w of each in one row.
        """
        ...
