"""Engines: how the client updates of one round are computed. All give the same numbers up to rounding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.func import vmap
from torch.utils._pytree import tree_leaves, tree_map

from autofl.algorithms import Algorithm, FedAvg, PerFedAvg, is_stateful
from autofl.data.batch import Batches, MetaBatch
from autofl.engines.low_rank import LowRankUpdates, low_rank_layers, low_rank_serves
from autofl.engines.memory import ClientMemory
from autofl.engines.updates import Summed, Updates
from autofl.errors import AutoFLError
from autofl.models import Loss, Params, SampleLoss, cross_entropy, loss_of
from autofl.units import Array, IntArray

CHUNK = 64
"""UEs in one vmapped call: enough to fill the cores, few enough to keep memory at some 100 MB."""


class Engine(Protocol):
    """How the client updates of a round are computed."""

    def __call__(
        self, algorithm: Algorithm, sent: Params, batches: Batches, ue: IntArray, memory: ClientMemory | None = None
    ) -> Updates:
        """Updates of these UEs, one row of the batches each, from what the server sent.

        `memory` is needed where UEs remember something (`Stateful`).
        """
        ...


@dataclass(frozen=True)
class ChunkedUpdates(Summed):
    """Client parameters computed a chunk of UEs at a time, by the algorithm's own client update."""

    ue: IntArray
    batches: Batches
    sent: Params
    update: Callable[[IntArray, MetaBatch], Params]  # of the UEs of a chunk and their stacked batches
    chunk: int

    @property
    def local_steps(self) -> IntArray:
        return self.batches.local_steps

    def num_in_chunk(self) -> int:
        return self.chunk

    def part(self, rows: IntArray, share: Array) -> Params:
        ue_share = torch.from_numpy(share)
        return {name: torch.einsum("u,u...->...", ue_share.to(p), p) for name, p in self.params_of(rows).items()}

    def whole(self, total: Params) -> Params:
        return total

    def changes(self, rows: IntArray) -> Params:
        return {name: p - self.sent[name] for name, p in self.params_of(rows).items()}

    def params_of(self, rows: IntArray) -> Params:
        """Client parameters of these rows, stacked."""
        return self.update(self.ue[rows], MetaBatch.of(self.batches.take(rows)))


def make_engine(name: str, model: nn.Module, sample_loss: SampleLoss = cross_entropy) -> Engine:
    """The engine of this name for a model: "loop" is the reference, one UE after another; "vmap" takes any model
    and algorithm, a chunk of UEs at a time; "low_rank" forms hardly any UE's weights and takes what `pick_engine` says.
    """
    loss = loss_of(model, sample_loss)

    def loop(
        algorithm: Algorithm, sent: Params, batches: Batches, ue: IntArray, memory: ClientMemory | None = None
    ) -> Updates:
        step = _client(algorithm, loss, sent, memory, _one_by_one)
        return ChunkedUpdates(ue, batches, sent, step, chunk=1)

    def vectorised(
        algorithm: Algorithm, sent: Params, batches: Batches, ue: IntArray, memory: ClientMemory | None = None
    ) -> Updates:
        step = _client(algorithm, loss, sent, memory, vmap)
        return ChunkedUpdates(ue, batches, sent, step, chunk=CHUNK)

    def low_rank(
        algorithm: Algorithm, sent: Params, batches: Batches, ue: IntArray, memory: ClientMemory | None = None
    ) -> Updates:
        layers = low_rank_layers(model)
        if layers is None or not low_rank_serves(layers, algorithm, sample_loss):
            raise AutoFLError(f'engine low_rank cannot run {algorithm!r} on this model; use engine = "vmap"')
        assert isinstance(algorithm, FedAvg | PerFedAvg)
        return LowRankUpdates(ue, batches, sent, layers, algorithm)

    engines: dict[str, Engine] = {"loop": loop, "vmap": vectorised, "low_rank": low_rank}
    if name not in engines:
        raise AutoFLError(f"engine {name!r} is unknown; there are auto, {', '.join(engines)}")
    return engines[name]


def _client(
    algorithm: Algorithm, loss: Loss, sent: Params, memory: ClientMemory | None, over_ues: Callable[..., Any]
) -> Callable[[IntArray, MetaBatch], Params]:
    """What the UEs of a chunk send up; UEs that remember something read and write their memory."""
    if not is_stateful(algorithm):
        plain = over_ues(lambda one: algorithm.client_update(loss, sent, one))
        return lambda ue, some: plain(some)
    if memory is None:
        raise AutoFLError(f"{type(algorithm).__name__} keeps something at each UE; give the engine a ClientMemory")
    first = algorithm.client_init(sent)
    remembering = over_ues(lambda one, own: algorithm.client_step(loss, sent, one, own))

    def step(ue: IntArray, some: MetaBatch) -> Params:
        params, own = remembering(some, memory.read_all("client", ue, first))
        memory.write_all("client", ue, own)
        result: Params = params
        return result

    return step


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """As vmap does it for a chunk of UEs, one UE after another."""

    def alone(*stacked: Any) -> Any:
        num_ue = len(tree_leaves(stacked)[0])
        updates = [function(*tree_map(lambda p, row=row: p[row], stacked)) for row in range(num_ue)]
        return tree_map(lambda *rows: torch.stack(rows), *updates)

    return alone


def pick_engine(name: str, model: nn.Module, algorithm: Algorithm, sample_loss: SampleLoss = cross_entropy) -> str:
    """The engine's name; "auto" takes the fastest that serves the model and the algorithm.

    That is low_rank where it can; else vmap, or the loop where there are convolutions: with weights of its own for
    each UE a convolution becomes a grouped one, slower than the loop on a CPU.
    """
    if name != "auto":
        return name
    if low_rank_serves(low_rank_layers(model), algorithm, sample_loss):
        return "low_rank"
    return "loop" if _convolutional(model) else "vmap"


def _convolutional(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
