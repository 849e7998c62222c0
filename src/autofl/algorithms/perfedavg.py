"""Per-FedAvg: MAML inside FedAvg (Fallah et al. 2020), exact, first-order, or with a finite-difference Hessian."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad

from autofl.algorithms.base import Averaging, Decaying, minus, num_steps, step_of
from autofl.algorithms.hessian import hessian_product
from autofl.data.batch import THIRDS, Batch, MetaBatch, Split, check_split
from autofl.models import Loss, Params

Variant = Literal["exact", "first-order", "finite-difference"]


@dataclass(frozen=True)
class PerFedAvg(Decaying, Averaging):
    """tau steps along the stochastic meta-gradient of Eq. (7).

    Note:
        Algorithm 1 of the paper misses alpha before the Hessian and writes F_i(theta) for F_i(w); this is Eq. (7).
    """

    inner_lr: float  # alpha
    outer_lr: float  # beta
    variant: Variant = "exact"
    difference: float = 1e-5  # length of the step for the finite difference: a longer one crosses kinks of a ReLU
    lr_decay: float = field(default=0.0, kw_only=True)
    split: Split = field(default=THIRDS, kw_only=True)  # of d into inner, outer and Hessian batch

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.split)

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w_i = w - beta (I - alpha H(w; D_h)) g(w - alpha g(w; D_in); D_o), tau times."""
        for step in range(num_steps(batch)):
            params = minus(params, self.outer_lr, self.meta_grad(loss, params, step_of(batch, step)))
        return params

    def meta_grad(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """The stochastic meta-gradient, Eq. (7), of one UE."""
        adapted = minus(params, self.inner_lr, grad(loss)(params, batch.inner))
        outer_grad: Params = grad(loss)(adapted, batch.outer)
        if self.variant == "first-order":
            return outer_grad
        if self.variant == "finite-difference":
            hess_grad = self._difference(loss, params, outer_grad, batch.hess)
        else:
            hess_grad = hessian_product(loss, params, outer_grad, batch.hess)
        return minus(outer_grad, self.inner_lr, hess_grad)

    def _difference(self, loss: Loss, params: Params, direction: Params, batch: Batch) -> Params:
        """H v = (g(w + s v) - g(w - s v)) / (2 s), s chosen so that s v has the length `difference`.

        A ReLU that switches between the two points makes the quotient as large as 1/s. Where alpha |H v| > |v| it is
        taken for such and dropped: one rare UE would outweigh all others.
        """
        length = _norm(direction)
        s = self.difference / length.clamp(min=1e-12)
        ahead = grad(loss)(minus(params, -s, direction), batch)
        behind = grad(loss)(minus(params, s, direction), batch)
        product = {name: (ahead[name] - behind[name]) / (2.0 * s) for name in ahead}
        sane = (self.inner_lr * _norm(product) <= length).to(s)
        return {name: sane * p for name, p in product.items()}


def _norm(params: Params) -> Tensor:
    return torch.stack([(p * p).sum() for p in params.values()]).sum().sqrt()
