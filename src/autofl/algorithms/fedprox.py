"""FedProx: local steps that are pulled back towards the global model (Li et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated

from torch.func import grad

from autofl.algorithms.base import (
    NOT_NEGATIVE,
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
class FedProx(Stepping, Averaging):
    """tau steps of SGD on f_i(w) + (mu/2) |w - w_k|^2, each on its own d samples."""

    outer_lr: Annotated[float, STEP]  # beta
    mu: Annotated[float, NOT_NEGATIVE, "weight of the proximal term; 0 is FedAvg"] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reached(self, FedProx, "client_update")

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w <- w - beta (g(w; D) + mu (w - w_k)), tau times."""
        local = params
        for step in range(num_steps(batch)):
            drawn_back = minus(
                grad(loss)(local, step_of(batch, step).joined()),
                -self.mu,
                minus(local, 1.0, params),
            )
            local = minus(local, self.outer_lr, self.tamed(drawn_back)[0])
        return local
