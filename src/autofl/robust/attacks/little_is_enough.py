"""Liars who hide among the honest."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from autofl.ranges import Checked, Range
from autofl.robust.attacks.base import Attacked

LEAST = 0.3
"""Deviations used by liars who are too few for the paper's formula, which would have them send the
mean.
"""


@dataclass(frozen=True)
class LittleIsEnough(Checked):
    """mean - z deviation of the honest updates, weight by weight (Baruch, Baruch and Goldberg,
    NeurIPS 2019).

    z is the largest value at which the liars and the honest updates beyond them are still half of
    all: Phi(z) = (m - f - s)/(m - f), s = floor(m/2 + 1) - f.

    Note:
        With one z for all weights the lie is too even (`robust/evenness.py`). With a `spread` s,
        each liar draws z anew for every weight: z (1 + s x), x standard normal.
    """

    z: Annotated[
        float | None,
        Range(),
        "standard deviations from the mean; default: its paper's, by how many lie",
    ] = None
    spread: Annotated[
        float,
        Range(ge=0),
        "relative deviation of z, which each liar draws anew for every weight; 0: one z",
    ] = 0.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        num = len(attacked.honest)
        liars = len(attacked.liars)
        others = attacked.others
        if len(others) < 2:
            return -attacked.own  # nobody to hide among
        needed = num // 2 + 1 - liars
        share = min(max((num - liars - needed) / (num - liars), 0.01), 0.99)
        z = max(NormalDist().inv_cdf(share), LEAST) if self.z is None else self.z
        if self.spread:
            drawn = torch.from_numpy(rng.standard_normal((liars, others.shape[1]))).to(others)
            return others.mean(dim=0) - z * (1.0 + self.spread * drawn) * others.std(dim=0)
        return (others.mean(dim=0) - z * others.std(dim=0)).expand(liars, -1)
