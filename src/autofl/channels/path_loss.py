"""Path loss times fading, the paper's channel: g_i = h_i r_i^-kappa, h_i new in every round."""

from dataclasses import dataclass

from autofl.channels.base import Channel
from autofl.channels.fading import Fading
from autofl.network import Cell, channel_gain, path_gain
from autofl.rng import stream
from autofl.units import Array


@dataclass(frozen=True)
class PathLoss(Channel):
    """r_i^-kappa times a small-scale gain, drawn anew in each round, independent over UEs and
    rounds.
    """

    fading: Fading

    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        return channel_gain(cell, self.fading.draw(stream(seed, "fading", k), (cell.num_ue,)))

    def survival(self, cell: Cell, gain: Array) -> Array:
        """P(h_i >= gain / r_i^-kappa)."""
        return self.fading.survival(gain / path_gain(cell))
