"""The exact allocation of band, power and frequency for the shortest round (docs/joint-planner.md).

Least T such that, for every UE i that takes part,

    W_i/f_i + Z_i/(B_i log2(1 + p_i a_i/B_i)) <= T,    kappa W_i f_i^2 + p_i t_i <= E_i,    sum_i
    B_i <= B_tot,
    p_i <= P_i^max,    f_i^min <= f_i <= f_i^max,    p_i a_i/B_i >= phi

The least band b_i(T) of each UE falls as T grows, so the least T is where the bands add up to the
total. How it is found depends on the rate law: `Laws` says what a law must know, `ShannonLaws` is
the fast one for the paper's law, `CurveLaws` and `StaircaseLaws` serve ceilings, tables and
circuits that draw power (docs/radio.md).

    task = Task.of(cell, gain, cycles, bits, frequency=True)
    fastest = allocate(task, total_band)
    fastest.band, fastest.power, fastest.frequency, fastest.certificate.gap
"""

import math

import numpy as np

from autofl.planner.allocation.curve import CurveLaws
from autofl.planner.allocation.laws import Laws
from autofl.planner.allocation.result import Allocation, Outcome
from autofl.planner.allocation.shannon import ShannonLaws
from autofl.planner.allocation.staircase import StaircaseLaws
from autofl.planner.allocation.task import Task
from autofl.units import Array, BoolArray

__all__ = [
    "Allocation",
    "Laws",
    "Outcome",
    "Task",
    "allocate",
    "allocate_fixed_band",
    "laws_of",
    "least_band",
    "least_energy",
    "least_energy_fixed_band",
    "shortest",
]


def laws_of(task: Task) -> Laws:
    """The UEs of a task under their rate law. What follows from the task alone is worked out here,
    so whoever asks several things keeps it.
    """
    if task.levels:
        return StaircaseLaws(task)
    if task.circuit_power > 0.0 or math.isfinite(task.ceiling):
        return CurveLaws(task)
    return ShannonLaws(task)


def shortest(task: Task) -> Array:
    """Least deadline that a UE can make with any band [s], shape (..., num_ue); inf where it can
    never take part.
    """
    return laws_of(task).shortest


def least_band(task: Task, deadline: Array | float) -> Array:
    """b_i(T): the least band with which UE i makes deadline T [Hz]; inf where no band is enough."""
    return laws_of(task).least_band(np.asarray(deadline, dtype=np.float64))


def allocate(task: Task, total_band: float) -> Allocation:
    """The allocation with the least T, and its certificate.

    Args:
        task: one set of UEs, shape (num_ue,).
        total_band: B_tot [Hz].
    """
    able, served = _able(task)
    if not able.any():
        return Allocation.of_nobody(task, able.shape)
    return served.allocate(total_band).among(task, able)


def allocate_fixed_band(task: Task, band: Array | float) -> Allocation:
    """The least time of each UE in a given band [Hz]; T is the largest of these times.

    A UE whose band is too wide to reach phi at P^max is not able either.
    """
    able, served = _able(task)
    band = np.broadcast_to(np.asarray(band, dtype=np.float64), able.shape)
    return served.allocate_fixed_band(band[able]).among(task, able)


def least_energy(task: Task, total_band: float, deadline: float) -> Allocation:
    """The allocation of least total energy that makes the deadline, which must not be shorter than
    `allocate`'s.
    """
    able, served = _able(task)
    if not able.any():
        return Allocation.of_nobody(task, able.shape)
    return served.least_energy(total_band, deadline).among(task, able)


def least_energy_fixed_band(task: Task, band: Array | float, deadline: float) -> Allocation:
    """The same in given bands: each UE on its own, with a deadline no shorter than its own least
    time.
    """
    able, served = _able(task)
    band = np.broadcast_to(np.asarray(band, dtype=np.float64), able.shape)
    return served.least_energy_fixed_band(band[able], deadline).among(task, able)


def _able(task: Task) -> tuple[BoolArray, Laws]:
    """Who can take part at some deadline, and these alone under their law."""
    laws = laws_of(task)
    able = np.isfinite(laws.shortest)
    served = task.part(able)
    return able, laws if served is task else laws_of(served)
