"""Updates that have gone through a compressor on their way."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from autofl.compressors import Compressor, Randomness, Sent
from autofl.engines.memory import ClientMemory
from autofl.engines.updates import Updates
from autofl.errors import AutoFLError
from autofl.models import Params, num_weights
from autofl.rng import stream
from autofl.units import Array, IntArray


@dataclass(frozen=True)
class CompressedUpdates(Updates):
    """Updates as the server receives them: each formed, compressed and added up, one UE after
    another.
    """

    updates: Updates
    compressor: Compressor
    bits_per_weight: Array  # of each row
    seed: int
    k: int
    memory: ClientMemory
    _bits: dict[int, float] = field(init=False, default_factory=dict)  # of the rows that are formed

    @cached_property
    def ue(self) -> IntArray:
        return self.updates.ue

    @cached_property
    def sent(self) -> Params:
        return self.updates.sent

    @property
    def guarded(self) -> IntArray:
        return self.updates.guarded

    @cached_property
    def bits(self) -> Array:
        """Bits really sent. Rows that an aggregator has left out are formed now: they were sent
        too.
        """
        if len(self._bits) < len(self.ue):
            for _ in self.messages():
                pass
        return np.array([self._bits[row] for row in range(len(self.ue))])

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for row, message in self.messages():
            yield row, message.received

    def messages(self) -> Iterator[tuple[int, Sent]]:
        """Each row and what is sent of its w_i - w."""
        first = self.compressor.init(num_weights(self.sent))
        for row, change in self.updates:
            ue = int(self.ue[row])
            own = self.memory.read("compressor", ue) if first else None
            answer = self.compressor(
                change,
                float(self.bits_per_weight[row]),
                self._randomness(ue),
                first if own is None else own,
            )
            if not is_sent(answer, change):
                raise AutoFLError(
                    f"compressor {type(self.compressor).__name__}: it must give a Sent, with the"
                    f" {len(change)} weights that are received in one row and their bits, and what"
                    " the UE remembers"
                )
            message, kept = answer
            if first:
                self.memory.write("compressor", ue, kept)
            self._bits[row] = float(message.bits)
            yield row, message

    def _randomness(self, ue: int) -> Randomness:
        return lambda: stream(self.seed, "compression", self.k, ue)


def is_sent(answer: object, change: Tensor) -> bool:
    """Whether a compressor, perhaps a user's own, gave what it must."""
    sent = answer[0] if isinstance(answer, tuple) and len(answer) == 2 else None
    return (
        isinstance(sent, Sent) and sent.received.shape == change.shape and 0.0 < sent.bits < np.inf
    )
