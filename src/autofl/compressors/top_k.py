"""Top-k with error feedback: the largest weights of an update, and what was left out added to the
next one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from autofl.compressors.base import Randomness, Sent, check_length, fitting_bytes, whole_bytes
from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range

if TYPE_CHECKING:
    from torch import Tensor

VALUE_BITS = 32
"""A value travels in single precision."""


@dataclass(frozen=True)
class TopK(Checked):
    """The k largest weights are sent as they are, with their places; the rest is remembered (Stich
    et al. 2018).

        x = change + lost,    received = top_k(x),    lost' = x - received

    Z = k (32 + ceil(log2 N)), in whole bytes. It is biased in each round; over many rounds nothing
    is lost. Where a planner decides bits_per_weight, k is the largest number that fits. Packed: the
    values in the order of their places, then the places.
    """

    share: Annotated[float, Range(gt=0, le=1), "share of the weights that are sent"] = 0.05

    def num_sent(self, num_weights: int, bits_per_weight: float | None = None) -> int:
        """k, at least 1."""
        if bits_per_weight is None:
            return max(1, round(self.share * num_weights))
        entry = VALUE_BITS + place_bits(num_weights)
        return min(max(1, int(fitting_bytes(bits_per_weight * num_weights)) // entry), num_weights)

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        return whole_bytes(
            self.num_sent(num_weights, bits_per_weight) * (VALUE_BITS + place_bits(num_weights))
        )

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        import torch

        return {"lost": torch.zeros(num_weights)}

    def __call__(
        self,
        change: "Tensor",
        bits_per_weight: float,
        randomness: Randomness,
        own: "dict[str, Tensor]",
    ) -> "tuple[Sent, dict[str, Tensor]]":
        import torch

        whole = change + own["lost"].to(change)
        places = whole.abs().topk(self.num_sent(len(change), bits_per_weight), sorted=False).indices
        values = whole[places].float()
        received = torch.zeros_like(whole)
        received[places] = values.to(whole)

        def pack() -> bytes:
            order = torch.argsort(places)
            digits = places[order].cpu().numpy().astype(">u4").view(np.uint8).reshape(-1, 4)
            text = np.unpackbits(digits, axis=1)[:, 32 - place_bits(len(change)) :]
            return values[order].cpu().numpy().astype("<f4").tobytes() + np.packbits(text).tobytes()

        return Sent(received, self.update_bits(len(change), bits_per_weight), pack), {
            "lost": whole - received
        }

    def unpack(self, payload: bytes, num_weights: int) -> "Tensor":
        import torch

        wide = place_bits(num_weights)
        num = min(max(8 * len(payload) // (VALUE_BITS + wide), 1), num_weights)
        check_length(payload, int(whole_bytes(num * (VALUE_BITS + wide))) // 8)
        values = np.frombuffer(payload, "<f4", num)
        digits = np.zeros((num, 32), np.uint8)
        text = np.unpackbits(np.frombuffer(payload, np.uint8, offset=values.nbytes))[: num * wide]
        digits[:, 32 - wide :] = text.reshape(num, wide)
        places = np.packbits(digits, axis=1).view(">u4").reshape(-1).astype(np.int64)
        if (np.diff(places) <= 0).any() or places[-1] >= num_weights:
            raise AutoFLError(
                f"packed update: places that do not rise, or beyond the {num_weights} weights"
            )
        received = np.zeros(num_weights, np.float32)
        received[places] = values
        return torch.from_numpy(received)


def place_bits(num_weights: int) -> int:
    """Bits that name one of this many places."""
    return max(1, (num_weights - 1).bit_length())
