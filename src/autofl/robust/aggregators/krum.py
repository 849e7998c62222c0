"""Multi-Krum: the mean of the updates that have the nearest neighbours."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from autofl.robust.aggregators.rows import LIARS, RowRule, distances_sq, num_liars


@dataclass(frozen=True)
class Krum(RowRule):
    """Mean of the m - f updates with the smallest sum of |w_i - w_j|^2 over their m - f - 2
    nearest.

    Blanchard et al., NeurIPS 2017. f is the share of the updates, rounded up. It is proven for 2 f
    + 2 < m; f is cut to what m allows.
    """

    share: Annotated[float, LIARS, "share of the updates that may be lies"] = 0.3

    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        num = len(table)
        liars = num_liars(self.share, num, max(0, (num - 3) // 2))
        nearest = distances_sq(table).sort(dim=1).values[:, 1 : max(2, num - liars - 1)]
        best = nearest.sum(dim=1).sort(stable=True).indices[: num - liars]
        kept = best.sort().values  # summed in the order of the UEs
        return weight[kept] @ table[kept] / weight[kept].sum()
