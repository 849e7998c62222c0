"""Unbiased ternary updates: a sign or nothing for each weight, five of them in a byte (TernGrad in
blocks).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from autofl.compressors.base import Randomness, Sent, check_length
from autofl.compressors.blocks import SCALE_BYTES, num_blocks, rounded, spread
from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range

if TYPE_CHECKING:
    from torch import Tensor

TRITS = 5
"""Trits in a byte: 3^5 = 243 <= 256."""
POWERS = 3 ** np.arange(TRITS, dtype=np.uint8)


@dataclass(frozen=True)
class Ternary(Checked):
    """Each weight becomes -s, 0 or s, s the largest of its block rounded up to half precision (Wen
    et al. 2017).

        q_j = floor(x_j / s + u_j),    received as s q_j,    u_j uniform in [0, 1)

    Z = 8 ceil(N / 5) + 16 ceil(N / block), 1.66 bit per weight in blocks of 256, whatever a planner
    decides. Packed: the scales, then sum_i 3^i (q_i + 1) over each five weights.
    """

    block: Annotated[int, Range(ge=1), "weights that share a scale"] = 256

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        return 8.0 * (self._scale_bytes(num_weights) + -(-num_weights // TRITS))

    def _scale_bytes(self, num_weights: int) -> int:
        return SCALE_BYTES * num_blocks(num_weights, self.block)

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        return {}

    def __call__(
        self,
        change: "Tensor",
        bits_per_weight: float,
        randomness: Randomness,
        own: "dict[str, Tensor]",
    ) -> "tuple[Sent, dict[str, Tensor]]":
        whole, scale = rounded(change, self.block, 1, randomness)

        def pack() -> bytes:
            trits = np.zeros((-(-len(whole) // TRITS), TRITS), dtype=np.uint8)
            trits.reshape(-1)[: len(whole)] = whole + 1.0
            return (
                scale.astype("<f2").tobytes()
                + (trits * POWERS).sum(axis=1, dtype=np.uint8).tobytes()
            )

        return Sent(
            spread(whole, scale, self.block, 1).to(change), self.update_bits(len(change)), pack
        ), own

    def unpack(self, payload: bytes, num_weights: int) -> "Tensor":
        check_length(payload, int(self.update_bits(num_weights)) // 8)
        begin = self._scale_bytes(num_weights)
        fives = np.frombuffer(payload, np.uint8, offset=begin)
        if (fives >= 3**TRITS).any():
            raise AutoFLError(
                f"packed update: a byte of {fives.max()}; five trits make at most {3**TRITS - 1}"
            )
        trits = (fives[:, None] // POWERS % 3).reshape(-1)[:num_weights]
        scale = np.frombuffer(payload, "<f2", begin // SCALE_BYTES)
        return spread(trits.astype(np.float32) - np.float32(1.0), scale, self.block, 1)
