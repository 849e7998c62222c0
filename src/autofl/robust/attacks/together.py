"""Liars who agree on one direction."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from autofl.ranges import Checked, Range
from autofl.robust.attacks.base import Attacked


@dataclass(frozen=True)
class Together(Checked):
    """-scale |w_i - w| m/|m|, m the mean of the honest updates: one direction, each as long as its
    own honest update.

    No length is unusual, and no two of them are the same bytes. Liars who know how long an update
    may be are `at` that many times the median length of the honest instead, up to a thousandth
    less.
    """

    scale: Annotated[float, Range(), "length, as a multiple of their own update's"] = 1.0
    at: Annotated[
        float | None,
        Range(),
        "length, as a multiple of the honest updates' median, instead of scale",
    ] = None

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        others = attacked.others if len(attacked.others) else attacked.honest
        mean = others.double().mean(dim=0)
        direction = (mean / mean.norm().clamp_min(1e-300)).to(attacked.honest)
        length = self.scale * attacked.own.norm(dim=1, keepdim=True)
        if self.at is not None:
            less = 1.0 - 1e-3 * torch.from_numpy(rng.random((len(length), 1))).to(length)
            length = self.at * others.norm(dim=1).median() * less
        return -length * direction
