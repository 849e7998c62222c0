"""Liars who send far too much of what is right."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from autofl.attacks.base import Attacked
from autofl.ranges import Checked, Range


@dataclass(frozen=True)
class Scaled(Checked):
    """scale (w_i - w)."""

    scale: Annotated[float, Range(), "factor on their own update"] = 1000.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return self.scale * attacked.own
