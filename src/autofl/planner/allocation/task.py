"""What the UEs of one round have to do."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from autofl.network import Cell
from autofl.units import Array, BoolArray

FOREVER = 1e12
"""A UE that needs more seconds for a round never takes part: beyond, numbers run out of floats."""


@dataclass(frozen=True)
class Task:
    """What the UEs of one round have to do, and with what. Arrays broadcast to one shape (...,
    num_ue).

    A UE for which any value is not a number > 0 (min_frequency: >= 0) cannot take part. Amplifier
    efficiency eta and SNR gap Gamma are not fields of their own: power is what the amplifier draws,
    P/eta; a stands for eta a/Gamma, and phi for phi/Gamma.
    """

    cycles: Array  # W_i = C_i tau_i d_i [cycle]
    bits: Array  # Z_i [bit]
    gain_to_noise: Array  # a_i = g_i / N0 [Hz/W]
    max_energy: Array  # E_i [J]
    max_power: Array  # P_i^max [W]
    min_frequency: Array  # [cycle/s]; equal to max_frequency where the frequency is not decided
    max_frequency: Array  # [cycle/s]
    phi: float  # least SNR that is decoded
    kappa: float  # varsigma / 2 [J s^2/cycle^3]
    circuit_power: float = 0.0  # P_c [W] while a UE sends
    ceiling: float = math.inf  # of the spectral efficiency [nat/s/Hz]
    levels: tuple[tuple[float, float], ...] = ()  # (y [nat/s/Hz], SNR) of a staircase

    @classmethod
    def of(cls, cell: Cell, gain: Array, cycles: Array, bits: Array, frequency: bool) -> "Task":
        """What a cell and its radio ask of the allocation, arrays of shape (num_ue, ...).

        Args:
            cell, gain: the UEs and g_i, shape (num_ue,).
            cycles, bits: W_i and Z_i, shape (num_ue, ...).
            frequency: whether the CPU frequency is decided.
        """
        law = cell.link
        shape = (-1, *(1,) * (np.ndim(cycles) - 1))
        lowest = cell.least_snr / law.gap
        levels = law.levels
        # What is decodable only where the ceiling is reached is a staircase of one step.
        if not levels and law.ceiling <= np.log1p(lowest):
            levels = ((law.ceiling, lowest),)
        slowest = cell.min_cpu_frequency if frequency else cell.cpu_frequency
        return cls(
            cycles=cycles,
            bits=bits,
            gain_to_noise=(gain / cell.noise_psd * (cell.pa_efficiency / law.gap)).reshape(shape),
            max_energy=cell.max_energy.reshape(shape),
            max_power=(cell.max_power / cell.pa_efficiency).reshape(shape),
            min_frequency=slowest.reshape(shape),
            max_frequency=cell.cpu_frequency.reshape(shape),
            phi=lowest,
            kappa=0.5 * cell.capacitance,
            circuit_power=cell.circuit_power,
            ceiling=law.ceiling,
            levels=levels,
        )

    def at(self, shape: tuple[int, ...], *index: Any) -> "Task":
        """The task at this index of its arrays, once these have the given shape."""
        values = {
            name: np.broadcast_to(np.asarray(getattr(self, name)), shape)[index] for name in PER_UE
        }
        return replace(self, **values)

    def part(self, chosen: BoolArray) -> "Task":
        """The task of some of the UEs, with arrays of shape (number of them,)."""
        shape = chosen.shape
        whole = chosen.all() and all(np.shape(getattr(self, name)) == shape for name in PER_UE)
        return self if whole else self.at(shape, chosen)


PER_UE = tuple(field.name for field in fields(Task) if field.type is Array)
"""The arrays of a task."""
