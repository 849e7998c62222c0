"""Liars who send their first update again and again."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from autofl.robust.attacks.base import Attacked


@dataclass(frozen=True)
class Replay:
    """w_i - w of the first round they took part in."""

    remembers: ClassVar[bool] = True

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return attacked.first
