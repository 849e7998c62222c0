"""Slow, obvious versions of what `autofl.planner` does fast: one UE at a time, plain floats,
bisection, brute force.
"""

import math
from dataclasses import dataclass

import numpy as np

from autofl.network import Cell
from autofl.units import Array

LEAST_SAMPLES = 3  # one each for D_in, D_o and D_h


@dataclass(frozen=True)
class Ue:
    """One UE in one round, plain floats in SI units."""

    gain: float  # g
    noise_psd: float  # N0
    bandwidth: float  # B
    update_bits: float  # Z
    snr_threshold: float  # phi
    capacitance: float  # varsigma
    cycles_per_sample: float  # C
    cpu_frequency: float  # vartheta
    local_steps: int  # tau
    data_size: float  # D
    max_energy: float  # E_max
    max_power: float  # P_max

    def snr(self, power: float) -> float:
        return power * self.gain / (self.noise_psd * self.bandwidth)

    def upload_time(self, power: float) -> float:
        return self.update_bits / (self.bandwidth * math.log1p(self.snr(power)) / math.log(2.0))

    def upload_energy(self, power: float) -> float:
        return power * self.upload_time(power)

    def compute_time(self, num_samples: float) -> float:
        return self.local_steps * num_samples * self.cycles_per_sample / self.cpu_frequency

    def compute_energy(self, num_samples: float) -> float:
        """Half the capacitance times vartheta^3 for as long as the CPU works, the paper's Eq. (12)."""
        return self.capacitance / 2.0 * self.cpu_frequency**3 * self.compute_time(num_samples)

    def energy(self, num_samples: float, power: float) -> float:
        return self.compute_energy(num_samples) + self.upload_energy(power)

    def time(self, num_samples: float, power: float) -> float:
        return self.compute_time(num_samples) + self.upload_time(power)


def ues_of(cell: Cell, gain: Array) -> list[Ue]:
    """The UEs of a cell with gains of shape (num_ue,), one by one."""
    return [
        Ue(
            gain=float(gain[i]),
            noise_psd=cell.noise_psd,
            bandwidth=float(cell.bandwidth[i]),
            update_bits=float(cell.update_bits[i]),
            snr_threshold=cell.snr_threshold,
            capacitance=cell.capacitance,
            cycles_per_sample=float(cell.cycles_per_sample[i]),
            cpu_frequency=float(cell.cpu_frequency[i]),
            local_steps=int(cell.local_steps[i]),
            data_size=float(cell.data_size[i]),
            max_energy=float(cell.max_energy[i]),
            max_power=float(cell.max_power[i]),
        )
        for i in range(cell.num_ue)
    ]


def power_by_bisection(ue: Ue, energy: float) -> float:
    """PowerComputation: the largest power up to P_max whose upload takes no more than this energy,
    0 if none does.

    Upload energy grows with power, so the powers that the energy allows are an interval that begins
    at 0.
    """
    if ue.upload_energy(ue.max_power) <= energy:
        return ue.max_power
    low, high = 0.0, ue.max_power
    while low < (middle := 0.5 * (low + high)) < high:
        if ue.upload_energy(middle) <= energy:
            low = middle
        else:
            high = middle
        if high < 1e-15 * ue.max_power:  # the energy does not even pay for a vanishing power
            return 0.0
    return low


def sampled_data_size(ue: Ue, power: float, epsilon: float) -> int:
    """SampledDataSize: the four cases of Section IV-B2 as printed, cut to a whole number, never
    below 0.
    """
    wanted = 1.0 / epsilon
    affordable = (ue.max_energy - ue.upload_energy(power)) / ue.compute_energy(1.0)  # D_i^p
    if wanted <= ue.data_size:  # Case 1: enough data
        num_samples = wanted if affordable > wanted else affordable
    else:  # Case 2: too little data
        num_samples = ue.data_size if affordable > wanted else min(ue.data_size, affordable)
    return max(math.floor(num_samples), 0)


@dataclass(frozen=True)
class PaperRound:
    """Lines 6 to 8 of Algorithm 2 for one UE."""

    num_samples: int  # d_k^i
    power: float  # p_k^i
    sends: bool


def paper_round(ue: Ue, previous_power: float, epsilon: float) -> PaperRound:
    num_samples = sampled_data_size(ue, previous_power, epsilon)
    power = power_by_bisection(ue, ue.max_energy - ue.compute_energy(num_samples))
    return PaperRound(
        num_samples, power, ue.snr(power) >= ue.snr_threshold and num_samples >= LEAST_SAMPLES
    )


@dataclass(frozen=True)
class BruteForce:
    """The best pair found on the grid, and the next power above it, which breaks a constraint (or
    is not allowed).
    """

    num_samples: int
    power: float
    next_power: float
    time: float


def best_by_brute_force(ue: Ue, epsilon: float, num_powers: int = 200) -> BruteForce | None:
    """Tries every whole number of samples with every power of a fine grid: most samples first, then
    least time.

    The grid runs from the least power that is decoded to P_max, both ends included; None if no pair
    is allowed.
    """
    least_power = ue.snr_threshold * ue.noise_psd * ue.bandwidth / ue.gain
    if least_power > ue.max_power:
        return None
    powers = np.geomspace(least_power, ue.max_power, num_powers)
    powers[0], powers[-1] = least_power, ue.max_power  # geomspace may miss its ends by rounding
    samples = np.arange(LEAST_SAMPLES, math.floor(min(1.0 / epsilon, ue.data_size)) + 1)
    upload_energy = np.array([ue.upload_energy(power) for power in powers])
    upload_time = np.array([ue.upload_time(power) for power in powers])
    allowed = ue.compute_energy(samples)[:, None] + upload_energy[None, :] <= ue.max_energy
    if not allowed.any():
        return None
    time = ue.compute_time(samples)[:, None] + upload_time[None, :]
    most = int(np.flatnonzero(allowed.any(axis=1))[-1])
    fastest = int(np.argmin(np.where(allowed[most], time[most], np.inf)))
    return BruteForce(
        num_samples=int(samples[most]),
        power=float(powers[fastest]),
        next_power=float(powers[min(fastest + 1, num_powers - 1)]),
        time=float(time[most, fastest]),
    )
