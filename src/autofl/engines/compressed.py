"""Updates that have gone through a compressor on their way."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autofl.compressors import Compressor, Randomness
from autofl.engines.memory import ClientMemory
from autofl.engines.updates import Updates, shares
from autofl.errors import AutoFLError
from autofl.models import Params
from autofl.rng import stream
from autofl.units import Array, IntArray


def flat(params: Params) -> Tensor:
    """All parameters in one row, in the order of their names in the dictionary."""
    return torch.cat([p.reshape(-1) for p in params.values()])


def shaped(row: Tensor, like: Params) -> Params:
    """The row of `flat` as parameters again."""
    sizes = [p.numel() for p in like.values()]
    return {name: part.view_as(p) for (name, p), part in zip(like.items(), torch.split(row, sizes), strict=True)}


@dataclass(frozen=True)
class CompressedUpdates:
    """Updates as the server receives them: each formed, compressed and added up, one UE after another."""

    updates: Updates
    sent: Params
    compressor: Compressor
    bits_per_weight: Array  # of each row
    seed: int
    k: int
    memory: ClientMemory

    @property
    def ue(self) -> IntArray:
        return self.updates.ue

    @property
    def guarded(self) -> IntArray:
        return self.updates.guarded

    def rows(self) -> Iterator[tuple[int, Tensor]]:
        """Each row and what the server receives of its w_i - w."""
        num_weights = sum(p.numel() for p in self.sent.values())
        first = self.compressor.init(num_weights)
        for rows, changes in self.updates.each():
            for place, row in enumerate(rows.tolist()):
                ue = int(self.ue[row])
                own = self.memory.read("compressor", ue) if first else None
                bits = float(self.bits_per_weight[row])
                change = flat({name: changes[name][place] for name in self.sent})
                answer = self.compressor(change, bits, self._randomness(ue), first if own is None else own)
                if not isinstance(answer, tuple) or len(answer) != 2 or answer[0].shape != change.shape:
                    raise AutoFLError(
                        f"compressor {type(self.compressor).__name__}: it must give what is received of the"
                        f" {num_weights} weights, in one row, and what the UE remembers"
                    )
                received, kept = answer
                if first:
                    self.memory.write("compressor", ue, kept)
                yield row, received

    def mean(self, weight: Array) -> Params:
        share, total = shares(self.ue, weight), None
        for row, received in self.rows():
            part = received.mul(float(share[row]))
            total = part if total is None else total.add_(part)
        assert total is not None
        return {name: self.sent[name] + p for name, p in shaped(total, self.sent).items()}

    def each(self) -> Iterator[tuple[IntArray, Params]]:
        for row, received in self.rows():
            yield np.array([row]), {name: p[None] for name, p in shaped(received, self.sent).items()}

    def _randomness(self, ue: int) -> Randomness:
        return lambda: stream(self.seed, "compression", self.k, ue)
