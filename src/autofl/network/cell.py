"""The cell: what the base station knows of its UEs, as arrays over them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from autofl.errors import AutoFLError
from autofl.network.links import SHANNON, Law
from autofl.ranges import Checked, Range, settings_of
from autofl.rng import stream
from autofl.units import Array, IntArray, PerUE

POSITIVE = Range(gt=0)
NOT_NEGATIVE = Range(ge=0)


def _required() -> Any:
    """No default. A type checker takes a field for a `PerUE` only if it is given a value here."""
    return field()


def _one(value: float) -> Any:
    """One number for all UEs as a default."""
    return field(default_factory=lambda: np.array(value))


@dataclass(frozen=True)
class Cell(Checked):
    """A cell of UEs, SI units. Per-UE fields take one number for all and become arrays of shape
    (num_ue,).

    Defaults are those of the paper's Table I. Values that a planner does not decide are taken from
    here.

    Args:
        distance: r_i [m], the paper's first c_i
        cycles_per_sample: C_i [cycle/sample], the paper's second c_i
        cpu_frequency: vartheta_i [cycle/s], the highest where a planner decides it
        min_cpu_frequency: the lowest it may be slowed down to; never above vartheta_i
        data_size: D_i [sample]
        max_energy: E_max [J] a round
        max_power: P_max [W]
        bandwidth: B [Hz]
        update_bits: Z [bit]
        local_steps: tau
        angle: direction from the base station [rad], counted from the x axis
        noise_psd: N0 [W/Hz] at the base station, -174 dBm/Hz; noise figure and noise rise included
        path_loss_exponent: kappa
        snr_threshold: phi, 30 dB; a rate law with levels has its own
        capacitance: varsigma [J s^2/cycle^3]
        min_distance: r_min [m]: the path-loss law diverges at the antenna
        num_weights: of an update; by default Z / 32
        overhead: T_over [s] of a round besides computing and sending; the paper has none
        downlink_power: P_bs [W]; None: sending the model down costs no time, as in the paper
        downlink_bits: Z_down [bit]; by default 32 for each weight
        downlink_bandwidth: [Hz]; None: sum_i B_i
        downlink_noise_psd: N0 [W/Hz] at the UEs; None: that of the base station
        downlink_mode: once for all, or a model to each UE in turn
        pa_efficiency: eta of the power amplifier: sending at p draws p / eta
        circuit_power: P_c [W] that a UE draws in addition while it sends
        receive_power: P_rx [W] that a UE draws while it listens to the downlink
        link: from SNR to rate
        tries: transmissions of an update at most, where the first is not decoded
        ue: numbers in the whole cell; 0, 1, ... there
    """

    distance: Annotated[PerUE, NOT_NEGATIVE] = _required()
    cycles_per_sample: Annotated[PerUE, POSITIVE] = _one(1e5)
    cpu_frequency: Annotated[PerUE, POSITIVE] = _one(1e9)
    min_cpu_frequency: Annotated[PerUE, POSITIVE] = _one(1e8)
    data_size: Annotated[PerUE, NOT_NEGATIVE] = _one(2000.0)
    max_energy: Annotated[PerUE, NOT_NEGATIVE] = _one(3e-3)
    max_power: Annotated[PerUE, POSITIVE] = _one(0.01)
    bandwidth: Annotated[PerUE, POSITIVE] = _one(1e6)
    update_bits: Annotated[PerUE, POSITIVE] = _one(32.0 * 79_510)
    local_steps: Annotated[PerUE, POSITIVE] = _one(1.0)
    angle: Annotated[PerUE, Range()] = _one(0.0)
    noise_psd: Annotated[float, POSITIVE] = 10.0**-20.4
    path_loss_exponent: Annotated[float, POSITIVE] = 3.8
    snr_threshold: Annotated[float, POSITIVE] = 1000.0
    capacitance: Annotated[float, POSITIVE] = 1e-27
    min_distance: Annotated[float, POSITIVE] = 1.0
    num_weights: Annotated[float, POSITIVE] = math.nan
    overhead: Annotated[float, NOT_NEGATIVE] = 0.0
    downlink_power: Annotated[float | None, POSITIVE] = None
    downlink_bits: Annotated[float, POSITIVE] = math.nan
    downlink_bandwidth: Annotated[float | None, POSITIVE] = None
    downlink_noise_psd: Annotated[float | None, POSITIVE] = None
    downlink_mode: Literal["broadcast", "unicast"] = "broadcast"
    pa_efficiency: Annotated[float, Range(gt=0, le=1)] = 1.0
    circuit_power: Annotated[float, NOT_NEGATIVE] = 0.0
    receive_power: Annotated[float, NOT_NEGATIVE] = 0.0
    link: Law = SHANNON
    tries: Annotated[int, Range(ge=1)] = 1
    ue: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    PER_UE = (
        "distance",
        "cycles_per_sample",
        "cpu_frequency",
        "min_cpu_frequency",
        "data_size",
        "max_energy",
        "max_power",
        "bandwidth",
        "update_bits",
        "local_steps",
        "angle",
    )

    def __post_init__(self) -> None:
        num_ue = np.size(self.distance)
        if math.isnan(self.num_weights):
            object.__setattr__(self, "num_weights", float(np.max(self.update_bits)) / 32.0)
        if math.isnan(self.downlink_bits):
            object.__setattr__(self, "downlink_bits", 32.0 * self.num_weights)
        super().__post_init__()
        if np.size(self.ue) == 0:
            object.__setattr__(self, "ue", np.arange(num_ue))
        elif np.size(self.ue) != num_ue:
            raise AutoFLError(
                f"cell.ue: {np.size(self.ue)} values for {num_ue} UEs; leave it out, or give {num_ue}"
            )
        for name in self.PER_UE:
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.size not in (1, num_ue):
                raise AutoFLError(
                    f"cell.{name}: {value.size} values for {num_ue} UEs; give 1 or {num_ue}"
                )
            value = np.broadcast_to(value.reshape(-1), (num_ue,)).copy()
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        for name in settings_of(Cell):
            if name not in (*self.PER_UE, "ue") and np.size(getattr(self, name)) != 1:
                raise AutoFLError(f"cell.{name}: give one number for the whole cell")
        if self.tries != int(self.tries):
            raise AutoFLError(f"cell: tries = {self.tries:g}; it is a whole number")
        object.__setattr__(
            self, "min_cpu_frequency", np.minimum(self.min_cpu_frequency, self.cpu_frequency)
        )

    @classmethod
    def disc(
        cls,
        num_ue: int = 20,
        radius: float = 200.0,
        seed: int = 1,
        **others: ArrayLike | Law | None,
    ) -> "Cell":
        """The paper's cell: UEs placed uniformly in a disc, C_i uniform in [0.8, 1.2] 1e5; other
        fields by name.
        """
        if num_ue < 1 or not radius > 0.0:
            raise AutoFLError(
                f"Cell.disc: num_ue = {num_ue} and radius = {radius:g} m; both must be positive"
            )
        x, y = drop_in_disc(stream(seed, "cell.distance"), num_ue, radius).T
        if "cycles_per_sample" not in others:
            others["cycles_per_sample"] = stream(seed, "cell.cycles_per_sample").uniform(
                0.8e5, 1.2e5, num_ue
            )
        others.setdefault("angle", np.arctan2(y, x))
        return cls(distance=np.hypot(x, y), **others)  # type: ignore[arg-type]  # each field checks its own

    @property
    def num_ue(self) -> int:
        return self.distance.shape[-1]

    @property
    def position(self) -> Array:
        """x and y [m] of the UEs, the base station being at (0, 0); shape (2, num_ue)."""
        return self.distance * np.stack([np.cos(self.angle), np.sin(self.angle)])

    @property
    def noise_power(self) -> Array:
        """N0 B [W]. Note: the paper divides by N0 alone, a density; we use the power in the band."""
        return self.noise_psd * self.bandwidth

    @property
    def least_snr(self) -> float:
        """The lowest SNR that is decoded: phi, or that of the lowest level of the rate law."""
        return self.link.least_snr(self.snr_threshold)

    @property
    def energy_per_sample(self) -> Array:
        """(varsigma/2) C_i vartheta_i^2 [J/sample], the computing part of the paper's e_k^i."""
        return 0.5 * self.capacitance * self.cycles_per_sample * self.cpu_frequency**2

    @property
    def bits_per_weight(self) -> Array:
        """Z / number of weights [bit]."""
        return self.update_bits / self.num_weights

    def take(self, ue: IntArray | Sequence[int]) -> "Cell":
        """The same cell with only these UEs, in this order."""
        return self.having(**{name: getattr(self, name)[ue] for name in (*self.PER_UE, "ue")})

    def having(self, **values: Array | float) -> "Cell":
        """The same cell with other values of some fields; what was checked once is not checked
        again.
        """
        changed = object.__new__(Cell)
        changed.__dict__.update(self.__dict__ | values)
        return changed


def stacked(cells: Sequence[Cell]) -> Cell:
    """Cells with equally many UEs as one cell whose arrays have a leading axis; scalar fields must
    be equal.
    """
    per_ue = {
        name: np.stack([getattr(cell, name) for cell in cells]) for name in (*Cell.PER_UE, "ue")
    }
    return cells[0].having(**per_ue)


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
