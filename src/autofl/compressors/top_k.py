"""Top-k with error feedback: the largest weights of an update, and what was left out added to the next one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from autofl.compressors.base import Randomness
from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from torch import Tensor

VALUE_BITS = 32
"""A value travels in single precision."""


@dataclass(frozen=True)
class TopK:
    """The k largest weights are sent as they are, with their places; the rest is remembered (Stich et al. 2018).

        x = change + lost,    received = top_k(x),    lost' = x - received

    Z = k (32 + ceil(log2 N)). It is biased in each round; over many rounds nothing is lost. Where a planner decides
    bits_per_weight, k is the largest number that fits.
    """

    share: Annotated[float, "of the weights that are sent"] = 0.05

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise AutoFLError(f"share: {self.share} is not > 0 and <= 1; 0.05 sends every twentieth weight")

    def num_sent(self, num_weights: int, bits_per_weight: float | None = None) -> int:
        """k, at least 1."""
        if bits_per_weight is None:
            return max(1, round(self.share * num_weights))
        entry = VALUE_BITS + place_bits(num_weights)
        return min(max(1, int(bits_per_weight * num_weights / entry + 1e-9)), num_weights)

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        return float(self.num_sent(num_weights, bits_per_weight) * (VALUE_BITS + place_bits(num_weights)))

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        import torch

        return {"lost": torch.zeros(num_weights)}

    def __call__(
        self, change: "Tensor", bits_per_weight: float, randomness: Randomness, own: "dict[str, Tensor]"
    ) -> "tuple[Tensor, dict[str, Tensor]]":
        import torch

        whole = change + own["lost"].to(change)
        places = whole.abs().topk(self.num_sent(len(change), bits_per_weight), sorted=False).indices
        received = torch.zeros_like(whole)
        received[places] = whole[places]
        return received, {"lost": whole - received}


def place_bits(num_weights: int) -> int:
    """Bits that name one of so many places."""
    return max(1, (num_weights - 1).bit_length())
