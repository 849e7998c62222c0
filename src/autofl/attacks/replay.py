"""Liars who send their first update again and again."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from autofl.attacks.base import Attacked


@dataclass(frozen=True)
class Replay:
    """w_i - w of the first round they took part in."""

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return attacked.first
