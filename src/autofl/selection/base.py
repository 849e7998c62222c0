"""What a rule of selection is: from the candidates of a round to the probability with which each is
chosen.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.units import Array, IntArray


@dataclass(frozen=True)
class Candidates:
    """All UEs of a cell at the beginning of round k, and what is known of their channels once
    somebody asks.
    """

    cell: Cell
    k: int
    ask_gain: Callable[[], Array]

    @cached_property
    def gain(self) -> Array:
        """Known channel gains, shape (num_ue,). On real devices asking costs a message to each."""
        return self.ask_gain()


class Selected(NamedTuple):
    """A_k: the UEs of a round in the order of their numbers, and the probability with which each
    was chosen.
    """

    ue: IntArray
    probability: Array


class Selection(ABC):
    """A rule of selection: it gives probabilities, and UEs are drawn by them."""

    reaches_everybody = True
    """Whether each UE has a probability > 0 in each round, and it is known."""

    @abstractmethod
    def probability(self, candidates: Candidates) -> Array:
        """pi_i = P(i in A_k), shape (num_ue,); their sum is the expected |A_k|."""

    def draw(self, candidates: Candidates, rng: np.random.Generator) -> Selected:
        """Systematic sampling: each UE with exactly its probability, and the number of UEs fixed up
        to rounding.
        """
        probability = np.asarray(self.probability(candidates), dtype=np.float64)
        if (
            probability.shape != (candidates.cell.num_ue,)
            or not ((probability >= 0) & (probability <= 1)).all()
        ):
            raise AutoFLError(
                f"selection {type(self).__name__}: it must give a probability between 0 and 1 for each of the"
                f" {candidates.cell.num_ue} UEs"
            )
        order = rng.permutation(len(probability))
        edges = np.concatenate([[0.0], np.cumsum(probability[order])])
        ticks = np.floor(
            edges - rng.random() + 1e-12
        )  # a tick every 1: UE i is hit where one lies in its stretch
        ue = np.sort(order[np.diff(ticks) > 0])
        return Selected(ue, probability[ue])
