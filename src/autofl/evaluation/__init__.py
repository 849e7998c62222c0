"""How good a model is: on each UE's own test data, as it is and adapted by one step, and how far from stationary."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from autofl.algorithms import PerFedAvg, minus
from autofl.data.batch import Batch, MetaBatch
from autofl.data.federated import FederatedData
from autofl.models import Loss, Params, SampleLoss, cross_entropy, loss_of, outputs
from autofl.records import Evaluation
from autofl.rng import stream
from autofl.units import IntArray

PIECE = 4096
"""Test samples in one forward pass: the memory of an evaluation does not grow with the data."""


@dataclass(frozen=True)
class Evaluator:
    """Settings of an evaluation; `evaluate` does the work.

    Fields:
        inner_lr: alpha of the adaptation step, the same for every algorithm.
        adapt_samples: training samples of that step at each UE, the same for every algorithm.
        train_samples: training samples of each UE on which the training loss is measured.
        test_samples: test samples of each UE, None for all.
        gradient_norm: whether to measure ||grad F||^2 over all training samples too (slow).
    """

    inner_lr: float
    adapt_samples: int = 50
    train_samples: int = 100
    test_samples: int | None = None
    gradient_norm: bool = False
    sample_loss: SampleLoss = cross_entropy

    def evaluate(self, model: nn.Module, params: Params, data: FederatedData, seed: int) -> Evaluation:
        """Means over UEs; the samples used depend on the seed alone, so every round and algorithm sees the same.

        Accuracy counts argmax(output) == label on the UE's own test samples. "Adapted" is w - alpha g(w; D_a) with
        D_a drawn from the UE's training samples. Losses are f(w) and F(w), Eq. (1) and (3), on training samples.
        """
        loss = loss_of(model, self.sample_loss)
        ue = np.arange(data.partition.num_ue)
        global_loss = adapted_loss = 0.0
        global_hits, adapted_hits = np.zeros(len(ue)), np.zeros(len(ue))
        for some in np.array_split(ue, -(-len(ue) // 64)):
            adapted = _adapted(loss, params, data.draw_train(some, self.adapt_samples, seed, "adapt"), self.inner_lr)
            train = data.draw_train(some, self.train_samples, seed, "train-loss")
            with torch.no_grad():
                global_loss += float(vmap(loss, in_dims=(None, 0))(params, train).double().sum())
                adapted_loss += float(vmap(loss)(adapted, train).double().sum())
            for row, u in enumerate(some):
                own = {name: stack[row] for name, stack in adapted.items()}
                global_hits[u], adapted_hits[u] = self._accuracy(model, (params, own), data, int(u), seed)
        return Evaluation(
            train_loss=global_loss / len(ue),
            adapted_train_loss=adapted_loss / len(ue),
            global_accuracy=float(np.mean(global_hits)),
            adapted_accuracy=float(np.mean(adapted_hits)),
            gradient_norm_sq=gradient_norm_sq(loss, params, data, self.inner_lr)
            if self.gradient_norm
            else float("nan"),
        )

    def _accuracy(
        self, model: nn.Module, candidates: tuple[Params, ...], data: FederatedData, ue: int, seed: int
    ) -> list[float]:
        """Accuracy of several parameters on one UE's test samples."""
        index = self._test_index(data, ue, seed)
        hits = np.zeros(len(candidates))
        for piece in np.array_split(index, -(-len(index) // PIECE)):
            x, y = data.gather(piece)
            hits += [int((outputs(model, params, x).argmax(dim=-1) == y).sum()) for params in candidates]
        return [float(hit) for hit in hits / len(index)]

    def _test_index(self, data: FederatedData, ue: int, seed: int) -> IntArray:
        index = data.partition.test_of(ue)
        if self.test_samples is None or len(index) <= self.test_samples:
            return index
        chosen = stream(seed, "test", ue).choice(len(index), self.test_samples, replace=False)
        return index[np.sort(chosen)]


def _adapted(loss: Loss, params: Params, batch: Batch, inner_lr: float) -> Params:
    """theta_i = w - alpha g(w; D_a) of many UEs, stacked."""

    def one(own: Batch) -> Params:
        return minus(params, inner_lr, grad(loss)(params, own))

    stacked: Params = vmap(one)(batch)
    return stacked


def gradient_norm_sq(loss: Loss, params: Params, data: FederatedData, inner_lr: float) -> float:
    """||grad F(w)||^2, F as in Eq. (3), over all training samples of all UEs: what (C1.1) bounds."""
    exact = PerFedAvg(inner_lr=inner_lr, outer_lr=1.0)
    total: dict[str, Tensor] = {name: torch.zeros_like(p) for name, p in params.items()}
    for u in range(data.partition.num_ue):
        x, y = data.gather(data.partition.train_of(u))
        own = Batch(x, y, torch.ones(len(y), dtype=data.dtype))
        total = minus(total, -1.0 / data.partition.num_ue, exact.meta_grad(loss, params, MetaBatch(own, own, own)))
    return float(torch.stack([(g.double() ** 2).sum() for g in total.values()]).sum())
