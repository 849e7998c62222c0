"""Learning algorithms and the engines that run them. Nothing here knows of radio or planning."""

from autofl.algorithms.base import Algorithm, Averaging, State, Summed, Updates, added, minus, num_steps, step_of
from autofl.algorithms.engine import Engine, StackedUpdates, make_engine, pick_engine
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg, Variant
from autofl.algorithms.process import use_machine

__all__ = [
    "Algorithm",
    "Averaging",
    "Engine",
    "FedAvg",
    "PerFedAvg",
    "StackedUpdates",
    "State",
    "Summed",
    "Updates",
    "Variant",
    "added",
    "make_engine",
    "minus",
    "num_steps",
    "pick_engine",
    "step_of",
    "use_machine",
]
