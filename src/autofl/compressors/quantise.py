"""Unbiased stochastic quantisation to b bits per weight, with a scale for each block of weights
(QSGD in blocks).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from autofl.compressors.base import Randomness, Sent, check_length, fitting_bytes, whole_bytes
from autofl.compressors.blocks import SCALE_BYTES, num_blocks, rounded, spread
from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Quantise(Checked):
    """Each weight becomes one of 2^b - 1 evenly spaced values between -s and s, s the largest of
    its block.

        q_j = floor(l x_j / s + u_j),    x_j received as s q_j / l,    l = 2^(b-1) - 1,    u_j
        uniform in [0, 1)

    E[q_j] = l x_j / s, so the quantiser is unbiased. The scale is rounded up to half precision:
    rounded down, the largest weight would not fit. Packed: the scales, then q_j + l in b bits each.

    Where a planner decides bits_per_weight, b is the largest whole number that fits next to the
    scales. Fewer than 8 weights also get what is left of their last byte, so that the length
    determines b.
    """

    bits: Annotated[int, Range(ge=2, le=16), "bits per weight"] = 4
    block: Annotated[int, Range(ge=1), "weights that share a scale"] = 256

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        """Z = b N + 16 ceil(N / block), in whole bytes."""
        bits = (
            self.bits if bits_per_weight is None else self.whole_bits(num_weights, bits_per_weight)
        )
        return whole_bytes(bits * num_weights) + self._scale_bits(num_weights)

    def whole_bits(self, num_weights: int, bits_per_weight: float) -> int:
        """b for a budget that holds the scales too."""
        budget = int(fitting_bytes(bits_per_weight * num_weights)) - self._scale_bits(num_weights)
        whole = min(max(budget // num_weights, 2), 16)
        return min(int(whole_bytes(whole * num_weights)) // num_weights, 16)

    def _scale_bits(self, num_weights: int) -> int:
        return 8 * SCALE_BYTES * num_blocks(num_weights, self.block)

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        return {}

    def __call__(
        self,
        change: "Tensor",
        bits_per_weight: float,
        randomness: Randomness,
        own: "dict[str, Tensor]",
    ) -> "tuple[Sent, dict[str, Tensor]]":
        bits = self.whole_bits(len(change), bits_per_weight)
        levels = 2 ** (bits - 1) - 1
        whole, scale = rounded(change, self.block, levels, randomness)

        def pack() -> bytes:
            places = (whole.astype(np.int32) + levels).astype(">u2").view(np.uint8).reshape(-1, 2)
            text = np.unpackbits(places, axis=1)[:, 16 - bits :]
            return scale.astype("<f2").tobytes() + np.packbits(text).tobytes()

        received = spread(whole, scale, self.block, levels).to(change)
        return Sent(received, self.update_bits(len(change), bits_per_weight), pack), own

    def unpack(self, payload: bytes, num_weights: int) -> "Tensor":
        begin = self._scale_bits(num_weights) // 8
        bits = min(max(8 * (len(payload) - begin) // num_weights, 2), 16)
        check_length(payload, begin + int(whole_bytes(bits * num_weights)) // 8)
        text = np.unpackbits(np.frombuffer(payload, np.uint8, offset=begin))[: bits * num_weights]
        places = np.zeros((num_weights, 16), np.uint8)
        places[:, 16 - bits :] = text.reshape(num_weights, bits)
        levels = 2 ** (bits - 1) - 1
        whole = np.packbits(places, axis=1).view(">u2").reshape(-1).astype(np.float32) - np.float32(
            levels
        )
        if (whole > levels).any():
            raise AutoFLError(f"packed update: a weight above {levels} levels")
        return spread(
            whole,
            np.frombuffer(payload, "<f2", len(payload[:begin]) // SCALE_BYTES),
            self.block,
            levels,
        )
