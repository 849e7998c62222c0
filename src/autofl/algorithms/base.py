"""What an algorithm is, and the arithmetic on parameters that all of them share."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol, Self, TypeGuard, runtime_checkable

import torch
from torch import Tensor

from autofl.data.batch import THIRDS, Batch, MetaBatch, Split
from autofl.errors import AutoFLError
from autofl.models import Loss, Params
from autofl.ranges import Checked, Range


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
    """What the server keeps between rounds; an algorithm with a memory of its own adds fields, each
    a Params.
    """

    params: Params

    @property
    def sent(self) -> Params:
        """What the server sends down, and what comes up in the same form: the weights, and more if
        need be.
        """
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
    """The client's side of an algorithm whose UEs remember something from one of their rounds to
    the next.
    """

    def client_init(self, sent: Params) -> Params:
        """What a UE remembers before its first round."""
        ...

    def client_step(
        self, loss: Loss, sent: Params, batch: MetaBatch, own: Params
    ) -> tuple[Params, Params]:
        """What one UE sends up, in the form of `sent`, and what it remembers; a pure function."""
        ...


@runtime_checkable
class Personal(Protocol):
    """An algorithm that decides which model a UE uses, instead of one gradient step from the global
    one.
    """

    def personal(self, loss: Loss, params: Params, batch: Batch, own: Params) -> Params:
        """The model of one UE from the global one, its adaptation samples and what it remembers."""
        ...


def is_stateful(algorithm: object) -> TypeGuard[Stateful]:
    return isinstance(algorithm, Stateful)


STEP = Range(gt=0, finite=False)
NOT_NEGATIVE = Range(ge=0)
"""Of beta, which may be infinite; of what 0 switches off."""


class Decaying(Checked):
    """An algorithm whose local steps are shorter in later rounds.

        beta_k = beta / sqrt(1 + lr_decay (k - 1))

    Note:
        The paper's step is constant, which is lr_decay = 0. Then the noise of few samples keeps the
        loss from falling further. With the square root the sum of all steps is still infinite: no
        start is too far away.
    """

    outer_lr: float  # beta
    lr_decay: float

    def at(self, k: int) -> Self:
        """The algorithm with the step sizes of round k, held constant."""
        if self.lr_decay == 0.0:
            return self
        constant: Self = replace(self, **self._shorter(math.sqrt(1.0 + self.lr_decay * (k - 1))))  # type: ignore[type-var]
        return constant

    def _shorter(self, root: float) -> dict[str, float]:
        return {"outer_lr": self.outer_lr / root, "lr_decay": 0.0}


@dataclass(frozen=True, kw_only=True)
class Stepping(Decaying):
    """An algorithm whose local steps may also be bounded, measured by the model's own length.

        w <- w - min(beta_k, longest_k |w_k| / |g|) g,    longest_k decays as beta_k does

    With beta = inf every step is longest_k |w_k| long, whatever the gradient's length: nothing has
    to be known of the loss or the data. It is the trust ratio of LARS (You, Gitman and Ginsburg
    2017), for the model as a whole.
    """

    lr_decay: Annotated[float, NOT_NEGATIVE] = 0.0
    grad_clip: Annotated[float, NOT_NEGATIVE] = 0.0  # the longest a gradient may be; 0 for any
    longest_step: Annotated[float, NOT_NEGATIVE] = 0.0
    """The longest a local step may be, as a share of |w_k|; 0 for any."""
    unit: bool = False  # gradients are taken at length 1: what beta = inf becomes in a round

    def __post_init__(self) -> None:
        super().__post_init__()
        if math.isinf(self.outer_lr) and self.longest_step == 0.0:
            raise AutoFLError("outer_lr: an infinite step needs longest_step, which bounds it")

    @property
    def is_guarded(self) -> bool:
        """Whether gradients are kept from leading astray."""
        return self.grad_clip > 0.0 or self.unit or self.longest_step > 0.0

    def _shorter(self, root: float) -> dict[str, float]:
        return {**super()._shorter(root), "longest_step": self.longest_step / root}

    def beside(self, sent: Params) -> Self:
        """The algorithm in a round that begins at these parameters: its longest step becomes a
        length.
        """
        if self.longest_step == 0.0:
            return self
        longest = self.longest_step * max(float(length_of(sent)), LEAST_LENGTH)
        if math.isinf(self.outer_lr):
            return replace(self, outer_lr=longest, unit=True, longest_step=0.0)  # type: ignore[call-arg]
        clip = longest / self.outer_lr
        return replace(
            self, grad_clip=min(self.grad_clip, clip) if self.grad_clip else clip, longest_step=0.0
        )

    def factor(self, length: Tensor) -> Tensor:
        """What a gradient of this length is multiplied with."""
        if not self.unit:
            return shrinkage(self.grad_clip or math.inf, length)
        return torch.where(length > TINY, 1.0 / length, 0.0)

    def tamed(self, gradient: Params) -> tuple[Params, Tensor]:
        """A gradient as it is followed, and whether it had to be cut; one that is not finite
        becomes 0.
        """
        if not self.is_guarded:
            return gradient, torch.tensor(False)
        length = length_of(gradient)
        factor = self.factor(length)
        fine = torch.isfinite(length)
        followed = {name: torch.where(fine, factor * g, 0.0) for name, g in gradient.items()}
        return followed, ~fine if self.unit else (factor < 1.0) | ~fine


def check_reached(algorithm: Stepping, base: type, *names: str) -> None:
    """Refuses bounds for a subclass of `base` that computes its own update, which they do not
    reach.
    """
    own = type(algorithm)
    if algorithm.is_guarded and any(
        getattr(own, name) is not getattr(base, name) for name in names
    ):
        raise AutoFLError(
            f"guard, grad_clip and longest_step: {own.__name__} computes its own update, which they do not reach;"
            " leave them out, and give outer_lr a number"
        )


LEAST_LENGTH = 1.0
"""Length that a shorter model is taken for, so that one that begins at 0 can move."""
TINY = 1e-15
"""A shorter gradient is 0: the squares of its parts leave single precision, so its length could not
be trusted.
"""


def shrinkage(longest: float | Tensor, length: Tensor) -> Tensor:
    """The factor that cuts a length to `longest`; 1 where it is not longer."""
    return torch.where(length > longest, longest / length, 1.0)


def length_of(params: Params) -> Tensor:
    """Euclidean length of all parameters together."""
    return torch.stack([(p * p).sum() for p in params.values()]).sum().sqrt()


def at_round(algorithm: Algorithm, k: int, sent: Params) -> Any:
    """The algorithm as it is in round k, which begins at these parameters; itself where it has no
    function `at`.
    """
    at = getattr(algorithm, "at", None)
    current = algorithm if at is None else at(k)
    return current.beside(sent) if isinstance(current, Stepping) else current


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
