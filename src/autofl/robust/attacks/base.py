"""What an attack is: from the honest updates of a round to what its liars send."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from autofl.errors import AutoFLError
from autofl.units import IntArray


@dataclass(frozen=True)
class Attacked:
    """A round as seen by its liars, who know everything.

    Fields:
        honest: w_i - w of all UEs of the round as the honest would send them, shape (num_updates,
            num_weights).
        liars: the rows of those who lie, one at least.
        remembered: what each liar would have sent in its first round; None if its attack does not
            ask for it.
    """

    honest: Tensor
    liars: IntArray
    remembered: Tensor | None = None

    @property
    def own(self) -> Tensor:
        """The liars' own honest updates."""
        return self.honest[self.liars.tolist()]

    @property
    def others(self) -> Tensor:
        """The honest updates of those who do not lie."""
        lies = set(self.liars.tolist())
        return self.honest[[row for row in range(len(self.honest)) if row not in lies]]

    @property
    def first(self) -> Tensor:
        """What each liar would have sent in its first round, shape (num_liars, num_weights)."""
        if self.remembered is None:
            raise AutoFLError(
                "attacked.first: only for an attack with `remembers = True`, so that checkpoints keep it"
            )
        return self.remembered


class Attack(Protocol):
    """An attack: a frozen dataclass of settings with this function.

    If it also has `labels(y, num_classes)`, its liars train on those labels. If it uses
    `attacked.first`, it says `remembers: ClassVar[bool] = True`: the first updates of the liars
    then are in every checkpoint.
    """

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        """What the liars send, shape (num_liars, num_weights)."""
        ...
