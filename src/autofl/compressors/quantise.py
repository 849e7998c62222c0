"""Unbiased stochastic quantisation to b bits a weight, with a scale for each block of weights (QSGD in blocks)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from autofl.compressors.base import Randomness
from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from torch import Tensor

SCALE_BITS = 16
"""A scale travels as a half-precision number."""


@dataclass(frozen=True)
class Quantise:
    """Each weight becomes one of 2^b - 1 evenly spaced values between -s and s, s the largest of its block.

        q_j = floor(l x_j / s + u_j),    x_j received as s q_j / l,    l = 2^(b-1) - 1,    u_j uniform in [0, 1)

    E[q_j] = l x_j / s, so the quantiser is unbiased. The scale is rounded up to half precision: rounded down, the
    largest weight would not fit.

    Where a planner decides bits_per_weight, b is the largest whole number that fits beside the scales.
    """

    bits: Annotated[int, "bits of a weight, 2 to 16"] = 4
    block: Annotated[int, "weights that share a scale"] = 256

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise AutoFLError(f"bits: {self.bits} is not between 2 and 16; 32 bits a weight is no compressor at all")
        if self.block < 1:
            raise AutoFLError(f"block: {self.block} is too few; at least 1 weight has a scale")

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        """Z = b N + 16 ceil(N / block)."""
        bits = self.bits if bits_per_weight is None else self.whole_bits(num_weights, bits_per_weight)
        return float(bits * num_weights + self._scale_bits(num_weights))

    def whole_bits(self, num_weights: int, bits_per_weight: float) -> int:
        """b for a budget that holds the scales too."""
        whole = int((bits_per_weight * num_weights - self._scale_bits(num_weights)) / num_weights + 1e-9)
        return min(max(whole, 2), 16)

    def _scale_bits(self, num_weights: int) -> int:
        return SCALE_BITS * -(-num_weights // self.block)

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        return {}

    def __call__(
        self, change: "Tensor", bits_per_weight: float, randomness: Randomness, own: "dict[str, Tensor]"
    ) -> "tuple[Tensor, dict[str, Tensor]]":
        import torch

        num, levels = len(change), 2 ** (self.whole_bits(len(change), bits_per_weight) - 1) - 1
        rows = -(-num // self.block)
        values = torch.nn.functional.pad(change, (0, rows * self.block - num)).view(rows, self.block)
        scale = _rounded_up(values.abs().amax(dim=1, keepdim=True))
        step = scale / levels
        # A block of zeros has scale 0 and stays one.
        values.mul_(torch.where(step > 0.0, 1.0 / step, torch.zeros_like(step)))
        uniform = torch.from_numpy(randomness().random(num, dtype="float32")).to(values)
        received = values.view(-1)[:num]
        received.add_(uniform).floor_()
        values.mul_(step)
        return received, own


def _rounded_up(scale: "Tensor") -> "Tensor":
    """The nearest half-precision number that is no smaller."""
    import torch

    half = scale.to(torch.float16)
    up = torch.nextafter(half, torch.full_like(half, torch.inf))
    return torch.where(half.to(scale) < scale, up, half).to(scale)
