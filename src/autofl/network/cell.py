"""The cell: what the base station knows of its UEs, as arrays over them."""

from dataclasses import dataclass, fields

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array, IntArray


@dataclass(frozen=True)
class Cell:
    """A cell of UEs, SI units. Per-UE fields take one number for all and become arrays of shape (num_ue,)."""

    distance: Array  # r_i [m], the paper's first c_i
    cycles_per_sample: Array  # C_i [cycle/sample], the paper's second c_i
    cpu_frequency: Array  # vartheta_i [cycle/s]
    data_size: Array  # D_i [sample]
    max_energy: Array  # E_max [J] a round
    max_power: Array  # P_max [W]
    bandwidth: Array  # B [Hz]
    update_bits: float  # Z [bit]
    noise_psd: float = 10.0**-20.4  # N0 [W/Hz], -174 dBm/Hz
    path_loss_exponent: float = 3.8  # kappa
    snr_threshold: float = 1000.0  # phi, 30 dB
    capacitance: float = 1e-27  # varsigma [J s^2/cycle^3]
    min_distance: float = 1.0  # r_min [m]: the path-loss law diverges at the antenna

    PER_UE = (
        "distance",
        "cycles_per_sample",
        "cpu_frequency",
        "data_size",
        "max_energy",
        "max_power",
        "bandwidth",
    )

    def __post_init__(self) -> None:
        num_ue = np.size(self.distance)
        for field in fields(self):
            value = np.asarray(getattr(self, field.name), dtype=np.float64)
            lowest_allowed = field.name in ("distance", "data_size", "max_energy")  # these may be 0
            bad = ~np.isfinite(value) | (value < 0.0 if lowest_allowed else value <= 0.0)
            if bad.any():
                raise AutoFLError(
                    f"cell.{field.name}: {value[bad].flat[0]:g} is not a finite number"
                    f" {'>= 0' if lowest_allowed else '> 0'}"
                )
            if field.name not in self.PER_UE and value.size != 1:
                raise AutoFLError(f"cell.{field.name}: {value.size} values; it is one number for the whole cell")
            if field.name in self.PER_UE:
                if value.size not in (1, num_ue):
                    raise AutoFLError(f"cell.{field.name}: {value.size} values for {num_ue} UEs; give 1 or {num_ue}")
                value = np.broadcast_to(value.reshape(-1), (num_ue,)).copy()
                value.setflags(write=False)
                object.__setattr__(self, field.name, value)

    @property
    def num_ue(self) -> int:
        return self.distance.size

    @property
    def noise_power(self) -> Array:
        """N0 B [W]. Note: the paper divides by N0 alone, a density; we use the power in the band."""
        return self.noise_psd * self.bandwidth

    @property
    def energy_per_sample(self) -> Array:
        """(varsigma/2) C_i vartheta_i^2 [J/sample], the computing part of the paper's e_k^i."""
        return 0.5 * self.capacitance * self.cycles_per_sample * self.cpu_frequency**2

    def take(self, ue: IntArray) -> "Cell":
        """The same cell with only these UEs, in this order; what was checked once is not checked again."""
        taken = object.__new__(Cell)
        for name, value in self.__dict__.items():
            object.__setattr__(taken, name, value[ue] if name in self.PER_UE else value)
        return taken


def drop_in_disc(rng: np.random.Generator, num_ue: int, radius: float) -> Array:
    """Positions [m] of UEs dropped uniformly in a disc around the base station, shape (num_ue, 2)."""
    distance = radius * np.sqrt(rng.random(num_ue))  # the area within r grows with r^2
    angle = 2.0 * np.pi * rng.random(num_ue)
    return np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=-1)


def path_gain(cell: Cell) -> Array:
    """Large-scale gain max(r_i, r_min)^-kappa, shape (num_ue,)."""
    return np.maximum(cell.distance, cell.min_distance) ** -cell.path_loss_exponent


def channel_gain(cell: Cell, small_scale_gain: Array) -> Array:
    """Channel gain g_i = h_i r_i^-kappa.

    Args:
        cell: distance r_i [m], path_loss_exponent kappa.
        small_scale_gain: h_i, power ratio, shape (..., num_ue).
    Returns:
        g_i, power ratio, shape (..., num_ue).
    """
    return small_scale_gain * path_gain(cell)


def select(num_ue: int, num_selected: int, rng: np.random.Generator) -> IntArray:
    """A_k: so many UEs uniformly at random, in the order of their numbers."""
    return np.sort(rng.choice(num_ue, num_selected, replace=False))
