"""What an algorithm is, and the arithmetic on parameters that all of them share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from torch import Tensor

from autofl.data.batch import Batch, MetaBatch
from autofl.models import Loss, Params
from autofl.units import Array, IntArray


def minus(a: Params, scale: float | Tensor, b: Params) -> Params:
    """a - scale * b, leaf by leaf."""
    return {name: a[name] - scale * b[name] for name in a}


def step_of(batch: MetaBatch, step: int) -> MetaBatch:
    """The batches of one local step out of those of a UE, whose leading axis is tau."""
    return MetaBatch(*(Batch(part.x[step], part.y[step], part.mask[step]) for part in batch))


def num_steps(batch: MetaBatch) -> int:
    """tau of one UE's batches."""
    return batch.inner.y.shape[0]


@dataclass(frozen=True)
class State:
    """What the server keeps between rounds; an algorithm with a memory of its own extends it."""

    params: Params

    def with_params(self, params: Params) -> Self:
        return replace(self, params=params)


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


class Algorithm(Protocol):
    """An algorithm: a frozen dataclass of settings with these three functions."""

    def init(self, params: Params) -> State:
        """The server's state before the first round."""
        ...

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w_{k+1}^i of one UE, a pure function; the batch's leading axis is tau."""
        ...

    def server_update(self, state: State, updates: Updates, weight: Array) -> State:
        """The next state from the decoded updates."""
        ...


class Averaging:
    """The server's side of FedAvg and Per-FedAvg: the average of the decoded updates, Eq. (15)."""

    def init(self, params: Params) -> State:
        return State(params)

    def server_update(self, state: State, updates: Updates, weight: Array) -> State:
        return state.with_params(updates.mean(weight))
