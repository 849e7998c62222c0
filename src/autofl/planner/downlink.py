"""How many bits a weight of the broadcast are worth the time they take."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from autofl.compressors import Compressor
from autofl.compressors.downlink import downlink_bits
from autofl.network import RoundCost
from autofl.units import Array

WHOLE = 32.0
"""Bits per weight of the model as it is."""
DELAYED = 0.75
"""Share of a round's progress that is lost with what does not arrive in it: the rest comes with the
next message, and then still helps. Measured: docs/joint-results.md.
"""


@runtime_checkable
class Losing(Protocol):
    """A compressor of the way down whose bits can be decided."""

    def update_bits(self, num_weights: int, bits_per_weight: float | None = None) -> float: ...

    def losses(self) -> list[tuple[float, float]]:
        """Bits per weight to choose from, and the share of |x|^2 that is typically lost."""
        ...


@dataclass(frozen=True)
class Offer:
    """Messages to choose from, from the coarsest to the model as it is; arrays of shape
    (num_messages,).
    """

    bits_per_weight: Array
    size: Array  # Z_down [bit]
    lost: Array  # share of |x|^2 that the UEs do not receive

    def having(self, lost: Array) -> "Offer":
        """The same messages with losses that were measured; the model as it is loses nothing."""
        return Offer(self.bits_per_weight, self.size, np.append(lost, 0.0))


def offer_of(compressor: Compressor, num_weights: int) -> Offer:
    """What the compressor offers, with its typical losses, and the model as it is; all others are
    shorter than that.
    """
    assert isinstance(compressor, Losing)
    bits, lost = np.array(sorted(compressor.losses())).T
    size = np.array([downlink_bits(num_weights, compressor, one) for one in bits.tolist()])
    shorter = size < WHOLE * num_weights
    return Offer(
        np.append(bits[shorter], WHOLE),
        np.append(size[shorter], WHOLE * num_weights),
        np.append(lost[shorter], 0.0),
    )


def speed(offer: Offer, rest: float, per_bit: float) -> Array:
    """Progress per second with each message, in units of a round's progress [1/s].

        (1 - eta lost_b) / (T' + c Z_b),    eta = DELAYED

    A message of b bits that maximises it also maximises progress - lambda time, lambda being the
    progress per second of rounds like this one with the best message (Dinkelbach).

    Args:
        offer: the messages.
        rest: T' [s], the time of a round apart from its downlink.
        per_bit: c [s/bit], the time in which the weakest UE that listens receives a bit.
    """
    return np.asarray((1.0 - DELAYED * offer.lost) / (rest + per_bit * offer.size))


def best_message(offer: Offer, cost: RoundCost, sent: float) -> int:
    """Which message of the offer is worth its time in a round like this one.

    Args:
        offer: the messages.
        cost: of the round.
        sent: Z_down [bit] in it.
    """
    down = float(cost.downlink_time)
    scores = speed(offer, max(float(cost.time) - down, 0.0), down / sent)
    return int(len(scores) - 1 - scores[::-1].argmax())  # of equals the one that loses least
