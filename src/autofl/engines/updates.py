"""The client updates of a round, in whatever form an engine keeps them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from autofl.models import Params
from autofl.units import Array, IntArray


class Updates(Protocol):
    """The client parameters of a round, in whatever form an engine keeps them."""

    @property
    def ue(self) -> IntArray: ...

    def mean(self, weight: Array) -> Params:
        """Weighted average over UEs, summed in the order of their numbers whatever order they came in."""
        ...


class Summed(ABC):
    """Updates that are only ever summed, a chunk of UEs at a time, so that memory does not grow with UEs.

    Chunks are summed by themselves and their sums added in the order of the UEs' numbers: the chunks may be summed
    anywhere, and the bits stay the same.
    """

    ue: IntArray

    def chunks(self) -> list[IntArray]:
        """The rows of each chunk, in the order of the UEs' numbers."""
        order, num = np.argsort(self.ue, kind="stable"), self.num_in_chunk()
        return [order[begin : begin + num] for begin in range(0, len(order), num)]

    @abstractmethod
    def num_in_chunk(self) -> int:
        """UEs in a chunk."""

    @abstractmethod
    def part(self, rows: IntArray, share: Array) -> Params:
        """What a chunk adds to the sum, its UEs having these shares."""

    @abstractmethod
    def whole(self, total: Params) -> Params:
        """The average from the sum of all parts."""

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i."""
        share = weight / weight.sum()
        return self.whole(added(self.part(rows, share[rows]) for rows in self.chunks()))


def added(parts: Iterable[Params]) -> Params:
    """The sum of parts, one after the other."""
    total: Params = {}
    for part in parts:
        total = {name: total[name].add_(p) if name in total else p for name, p in part.items()}
    return total
