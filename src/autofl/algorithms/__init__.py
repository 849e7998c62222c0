"""Learning algorithms: what a client computes and what the server makes of it. Nothing here knows
of radio.
"""

from autofl.algorithms.base import (
    Algorithm,
    Averaging,
    Guarding,
    Personal,
    State,
    Stateful,
    at_round,
    is_guarded,
    is_independent,
    is_stateful,
    minus,
    num_steps,
    split_of,
    step_of,
)
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg, Variant

__all__ = [
    "Algorithm",
    "Averaging",
    "FedAvg",
    "Guarding",
    "PerFedAvg",
    "Personal",
    "State",
    "Stateful",
    "Variant",
    "at_round",
    "is_guarded",
    "is_independent",
    "is_stateful",
    "minus",
    "num_steps",
    "split_of",
    "step_of",
]
