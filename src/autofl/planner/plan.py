"""What a planner returns: samples and power for each UE, and what kept it from doing better."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from autofl.network import Cell
from autofl.units import Array, BoolArray, IntArray


class Status(IntEnum):
    """The constraint that binds a UE in this round. The wish is d = 1/epsilon samples sent at P_max."""

    ACCURACY = 0  # d = 1/epsilon is met, and leaves too little energy for P_max: fewer samples would be faster
    DATA = 1  # the UE owns fewer samples than 1/epsilon (or than the fixed number) and uses them all
    ENERGY = 2  # the energy budget cuts the samples below 1/epsilon: accuracy yields to energy
    POWER = 3  # the samples are met with energy to spare: only P_max limits the speed
    INFEASIBLE = 4  # cannot be decoded, or cannot train on the least number of samples: takes no part


STATUS_NAMES = tuple(status.name.lower() for status in Status)


@dataclass(frozen=True)
class Plan:
    """Decisions for one round, arrays of shape (..., num_ue).

    Fields:
        num_samples: d_k^i of one local step, 0 for a UE that takes no part.
        tx_power: p_k^i [W], 0 for a UE that takes no part.
        status: codes of `Status`.
        samples_limit: which of ACCURACY, DATA, ENERGY bounds num_samples.
        power_limit: which of POWER, ENERGY bounds tx_power.
        carried_power: p_k^i [W] as line 7 of Algorithm 2 sets it, taking part or not: p_{k-1}^i of the next round.
        local_steps: tau.
    """

    num_samples: IntArray
    tx_power: Array
    status: NDArray[np.int8]
    samples_limit: NDArray[np.int8]
    power_limit: NDArray[np.int8]
    carried_power: Array
    local_steps: int

    @property
    def feasible(self) -> BoolArray:
        return np.asarray(self.status != Status.INFEASIBLE)


Planner = Callable[[Cell, Array, Array], Plan]
"""planner(cell, channel_gain, previous_power) -> Plan, for the UEs of `cell`."""


def make_plan(
    feasible: BoolArray,
    num_samples: Array,
    tx_power: Array,
    samples_limit: NDArray[np.int8],
    power_limit: NDArray[np.int8],
    local_steps: int,
    carried_power: Array | None = None,
) -> Plan:
    """A Plan from decisions and their limits; the one place that turns two limits into one status."""
    met = np.where(power_limit == Status.POWER, Status.POWER, Status.ACCURACY)
    status = np.where(samples_limit == Status.ACCURACY, met, samples_limit)
    return Plan(
        num_samples=np.where(feasible, num_samples, 0).astype(np.int64),
        tx_power=np.where(feasible, tx_power, 0.0),
        status=np.where(feasible, status, Status.INFEASIBLE).astype(np.int8),
        samples_limit=samples_limit.astype(np.int8),
        power_limit=power_limit.astype(np.int8),
        carried_power=tx_power if carried_power is None else carried_power,
        local_steps=local_steps,
    )
