"""Algorithm 2 as printed."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from autofl.network import Cell, Plan, compute_cost, decoded, make_plan, upload_cost
from autofl.planner.base import MIN_SAMPLES, Memory, affordable_samples, power_limit
from autofl.planner.exact import ACCURACY
from autofl.planner.power import least_upload, power_computation
from autofl.ranges import Checked
from autofl.units import Array


@dataclass(frozen=True)
class PaperPlanner(Checked):
    """Algorithm 2 as printed: one pass of coordinate descent a round (Section IV-C).

    d_k^i = SampledDataSize(p_{k-1}^i), then p_k^i = PowerComputation(d_k^i). It remembers
    p_{k-1}^i, the UE's power in its own last round; P_max at first (line 1).

    Note:
        Started at P_max it stalls: d = D_p(P_max) uses all the energy, so p stays at P_max and d
        never reaches 1/epsilon although a lower power would allow it. `ExactPlanner` does not.
        Where no power at all fits the energy, the paper's p_k^i does not exist; the UE takes no
        part and keeps p_{k-1}^i. On a staircase of rates a p_{k-1}^i that does not reach the lowest
        level today is raised to the upload of least energy.
    """

    epsilon: Annotated[float, ACCURACY, "accuracy; asks for 1/epsilon samples"] = 0.02

    batched = True

    def init(self, cell: Cell) -> Memory:
        return {"power": np.full(cell.num_ue, np.inf)}

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        rounds = channel_gain.shape[:-1]
        num_ue = memory["power"].shape[-1]
        ue = np.broadcast_to(cell.ue, channel_gain.shape)
        power = np.broadcast_to(memory["power"], (*rounds, num_ue)).copy()
        previous_power = np.minimum(np.take_along_axis(power, ue, axis=-1), cell.max_power)
        if cell.link.levels:  # below the lowest level nothing is carried, at any energy
            previous_power = np.minimum(
                np.maximum(previous_power, least_upload(cell, channel_gain)[0]), cell.max_power
            )
        energy_left = cell.max_energy - upload_cost(cell, channel_gain, previous_power).energy
        num_samples, samples_limit = affordable_samples(cell, 1.0 / self.epsilon, energy_left)
        compute_energy = compute_cost(cell, num_samples).energy
        tx_power = power_computation(cell, channel_gain, cell.max_energy - compute_energy)
        plan = make_plan(
            cell,
            feasible=(num_samples >= MIN_SAMPLES) & decoded(cell, channel_gain, tx_power),
            num_samples=num_samples,
            tx_power=tx_power,
            samples_limit=samples_limit,
            power_limit=power_limit(cell, channel_gain, tx_power),
        )
        np.put_along_axis(power, ue, np.where(tx_power > 0.0, tx_power, previous_power), axis=-1)
        return plan, {"power": power}
