"""Channels: where the gains of a round come from. NumPy, float64."""

from autofl.channels.base import Channel, channel_at, success_probability
from autofl.channels.fading import Exponential, Fading, NoFading, OwnFading, Rayleigh
from autofl.channels.knowledge import Knowledge
from autofl.channels.path_loss import PathLoss
from autofl.channels.radio import Radio

__all__ = [
    "Channel",
    "Exponential",
    "Fading",
    "Knowledge",
    "NoFading",
    "OwnFading",
    "PathLoss",
    "Radio",
    "Rayleigh",
    "channel_at",
    "success_probability",
]
