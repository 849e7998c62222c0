"""Liars, or broken devices, who send NaN."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autofl.robust.attacks.base import Attacked


@dataclass(frozen=True)
class NotANumber:
    """NaN in every weight."""

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return torch.full_like(attacked.own, float("nan"))
