"""Unbiased rounding to evenly spaced values, with a scale for each block of weights: what ternary
and b-bit share.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autofl.compressors.base import Randomness

if TYPE_CHECKING:
    from torch import Tensor

SCALE_BYTES = 2
"""A scale travels as a half-precision number."""


class Rounded(NamedTuple):
    """Whole numbers q_j of all weights, single precision, and the half-precision scale of each
    block.
    """

    whole: NDArray[np.float32]
    scale: NDArray[np.float16]


def num_blocks(num_weights: int, block: int) -> int:
    return -(-num_weights // block)


def rounded(change: "Tensor", block: int, levels: int, randomness: Randomness) -> Rounded:
    """q_j = floor(l x_j / s + u_j), -l <= q_j <= l, s the largest |x_j| of the block rounded up to
    half precision.

    A block with a value that is not finite, or too large for half precision, has scale infinity.
    """
    num = len(change)
    rows = num_blocks(len(change), block)
    values = np.zeros((rows, block), dtype=np.float32)
    values.reshape(-1)[:num] = change.detach().cpu().numpy()
    largest = np.abs(values).max(axis=1)
    scale = _rounded_up(np.where(np.isfinite(largest), largest, np.float32(np.inf)))
    step = scale.astype(np.float32) / np.float32(levels)
    fine = (step > 0.0) & np.isfinite(step)  # a block of zeros has scale 0 and stays one
    inverse = np.divide(np.float32(1.0), step, out=np.zeros_like(step), where=fine)
    values[~fine] = 0.0
    values *= inverse[:, None]
    whole = values.reshape(-1)[:num]
    whole += randomness().random(num, dtype=np.float32)
    np.floor(whole, out=whole)
    np.clip(whole, -levels, levels, out=whole)  # where l x / s itself was rounded up
    return Rounded(whole, scale)


def spread(
    whole: NDArray[np.float32], scale: NDArray[np.float16], block: int, levels: int
) -> "Tensor":
    """s q_j / l of all weights; NaN throughout a block whose scale is infinite."""
    import torch

    values = np.zeros((len(scale), block), dtype=np.float32)
    values.reshape(-1)[: len(whole)] = whole
    with np.errstate(invalid="ignore"):  # a scale may be anything in bytes from outside
        values *= (scale.astype(np.float32) / np.float32(levels))[:, None]
    return torch.from_numpy(values.reshape(-1)[: len(whole)])


def _rounded_up(scale: NDArray[np.float32]) -> NDArray[np.float16]:
    """The nearest half-precision number that is no smaller."""
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16)
        return np.where(
            half.astype(np.float32) < scale, np.nextafter(half, np.float16(np.inf)), half
        )
