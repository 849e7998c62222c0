"""What a compressor is. Its size in bits is known without PyTorch, so a planner can count on it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from torch import Tensor

Randomness = Callable[[], np.random.Generator]
"""The generator of one UE and round, made when it is asked for."""
SLACK = 1e-6
"""Share of a byte: bits per weight times weights give a budget only up to rounding."""


@dataclass(frozen=True)
class Sent:
    """What a UE sends of its update. A simulation takes the first two, a deployment sends `pack()`.

    Fields:
        received: what the server makes of the bytes, shape (num_weights,), equal to
            `unpack(pack())` to the bit.
        bits: Z of this very update, 8 times the number of bytes.
        pack: makes the bytes.
    """

    received: "Tensor"
    bits: float
    pack: Callable[[], bytes]


class Compressor(Protocol):
    """A compressor: a frozen dataclass of settings with these functions. It sees one UE, as a
    device does.
    """

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float:
        """Z [bit] of an update of this many weights, the most it may take; with `bits_per_weight`
        where a planner decides it.
        """
        ...

    def init(self, num_weights: int) -> "dict[str, Tensor]":
        """What a UE remembers before its first round; empty for a compressor without a memory."""
        ...

    def __call__(
        self,
        change: "Tensor",
        bits_per_weight: float,
        randomness: Randomness,
        own: "dict[str, Tensor]",
    ) -> "tuple[Sent, dict[str, Tensor]]":
        """What is sent of w_i - w, shape (num_weights,), and what the UE remembers; a pure
        function.
        """
        ...

    def unpack(self, payload: bytes, num_weights: int) -> "Tensor":
        """What the server receives, single precision; an `AutoFLError` for bytes that no `pack`
        makes.
        """
        ...


def whole_bytes(bits: float) -> float:
    """The bits of the fewest bytes that hold this many bits."""
    return 8.0 * math.ceil(bits / 8.0 - SLACK)


def fitting_bytes(bits: float) -> float:
    """The bits of the most bytes that a budget pays for."""
    return 8.0 * math.floor(bits / 8.0 + SLACK)


def check_length(payload: bytes, num_bytes: int) -> None:
    if len(payload) != num_bytes:
        raise AutoFLError(f"packed update: {len(payload)} bytes, not {num_bytes}")
