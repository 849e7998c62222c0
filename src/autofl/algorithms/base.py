"""What an algorithm is, and the arithmetic on parameters that all of them share."""

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeGuard, runtime_checkable

from torch import Tensor

from autofl.data.batch import THIRDS, Batch, MetaBatch, Split
from autofl.errors import AutoFLError
from autofl.models import Loss, Params


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
    """What the server keeps between rounds; an algorithm with a memory of its own adds fields, each a Params."""

    params: Params

    @property
    def sent(self) -> Params:
        """What the server sends down, and what comes up in the same form: the weights, and more if need be."""
        return self.params

    def with_params(self, params: Params) -> Self:
        return replace(self, params=params)


@runtime_checkable
class Algorithm(Protocol):
    """An algorithm: a frozen dataclass of settings with these three functions."""

    def init(self, params: Params) -> State:
        """The server's state before the first round."""
        ...

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w_{k+1}^i of one UE, a pure function; the batch's leading axis is tau."""
        ...

    def server_update(self, state: State, average: Params) -> State:
        """The next state from the aggregate of the decoded updates."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """The client's side of an algorithm whose UEs remember something from one of their rounds to the next."""

    def client_init(self, sent: Params) -> Params:
        """What a UE remembers before its first round."""
        ...

    def client_step(self, loss: Loss, sent: Params, batch: MetaBatch, own: Params) -> tuple[Params, Params]:
        """What one UE sends up, in the form of `sent`, and what it remembers; a pure function."""
        ...


@runtime_checkable
class Personal(Protocol):
    """An algorithm that decides which model a UE uses, instead of one gradient step from the global one."""

    def personal(self, loss: Loss, params: Params, batch: Batch, own: Params) -> Params:
        """The model of one UE from the global one, its adaptation samples and what it remembers."""
        ...


def is_stateful(algorithm: object) -> TypeGuard[Stateful]:
    return isinstance(algorithm, Stateful)


class Decaying:
    """An algorithm whose step size may fall with the rounds: beta_k = beta / sqrt(1 + lr_decay (k - 1)).

    Note:
        The paper's step is constant, which is lr_decay = 0. Then the noise of few samples keeps the loss from falling
        further. With the square root the sum of all steps is still infinite: no start is too far away.
    """

    outer_lr: float  # beta
    lr_decay: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.lr_decay < math.inf:
            raise AutoFLError(f"lr_decay: {self.lr_decay} is not >= 0; 0 keeps the step size")

    def at(self, k: int) -> Self:
        """The algorithm with the step size of round k, held constant."""
        if self.lr_decay == 0.0:
            return self
        outer_lr = self.outer_lr / math.sqrt(1.0 + self.lr_decay * (k - 1))
        constant: Self = replace(self, outer_lr=outer_lr, lr_decay=0.0)  # type: ignore[type-var]
        return constant


def at_round(algorithm: Algorithm, k: int) -> Any:
    """The algorithm as it is in round k; itself where it has no function `at`."""
    at = getattr(algorithm, "at", None)
    return algorithm if at is None else at(k)


def split_of(algorithm: Algorithm) -> Split:
    """How the algorithm's d samples are shared out among its three batches: its `split`, or thirds."""
    split: Split = getattr(algorithm, "split", THIRDS)
    return split


def is_independent(algorithm: Algorithm) -> bool:
    """Whether its three batches are drawn independently of each other: its `batches`, or disjoint."""
    return getattr(algorithm, "batches", "disjoint") == "independent"


@runtime_checkable
class Guarding(Protocol):
    """An algorithm that keeps steps from going astray, and says how often it had to."""

    @property
    def is_guarded(self) -> bool:
        """Whether its settings switch this on."""
        ...

    def guarded_update(self, loss: Loss, params: Params, batch: MetaBatch) -> tuple[Params, Tensor]:
        """The client update, and the number of its local steps that were guarded, a scalar."""
        ...


def is_guarded(algorithm: object) -> TypeGuard[Guarding]:
    return isinstance(algorithm, Guarding) and algorithm.is_guarded


class Averaging:
    """The server's side of FedAvg and Per-FedAvg: the average of the decoded updates, Eq. (15)."""

    def init(self, params: Params) -> State:
        return State(params)

    def server_update(self, state: State, average: Params) -> State:
        return state.with_params(average)
