"""FedOpt: the server takes the mean move of the UEs for a gradient and feeds it to an optimiser
(Reddi et al. 2021).
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch

from autofl.algorithms.base import State, minus
from autofl.algorithms.fedavg import FedAvg
from autofl.models import Params
from autofl.ranges import Range


@dataclass(frozen=True)
class FedOptState(State):
    """The model and the optimiser's moments."""

    first: Params  # m
    second: Params  # v, of Adam


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """FedAvg's clients; the server steps along Delta = mean of (w_i - w) by Adam or with momentum.

    adam:      m <- b1 m + (1 - b1) Delta,  v <- b2 v + (1 - b2) Delta^2,  w <- w + eta m / (sqrt(v)
        + tau)
    momentum:  m <- b1 m + Delta,  w <- w + eta m
    """

    server: Annotated[Literal["adam", "momentum"], "rule of the server"] = "adam"
    server_lr: Annotated[float, Range(gt=0), "eta"] = 0.01
    momentum: Annotated[float, Range(ge=0, lt=1), "b1"] = 0.9
    decay: Annotated[float, Range(ge=0, lt=1), "b2 of Adam"] = 0.99
    floor: Annotated[float, Range(gt=0), "tau of Adam, added to the root in the denominator"] = 1e-3

    def init(self, params: Params) -> FedOptState:
        first = {name: torch.zeros_like(p) for name, p in params.items()}
        return FedOptState(
            params, first, {name: torch.full_like(p, self.floor**2) for name, p in params.items()}
        )

    def server_update(self, state: State, average: Params) -> FedOptState:
        assert isinstance(state, FedOptState)
        move = minus(average, 1.0, state.params)
        if self.server == "momentum":
            first = {name: self.momentum * m + move[name] for name, m in state.first.items()}
            return replace(state, params=minus(state.params, -self.server_lr, first), first=first)
        b1 = self.momentum
        b2 = self.decay
        first = {name: b1 * m + (1.0 - b1) * move[name] for name, m in state.first.items()}
        second = {name: b2 * v + (1.0 - b2) * move[name] ** 2 for name, v in state.second.items()}
        step = {name: m / (second[name].sqrt() + self.floor) for name, m in first.items()}
        return replace(
            state, params=minus(state.params, -self.server_lr, step), first=first, second=second
        )
