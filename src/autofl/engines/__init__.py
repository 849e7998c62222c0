"""Engines: how the client updates of a round are computed. All give the same numbers up to
rounding.
"""

from autofl.engines.compressed import CompressedUpdates, UnpackedUpdates
from autofl.engines.memory import ClientMemory
from autofl.engines.pick import Engine, make_engine, pick_engine
from autofl.engines.process import use_machine
from autofl.engines.updates import StackedUpdates, Summed, Updates, added, bits_of

__all__ = [
    "ClientMemory",
    "CompressedUpdates",
    "Engine",
    "StackedUpdates",
    "Summed",
    "UnpackedUpdates",
    "Updates",
    "added",
    "bits_of",
    "make_engine",
    "pick_engine",
    "use_machine",
]
