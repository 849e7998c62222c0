"""Engines: how the client updates of one round are computed. Both give the same numbers up to rounding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.func import vmap

from autofl.algorithms.base import Algorithm, Updates
from autofl.data.batch import Batch, MetaBatch
from autofl.errors import AutoFLError
from autofl.models import Loss, Params
from autofl.units import Array, IntArray

EngineName = Literal["auto", "loop", "vmap"]
Engine = Callable[[Algorithm, Loss, Params, MetaBatch, IntArray], Updates]
"""engine(algorithm, loss, params, batch, ue) -> Updates; the batch's leading axes are (num_ue, tau)."""

CHUNK = 64
"""UEs in one vmapped call: enough to fill the cores, few enough to keep memory at some 100 MB."""


@dataclass(frozen=True)
class StackedUpdates:
    """Client parameters stacked along a leading UE axis, in any order of UEs."""

    ue: IntArray
    params: Params

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i, summed in the order of the UEs' numbers."""
        order = np.argsort(self.ue, kind="stable")
        share = torch.from_numpy(weight[order] / weight.sum())
        index = torch.from_numpy(order)
        return {
            name: torch.einsum("u,u...->...", share.to(stack.dtype), stack[index])
            for name, stack in self.params.items()
        }


def loop(algorithm: Algorithm, loss: Loss, params: Params, batch: MetaBatch, ue: IntArray) -> StackedUpdates:
    """One UE after another: the reference."""
    each = [algorithm.client_update(loss, params, _ue_of(batch, i)) for i in range(len(ue))]
    return StackedUpdates(ue, {name: torch.stack([update[name] for update in each]) for name in params})


def vectorised(algorithm: Algorithm, loss: Loss, params: Params, batch: MetaBatch, ue: IntArray) -> StackedUpdates:
    """All UEs at once, by torch.func.vmap in chunks."""

    def update(one: MetaBatch) -> Params:
        return algorithm.client_update(loss, params, one)

    return StackedUpdates(ue, vmap(update, chunk_size=CHUNK)(batch))


def _ue_of(batch: MetaBatch, i: int) -> MetaBatch:
    return MetaBatch(*(Batch(part.x[i], part.y[i], part.mask[i]) for part in batch))


ENGINES: dict[str, Engine] = {"loop": loop, "vmap": vectorised}


def pick_engine(name: str, model: nn.Module) -> str:
    """The engine's name; "auto" takes vmap for models of linear layers and the loop where there are convolutions.

    A convolution with weights of its own for each UE becomes a grouped convolution, slower than the loop on a CPU.
    """
    if name == "auto":
        linear_only = not any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
        return "vmap" if linear_only else "loop"
    if name not in ENGINES:
        raise AutoFLError(f"engine {name!r} is unknown; there are auto, {', '.join(ENGINES)}")
    return name
