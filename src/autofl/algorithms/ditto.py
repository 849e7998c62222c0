"""Ditto: each UE keeps a model of its own alongside the global one (Li et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch.func import grad

from autofl.algorithms.base import NOT_NEGATIVE, minus, num_steps, step_of
from autofl.algorithms.fedavg import FedAvg
from autofl.data.batch import Batch, MetaBatch
from autofl.models import Loss, Params

TRAINED = "trained"
"""Whether the UE has a model of its own yet: 0 or 1, remembered beside it."""


@dataclass(frozen=True)
class Ditto(FedAvg):
    """The global model is FedAvg's. In its rounds a UE trains its own model v on the same samples,
    pulled towards w_k.

        v <- v - beta (g(v; D) + lambda (v - w_k)), tau times

    It is v that the UE uses, so "adapted" accuracy is v's; a UE that has not trained yet uses the
    global model.
    """

    pull: Annotated[
        float, NOT_NEGATIVE, "lambda, how strongly a UE's own model is drawn to the global one"
    ] = 0.1

    def client_init(self, sent: Params) -> Params:
        return {**sent, TRAINED: next(iter(sent.values())).new_zeros(())}

    def client_step(
        self, loss: Loss, sent: Params, batch: MetaBatch, own: Params
    ) -> tuple[Params, Params]:
        first = (
            own[TRAINED] == 0
        )  # it begins where the global model stands when the UE first hears of it
        personal = {name: torch.where(first, p, own[name]) for name, p in sent.items()}
        for step in range(num_steps(batch)):
            gradient = grad(loss)(personal, step_of(batch, step).joined())
            drawn = minus(gradient, -self.pull, minus(personal, 1.0, sent))
            personal = minus(personal, self.outer_lr, self.tamed(drawn)[0])
        return self.client_update(loss, sent, batch), {
            **personal,
            TRAINED: torch.ones_like(own[TRAINED]),
        }

    def personal(self, loss: Loss, params: Params, batch: Batch, own: Params) -> Params:
        return {name: torch.where(own[TRAINED] == 0, p, own[name]) for name, p in params.items()}
