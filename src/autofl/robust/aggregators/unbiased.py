"""Server weights 1/(n q_i): on average every UE counts the same, however seldom it is heard."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from autofl.models import Params
from autofl.ranges import Checked, Range
from autofl.robust.aggregators.base import Arrived
from autofl.units import Array


@dataclass(frozen=True, eq=False)  # arrays do not compare to one truth value
class Unbiased(Checked):
    """w + sum_i (w_i - w) / (n q_i) over the UEs that are heard, q_i = P(selected) P(decoded |
    selected).

    Its expectation is the mean move of all n UEs, so the fixed point is that of F. The price is
    variance: the move of a UE that is seldom heard is multiplied; `largest` caps its weight, at the
    price of some bias.

    P(selected) is what the rule of selection says of this round. P(decoded | selected) is a
    property of the network: by default it is counted in rounds of the network alone, under another
    seed.
    """

    heard_probability: Annotated[Array | list[float] | float, Range(gt=0, le=1)] = (
        1.0  # P(decoded | selected) of each UE
    )
    largest: Annotated[float, Range(ge=1), "largest weight of one update, as a multiple of 1/n"] = (
        100.0
    )

    needs_everybody = True
    """The rule of selection must reach everybody: no weight makes up for a probability of 0."""

    def __call__(self, sent: Params, arrived: Arrived) -> Params:
        heard = np.broadcast_to(
            np.asarray(self.heard_probability, dtype=np.float64), (arrived.num_ue,)
        )
        ue = arrived.updates.ue
        weight = np.minimum(1.0 / (arrived.probability * heard[ue]), self.largest) / arrived.num_ue
        mean = arrived.updates.mean(weight)  # which divides by their sum
        total = float(weight[np.argsort(ue, kind="stable")].sum())
        return {name: p + total * (mean[name] - p) for name, p in sent.items()}
