"""The network's side of many rounds without any learning: who is heard, with how many samples, at what cost. NumPy."""

from dataclasses import dataclass

import numpy as np

from autofl.config import Settings
from autofl.experiments.cell import build_cell, build_fading, planner_of
from autofl.network import Cell, channel_gain, decoded, round_cost, select
from autofl.rng import stream
from autofl.units import Array, BoolArray, IntArray


@dataclass(frozen=True)
class Horizon:
    """Rounds 1 to K of a cell, arrays of shape (num_rounds, num_ue) or (num_rounds,)."""

    heard: BoolArray
    num_samples: IntArray  # d_k^i, 0 for a UE that is not heard
    tx_power: Array  # p_k^i [W], 0 likewise
    energy: Array  # e_k^i [J]
    round_time: Array  # T_k [s]

    @property
    def weight(self) -> Array:
        """a_k^i = 1/|S_k| for the UEs that are heard."""
        return self.heard / np.maximum(self.heard.sum(axis=1, keepdims=True), 1)


def draw_horizon(settings: Settings, num_rounds: int, cell: Cell | None = None) -> Horizon:
    """Rounds as `simulate` plays them: the same selection, fading, plans and costs, to the bit.

    Args:
        cell: that of a simulation, which knows D_i and the size of the model; without one, as `autofl plan` has it.
    """
    settings = settings.resolved()
    cell, fading = cell or build_cell(settings), build_fading(settings)
    planner, seed = planner_of(settings, settings.algorithm), settings.seed
    shape = (num_rounds, cell.num_ue)
    heard, num_samples = np.zeros(shape, np.bool_), np.zeros(shape, np.int64)
    tx_power, energy, round_time = np.zeros(shape), np.zeros(shape), np.zeros(num_rounds)
    previous_power = cell.max_power.copy()
    for k in range(1, num_rounds + 1):
        selected = select(cell.num_ue, settings.simulation.num_selected, stream(seed, "selection", k))
        gain = channel_gain(cell, fading.draw(stream(seed, "fading", k), (cell.num_ue,)))[selected]
        ues = cell.take(selected)
        plan = planner(ues, gain, previous_power[selected])
        previous_power[selected] = plan.carried_power
        there = plan.feasible & decoded(ues, gain, plan.tx_power)
        cost = round_cost(
            ues, gain, there * plan.num_samples, plan.tx_power, plan.local_steps, settings.simulation.outage
        )
        heard[k - 1, selected] = there
        num_samples[k - 1, selected] = there * plan.num_samples
        tx_power[k - 1, selected] = there * plan.tx_power
        energy[k - 1, selected] = cost.energy
        round_time[k - 1] = cost.time
    return Horizon(heard, num_samples, tx_power, energy, round_time)
