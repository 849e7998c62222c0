"""The client updates of a round, in whatever form an engine keeps them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from autofl.models import Params
from autofl.units import Array, IntArray


class Updates(Protocol):
    """What the UEs of a round send up. Those whose size is known only when they are formed have
    `bits`, of each row.
    """

    @property
    def ue(self) -> IntArray: ...

    @property
    def guarded(self) -> IntArray:
        """Local steps of each row that the algorithm's guard acted on; known once the updates have
        been formed.
        """
        ...

    def mean(self, weight: Array) -> Params:
        """Weighted average over UEs, summed in an order that does not depend on the order they came
        in.
        """
        ...

    def each(self) -> Iterator[tuple[IntArray, Params]]:
        """Single updates, a chunk of UEs at a time: their rows, and w_i - w stacked along a leading
        axis.
        """
        ...


class Summed(ABC):
    """Updates that are formed a chunk of UEs at a time, so that memory does not grow with UEs.

    Chunks are summed by themselves and their sums added in one order, by local steps and then by
    the UEs' numbers: the chunks may be summed anywhere, and the bits stay the same.
    """

    ue: IntArray

    @cached_property
    def guarded(self) -> IntArray:
        """Of each row; filled in by `part` and `changes`."""
        return np.zeros(len(self.ue), dtype=np.int64)

    @property
    @abstractmethod
    def local_steps(self) -> IntArray:
        """tau of each row; the UEs of a chunk have the same."""

    @abstractmethod
    def num_in_chunk(self) -> int:
        """UEs in a chunk."""

    @abstractmethod
    def part(self, rows: IntArray, share: Array) -> Params:
        """What a chunk adds to the sum, its UEs having these shares."""

    @abstractmethod
    def whole(self, total: Params) -> Params:
        """The average from the sum of all parts."""

    @abstractmethod
    def changes(self, rows: IntArray) -> Params:
        """w_i - w of a chunk's UEs, stacked."""

    def chunks(self) -> list[IntArray]:
        """The rows of each chunk."""
        order = np.lexsort((self.ue, self.local_steps))
        num = self.num_in_chunk()
        ends = np.flatnonzero(np.diff(self.local_steps[order])) + 1
        by_steps = np.split(order, ends)
        return [
            rows[begin : begin + num] for rows in by_steps for begin in range(0, len(rows), num)
        ]

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i."""
        share = shares(self.ue, weight)
        return self.whole(added(self.part(rows, share[rows]) for rows in self.chunks()))

    def each(self) -> Iterator[tuple[IntArray, Params]]:
        for rows in self.chunks():
            yield rows, self.changes(rows)


@dataclass(frozen=True)
class StackedUpdates:
    """Client parameters that are already computed, stacked along a leading UE axis, in any order of
    UEs.
    """

    ue: IntArray
    params: Params
    sent: Params
    steps_guarded: IntArray | None = None

    @property
    def guarded(self) -> IntArray:
        return (
            np.zeros(len(self.ue), dtype=np.int64)
            if self.steps_guarded is None
            else self.steps_guarded
        )

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i, summed in the order of the UEs' numbers."""
        order = np.argsort(self.ue, kind="stable")
        share = torch.from_numpy(shares(self.ue, weight)[order])
        index = torch.from_numpy(order)
        return {
            name: torch.einsum("u,u...->...", share.to(stack), stack[index.to(stack.device)])
            for name, stack in self.params.items()
        }

    def each(self) -> Iterator[tuple[IntArray, Params]]:
        rows = np.argsort(self.ue, kind="stable")
        index = torch.from_numpy(rows)
        yield rows, {name: self.params[name][index] - p for name, p in self.sent.items()}


def shares(ue: IntArray, weight: Array) -> Array:
    """weight_i / sum_j weight_j, the sum taken in the order of the UEs' numbers: its bits depend on
    it.
    """
    return weight / weight[np.argsort(ue, kind="stable")].sum()


def added(parts: Iterable[Params]) -> Params:
    """The sum of parts, one after the other."""
    total: Params = {}
    for part in parts:
        total = {name: total[name].add_(p) if name in total else p for name, p in part.items()}
    return total


def bits_of(updates: Updates) -> Array | None:
    """Bits really sent, of each row; None where parameters travel as they are."""
    bits: Array | None = getattr(updates, "bits", None)
    return bits
