"""What an allocation asks of a rate law."""

from typing import Protocol

from autofl.planner.allocation.result import Allocation
from autofl.planner.allocation.task import Task
from autofl.units import Array


class Laws(Protocol):
    """The UEs of a task under one rate law.

    `shortest` and `least_band` are of every UE and every deadline alone. The four allocations are
    for UEs that can all take part at some deadline, arrays of shape (num_ue,);
    `autofl.planner.allocation` puts the others back in.
    """

    @property
    def task(self) -> Task: ...

    @property
    def shortest(self) -> Array:
        """Least deadline that a UE can make with any band [s], shape of the task; inf where it can
        never take part.
        """
        ...

    def least_band(self, deadline: Array) -> Array:
        """b_i(T): the least band with which UE i makes deadline T [Hz]; inf where no band is
        enough.
        """
        ...

    def allocate(self, total_band: float) -> Allocation:
        """The least T for which the bands fit into the total [Hz]."""
        ...

    def allocate_fixed_band(self, band: Array) -> Allocation:
        """The least time of each UE in its own band [Hz]."""
        ...

    def least_energy(self, total_band: float, deadline: float) -> Allocation:
        """The least total energy within a deadline [s]."""
        ...

    def least_energy_fixed_band(self, band: Array, deadline: float) -> Allocation:
        """The least energy of each UE in its own band within a deadline."""
        ...
