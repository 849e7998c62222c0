"""Client updates by the algorithm's own functions, a chunk of UEs at a time: any model, any algorithm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from autofl.algorithms import Algorithm, is_stateful
from autofl.data.batch import Batches, MetaBatch
from autofl.engines.memory import ClientMemory
from autofl.engines.updates import Summed
from autofl.errors import AutoFLError
from autofl.models import Loss, Params
from autofl.units import Array, IntArray


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


def client_step(
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


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """As vmap does it for a chunk of UEs, one UE after another."""

    def alone(*stacked: Any) -> Any:
        num_ue = len(tree_leaves(stacked)[0])
        updates = [function(*tree_map(lambda p, row=row: p[row], stacked)) for row in range(num_ue)]
        return tree_map(lambda *rows: torch.stack(rows), *updates)

    return alone
