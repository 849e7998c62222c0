"""A given number of samples: the paper's baselines."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from autofl.network import Cell, Plan, Status, compute_cost, decoded, make_plan, upload_cost
from autofl.planner.base import MIN_SAMPLES, ROUNDING, STEP_SAMPLES, Memory, Memoryless, power_limit
from autofl.planner.power import power_computation
from autofl.ranges import Checked, Range
from autofl.units import Array


@dataclass(frozen=True)
class FixedPlanner(Checked, Memoryless):
    """A given number of samples, sent at P_max or at PowerComputation's power: the paper's
    baselines.

    Local steps, bits and a share of the CPU's frequency may be given too; the band is the cell's.

    A UE that owns fewer samples uses them all; one without enough energy takes no part.
    """

    num_samples: Annotated[int, STEP_SAMPLES, "d"] = 40
    power: Annotated[Literal["max", "computed"], "send at P_max, or as PowerComputation says"] = (
        "computed"
    )
    local_steps: Annotated[int | None, Range(ge=1), "tau; default: the run's"] = None
    bits_per_weight: Annotated[
        float | None,
        Range(gt=0, le=64),
        "of the update, scales included; default: the compressor's",
    ] = None
    frequency: Annotated[
        float,
        Range(gt=0, le=1),
        "share of vartheta_i at which the CPU runs; never below its minimum",
    ] = 1.0

    batched = True

    @property
    def needs_compressor(self) -> bool:
        """Without a compressor, planned bits would make a round cheaper than what is sent."""
        return self.bits_per_weight is not None

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        if self.local_steps is not None:
            cell = cell.having(local_steps=np.full_like(cell.local_steps, self.local_steps))
        if self.bits_per_weight is not None:
            cell = cell.having(
                update_bits=np.full_like(cell.update_bits, self.bits_per_weight * cell.num_weights)
            )
        if self.frequency < 1.0:
            cell = cell.having(
                cpu_frequency=np.maximum(
                    self.frequency * cell.cpu_frequency, cell.min_cpu_frequency
                )
            )
        shape = np.broadcast_shapes(channel_gain.shape, cell.data_size.shape)
        num_samples = np.broadcast_to(
            np.minimum(float(self.num_samples), np.floor(cell.data_size)), shape
        )
        energy_left = cell.max_energy - compute_cost(cell, num_samples).energy
        if self.power == "computed":
            tx_power = power_computation(cell, channel_gain, energy_left)
        else:
            tx_power = np.broadcast_to(cell.max_power, shape)
        upload_energy = upload_cost(cell, channel_gain, tx_power).energy
        plan = make_plan(
            cell,
            feasible=(num_samples >= MIN_SAMPLES)
            & decoded(cell, channel_gain, tx_power)
            & (upload_energy <= energy_left + ROUNDING * cell.max_energy),
            num_samples=num_samples,
            tx_power=tx_power,
            samples_limit=np.where(
                num_samples < self.num_samples, Status.DATA, Status.ACCURACY
            ).astype(np.int8),
            power_limit=power_limit(cell, channel_gain, tx_power),
        )
        return plan, memory
