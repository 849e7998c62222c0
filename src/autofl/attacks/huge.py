"""Liars who send a huge number for every weight."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from autofl.attacks.base import Attacked
from autofl.ranges import Checked, Range


@dataclass(frozen=True)
class Huge(Checked):
    """The same finite value everywhere."""

    value: Annotated[float, Range(), "change of each weight"] = 1e30

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return torch.full_like(attacked.own, self.value)
