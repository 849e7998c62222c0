"""From settings to a cell, its channel and a planner. NumPy only: planning loads no PyTorch."""

from dataclasses import dataclass

import numpy as np

from autofl.config import MODEL_WEIGHTS, AlgorithmName, Settings
from autofl.errors import AutoFLError
from autofl.network import (
    Cell,
    Fading,
    RoundCost,
    channel_gain,
    decoded,
    round_cost,
    snr,
    success_probability,
)
from autofl.planner import (
    MIN_SAMPLES,
    STATUS_NAMES,
    ExactPlanner,
    FixedPlanner,
    PaperPlanner,
    Plan,
    Planner,
    Status,
)
from autofl.rng import stream
from autofl.units import Array, IntArray, db_to_ratio, dbm_to_watt

PER_UE = ("cycles_per_sample", "cpu_frequency", "max_energy", "max_power", "bandwidth")


def build_cell(settings: Settings, data_size: IntArray | None = None, num_weights: int | None = None) -> Cell:
    """The cell of these settings; every law is drawn from a stream of its own name.

    Args:
        data_size: D_i of a partition, shape (num_ue,); without one, the settings'.
        num_weights: of the model, 32 bit each; without it, that of the named model on the named data.
    """
    cell, num_ue = settings.cell, settings.cell.count
    drawn = {name: getattr(cell, name).draw(stream(settings.seed, f"cell.{name}"), num_ue) for name in PER_UE}
    if cell.positions is not None:
        distance = np.linalg.norm(np.asarray(cell.positions), axis=-1)
    else:
        distance = cell.distance.draw(stream(settings.seed, "cell.distance"), num_ue)
    if data_size is None:
        owned = np.floor(cell.data_size.draw(stream(settings.seed, "cell.data_size"), num_ue))
    else:
        owned = data_size.astype(np.float64)
    update_bits = cell.update_bits
    if update_bits is None:
        update_bits = 32.0 * (num_weights if num_weights is not None else _known_weights(settings))
    return Cell(
        distance=distance,
        data_size=owned,
        update_bits=update_bits,
        noise_psd=dbm_to_watt(cell.noise_dbm_per_hz),
        path_loss_exponent=cell.path_loss_exponent,
        snr_threshold=db_to_ratio(cell.snr_threshold_db),
        capacitance=cell.capacitance,
        min_distance=cell.min_distance,
        **drawn,
    )


def _known_weights(settings: Settings) -> int:
    """Number of weights of the settings' model on their data."""
    model, data = settings.resolved().model.name or "mlp", settings.data.name
    if (model, data) not in MODEL_WEIGHTS:
        raise AutoFLError(f"the size of {model} on {data} is not known here; give cell.update_bits")
    return MODEL_WEIGHTS[model, data]


def build_fading(settings: Settings) -> Fading:
    """The law of the small-scale gain."""
    gain = settings.resolved().cell.small_scale_gain
    assert gain is not None  # resolved
    return gain.as_fading()


def build_planner(settings: Settings, name: str | None = None) -> Planner:
    """The planner of the settings, or the named one with the settings' numbers."""
    steps, planner = settings.learning.local_steps, settings.planner
    name = name or planner.name
    if name == "paper":
        return PaperPlanner(planner.epsilon, steps)
    if name == "exact":
        return ExactPlanner(planner.epsilon, steps)
    if name == "fixed":
        return FixedPlanner(planner.num_samples, planner.power, steps)
    raise AutoFLError(f"planner {name!r} is unknown; there are paper, exact, fixed")


def planner_of(settings: Settings, algorithm: AlgorithmName) -> Planner:
    """The planner an algorithm is paired with: AutoFL and FedAvg-2 plan, Per-FedAvg and FedAvg-1 are fixed."""
    if algorithm in ("autofl", "fedavg-2"):
        return build_planner(settings)
    return FixedPlanner(settings.baseline.num_samples, settings.baseline.power, settings.learning.local_steps)


@dataclass(frozen=True)
class RoundPlan:
    """A planned round of a whole cell: the plan, the channel it was made for, and what it costs."""

    cell: Cell
    channel_gain: Array
    plan: Plan
    cost: RoundCost
    success_probability: Array  # P(xi >= phi) at the planned power, over the fading law

    @property
    def snr(self) -> Array:
        return snr(self.cell, self.channel_gain, self.plan.tx_power)

    def reasons(self) -> list[str]:
        """Why an infeasible UE is: power (not decodable even at P_max), data, or energy; empty for the others."""
        reachable = decoded(self.cell, self.channel_gain, self.cell.max_power)
        owned = np.where(self.cell.data_size < MIN_SAMPLES, "data", "energy")
        reason = np.where(reachable, owned, "power")
        return [str(each) for each in np.where(self.plan.status == Status.INFEASIBLE, reason, "")]

    def table(self) -> dict[str, object]:
        """Everything as plain values, SI and linear, for JSON."""
        columns = {
            "distance": self.cell.distance,
            "channel_gain": self.channel_gain,
            "num_samples": self.plan.num_samples,
            "tx_power": self.plan.tx_power,
            "snr": self.snr,
            "upload_time": self.cost.upload_time,
            "compute_time": self.cost.compute_time,
            "energy": self.cost.energy,
            "status": np.array(STATUS_NAMES)[self.plan.status],
            "samples_limit": np.array(STATUS_NAMES)[self.plan.samples_limit],
            "power_limit": np.array(STATUS_NAMES)[self.plan.power_limit],
            "infeasible_because": np.array([reason or None for reason in self.reasons()], dtype=object),
            "success_probability": self.success_probability,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return {
            "round_time": float(self.cost.time),
            "num_feasible": int(self.plan.feasible.sum()),
            "energy": float(self.cost.energy.sum()),
            "local_steps": self.plan.local_steps,
            "ues": [{"id": ue, **dict(zip(columns, row, strict=True))} for ue, row in enumerate(rows)],
        }


def plan(settings: Settings, planner: str | None = None) -> RoundPlan:
    """Plan one round of the cell of these settings: every UE selected, its channel drawn once, p_{k-1} = P_max."""
    cell, fading = build_cell(settings), build_fading(settings)
    gain = channel_gain(cell, fading.draw(stream(settings.seed, "fading", 1), (cell.num_ue,)))
    made = build_planner(settings, planner)(cell, gain, cell.max_power)
    return RoundPlan(
        cell=cell,
        channel_gain=gain,
        plan=made,
        cost=round_cost(cell, gain, made.num_samples, made.tx_power, made.local_steps, settings.simulation.outage),
        success_probability=success_probability(cell, fading, made.tx_power),
    )
