"""The joint optimum of the paper's (P3) and (P4)."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from autofl.network import Cell, Plan, compute_cost, decoded, make_plan
from autofl.planner.base import MIN_SAMPLES, Memory, Memoryless, affordable_samples, power_limit
from autofl.planner.power import least_upload, power_computation
from autofl.ranges import Checked, Range
from autofl.units import Array

ACCURACY = Range(gt=0, le=1 / MIN_SAMPLES)
"""Of epsilon: 1/epsilon samples must be enough for three batches."""


@dataclass(frozen=True)
class ExactPlanner(Checked, Memoryless):
    """Joint optimum of (P3) and (P4) for each UE: accuracy first, then time.

    Time grows with d and falls with p, so d = min(1/epsilon, D_i) and p is the largest power that
    the remaining
    energy allows, as long as the update stays decodable: p >= p_phi = phi N0 B / g. That least
    power costs p_phi Z / (B log2(1 + phi)), and what it leaves of E_max caps d. With circuits that
    draw power, or a staircase of rates, `least_upload`, the upload of least energy, takes the place
    of p_phi, and `power_computation`, the power that reaches the highest rate, takes the place of
    the largest power.
    """

    epsilon: Annotated[float, ACCURACY, "accuracy; asks for 1/epsilon samples"] = 0.02

    batched = True

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        least_power, least_energy = least_upload(cell, channel_gain)
        num_samples, samples_limit = affordable_samples(
            cell, 1.0 / self.epsilon, cell.max_energy - least_energy
        )
        compute_energy = compute_cost(cell, num_samples).energy
        tx_power = power_computation(cell, channel_gain, cell.max_energy - compute_energy)
        # Where d takes all but the least energy, the two routes to the least power differ by
        # rounding only.
        tx_power = np.minimum(np.maximum(tx_power, least_power), cell.max_power)
        plan = make_plan(
            cell,
            feasible=(num_samples >= MIN_SAMPLES) & decoded(cell, channel_gain, tx_power),
            num_samples=num_samples,
            tx_power=tx_power,
            samples_limit=samples_limit,
            power_limit=power_limit(cell, channel_gain, tx_power),
        )
        return plan, memory
