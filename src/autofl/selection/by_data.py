"""Selection in proportion to the data a UE owns."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range
from autofl.selection.base import Candidates, Selection
from autofl.units import Array


@dataclass(frozen=True)
class ByData(Checked, Selection):
    """pi_i proportional to D_i, at most 1, |A_k| UEs in all."""

    num_selected: Annotated[int, Range(ge=1)] = 5

    def probability(self, candidates: Candidates) -> Array:
        size = candidates.cell.data_size
        if not 1 <= self.num_selected <= len(size):
            raise AutoFLError(
                f"num_selected: {self.num_selected} is not between 1 and the {len(size)} UEs"
            )
        certain = np.zeros(size.shape, np.bool_)
        while True:  # a UE that would get more than 1 is certain, and the others share what is left
            rest = max(self.num_selected - int(certain.sum()), 0)
            share = np.where(certain, 1.0, rest * size / max(float(size[~certain].sum()), 1e-300))
            if not (share > 1.0).any():
                return share
            certain |= share >= 1.0
