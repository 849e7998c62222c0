"""Liars who send noise."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from autofl.attacks.base import Attacked
from autofl.ranges import Checked, Range


@dataclass(frozen=True)
class Noise(Checked):
    """Gaussian noise, `scale` times as long as their own update."""

    scale: Annotated[float, Range(), "length, as a multiple of their own update's"] = 3.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        own = attacked.own
        drawn = torch.from_numpy(rng.standard_normal(tuple(own.shape))).to(own)
        return drawn * (
            self.scale * own.norm(dim=1, keepdim=True) / drawn.norm(dim=1, keepdim=True)
        )
