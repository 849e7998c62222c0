"""FedAvg: plain gradient steps (McMahan et al. 2017), as the paper's baselines use it."""

from dataclasses import dataclass, field

from torch.func import grad

from autofl.algorithms.base import Averaging, Decaying, minus, num_steps, step_of
from autofl.data.batch import MetaBatch
from autofl.models import Loss, Params


@dataclass(frozen=True)
class FedAvg(Decaying, Averaging):
    """tau steps of SGD, each on its own d samples."""

    outer_lr: float  # beta
    lr_decay: float = field(default=0.0, kw_only=True)

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w_i = w - beta g(w; D_in u D_o u D_h), tau times."""
        for step in range(num_steps(batch)):
            params = minus(params, self.outer_lr, grad(loss)(params, step_of(batch, step).joined()))
        return params
