"""Uniform selection, the paper's: |A_k| UEs, each as likely as any other."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range
from autofl.selection.base import Candidates, Selected, Selection
from autofl.units import Array


@dataclass(frozen=True)
class Uniform(Checked, Selection):
    """A fixed number of UEs, uniformly at random (Algorithm 2, line 3)."""

    num_selected: Annotated[int, Range(ge=1)] = 5

    def probability(self, candidates: Candidates) -> Array:
        num_ue = candidates.cell.num_ue
        if not 1 <= self.num_selected <= num_ue:
            raise AutoFLError(
                f"num_selected: {self.num_selected} is not between 1 and the {num_ue} UEs"
            )
        return np.full(num_ue, self.num_selected / num_ue)

    def draw(self, candidates: Candidates, rng: np.random.Generator) -> Selected:
        probability = self.probability(candidates)
        ue = np.sort(rng.choice(len(probability), self.num_selected, replace=False))
        return Selected(ue, probability[ue])
