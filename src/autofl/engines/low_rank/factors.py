"""How a UE's weights differ from the shared ones: by outer products for linear layers, numbers for
convolutions.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from autofl.engines.low_rank.images import Conv
from autofl.engines.low_rank.layers import Linear
from autofl.engines.low_rank.recognise import Layer

INNER, OUTER, HESS = range(3)
"""The role of a batch, its place on the leading axis."""


@dataclass(frozen=True)
class Factors:
    """scale * sum over rows r of left_r right_r^T for each UE, and scale * sum_r left_r as its
    bias.

    left (num_ue, num_rows, out), right (num_ue, num_rows, in); `biased` is False for a part without
    a bias term; `role` says which of the three batches `right` is, where it is the model's input.
    """

    left: Tensor
    right: Tensor
    scale: float = 1.0
    biased: bool = True
    role: int | None = None

    def scaled(self, scale: float | Tensor) -> "Factors":
        if isinstance(scale, Tensor):  # one for each UE
            return Factors(scale * self.left, self.right, self.scale, self.biased, self.role)
        return Factors(self.left, self.right, scale * self.scale, self.biased, self.role)

    def only(self, there: Tensor, scale: Tensor) -> "Factors":
        """Scaled for each UE, and 0 for a UE that is not there, whatever it held."""
        rows = there[:, None, None]
        left = torch.where(rows, scale[:, None, None] * self.left, 0.0)
        right = self.right
        if self.role is None:  # inputs are finite
            right = torch.where(rows, right, 0.0)
        return Factors(left, right, self.scale, self.biased, self.role)

    @cached_property
    def product(self) -> Tensor | None:
        """sum_r left_r right_r^T (num_ue, out, in) where one product with it is cheaper than two
        with the factors.
        """
        num = self.left.shape[1]
        out = self.left.shape[2]
        width = self.right.shape[2]
        return (
            torch.bmm(self.left.mT, self.right) if 2 * out * width < num * (out + width) else None
        )

    def add_product(self, y: Tensor, x: Tensor, has_bias: bool) -> Tensor:
        """y + x times the weights, transposed, and the bias, in place."""
        if self.product is None:
            return y.baddbmm_(_gram(x, self, has_bias), self.left, alpha=self.scale)
        y = y.baddbmm_(x, self.product.mT, alpha=self.scale)
        return (
            y.add_(self.left.sum(dim=1, keepdim=True), alpha=self.scale)
            if has_bias and self.biased
            else y
        )

    def add_back(self, y: Tensor, delta: Tensor) -> Tensor:
        """y + delta times the weights, in place."""
        if self.product is None:
            return y.baddbmm_(torch.bmm(delta, self.left.mT), self.right, alpha=self.scale)
        return y.baddbmm_(delta, self.product, alpha=self.scale)


class Kernels(NamedTuple):
    """The change of a convolution's weights (num_ue, out, kh * kw * channel) and biases (num_ue,
    out).

    A convolution has few weights and a gradient of high rank: here numbers are cheaper than
        factors.
    """

    weight: Tensor
    bias: Tensor | None

    def scaled(self, scale: float | Tensor) -> "Kernels":
        bias_scale = scale[:, 0] if isinstance(scale, Tensor) else scale
        return Kernels(scale * self.weight, None if self.bias is None else bias_scale * self.bias)

    def only(self, there: Tensor, scale: Tensor) -> "Kernels":
        weight = torch.where(there[:, None, None], scale[:, None, None] * self.weight, 0.0)
        bias = (
            None
            if self.bias is None
            else torch.where(there[:, None], scale[:, None] * self.bias, 0.0)
        )
        return Kernels(weight, bias)

    def for_each(self, num: int) -> "Kernels":
        """Each set of weights `num` times."""
        repeated = [None if part is None else part.repeat_interleave(num, dim=0) for part in self]
        assert repeated[0] is not None
        return Kernels(repeated[0], repeated[1])

    def plus(self, other: "Kernels") -> "Kernels":
        bias = None if self.bias is None or other.bias is None else self.bias + other.bias
        return Kernels(self.weight + other.weight, bias)


class Gradient(NamedTuple):
    """All UEs' gradients: for each linear layer the factors that sum up to it, for each convolution
    the numbers.
    """

    linear: list[list[Factors]]
    conv: list[Kernels | None]  # None for zero

    def plus(self, scale: float | Tensor, other: "Gradient") -> "Gradient":
        """self + scale * other."""
        return Gradient(
            [
                [*left, *(part.scaled(scale) for part in right)]
                for left, right in zip(self.linear, other.linear, strict=True)
            ],
            [
                a if b is None else b.scaled(scale) if a is None else a.plus(b.scaled(scale))
                for a, b in zip(self.conv, other.conv, strict=True)
            ],
        )

    def only(self, there: Tensor, scale: Tensor) -> "Gradient":
        """Scaled for each UE, and 0 for a UE that is not there, whatever it held."""
        return Gradient(
            [[part.only(there, scale) for part in parts] for parts in self.linear],
            [None if kernels is None else kernels.only(there, scale) for kernels in self.conv],
        )

    @classmethod
    def zero(cls, layers: tuple[Layer, ...]) -> "Gradient":
        return cls(
            [[] for layer in layers if isinstance(layer, Linear)],
            [None for layer in layers if isinstance(layer, Conv)],
        )


def _gram(x: Tensor, part: Factors, has_bias: bool) -> Tensor:
    """x right^T, plus the 1 that stands for the bias."""
    num = part.right.shape[1]
    gram = torch.bmm(x, _widened(part).mT)[..., :num]
    return gram.add_(1.0) if has_bias and part.biased else gram


def _widened(part: Factors) -> Tensor:
    """`right`, or a view of it that reads on to 16 rows where it has 9 to 15 and other samples
    follow in memory.

    MKL's batched product with 16 columns takes half the time of one with 13; what the extra rows
    give is cut off.
    """
    num_ue, num, width = part.right.shape
    row_by_row = part.right.stride() == (num * width, width, 1)
    if part.role not in (INNER, OUTER) or not 8 < num < 16 or not row_by_row:
        return part.right  # behind the Hessian batch there may be nothing to read
    return part.right.as_strided((num_ue, 16, width), part.right.stride())
