"""What a channel is: the gains of every round, what is known of them, and their law where it has
one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.units import Array


class Channel(ABC):
    """A channel. Gains are a pure function of cell, seed and round, so any round can be replayed
    alone.
    """

    @abstractmethod
    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        """g_k^i of all UEs in round k = 1, 2, ..., shape (num_ue,): what decides decoding, time and
        energy.
        """

    def estimate(self, cell: Cell, seed: int, k: int, gain: Array) -> Array:
        """What the planner knows of these gains; by default the gains themselves."""
        return gain

    def at(self, time: float) -> "Channel":
        """The channel as it is in a round that starts at this simulated time [s].

        Rounds ask it for their gains. By default a channel knows rounds, not seconds, and is the
        same at any time.
        """
        return self

    def survival(self, cell: Cell, gain: Array) -> Array:
        """P(g_i >= gain) in a round, shape (..., num_ue), where the channel has a law."""
        raise AutoFLError(
            f"{type(self).__name__} has no law: it cannot tell how likely an update is to be decoded"
        )


class Timed(Channel):
    """A channel that follows the clock: its gains are a function of the simulated time.

    Where no clock runs, round k begins `interval` seconds [s] after the one before.
    """

    interval: float

    @abstractmethod
    def gain_at(self, cell: Cell, seed: int, time: float) -> Array:
        """g_i at this time [s] of a run."""

    def estimate_at(self, cell: Cell, seed: int, gain: Array, time: float) -> Array:
        """What the planner knows of them at this time."""
        return gain

    def survival_at(self, cell: Cell, gain: Array, time: float) -> Array:
        """P(g_i >= gain) at this time."""
        return super().survival(cell, gain)

    def at(self, time: float) -> Channel:
        return Moment(self, time)

    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        return self.gain_at(cell, seed, (k - 1) * self.interval)

    def estimate(self, cell: Cell, seed: int, k: int, gain: Array) -> Array:
        return self.estimate_at(cell, seed, gain, (k - 1) * self.interval)

    def survival(self, cell: Cell, gain: Array) -> Array:
        return self.survival_at(cell, gain, 0.0)


@dataclass(frozen=True)
class Moment(Channel):
    """A channel that follows the clock, at a moment of a run."""

    channel: Timed
    time: float

    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        return self.channel.gain_at(cell, seed, self.time)

    def estimate(self, cell: Cell, seed: int, k: int, gain: Array) -> Array:
        return self.channel.estimate_at(cell, seed, gain, self.time)

    def survival(self, cell: Cell, gain: Array) -> Array:
        return self.channel.survival_at(cell, gain, self.time)


def channel_at(channel: Channel, time: float) -> Channel:
    """`channel.at(time)`; a user's own channel need not have it."""
    at = getattr(channel, "at", None)
    return channel if at is None else at(time)


def success_probability(
    cell: Cell, channel: Channel, tx_power: ArrayLike, select_probability: float = 1.0
) -> Array:
    """Probability that an update arrives, exact for the channel's law, Eq. (8).

        q_i = P(selected) P(xi_i >= phi),    xi_i >= phi when g_i >= phi N0 B / p_i

    Args:
        cell: least_snr phi, noise_psd N0, bandwidth B.
        channel: law of g_i.
        tx_power: p_i [W], shape (..., num_ue).
        select_probability: P(s_i = 1), |A_k| / n under uniform selection.
    Note:
        Eq. (8) as printed forgets path loss; see `printed_success_probability`.
    """
    with np.errstate(divide="ignore"):
        least_gain = cell.least_snr * cell.noise_power / np.asarray(tx_power)
    return select_probability * channel.survival(cell, least_gain)
