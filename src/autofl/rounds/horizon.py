"""The network's side of many rounds without any learning: who is heard, with how many samples, at what cost. NumPy."""

from dataclasses import dataclass, replace

import numpy as np

from autofl.rounds.round import Network, network_round
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

    @property
    def weight(self) -> Array:
        """a_k^i, the shares of the UEs that are decoded: 1/|S_k| unless the planner decides otherwise."""
        total = self.plan_weight.sum(axis=1, keepdims=True)
        return self.plan_weight / np.where(total > 0.0, total, 1.0)


def draw_horizon(network: Network, num_rounds: int) -> Horizon:
    """Rounds as a simulation plays them: the same selection, channels, plans and costs, to the bit."""
    shape = (num_rounds, network.air.cell.num_ue)
    selected, heard = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    energy, tx_power, plan_weight = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    num_samples, local_steps, bits = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    round_time = np.zeros(num_rounds)
    memory, sim_time = network.planner.init(network.air.cell), 0.0
    for k in range(1, num_rounds + 1):
        this_round, memory = network_round(replace(network, start=sim_time), k, memory)
        sim_time += float(this_round.cost.time)
        selected[k - 1, this_round.ue] = True
        heard[k - 1, this_round.ue] = this_round.decoded
        num_samples[k - 1, this_round.ue] = this_round.decoded * this_round.plan.num_samples
        local_steps[k - 1, this_round.ue] = this_round.decoded * this_round.plan.local_steps
        bits[k - 1, this_round.ue] = this_round.decoded * this_round.plan.bits_per_weight
        tx_power[k - 1, this_round.ue] = this_round.decoded * this_round.plan.tx_power
        energy[k - 1, this_round.ue] = this_round.cost.energy
        plan_weight[k - 1, this_round.ue] = this_round.decoded * this_round.plan.weight
        round_time[k - 1] = this_round.cost.time
    return Horizon(selected, heard, num_samples, local_steps, bits, tx_power, energy, plan_weight, round_time)
