"""What UEs remember from one of their rounds to the next, where an algorithm or a compressor needs
it.
"""

from collections.abc import Mapping

import torch

from autofl.models import Params
from autofl.units import IntArray


class ClientMemory:
    """The memories of UEs by purpose. What is written is read only after `turn`, so reading twice
    gives the same.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Params] = {}
        self._written: dict[tuple[str, int], Params] = {}

    def read(self, purpose: str, ue: int) -> Params | None:
        """What a UE remembered at the beginning of this round; None if nothing yet."""
        return self._kept.get((purpose, ue))

    def read_all(self, purpose: str, ue: IntArray, first: Params) -> Params:
        """The memories of these UEs stacked along a leading axis; `first` for a UE that has none
        yet.
        """
        memories = [self._kept.get((purpose, int(one)), first) for one in ue]
        return {name: torch.stack([own[name] for own in memories]) for name in first}

    def write(self, purpose: str, ue: int, own: Params) -> None:
        self._written[purpose, ue] = own

    def write_all(self, purpose: str, ue: IntArray, stacked: Mapping[str, torch.Tensor]) -> None:
        for row, one in enumerate(ue.tolist()):
            self.write(purpose, one, {name: p[row] for name, p in stacked.items()})

    @classmethod
    def of(cls, flat: Mapping[str, torch.Tensor]) -> "ClientMemory":
        """The memories that `flat` turned into these."""
        memory = cls()
        for name, tensor in flat.items():
            purpose, ue, own = name.split(".", 2)
            memory._kept.setdefault((purpose, int(ue)), {})[own] = tensor
        return memory

    def flat(self) -> dict[str, torch.Tensor]:
        """Everything as it will be read in the next round, by purpose, UE and name."""
        return {
            f"{purpose}.{ue}.{name}": tensor
            for (purpose, ue), own in (self._kept | self._written).items()
            for name, tensor in own.items()
        }

    def turn(self) -> None:
        """A new round begins."""
        self._kept |= self._written
        self._written = {}
