"""FedAvg: plain gradient steps (McMahan et al. 2017), as the paper's baselines use it."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.func import grad

from autofl.algorithms.base import (
    STEP,
    Averaging,
    Stepping,
    check_reached,
    minus,
    num_steps,
    step_of,
)
from autofl.data.batch import MetaBatch
from autofl.models import Loss, Params


@dataclass(frozen=True)
class FedAvg(Stepping, Averaging):
    """tau steps of SGD, each on its own d samples."""

    outer_lr: Annotated[float, STEP]  # beta

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reached(self, FedAvg, "client_update")

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w_i = w - beta g(w; D_in u D_o u D_h), tau times."""
        if self.is_guarded:
            return self.guarded_update(loss, params, batch)[0]
        for step in range(num_steps(batch)):
            params = minus(params, self.outer_lr, grad(loss)(params, step_of(batch, step).joined()))
        return params

    def guarded_update(self, loss: Loss, params: Params, batch: MetaBatch) -> tuple[Params, Tensor]:
        """The same with gradients kept from leading astray, and in how many of the tau steps that
        was needed.
        """
        acted = []
        for step in range(num_steps(batch)):
            gradient, here = self.tamed(grad(loss)(params, step_of(batch, step).joined()))
            params = minus(params, self.outer_lr, gradient)
            acted.append(here)
        return params, torch.stack(acted).sum()
