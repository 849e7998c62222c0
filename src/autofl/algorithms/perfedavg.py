"""Per-FedAvg: MAML inside FedAvg (Fallah et al. 2020), exact, first-order, or with a
finite-difference Hessian.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.func import grad

from autofl.algorithms.base import (
    NOT_NEGATIVE,
    STEP,
    Averaging,
    Stepping,
    check_reached,
    length_of,
    minus,
    num_steps,
    shrinkage,
    step_of,
)
from autofl.algorithms.hessian import hessian_product
from autofl.data.batch import THIRDS, Batch, MetaBatch, Split, check_split
from autofl.models import Loss, Params
from autofl.ranges import Range

Variant = Literal["exact", "first-order", "finite-difference"]
Drawn = Literal["disjoint", "independent"]


@dataclass(frozen=True)
class PerFedAvg(Stepping, Averaging):
    """tau steps along the stochastic meta-gradient of Eq. (7).

    Note:
        Algorithm 1 of the paper misses alpha before the Hessian and writes F_i(theta) for F_i(w);
        this is Eq. (7).
    """

    inner_lr: Annotated[float, NOT_NEGATIVE]  # alpha
    outer_lr: Annotated[float, STEP]  # beta
    variant: Variant = "exact"
    difference: Annotated[float, Range(gt=0)] = (
        1e-5  # length of the step for the finite difference: a longer one crosses kinks of a ReLU
    )
    split: Split = field(default=THIRDS, kw_only=True)  # of d into inner, outer and Hessian batch
    batches: Drawn = field(
        default="disjoint", kw_only=True
    )  # the three of a step: no sample twice, or independent
    guard: Annotated[float, NOT_NEGATIVE] = field(
        default=0.0, kw_only=True
    )  # c, the most that alpha |H v| may be of |v|; 0 for any

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.split)
        check_reached(self, PerFedAvg, "client_update", "meta_grad")

    @property
    def is_guarded(self) -> bool:
        """Whether steps are guarded."""
        return self.guard > 0.0 or super().is_guarded

    def client_update(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """w_i = w - beta (I - alpha H(w; D_h)) g(w - alpha g(w; D_in); D_o), tau times."""
        if self.is_guarded:
            return self.guarded_update(loss, params, batch)[0]
        for step in range(num_steps(batch)):
            params = minus(
                params, self.outer_lr, self.meta_grad(loss, params, step_of(batch, step))
            )
        return params

    def guarded_update(self, loss: Loss, params: Params, batch: MetaBatch) -> tuple[Params, Tensor]:
        """The client update, and in how many of its tau steps the guard acted."""
        acted = []
        for step in range(num_steps(batch)):
            gradient, here = self.guarded_grad(loss, params, step_of(batch, step))
            params = minus(params, self.outer_lr, gradient)
            acted.append(here)
        return params, torch.stack(acted).sum()

    def meta_grad(self, loss: Loss, params: Params, batch: MetaBatch) -> Params:
        """The stochastic meta-gradient, Eq. (7), of one UE; guarded where that is set."""
        return self.guarded_grad(loss, params, batch)[0]

    def guarded_grad(self, loss: Loss, params: Params, batch: MetaBatch) -> tuple[Params, Tensor]:
        """The meta-gradient, and whether the guard acted.

            m = v - s alpha H v,  s = min(1, guard |v| / (alpha |H v|));   m <- m min(1, grad_clip /
            |m|)

        Note:
            Where an eigenvalue of H is larger than 1/alpha, I - alpha H turns v around: the step
            goes uphill, and the next one further. With guard <= 1, <m, v> >= 0. A gradient that is
            not finite becomes 0: no step is made.
        """
        adapted = minus(params, self.inner_lr, grad(loss)(params, batch.inner))
        outer_grad: Params = grad(loss)(adapted, batch.outer)
        if self.variant == "first-order":
            return self._clipped(outer_grad)
        if self.variant == "finite-difference":
            hess_grad = self._difference(loss, params, outer_grad, batch.hess)
        else:
            hess_grad = hessian_product(loss, params, outer_grad, batch.hess)
        if self.guard == 0.0:
            return self._clipped(minus(outer_grad, self.inner_lr, hess_grad))
        shrink = shrinkage(self.guard * length_of(outer_grad), self.inner_lr * length_of(hess_grad))
        return self._clipped(minus(outer_grad, self.inner_lr * shrink, hess_grad), shrink < 1.0)

    def _clipped(self, gradient: Params, shrunk: bool | Tensor = False) -> tuple[Params, Tensor]:
        """The gradient as it is followed, and whether it was changed here or before."""
        followed, acted = self.tamed(gradient)
        return followed, acted | shrunk if self.is_guarded else acted

    def _difference(self, loss: Loss, params: Params, direction: Params, batch: Batch) -> Params:
        """H v = (g(w + s v) - g(w - s v)) / (2 s), s chosen so that s v has the length
        `difference`.

        A ReLU that switches between the two points makes the quotient as large as 1/s. Where alpha
        |H v| > |v|, this is
        assumed to have happened and the product is dropped: one rare UE would outweigh all others.
        """
        length = length_of(direction)
        s = self.difference / length.clamp(min=1e-12)
        ahead = grad(loss)(minus(params, -s, direction), batch)
        behind = grad(loss)(minus(params, s, direction), batch)
        product = {name: (ahead[name] - behind[name]) / (2.0 * s) for name in ahead}
        sane = (self.inner_lr * length_of(product) <= length).to(s)
        return {name: sane * p for name, p in product.items()}
