"""The network's side of many rounds without any learning: who is heard, with how many samples, at
what cost. NumPy.
"""

from dataclasses import dataclass

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
    selected = np.zeros(shape, np.bool_)
    heard = np.zeros(shape, np.bool_)
    energy = np.zeros(shape)
    tx_power = np.zeros(shape)
    plan_weight = np.zeros(shape)
    num_samples = np.zeros(shape, np.int64)
    local_steps = np.zeros(shape, np.int64)
    bits = np.zeros(shape)
    round_time = np.zeros(num_rounds)
    pace = np.ones(num_rounds)
    past = before_training(network)
    for row in range(num_rounds):
        this, past = without_learning(network, past)
        pace[row] = typical_pace(network, this)
        round_time[row] = this.cost.time
        selected[row, this.ue] = True
        energy[row, this.ue] = this.cost.energy
        heard[row, this.ue] = this.decoded
        num_samples[row, this.ue] = this.decoded * this.plan.num_samples
        local_steps[row, this.ue] = this.decoded * this.plan.local_steps
        bits[row, this.ue] = this.decoded * this.plan.bits_per_weight
        tx_power[row, this.ue] = this.decoded * this.plan.tx_power
        plan_weight[row, this.ue] = this.decoded * this.plan.weight
    return Horizon(
        selected,
        heard,
        num_samples,
        local_steps,
        bits,
        tx_power,
        energy,
        plan_weight,
        round_time,
        pace,
    )
