"""Updates that have gone through a compressor on their way."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from autofl.compressors import Compressor, Randomness, Sent
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
    return {
        name: part.view_as(p)
        for (name, p), part in zip(like.items(), torch.split(row, sizes), strict=True)
    }


class OneByOne(ABC):
    """Updates that arrive one after another, each in one row. They are added up in the order they
    are given.
    """

    ue: IntArray
    sent: Params

    @abstractmethod
    def received(self) -> Iterator[tuple[int, Tensor]]:
        """Each row and what the server receives of its w_i - w, by local steps and then by the UEs'
        numbers.
        """

    def mean(self, weight: Array) -> Params:
        share = shares(self.ue, weight)
        total = None
        for row, received in self.received():
            part = received.mul(float(share[row]))
            total = part if total is None else total.add_(part)
        assert total is not None
        return {name: self.sent[name] + p for name, p in shaped(total, self.sent).items()}

    def each(self) -> Iterator[tuple[IntArray, Params]]:
        for row, received in self.received():
            yield (
                np.array([row]),
                {name: p[None] for name, p in shaped(received, self.sent).items()},
            )


@dataclass(frozen=True)
class CompressedUpdates(OneByOne):
    """Updates as the server receives them: each formed, compressed and added up, one UE after
    another.
    """

    updates: Updates
    sent: Params
    compressor: Compressor
    bits_per_weight: Array  # of each row
    seed: int
    k: int
    memory: ClientMemory
    ue: IntArray = field(init=False)
    _bits: dict[int, float] = field(init=False, default_factory=dict)  # of the rows that are formed

    def __post_init__(self) -> None:
        object.__setattr__(self, "ue", self.updates.ue)

    @property
    def bits(self) -> Array:
        """Bits really sent, of each row. Rows that an aggregator has left out are formed now: they
        were sent too.
        """
        if len(self._bits) < len(self.ue):
            for _ in self.rows():
                pass
        return np.array([self._bits[row] for row in range(len(self.ue))])

    @property
    def guarded(self) -> IntArray:
        return self.updates.guarded

    def rows(self) -> Iterator[tuple[int, Sent]]:
        """Each row and what is sent of its w_i - w."""
        num_weights = sum(p.numel() for p in self.sent.values())
        first = self.compressor.init(num_weights)
        for rows, changes in self.updates.each():
            for place, row in enumerate(rows.tolist()):
                ue = int(self.ue[row])
                own = self.memory.read("compressor", ue) if first else None
                bits = float(self.bits_per_weight[row])
                change = flat({name: changes[name][place] for name in self.sent})
                answer = self.compressor(
                    change, bits, self._randomness(ue), first if own is None else own
                )
                if not is_sent(answer, change):
                    raise AutoFLError(
                        f"compressor {type(self.compressor).__name__}: it must give a Sent, with the {num_weights}"
                        " weights that are received in one row and their bits, and what the UE remembers"
                    )
                sent, kept = answer
                if first:
                    self.memory.write("compressor", ue, kept)
                self._bits[row] = float(sent.bits)
                yield row, sent

    def received(self) -> Iterator[tuple[int, Tensor]]:
        for row, sent in self.rows():
            yield row, sent.received

    def _randomness(self, ue: int) -> Randomness:
        return lambda: stream(self.seed, "compression", self.k, ue)


@dataclass(frozen=True)
class UnpackedUpdates(OneByOne):
    """Updates that came as bytes and are unpacked: what `CompressedUpdates` gives in one process,
    to the bit.
    """

    ue: IntArray
    local_steps: IntArray
    changes: Sequence[Tensor]  # w_i - w of each row
    bits: Array  # that came
    sent: Params
    guarded: IntArray

    def received(self) -> Iterator[tuple[int, Tensor]]:
        for row in np.lexsort((self.ue, self.local_steps)).tolist():
            yield row, self.changes[row]


def is_sent(answer: object, change: Tensor) -> bool:
    """Whether a compressor, perhaps a user's own, gave what it must."""
    sent = answer[0] if isinstance(answer, tuple) and len(answer) == 2 else None
    return (
        isinstance(sent, Sent) and sent.received.shape == change.shape and 0.0 < sent.bits < np.inf
    )
