"""Engines: how the client updates of one round are computed. All give the same numbers up to rounding."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.func import vmap

from autofl.algorithms.base import Algorithm
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg
from autofl.data.batch import Batch, Batches, MetaBatch
from autofl.engines.low_rank import LowRankUpdates, low_rank_layers, low_rank_serves
from autofl.engines.updates import Summed, Updates
from autofl.errors import AutoFLError
from autofl.models import Params, SampleLoss, cross_entropy, loss_of
from autofl.units import Array, IntArray

Engine = Callable[[Algorithm, Params, Batches, IntArray], Updates]
"""engine(algorithm, params, batches, ue) -> Updates of these UEs, one row of the batches each."""

CHUNK = 64
"""UEs in one vmapped call: enough to fill the cores, few enough to keep memory at some 100 MB."""


@dataclass(frozen=True)
class StackedUpdates:
    """Client parameters that are there already, stacked along a leading UE axis, in any order of UEs."""

    ue: IntArray
    params: Params

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i, summed in the order of the UEs' numbers."""
        order = np.argsort(self.ue, kind="stable")
        share = torch.from_numpy(weight[order] / weight.sum())
        index = torch.from_numpy(order)
        return {
            name: torch.einsum("u,u...->...", share.to(stack), stack[index.to(stack.device)])
            for name, stack in self.params.items()
        }


@dataclass(frozen=True)
class ChunkedUpdates(Summed):
    """Client parameters computed a chunk of UEs at a time, while they are summed."""

    ue: IntArray
    batches: Batches
    update: Callable[[MetaBatch], Params]  # of the stacked batches of a chunk
    chunk: int

    def num_in_chunk(self) -> int:
        return self.chunk

    def part(self, rows: IntArray, share: Array) -> Params:
        stack = self._stacked(rows)
        each = torch.from_numpy(share)
        return {name: torch.einsum("u,u...->...", each.to(p), p) for name, p in stack.items()}

    def whole(self, total: Params) -> Params:
        return total

    def _stacked(self, rows: IntArray) -> Params:
        return self.update(MetaBatch.of(self.batches.take(rows)))

    @property
    def params(self) -> Params:
        """All client parameters, stacked in the order of `ue`."""
        rows = self.chunks()
        stacks = [self._stacked(some) for some in rows]
        back = torch.from_numpy(np.argsort(np.concatenate(rows), kind="stable"))
        return {name: torch.cat([stack[name] for stack in stacks])[back] for name in stacks[0]}


def make_engine(name: str, model: nn.Module, sample_loss: SampleLoss = cross_entropy) -> Engine:
    """The engine of this name for a model: "loop" is the reference, one UE after another; "vmap" takes any model
    and algorithm, a chunk of UEs at a time; "low_rank" forms hardly any UE's weights and takes what `pick_engine` says.
    """
    loss = loss_of(model, sample_loss)

    def loop(algorithm: Algorithm, params: Params, batches: Batches, ue: IntArray) -> Updates:
        def update(one: MetaBatch) -> Params:
            alone = MetaBatch(*(Batch(part.x[0], part.y[0], part.mask[0]) for part in one))
            return {name: p[None] for name, p in algorithm.client_update(loss, params, alone).items()}

        return ChunkedUpdates(ue, batches, update, chunk=1)

    def vectorised(algorithm: Algorithm, params: Params, batches: Batches, ue: IntArray) -> Updates:
        def update(some: MetaBatch) -> Params:
            stacked: Params = vmap(lambda one: algorithm.client_update(loss, params, one))(some)
            return stacked

        return ChunkedUpdates(ue, batches, update, chunk=CHUNK)

    def low_rank(algorithm: Algorithm, params: Params, batches: Batches, ue: IntArray) -> Updates:
        layers = low_rank_layers(model)
        if layers is None or not low_rank_serves(model, algorithm, sample_loss):
            raise AutoFLError(f'engine low_rank cannot run {algorithm!r} on this model; use engine = "vmap"')
        assert isinstance(algorithm, FedAvg | PerFedAvg)
        return LowRankUpdates(ue, batches, params, layers, algorithm)

    engines: dict[str, Engine] = {"loop": loop, "vmap": vectorised, "low_rank": low_rank}
    if name not in engines:
        raise AutoFLError(f"engine {name!r} is unknown; there are auto, {', '.join(engines)}")
    return engines[name]


def pick_engine(name: str, model: nn.Module, algorithm: Algorithm, sample_loss: SampleLoss = cross_entropy) -> str:
    """The engine's name; "auto" takes the fastest that serves the model and the algorithm.

    That is low_rank where it can; else vmap, or the loop where there are convolutions: with weights of its own for
    each UE a convolution becomes a grouped one, slower than the loop on a CPU.
    """
    if name != "auto":
        return name
    if low_rank_serves(model, algorithm, sample_loss):
        return "low_rank"
    convolutional = any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
    return "loop" if convolutional else "vmap"
