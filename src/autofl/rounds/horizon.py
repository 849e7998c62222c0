"""The network's side of many rounds without any learning: who is heard, with how many samples, at
what cost. NumPy.
"""

from dataclasses import dataclass

import numpy as np

from autofl.rounds.round import Network, network_round, next_network, typical_pace
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
    memory = network.planner.init(network.air.cell)
    for k in range(1, num_rounds + 1):
        this_round, memory = network_round(network, k, memory)
        pace[k - 1] = typical_pace(network, this_round)
        network = next_network(network, this_round)
        selected[k - 1, this_round.ue] = True
        heard[k - 1, this_round.ue] = this_round.decoded
        num_samples[k - 1, this_round.ue] = this_round.decoded * this_round.plan.num_samples
        local_steps[k - 1, this_round.ue] = this_round.decoded * this_round.plan.local_steps
        bits[k - 1, this_round.ue] = this_round.decoded * this_round.plan.bits_per_weight
        tx_power[k - 1, this_round.ue] = this_round.decoded * this_round.plan.tx_power
        energy[k - 1, this_round.ue] = this_round.cost.energy
        plan_weight[k - 1, this_round.ue] = this_round.decoded * this_round.plan.weight
        round_time[k - 1] = this_round.cost.time
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
