"""A plan: everything that is decided for each UE in a round, and what kept the planner from doing
better.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autofl.network.cell import Cell
from autofl.units import Array, BoolArray, IntArray

Codes = NDArray[np.int8]


class Status(IntEnum):
    """The constraint that binds a UE in this round. Ideally it would have 1/epsilon samples and
    send at P_max.
    """

    # d = 1/epsilon is met, and leaves too little energy for P_max: fewer samples would be faster
    ACCURACY = 0
    DATA = (
        1  # the UE owns fewer samples than 1/epsilon (or than the fixed number) and uses them all
    )
    ENERGY = 2  # the energy budget cuts the samples below 1/epsilon: accuracy yields to energy
    POWER = 3  # the samples are met with energy to spare: only P_max limits the speed
    INFEASIBLE = (
        4  # cannot be decoded, or cannot train on the least number of samples: takes no part
    )
    LEFT_OUT = 5  # could take part, but would hold up the others for longer than it is worth
    # the samples are met at the highest rate there is: neither power nor energy would make it
    # faster
    RATE = 6


STATUS_NAMES = tuple(status.name.lower() for status in Status)


@dataclass(frozen=True)
class Certificate:
    """How good an allocation is known to be: bounds on the round's least time [s], and the relative
    KKT residual.
    """

    lower: float
    upper: float
    residual: float

    @property
    def gap(self) -> float:
        """Relative distance between the bounds."""
        return (self.upper - self.lower) / self.upper


@dataclass(frozen=True)
class Plan:
    """Decisions for one round, arrays of shape (..., num_ue). `make_plan` fills in what a planner
    does not decide.

    Fields:
        num_samples: d_k^i of one local step, 0 for a UE that takes no part.
        tx_power: p_k^i [W], 0 for a UE that takes no part.
        local_steps: tau_k^i.
        cpu_frequency: vartheta_k^i [cycle/s].
        bandwidth: B_k^i [Hz].
        bits_per_weight: of the update that is sent, so Z_k^i = bits_per_weight * number of weights.
        weight: of the update in the average, up to a common factor.
        status: codes of `Status`.
        samples_limit: which of ACCURACY, DATA, ENERGY bounds num_samples.
        power_limit: which of POWER, RATE, ENERGY bounds tx_power.
        certificate: of the round's time, where the planner has one.
    """

    num_samples: IntArray
    tx_power: Array
    local_steps: IntArray
    cpu_frequency: Array
    bandwidth: Array
    bits_per_weight: Array
    weight: Array
    status: Codes
    samples_limit: Codes
    power_limit: Codes
    certificate: Certificate | None = None

    @property
    def feasible(self) -> BoolArray:
        return ~np.isin(self.status, (Status.INFEASIBLE, Status.LEFT_OUT))

    def applied(self, cell: Cell) -> Cell:
        """The cell with the decisions of this plan instead of its own values."""
        return cell.having(
            local_steps=self.local_steps.astype(np.float64),
            cpu_frequency=self.cpu_frequency,
            bandwidth=self.bandwidth,
            update_bits=self.bits_per_weight * cell.num_weights,
        )

    def problem(self, cell: Cell) -> str | None:
        """Why the plan cannot be carried out, in one line with the UE; None if it can."""
        values = {name: getattr(self, name) for name in DECISIONS}
        for name, decided in values.items():
            if (
                decided.shape != self.tx_power.shape
                or decided.shape[-1:] != cell.distance.shape[-1:]
            ):
                return f"{name} has shape {decided.shape}; it needs one value for each of the {cell.num_ue} UEs"
        owned = np.floor(cell.data_size)
        strongest = cell.max_power * (1.0 + 1e-9)
        broken = (
            (
                "num_samples",
                (self.num_samples < 0) | (self.num_samples > owned),
                "between 0 and what the UE owns",
            ),
            (
                "tx_power",
                ~((self.tx_power >= 0.0) & (self.tx_power <= strongest)),
                "between 0 and P_max",
            ),
            ("local_steps", self.local_steps < 1, "at least 1"),
            *(
                (name, ~((values[name] > 0.0) & (values[name] < np.inf)), "> 0")
                for name in _POSITIVE
            ),
        )
        for name, wrong, words in broken:
            if wrong.any():
                where = tuple(np.argwhere(wrong)[0])
                return f"UE {int(cell.ue[where])}: {name} = {values[name][where]:g}; it must be {words}"
        return None

    def only(self, ues: BoolArray) -> "Plan":
        """The same plan in which the other UEs take no part."""
        return replace(self, num_samples=ues * self.num_samples)

    def part(self, index: int | slice | IntArray | BoolArray) -> "Plan":
        """The plan at this index of its first axis: some UEs, or one of several rounds."""
        return replace(self, **{name: getattr(self, name)[index] for name in (*DECISIONS, *LIMITS)})


_POSITIVE = ("cpu_frequency", "bandwidth", "bits_per_weight", "weight")
LIMITS = ("status", "samples_limit", "power_limit")
DECISIONS = tuple(
    field.name for field in fields(Plan) if field.name not in (*LIMITS, "certificate")
)
"""The fields of a plan that are decisions; the others say what bound them."""


def make_plan(
    cell: Cell,
    *,
    num_samples: ArrayLike,
    tx_power: ArrayLike,
    feasible: ArrayLike | None = None,
    samples_limit: Codes | None = None,
    power_limit: Codes | None = None,
    local_steps: ArrayLike | None = None,
    cpu_frequency: ArrayLike | None = None,
    bandwidth: ArrayLike | None = None,
    bits_per_weight: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Plan:
    """A plan from decisions; what is not decided is the cell's, and every weight is 1.

    Args:
        cell: the UEs that are planned for.
        num_samples, tx_power: d_i and p_i, shape (..., num_ue).
        feasible: who takes part; by default everybody with samples and power.
        samples_limit, power_limit: as in `Plan`; by default derived from the numbers. This is the
            one place that turns the two limits into one status.
    """
    samples = np.asarray(num_samples, dtype=np.float64)
    tx_power = np.asarray(tx_power, dtype=np.float64)
    if samples.shape != tx_power.shape:
        shape = np.broadcast_shapes(samples.shape, tx_power.shape)
        samples = np.broadcast_to(samples, shape)
        tx_power = np.broadcast_to(tx_power, shape)
    if feasible is None:
        feasible = (samples > 0.0) & (tx_power > 0.0)
    if samples_limit is None:
        samples_limit = np.where(
            samples >= np.floor(cell.data_size), Status.DATA, Status.ACCURACY
        ).astype(np.int8)
    if power_limit is None:
        power_limit = np.where(tx_power >= cell.max_power, Status.POWER, Status.ENERGY).astype(
            np.int8
        )
    met = np.where(power_limit == Status.ENERGY, Status.ACCURACY, power_limit)
    status = np.where(samples_limit == Status.ACCURACY, met, samples_limit)

    def decided(value: ArrayLike | None, own: Array) -> Array:
        values = np.asarray(own if value is None else value, dtype=np.float64)
        return values if values.shape == tx_power.shape else np.broadcast_to(values, tx_power.shape)

    return Plan(
        num_samples=np.where(feasible, samples, 0.0).astype(np.int64),
        tx_power=np.where(feasible, tx_power, 0.0),
        local_steps=decided(local_steps, cell.local_steps).astype(np.int64),
        cpu_frequency=decided(cpu_frequency, cell.cpu_frequency),
        bandwidth=decided(bandwidth, cell.bandwidth),
        bits_per_weight=decided(bits_per_weight, cell.bits_per_weight),
        weight=np.ones(tx_power.shape) if weight is None else decided(weight, tx_power),
        status=np.where(feasible, status, Status.INFEASIBLE).astype(np.int8),
        samples_limit=np.broadcast_to(samples_limit, tx_power.shape),
        power_limit=np.broadcast_to(power_limit, tx_power.shape),
    )
