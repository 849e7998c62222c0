"""Learning algorithms: what a client computes and what the server makes of it. Nothing here knows of radio."""

from autofl.algorithms.base import Algorithm, Averaging, State, minus, num_steps, step_of
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg, Variant

__all__ = ["Algorithm", "Averaging", "FedAvg", "PerFedAvg", "State", "Variant", "minus", "num_steps", "step_of"]
