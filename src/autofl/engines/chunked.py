"""Client updates by the algorithm's own functions, a chunk of UEs at a time: any model, any
algorithm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from autofl.algorithms import Algorithm, is_guarded, is_stateful
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
    update: Callable[
        [IntArray, MetaBatch], tuple[Params, IntArray | int]
    ]  # of a chunk's UEs and stacked batches
    chunk: int

    @property
    def local_steps(self) -> IntArray:
        return self.batches.local_steps

    def num_in_chunk(self) -> int:
        return self.chunk

    def part(self, rows: IntArray, share: Array) -> Params:
        ue_share = torch.from_numpy(share)
        return {
            name: torch.einsum("u,u...->...", ue_share.to(p), p)
            for name, p in self.params_of(rows).items()
        }

    def whole(self, total: Params) -> Params:
        return total

    def changes(self, rows: IntArray) -> Params:
        return {name: p - self.sent[name] for name, p in self.params_of(rows).items()}

    def params_of(self, rows: IntArray) -> Params:
        """Client parameters of these rows, stacked."""
        params, self.guarded[rows] = self.update(
            self.ue[rows], MetaBatch.of(self.batches.take(rows))
        )
        return params


def client_step(
    algorithm: Algorithm,
    loss: Loss,
    sent: Params,
    memory: ClientMemory | None,
    over_ues: Callable[..., Any],
) -> Callable[[IntArray, MetaBatch], tuple[Params, IntArray | int]]:
    """What the UEs of a chunk send up, and their guarded steps; UEs that remember something use
    their memory.
    """
    if is_guarded(algorithm):
        counted = over_ues(lambda one: algorithm.guarded_update(loss, sent, one))

        def guarded(ue: IntArray, some: MetaBatch) -> tuple[Params, IntArray | int]:
            params, count = counted(some)
            return params, count.cpu().numpy().astype(np.int64)

        return guarded
    if not is_stateful(algorithm):
        plain = over_ues(lambda one: algorithm.client_update(loss, sent, one))
        return lambda ue, some: (plain(some), 0)
    if memory is None:
        raise AutoFLError(
            f"{type(algorithm).__name__} keeps something at each UE; give the engine a ClientMemory"
        )
    first = algorithm.client_init(sent)
    remembering = over_ues(lambda one, own: algorithm.client_step(loss, sent, one, own))

    def step(ue: IntArray, some: MetaBatch) -> tuple[Params, IntArray | int]:
        params, own = remembering(some, memory.read_all("client", ue, first))
        memory.write_all("client", ue, own)
        return params, 0

    return step


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """What vmap does for a chunk of UEs, done one UE after another."""

    def alone(*stacked: Any) -> Any:
        num_ue = len(tree_leaves(stacked)[0])
        updates = [function(*tree_map(lambda p, row=row: p[row], stacked)) for row in range(num_ue)]
        return tree_map(lambda *rows: torch.stack(rows), *updates)

    return alone
