"""The client updates of a round, in whatever form an engine keeps them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from autofl.models import Params
from autofl.units import Array, IntArray


class Updates(ABC):
    """What the UEs of a round send up: an iterator of single changes, and their mean.

        for row, change in updates:  # w_i - w of the UE ue[row], all its weights in one row

    A change is formed when its turn comes, and what the UE remembers is written then. So whoever
    needs single changes takes all of them.

    Fields:
        ue: who they are, in any order.
        sent: w, what the server sent them.
        guarded: local steps of each row that the algorithm's guard acted on; known once the updates
            have been formed.
        bits: really sent, of each row; None where parameters travel as they are.
    """

    if TYPE_CHECKING:  # a field of one form is worked out in another

        @property
        @abstractmethod
        def ue(self) -> IntArray: ...
        @property
        @abstractmethod
        def sent(self) -> Params: ...
        @property
        @abstractmethod
        def guarded(self) -> IntArray: ...
        @property
        def bits(self) -> Array | None: ...

    else:
        bits = None

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[int, Tensor]]: ...

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i: here one change is added after another.

        An engine that can do without single changes forms none.
        """
        share = shares(self.ue, weight)
        total = None
        for row, change in self:
            part = change.mul(float(share[row]))
            total = part if total is None else total.add_(part)
        assert total is not None
        return moved(self.sent, total)

    def table(self) -> Tensor:
        """All changes, a row for each UE."""
        changes = dict(self)
        return torch.stack([changes[row] for row in range(len(self.ue))])


class Summed(Updates):
    """Updates that are formed a chunk of UEs at a time, so that memory does not grow with UEs.

    Chunks are summed by themselves and their sums added in one order, by local steps and then by
    the UEs' numbers: the chunks may be summed anywhere, and the bits stay the same.
    """

    @cached_property
    def guarded(self) -> IntArray:
        """Filled in by `part` and `changes`."""
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

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for rows in self.chunks():
            changes = self.changes(rows)
            for place, row in enumerate(rows.tolist()):
                yield row, flat({name: changes[name][place] for name in self.sent})


@dataclass(frozen=True)
class ReceivedUpdates(Updates):
    """Updates that are already there, as a server has received them.

    They come in the order in which an engine forms them, so their mean has the bits of
    `CompressedUpdates`.
    """

    ue: IntArray
    changes: Sequence[Tensor]  # w_i - w of each row
    sent: Params
    local_steps: IntArray
    guarded: IntArray
    bits: Array | None = None

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for row in np.lexsort((self.ue, self.local_steps)).tolist():
            yield row, self.changes[row]


def flat(params: Params) -> Tensor:
    """All parameters in one row, in the order of their names in the dictionary."""
    return torch.cat([p.reshape(-1) for p in params.values()])


def shaped(row: Tensor, like: Params) -> Params:
    """The row of `flat` as parameters again."""
    sizes = [p.numel() for p in like.values()]
    return {
        name: part.view_as(p)
        for (name, p), part in zip(like.items(), torch.split(row, sizes), strict=True)
    }


def moved(sent: Params, change: Tensor) -> Params:
    """w with a change in one row added to it."""
    like = next(iter(sent.values()))
    return {name: sent[name] + p for name, p in shaped(change.to(like), sent).items()}


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
