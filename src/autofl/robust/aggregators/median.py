"""The coordinate-wise median."""

from dataclasses import dataclass

from torch import Tensor

from autofl.robust.aggregators.rows import RowRule


@dataclass(frozen=True)
class Median(RowRule):
    """w + the weighted median of w_i - w, weight by weight (Yin et al., ICML 2018).

    Liars with less than half of the weight move no coordinate beyond the honest updates. Where data
    are not i.i.d. the median of few differs from their mean, liars or not.
    """

    def rule(self, table: Tensor, weight: Tensor) -> Tensor:
        return weighted_median(table, weight)


def weighted_median(table: Tensor, weight: Tensor) -> Tensor:
    """Where the weights below and above are equal; between two values their mean."""
    values, order = table.sort(dim=0, stable=True)
    below = weight[order].cumsum(dim=0)
    # sums of equal weights may miss 1/2 by a rounding
    half = 0.5
    slack = 1e-9
    low = (below < half - slack).sum(dim=0, keepdim=True)
    high = (below <= half + slack).sum(dim=0, keepdim=True).clamp(max=len(table) - 1)
    return 0.5 * (values.gather(0, low) + values.gather(0, high))[0]
