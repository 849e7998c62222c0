"""FedCS: the UEs that make a deadline, the quickest first (Nishio and Yonetani, ICC 2019)."""

from dataclasses import dataclass
from math import ceil, comb
from typing import Annotated, Literal

import numpy as np

from autofl.errors import AutoFLError
from autofl.network import Cell, compute_cost, decoded, upload_cost
from autofl.ranges import Checked, Range
from autofl.selection.base import Candidates, Selected, Selection
from autofl.units import Array, IntArray

HALVINGS = 60
"""Steps of the bisection for a power: the last one is below rounding."""


@dataclass(frozen=True)
class FedCS(Checked, Selection):
    """Client selection by deadline, Algorithm 3 of "Client selection for federated learning with
    heterogeneous resources in mobile edge" (arXiv 1804.08333).

    Of ceil(C n) UEs drawn at random, the one that lengthens the round least is added, again and
    again, as long as the round stays within the deadline T_round. `upload = "sequential"` is their
    model: UEs compute at the same time and send one after another, so with Theta the time spent so
    far a UE adds t^UL + max(0, t^UD - Theta). `upload = "parallel"` is the round of this package,
    in which each UE has a band of its own and the round is as long as its
    slowest UE: the quickest are added, up to the deadline. Their model only changes who is chosen:
    a round costs what it costs in this package.

    Note:
        Times are estimates from the cell and the channel: `num_samples` samples of each local step,
        sent at the largest power that the rest of E_max pays for; infinite for a UE that cannot be
        decoded or pay. There is no downlink here, so their T^d, T_cs and T_agg are one setting,
        `overhead`. At most |A_k| UEs are chosen, since there are bands for no more. Where nobody
        makes the deadline the quickest UE is chosen all the same: a round without UEs would take no
        time.

        A UE that misses the deadline has probability 0 in this round, so no weights make its
        updates count on
        average: the aggregator `unbiased` is refused. With sequential upload and C < 1 the
        probabilities are not known in closed form; they are NaN in the tables.
    """

    deadline: Annotated[float, Range(gt=0), "T_round [s]"] = 0.2
    share: Annotated[float, Range(gt=0, le=1), "C, share of the UEs considered in a round"] = 1.0
    upload: Annotated[
        Literal["parallel", "sequential"], "how uploads are estimated: side by side, or in turn"
    ] = "parallel"
    num_samples: Annotated[int, Range(ge=1), "d of the estimate"] = 40
    overhead: Annotated[float, Range(ge=0), "seconds of a round beyond training and uploads"] = 0.0
    num_selected: Annotated[int, Range(ge=1)] = 5  # at most

    reaches_everybody = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overhead >= self.deadline:
            raise AutoFLError(
                f"overhead: {self.overhead} s leave nothing of the deadline of {self.deadline} s"
            )

    def probability(self, candidates: Candidates) -> Array:
        """P(i in A_k) given the channels, over the draw of candidates.

        In parallel a UE is chosen if it is a candidate, makes the deadline and fewer than |A_k| of
        the r UEs that are quicker are candidates too, a hypergeometric number; one too slow, if it
        is a candidate and none of those is.
        """
        num_ue = candidates.cell.num_ue
        considered = self._considered(candidates.cell)
        if considered == num_ue:  # nothing is left to chance
            everybody = np.arange(num_ue)
            return np.isin(everybody, self._chosen(candidates, everybody)).astype(np.float64)
        if self.upload == "sequential":
            raise AutoFLError(
                "selection fedcs: with sequential upload and share < 1 nobody knows how likely a UE is to be selected"
            )
        time = self._times(candidates).sum(axis=0) + self.overhead
        order = np.argsort(time, kind="stable")
        probability = np.zeros(num_ue)
        draws = comb(num_ue, considered)
        for quicker, ue in enumerate(order.tolist()):
            most = self.num_selected - 1 if time[ue] <= self.deadline else 0
            ways = sum(
                comb(quicker, among) * comb(num_ue - 1 - quicker, considered - 1 - among)
                for among in range(min(most, quicker, considered - 1) + 1)
            )
            probability[ue] = ways / draws
        return probability

    def draw(self, candidates: Candidates, rng: np.random.Generator) -> Selected:
        num_ue = candidates.cell.num_ue
        considered = self._considered(candidates.cell)
        drawn = np.sort(rng.choice(num_ue, considered, replace=False))
        ue = np.sort(self._chosen(candidates, drawn))
        unknown = self.upload == "sequential" and considered < num_ue
        return Selected(
            ue, np.full(len(ue), np.nan) if unknown else self.probability(candidates)[ue]
        )

    def _considered(self, cell: Cell) -> int:
        return ceil(self.share * cell.num_ue * (1.0 - 1e-12))

    def _chosen(self, candidates: Candidates, drawn: IntArray) -> IntArray:
        """Algorithm 3 on these candidates: who is chosen, in the order in which they are."""
        computing, sending = (times[drawn] for times in self._times(candidates))
        left = list(range(len(drawn)))
        chosen = list[int]()
        spent = 0.0
        while left and len(chosen) < self.num_selected:
            with np.errstate(invalid="ignore"):
                longer = self._longer(spent, computing[left], sending[left])
            place = left.pop(int(np.argmin(longer)))
            after = self._longer(spent, computing[place], sending[place]) + spent
            if self.overhead + after <= self.deadline:
                spent = float(after)
                chosen.append(place)
        if not chosen:
            chosen = [int(np.argmin(computing + sending))]
        return drawn[chosen]

    def _longer(self, spent: float, computing: Array, sending: Array) -> Array:
        """By how much a round of `spent` seconds grows with each UE."""
        if self.upload == "parallel":
            return np.maximum(computing + sending - spent, 0.0)
        return np.asarray(sending + np.maximum(computing - spent, 0.0))

    def _times(self, candidates: Candidates) -> Array:
        """Seconds of computing and of sending, shape (2, num_ue); sending is infinite for a UE that
        cannot be heard.
        """
        cell = candidates.cell
        gain = candidates.gain
        if cell.link.levels or cell.circuit_power > 0.0:
            raise AutoFLError(
                "selection fedcs: its estimate knows no staircase of rates and no circuit power"
            )
        compute = compute_cost(cell, np.minimum(float(self.num_samples), np.floor(cell.data_size)))
        rest = cell.max_energy - compute.energy
        low = np.zeros(cell.num_ue)
        high = cell.max_power.copy()
        low = np.where(upload_cost(cell, gain, high).energy <= rest, high, low)
        for _ in range(HALVINGS):  # upload energy grows with power
            power = 0.5 * (low + high)
            pays = upload_cost(cell, gain, power).energy <= rest
            low = np.where(pays, power, low)
            high = np.where(pays, high, power)
        heard = decoded(cell, gain, low) & (low > 0.0)
        return np.stack([compute.time, np.where(heard, upload_cost(cell, gain, low).time, np.inf)])
