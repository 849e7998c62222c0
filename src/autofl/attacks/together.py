"""Liars who agree on one direction."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from autofl.attacks.base import Attacked


@dataclass(frozen=True)
class Together:
    """-scale |w_i - w| m/|m|, m the mean of the honest updates: one direction, each as long as its own honest update.

    No length is unusual, and no two of them are the same bytes.
    """

    scale: Annotated[float, "length, as a multiple of their own update's"] = 1.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        num, liars = len(attacked.honest), set(attacked.liars.tolist())
        others = [row for row in range(num) if row not in liars] or list(range(num))
        mean = attacked.honest[others].double().mean(dim=0)
        direction = (mean / mean.norm().clamp_min(1e-300)).to(attacked.honest)
        return -self.scale * attacked.own.norm(dim=1, keepdim=True) * direction
