"""Engines: how the client updates of a round are computed. All give the same numbers up to
rounding.
"""

from autofl.engines.compressed import CompressedUpdates
from autofl.engines.memory import ClientMemory
from autofl.engines.pick import Engine, make_engine, pick_engine
from autofl.engines.process import use_machine
from autofl.engines.updates import ReceivedUpdates, Summed, Updates, added, flat, moved, shaped

__all__ = [
    "ClientMemory",
    "CompressedUpdates",
    "Engine",
    "ReceivedUpdates",
    "Summed",
    "Updates",
    "added",
    "flat",
    "make_engine",
    "moved",
    "pick_engine",
    "shaped",
    "use_machine",
]
