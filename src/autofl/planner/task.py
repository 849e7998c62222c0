"""What a cell and its radio ask of the allocation."""

import numpy as np

from autofl.network import Cell, drawn_power
from autofl.planner.band import Task
from autofl.planner.base import whole
from autofl.planner.power import least_upload
from autofl.units import Array


def task_of(cell: Cell, gain: Array, cycles: Array, bits: Array, frequency: bool) -> Task:
    """A task of the allocation, arrays of shape (num_ue, ...); power in it is what the amplifier
    draws, p/eta.

    Args:
        cycles, bits: W_i and Z_i, shape (num_ue, ...).
        frequency: whether the CPU frequency is decided.
    """
    law = cell.link
    shape = (-1, *(1,) * (np.ndim(cycles) - 1))
    lowest = cell.least_snr / law.gap
    levels = law.levels
    if not levels and law.ceiling <= np.log1p(
        lowest
    ):  # decodable only where the ceiling is reached: one step
        levels = ((law.ceiling, lowest),)
    return Task(
        cycles=cycles,
        bits=bits,
        gain_to_noise=(gain / cell.noise_psd * (cell.pa_efficiency / law.gap)).reshape(shape),
        max_energy=cell.max_energy.reshape(shape),
        max_power=(cell.max_power / cell.pa_efficiency).reshape(shape),
        min_frequency=(cell.min_cpu_frequency if frequency else cell.cpu_frequency).reshape(shape),
        max_frequency=cell.cpu_frequency.reshape(shape),
        phi=lowest,
        kappa=0.5 * cell.capacitance,
        circuit_power=cell.circuit_power,
        ceiling=law.ceiling,
        levels=levels,
    )


def affordable_beside(cell: Cell, gain: Array, tau: Array, bits: Array, frequency: Array) -> Array:
    """The most samples that leave energy for the least upload, at this frequency, shape (num_ue,
    num_options).

    The least upload has its own band, or a narrower one in which its power reaches phi. Without
    circuits all bands take the same energy.
    """
    ues = np.repeat(np.arange(cell.num_ue), bits.shape[1])
    each_bits = cell.take(ues).having(update_bits=(bits * cell.num_weights).ravel())
    power, least = (
        values.reshape(bits.shape)
        for values in least_upload(each_bits, np.maximum(gain, 1e-300)[ues])
    )
    longer = np.maximum(power / cell.max_power[:, None], 1.0)  # in a band narrower by that factor
    time = least / drawn_power(cell, power)
    least = least + cell.circuit_power * time * (longer - 1.0)
    per_sample = 0.5 * cell.capacitance * (cell.cycles_per_sample * frequency**2)[:, None] * tau
    return whole((cell.max_energy[:, None] - least) / per_sample)
