"""What a compressor is. Its size in bits is known without PyTorch, so that a planner can reckon with it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Randomness = Callable[[], np.random.Generator]
"""The generator of one UE and round, made when it is asked for."""


class Compressor(Protocol):
    """A compressor: a frozen dataclass of settings with these functions. It sees one UE, as a device does."""

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        """Z [bit] of an update of so many weights; with `bits_per_weight`, where a planner decides them."""
        ...

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        """What a UE remembers before its first round; empty for a compressor without a memory."""
        ...

    def __call__(
        self, change: "Tensor", bits_per_weight: float, randomness: Randomness, own: "dict[str, Tensor]"
    ) -> "tuple[Tensor, dict[str, Tensor]]":
        """What the server receives of w_i - w, shape (num_weights,), and what the UE remembers; a pure function."""
        ...
