"""The network's side of many rounds without any learning: who is heard, with how many samples, at
what cost. NumPy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from autofl.core.decide import Network, before_training, typical_pace, without_learning
from autofl.units import Array, BoolArray, IntArray


@dataclass(frozen=True)
class Horizon:
    """Rounds 1 to K of a cell, arrays of shape (num_rounds, num_ue) or (num_rounds,)."""

    selected: BoolArray
    decoded: BoolArray
    num_samples: IntArray  # d_k^i, 0 for a UE that is not decoded
    local_steps: IntArray  # tau_k^i, 0 likewise
    bits_per_weight: Array  # 0 likewise
    tx_power: Array  # p_k^i [W], 0 likewise
    energy: Array  # e_k^i [J]
    plan_weight: Array  # of the update, up to a common factor; 0 for a UE that is not decoded
    round_time: Array  # T_k [s]
    # share of a round's progress that a downlink with decided bits leaves; 1 where they are not
    # decided
    pace: Array

    @property
    def weight(self) -> Array:
        """a_k^i, the shares of the UEs that are decoded: 1/|S_k| unless the planner decides
        otherwise.
        """
        total = self.plan_weight.sum(axis=1, keepdims=True)
        return self.plan_weight / np.where(total > 0.0, total, 1.0)


def draw_horizon(network: Network, num_rounds: int) -> Horizon:
    """Rounds as a simulation plays them: the same selection, channels, plans and costs, to the bit.

    Only where the downlink's bits are decided do they differ: a simulation sees what is lost, here
    it is the typical.
    """
    shape = (num_rounds, network.air.cell.num_ue)
    tables: dict[str, Any] = {name: np.zeros(shape, dtype) for name, dtype in OF_UES.items()}
    round_time = np.zeros(num_rounds)
    pace = np.ones(num_rounds)
    past = before_training(network)
    for row in range(num_rounds):
        this, past = without_learning(network, past)
        pace[row] = typical_pace(network, this)
        round_time[row] = this.cost.time
        of_ues = {
            "selected": True,
            "energy": this.cost.energy,
            "decoded": this.decoded,
            "num_samples": this.decoded * this.plan.num_samples,
            "local_steps": this.decoded * this.plan.local_steps,
            "bits_per_weight": this.decoded * this.plan.bits_per_weight,
            "tx_power": this.decoded * this.plan.tx_power,
            "plan_weight": this.decoded * this.plan.weight,
        }
        for name, values in of_ues.items():
            tables[name][row, this.ue] = values
    return Horizon(**tables, round_time=round_time, pace=pace)


OF_UES = {
    "selected": np.bool_,
    "decoded": np.bool_,
    "num_samples": np.int64,
    "local_steps": np.int64,
    "bits_per_weight": np.float64,
    "tx_power": np.float64,
    "energy": np.float64,
    "plan_weight": np.float64,
}
"""Arrays of a horizon that have a column for each UE, and what they hold."""
