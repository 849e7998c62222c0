"""Engines: how the client updates of one round are computed. All give the same numbers up to
rounding.
"""

from typing import Protocol

from torch import nn
from torch.func import vmap

from autofl.algorithms import Algorithm, FedAvg, PerFedAvg
from autofl.data.batch import Batches
from autofl.engines.chunked import ChunkedUpdates, client_step, one_by_one
from autofl.engines.low_rank import LowRankUpdates, low_rank_layers, low_rank_serves
from autofl.engines.memory import ClientMemory
from autofl.engines.updates import Updates
from autofl.errors import AutoFLError
from autofl.models import Params, loss_of
from autofl.units import IntArray

NAMES = ("loop", "vmap", "low_rank")
CHUNK = 64
"""UEs in one vmapped call: enough to fill the cores, few enough to keep memory at some 100 MB."""


class Engine(Protocol):
    """How the client updates of a round are computed."""

    def __call__(
        self,
        algorithm: Algorithm,
        sent: Params,
        batches: Batches,
        ue: IntArray,
        memory: ClientMemory | None = None,
    ) -> Updates:
        """Updates of these UEs, one row of the batches each, from what the server sent.

        `memory` is needed where UEs remember something (`Stateful`).
        """
        ...


def make_engine(name: str, model: nn.Module) -> Engine:
    """The engine of this name for a model: "loop" is the reference, one UE after another; "vmap"
    takes any model and algorithm, a chunk of UEs at a time; "low_rank" forms hardly any UE's
    weights and takes what `pick_engine` says.
    """
    if name not in NAMES:
        raise AutoFLError(f"engine {name!r} is unknown; there are auto, {', '.join(NAMES)}")
    loss = loss_of(model)

    def engine(
        algorithm: Algorithm,
        sent: Params,
        batches: Batches,
        ue: IntArray,
        memory: ClientMemory | None = None,
    ) -> Updates:
        if name != "low_rank":
            over_ues, chunk = (one_by_one, 1) if name == "loop" else (vmap, CHUNK)
            step = client_step(algorithm, loss, sent, memory, over_ues)
            return ChunkedUpdates(ue, batches, sent, step, chunk)
        layers = low_rank_layers(model)
        if layers is None or not low_rank_serves(layers, algorithm):
            raise AutoFLError(
                f'engine low_rank cannot run {algorithm!r} on this model; use engine = "vmap"'
            )
        assert isinstance(algorithm, FedAvg | PerFedAvg)
        return LowRankUpdates(ue, batches, sent, layers, algorithm)

    return engine


def pick_engine(name: str, model: nn.Module, algorithm: Algorithm) -> str:
    """The engine's name; "auto" takes the fastest that serves the model and the algorithm.

    That is low_rank where it can; else vmap, or the loop where there are convolutions: with weights
    of its own for each UE a convolution becomes a grouped one, slower than the loop on a CPU.
    """
    if name != "auto":
        return name
    if low_rank_serves(low_rank_layers(model), algorithm):
        return "low_rank"
    return "loop" if _convolutional(model) else "vmap"


def _convolutional(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
