"""Liars who train honestly on wrong labels."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from autofl.robust.attacks.base import Attacked


@dataclass(frozen=True)
class LabelFlip:
    """Label y becomes C - 1 - y in their training data; what they send is the honest update for
    that.
    """

    def labels(self, y: Tensor, num_classes: int) -> Tensor:
        return num_classes - 1 - y

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return attacked.own
