"""Liars who send far too much of what is right."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from autofl.attacks.base import Attacked


@dataclass(frozen=True)
class Scaled:
    """scale (w_i - w)."""

    scale: Annotated[float, "factor on their own update"] = 1000.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return self.scale * attacked.own
