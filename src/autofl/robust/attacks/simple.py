"""Liars who look at nobody else's update."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from autofl.ranges import Checked, Range
from autofl.robust.attacks.base import Attacked


@dataclass(frozen=True)
class NotANumber:
    """NaN in every weight, as a broken device may send."""

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return torch.full_like(attacked.own, float("nan"))


@dataclass(frozen=True)
class Huge(Checked):
    """The same finite value everywhere."""

    value: Annotated[float, Range(), "change of each weight"] = 1e30

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return torch.full_like(attacked.own, self.value)


@dataclass(frozen=True)
class Zeros:
    """No change at all: a free rider sends what it got."""

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return torch.zeros_like(attacked.own)


@dataclass(frozen=True)
class Scaled(Checked):
    """scale (w_i - w): far too much of what is right."""

    scale: Annotated[float, Range(), "factor on their own update"] = 1000.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return self.scale * attacked.own


@dataclass(frozen=True)
class SignFlip(Checked):
    """-scale (w_i - w): the opposite."""

    scale: Annotated[float, Range(), "factor on their own update"] = 10.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return -self.scale * attacked.own


@dataclass(frozen=True)
class Noise(Checked):
    """Gaussian noise, `scale` times as long as their own update."""

    scale: Annotated[float, Range(), "length, as a multiple of their own update's"] = 3.0

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        own = attacked.own
        drawn = torch.from_numpy(rng.standard_normal(tuple(own.shape))).to(own)
        length = self.scale * own.norm(dim=1, keepdim=True)
        return drawn * (length / drawn.norm(dim=1, keepdim=True))


@dataclass(frozen=True)
class Replay:
    """w_i - w of the first round they took part in."""

    remembers: ClassVar[bool] = True

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return attacked.first


@dataclass(frozen=True)
class LabelFlip:
    """Honest training on wrong labels: y becomes C - 1 - y."""

    def labels(self, y: Tensor, num_classes: int) -> Tensor:
        return num_classes - 1 - y

    def __call__(self, attacked: Attacked, rng: np.random.Generator) -> Tensor:
        return attacked.own
