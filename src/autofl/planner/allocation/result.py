"""What an allocation is, and how the search for it ended."""

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from autofl.network import Certificate
from autofl.planner.allocation.task import Task
from autofl.units import Array, BoolArray


class Outcome(Enum):
    """How a search for an allocation ended."""

    SOLVED = "solved"
    STOPPED = "the last step that was allowed; the bounds show how close it is"
    NO_BAND = (
        "the band is too narrow at any deadline: sending for longer, circuits use up the energy"
    )
    TOO_SHORT = "the deadline is shorter than the least time"


@dataclass(frozen=True)
class Allocation:
    """Band, power and frequency of each UE, arrays of shape (num_ue,), and what is known of the
    time they take.

    A UE that cannot take part at any deadline has `able` False, band and power 0 and an infinite
    time; it does not count in `time`. If nobody can take part, `time` is inf.
    """

    time: float  # T [s], the slowest UE that takes part
    band: Array  # B_i [Hz]
    power: Array  # p_i [W]
    frequency: Array  # f_i [cycle/s]
    ue_time: Array  # s_i + t_i [s]
    energy: Array  # kappa W_i f_i^2 + (p_i + P_c) t_i [J]
    able: BoolArray
    certificate: Certificate  # of the time; NaN where nothing is known
    outcome: Outcome = Outcome.SOLVED

    @classmethod
    def of(
        cls, task: Task, band: Array, power: Array, frequency: Array, efficiency: Array
    ) -> "Allocation":
        """What these decisions of UEs that all take part cost, from the definitions.

        Args:
            task: arrays of shape (num_ue,).
            band, power, frequency: B_i, p_i and f_i.
            efficiency: y_i [nat/s/Hz] at that power.
        """
        upload_time = task.bits * math.log(2.0) / (band * efficiency)
        energy = (
            task.kappa * task.cycles * frequency**2 + (power + task.circuit_power) * upload_time
        )
        ue_time = task.cycles / frequency + upload_time
        time = float(ue_time.max()) if ue_time.size else math.inf
        able = np.ones(ue_time.shape, np.bool_)
        certificate = Certificate(math.nan, time, math.nan)
        return cls(time, band, power, frequency, ue_time, energy, able, certificate)

    @classmethod
    def of_nobody(
        cls, task: Task, shape: tuple[int, ...], outcome: Outcome = Outcome.SOLVED
    ) -> "Allocation":
        """The allocation in which no UE takes part."""
        zeros = np.zeros(shape)
        time = np.full(shape, math.inf)
        frequency = np.broadcast_to(task.max_frequency, shape)
        able = np.zeros(shape, np.bool_)
        nothing = Certificate(math.inf, math.inf, math.nan)
        return cls(math.inf, zeros, zeros, frequency, time, zeros, able, nothing, outcome)

    def among(self, task: Task, chosen: BoolArray) -> "Allocation":
        """The same for all UEs of a task, of which only the chosen ones were worked on."""
        if chosen.all():
            return self

        def spread(values: Array | BoolArray, absent: float) -> Array:
            everyone = np.full(chosen.shape, absent)
            everyone[chosen] = values
            return everyone

        able = spread(self.able, 0.0) > 0.0
        return replace(
            self,
            band=spread(self.band, 0.0),
            power=spread(self.power, 0.0),
            frequency=np.where(able, spread(self.frequency, 0.0), task.max_frequency),
            ue_time=spread(self.ue_time, math.inf),
            energy=spread(self.energy, 0.0),
            able=able,
        )
