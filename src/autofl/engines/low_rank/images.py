"""Convolutions and pooling as products of matrices, samples innermost.

Images lie as (UE, height, channel, width, sample). In this order a convolution needs only its
horizontal shifts
copied, kw times the image instead of kh kw times as im2col takes: with x1[y, (kx, c), (x, s)] =
X[y, c, x + kx, s] the rows y .. y + kh - 1 of a UE's x1 are, one after another in memory, the right
factor of

    Y[y, o, :] = sum over (ky, kx, c) of W[o, (ky, kx, c)] x1[y + ky, (kx, c), :],

so x1 is read in overlapping windows, and a UE takes one batched product, under shared weights or
its own. On a CPU this runs at 50 to 80 GFLOP/s where PyTorch's small convolutions reach about 25;
on a GPU a row of all UEs takes one product, faster than its own convolution even where the UEs
share their weights.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from autofl.engines.low_rank.layers import Fixed

Pair = tuple[int, int]

FEW_OUTPUTS = 8
"""Up to this many output channels, two rows y go into one product: MKL is a third faster with 12
rows than with 6.
"""


# --- layers without parameters
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToImages(Fixed):
    """(num_ue, num, channel, height, width) as (num_ue, height, channel, width, num)."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        num_ue, num = x.shape[:2]
        if x.device.type == "cpu":  # PyTorch transposes a matrix fast, a stack of them slowly
            turned = x.new_empty(num_ue, x.shape[2:].numel(), num)
            for own, samples in zip(turned, x.flatten(2), strict=True):
                own.copy_(samples.T)
        else:
            turned = x.flatten(2).mT.contiguous()
        return turned.view(num_ue, *x.shape[2:], num).transpose(1, 2), None

    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        return self.forward(t)[0]

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        return delta.permute(0, 4, 2, 1, 3)


@dataclass(frozen=True)
class ToRows(Fixed):
    """Images as rows (num_ue, num, channel * height * width), in PyTorch's order."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x.permute(0, 4, 2, 1, 3).flatten(2), None

    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        return self.forward(t)[0]

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        num_ue, height, channel, width, num = x.shape
        split = delta.reshape(num_ue, num, channel, height, width)
        return split.permute(0, 3, 2, 4, 1).contiguous()


@dataclass(frozen=True)
class Shifts(Fixed):
    """The horizontal shifts of padded images: x1[u, y, kx, c, x, s] = X[u, y, c, stride x + kx, s]."""

    width: int
    stride: int
    padding: Pair

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        vertical, horizontal = self.padding
        if vertical or horizontal:
            x = functional.pad(x, (0, 0, horizontal, horizontal, 0, 0, vertical, vertical))
        num_ue, height, channel, width, num = x.shape
        u, h, c, w, s = x.stride()
        places = (width - self.width) // self.stride + 1
        shape = (num_ue, height, self.width, channel, places, num)
        return x.as_strided(shape, (u, h, w, c, self.stride * w, s)).contiguous(), None

    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        return self.forward(t)[0]

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        vertical, horizontal = self.padding
        num_ue, height, channel, width, num = x.shape
        padded = delta.new_zeros(
            num_ue, height + 2 * vertical, channel, width + 2 * horizontal, num
        )
        reach = self.stride * (delta.shape[4] - 1) + 1
        for k in range(self.width):
            padded[:, :, :, k : k + reach : self.stride] += delta[:, :, k]
        return padded[:, vertical : vertical + height, :, horizontal : horizontal + width]


class Larger:
    """Where the second of two pixels is the larger: 1, else 0, as numbers, since PyTorch selects
    slowly.
    """

    def __init__(self, x: Tensor, row: Tensor, y: Tensor) -> None:
        self._x = x
        self._row = row
        self._y = y

    @cached_property
    def right(self) -> Tensor:
        return (self._row - _across(self._x)[0]).sign_()

    @cached_property
    def lower(self) -> Tensor:
        return (self._y - self._row[:, 0::2]).sign_()


@dataclass(frozen=True)
class MaxPool2(Fixed):
    """The largest of each 2 x 2 square, first across, then down: PyTorch's choice where pixels tie."""

    def forward(self, x: Tensor) -> tuple[Tensor, Larger]:
        row = torch.maximum(*_across(x))
        y = torch.maximum(row[:, 0::2], row[:, 1::2])
        return y, Larger(x, row, y)

    def push(self, t: Tensor, x: Tensor, kept: Larger) -> Tensor:
        row = torch.lerp(*_across(t), kept.right)  # exact: the weights are 0 and 1
        return torch.lerp(row[:, 0::2], row[:, 1::2], kept.lower)

    def pull(self, delta: Tensor, x: Tensor, kept: Larger) -> Tensor:
        row = torch.empty_like(kept.right)
        torch.mul(delta, kept.lower, out=row[:, 1::2])
        torch.sub(delta, row[:, 1::2], out=row[:, 0::2])
        even = x.shape[1] % 2 == 0 and x.shape[3] % 2 == 0
        result = torch.empty_like(x) if even else torch.zeros_like(x)
        left, right = _across(result)
        torch.mul(row, kept.right, out=right)
        torch.sub(row, right, out=left)
        return result


def _across(x: Tensor) -> tuple[Tensor, Tensor]:
    """The left and the right pixel of each pair; an odd last row or column is left out."""
    height = x.shape[1] // 2 * 2
    width = x.shape[3] // 2 * 2
    return x[:, :height, :, 0:width:2], x[:, :height, :, 1:width:2]


@dataclass(frozen=True)
class MaxPool(Fixed):
    """Any other max-pooling, by PyTorch's own positions of the largest pixels; `settings` in
    max_pool2d's order.
    """

    settings: tuple[Any, ...]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, where = functional.max_pool2d(_planes(x), *self.settings, return_indices=True)
        return _from_planes(y, x), where

    def push(self, t: Tensor, x: Tensor, kept: Tensor) -> Tensor:
        return _from_planes(_planes(t).flatten(2).gather(2, kept.flatten(2)).view(kept.shape), x)

    def pull(self, delta: Tensor, x: Tensor, kept: Tensor) -> Tensor:
        planes = torch.zeros_like(_planes(x))
        planes.flatten(2).scatter_add_(2, kept.flatten(2), _planes(delta).flatten(2))
        return _from_planes(planes, x)


@dataclass(frozen=True)
class AvgPool(Fixed):
    """Average pooling; `settings` are those of PyTorch's avg_pool2d in its order."""

    settings: tuple[Any, ...]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.push(x, x, None), None

    def push(self, t: Tensor, x: Tensor, kept: Any) -> Tensor:
        return _from_planes(functional.avg_pool2d(_planes(t), *self.settings), x)

    def pull(self, delta: Tensor, x: Tensor, kept: Any) -> Tensor:
        back = torch.ops.aten.avg_pool2d_backward(_planes(delta), _planes(x), *self.settings)
        return _from_planes(back, x)


def _planes(x: Tensor) -> Tensor:
    """Images as (num_ue * num, channel, height, width), PyTorch's layout."""
    return x.permute(0, 4, 2, 1, 3).flatten(0, 1).contiguous()


def _from_planes(planes: Tensor, like: Tensor) -> Tensor:
    """Back from `_planes`, with the UEs and samples of `like`."""
    split = planes.view(like.shape[0], like.shape[4], *planes.shape[1:])
    return split.permute(0, 3, 2, 4, 1).contiguous()


# --- the convolution
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conv:
    """A convolution of images whose horizontal shifts are there, by the names of its parameters.

    Weights are matrices (num_groups, out, kh * kw * channel): one for all UEs, for each run's UEs
    or for each UE.
    """

    weight: str
    bias: str | None
    height: int  # kh
    stride: int  # vertical

    def matrix(self, weight: Tensor) -> Tensor:
        """A parameter (..., out, channel, kh, kw) as (num_groups, out, kh * kw * channel)."""
        flat = weight.movedim(-3, -1).flatten(-3)
        return flat.reshape(-1, *flat.shape[-2:])

    def parameter(self, matrix: Tensor, like: Tensor) -> Tensor:
        """A matrix (..., out, kh * kw * channel) as the parameter (..., out, channel, kh, kw)."""
        channel, height, width = like.shape[-3:]
        return matrix.reshape(*matrix.shape[:-1], height, width, channel).movedim(-1, -3)

    def forward(self, weight: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """Y, or `onto` + Y in place, shape (num_ue, rows, out, places, num)."""
        _, num_out, depth = weight.shape
        num_rows = self._num_rows(x)
        two = self._together(num_out, num_rows)
        if two == 2:  # [[W, 0], [0, W]], the second moved by one row of x1
            across = depth // self.height
            weight = torch.cat(
                [functional.pad(weight, (0, across)), functional.pad(weight, (across, 0))], dim=1
            )
        y = x.new_empty(len(x), num_rows, num_out, *x.shape[4:]) if onto is None else onto
        flat = y.view(len(x), num_rows // two, two * num_out, x.shape[4:].numel())
        _products(weight, self._windows(x, two), flat, add=onto is not None)
        return y

    def weight_gradient(self, delta: Tensor, x: Tensor) -> Tensor:
        """sum over y of delta[y] x1[y .. y + kh - 1]^T for each UE, shape (num_ue, out, kh * kw *
        channel).
        """
        num_ue, num_rows, num_out = delta.shape[:3]
        two = self._together(num_out, num_rows)
        flat = delta.reshape(num_ue, num_rows // two, two * num_out, x.shape[4:].numel())
        windows = self._windows(x, two)
        if delta.device.type == "cpu":
            products = delta.new_empty(*flat.shape[:3], windows.shape[2])
            for d, window, result in zip(flat, windows, products, strict=True):
                torch.bmm(d, window.mT, out=result)
            total = products.sum(dim=1)
        else:
            total = gradient_by_row(flat, windows)
        if two == 1:
            return total
        across = x.shape[2] * x.shape[3]
        return total[:, :num_out, :-across] + total[:, num_out:, across:]

    def backward(
        self, weight: Tensor, delta: Tensor, x: Tensor, onto: Tensor | None = None
    ) -> Tensor:
        """The derivative by x1, or `onto` plus it in place: a row y of x1 serves the output rows y
        - ky,

            D[y, (kx, c), :] = sum over (ky, o) of W[o, (ky, kx, c)] delta[y - ky, o, :],

        again windows of one tensor, delta with kh - 1 rows of zeros above and below.
        """
        num_groups, num_out, _ = weight.shape
        num_ue, num_rows = delta.shape[:2]
        top = self.height - 1
        height = x.shape[1]
        padded = delta.new_zeros(num_ue, height + top, *delta.shape[2:])
        padded[:, top : top + self.stride * (num_rows - 1) + 1 : self.stride] = delta
        # W as ((kx, c), (kh - 1 - ky, o)).
        turned = (
            weight.view(num_groups, num_out, self.height, -1).flip(2).permute(0, 3, 2, 1).flatten(2)
        )
        columns = x.shape[4:].numel()
        windows = padded.as_strided(
            (num_ue, height, self.height * num_out, columns),
            (padded.stride(0), num_out * columns, columns, 1),
        )
        y = torch.empty_like(x) if onto is None else onto
        _products(
            turned, windows, y.view(num_ue, height, turned.shape[1], columns), add=onto is not None
        )
        return y

    def _num_rows(self, x: Tensor) -> int:
        return (x.shape[1] - self.height) // self.stride + 1

    def _together(self, num_out: int, num_rows: int) -> int:
        """How many output rows go into one product."""
        return 2 if num_out <= FEW_OUTPUTS and num_rows % 2 == 0 and self.stride == 1 else 1

    def _windows(self, x: Tensor, together: int) -> Tensor:
        """The right factors of each UE and output row, or of `together` rows at a time: overlapping
        views of x1.
        """
        across = x.shape[2] * x.shape[3]
        columns = x.shape[4:].numel()
        return x.as_strided(
            (len(x), self._num_rows(x) // together, (self.height + together - 1) * across, columns),
            (x.stride(0), self.stride * together * across * columns, columns, 1),
        )


def _products(weight: Tensor, windows: Tensor, result: Tensor, add: bool) -> None:
    """weight @ windows for each UE and row, or `result` plus it; a weight serves one UE, or as many
    as share it.

    On a CPU, UE after UE. On a GPU it is the calls that cost: row after row, all UEs of all runs at
    once.
    """
    share = len(windows) // len(weight)
    if result.device.type == "cpu":
        for ue, (window, y) in enumerate(zip(windows, result, strict=True)):
            _product(weight[ue // share].expand(len(window), -1, -1), window, y, add)
    else:
        products_by_row(weight.repeat_interleave(share, dim=0), windows, result, add)


def products_by_row(weight: Tensor, windows: Tensor, result: Tensor, add: bool) -> None:
    """The same with one weight for each UE, all UEs of a row in one call."""
    for row in range(windows.shape[1]):
        _product(weight, windows[:, row], result[:, row], add)


def _product(left: Tensor, right: Tensor, y: Tensor, add: bool) -> None:
    if add:
        y.baddbmm_(left, right)
    else:
        torch.bmm(left, right, out=y)


def gradient_by_row(delta: Tensor, windows: Tensor) -> Tensor:
    """sum over rows of delta[row] windows[row]^T for each UE, all UEs of a row in one call."""
    total = torch.bmm(delta[:, 0], windows[:, 0].mT)
    for row in range(1, windows.shape[1]):
        total.baddbmm_(delta[:, row], windows[:, row].mT)
    return total
