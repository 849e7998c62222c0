"""The layers of a network: what each computes, and how derivatives pass through it in both
directions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Linear:
    """y = x W^T + b, by the names of its parameters."""

    weight: str
    bias: str | None


class Fixed(ABC):
    """A layer without parameters. What `forward` keeps besides its result is for the other two."""

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """The layer's result, and what it keeps."""

    @abstractmethod
    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        """The tangent after the layer from the tangent t before it."""

    @abstractmethod
    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        """The derivative of the loss by x from that by the layer's result."""


@dataclass(frozen=True)
class Activation(Fixed):
    """y = f(x) with f' and, where it is not zero, f''."""

    f: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    bend: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.f(x), None

    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        return self.pull(t, x, kept)

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        """delta f'(x)."""
        return delta * self.slope(x)


@dataclass(frozen=True)
class Relu(Activation):
    """The rectifier; PyTorch multiplies by its slope in one pass."""

    f: Callable[[Tensor], Tensor] = torch.relu
    slope: Callable[[Tensor], Tensor] = torch.sign  # not used: `pull` is
    bend: None = None

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        return torch.ops.aten.threshold_backward(delta, x, 0)


@dataclass(frozen=True)
class Reshape(Fixed):
    """Flattening of the trailing axes: batches come with leading axes (num_ue, num)."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x.flatten(2), None

    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        return t.flatten(2)

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        return delta.reshape(x.shape)


def _sigmoid_slope(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1 - s)


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def activation_of(module: nn.Module) -> Activation | None:
    """The activation of a module; None where it is not one we know."""
    if type(module) is nn.ReLU:
        return Relu()
    if type(module) is nn.LeakyReLU:
        leak = module.negative_slope
        return Activation(
            lambda x: torch.where(x > 0, x, leak * x),
            lambda x: torch.where(x > 0, torch.ones_like(x), leak),
        )
    if type(module) is nn.Tanh:
        return Activation(
            torch.tanh,
            lambda x: 1 - torch.tanh(x) ** 2,
            lambda x: -2 * torch.tanh(x) * (1 - torch.tanh(x) ** 2),
        )
    if type(module) is nn.Sigmoid:
        return Activation(
            torch.sigmoid, _sigmoid_slope, lambda x: _sigmoid_slope(x) * (1 - 2 * torch.sigmoid(x))
        )
    if type(module) is nn.Softplus and module.beta == 1 and module.threshold == 20:
        return Activation(nn.functional.softplus, torch.sigmoid, _sigmoid_slope)
    if type(module) is nn.SiLU:
        return Activation(
            nn.functional.silu,
            lambda x: torch.sigmoid(x) + x * _sigmoid_slope(x),
            lambda x: _sigmoid_slope(x) * (2 + x * (1 - 2 * torch.sigmoid(x))),
        )
    if type(module) is nn.GELU and module.approximate == "none":
        return Activation(
            nn.functional.gelu,
            lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * _normal_density(x),
            lambda x: (2 - x * x) * _normal_density(x),
        )
    if type(module) is nn.ELU:
        height = module.alpha
        return Activation(
            lambda x: nn.functional.elu(x, height),
            lambda x: torch.where(
                x > 0, torch.ones_like(x), height * torch.exp(torch.clamp(x, max=0.0))
            ),
            lambda x: torch.where(
                x > 0, torch.zeros_like(x), height * torch.exp(torch.clamp(x, max=0.0))
            ),
        )
    return None
