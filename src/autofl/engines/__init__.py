"""Engines: how the client updates of a round are computed. All give the same numbers up to rounding."""

from autofl.engines.pick import Engine, StackedUpdates, make_engine, pick_engine
from autofl.engines.process import use_machine
from autofl.engines.updates import Summed, Updates, added

__all__ = ["Engine", "StackedUpdates", "Summed", "Updates", "added", "make_engine", "pick_engine", "use_machine"]
