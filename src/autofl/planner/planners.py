"""The three planners. All work on every UE at once and return a `Plan` that names what binds."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.network import Cell, compute_cost, decoded, longest_upload, upload_cost
from autofl.planner.plan import Plan, Status, make_plan
from autofl.planner.power import power_computation
from autofl.units import Array

MIN_SAMPLES = 3
"""D_in, D_o and D_h need one sample each, or no MAML step is possible."""

ROUNDING = 1e-9
"""Slack before a number of samples is cut to an integer: 3 mJ / 50 uJ must give 60, not 59."""


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 < epsilon <= 1.0 / MIN_SAMPLES:
        raise AutoFLError(
            f"epsilon: {epsilon} is not > 0 and <= 1/{MIN_SAMPLES}; three batches need {MIN_SAMPLES} samples"
        )


def _whole(samples: Array) -> Array:
    """Largest whole number of samples, at least 0."""
    return np.floor(np.maximum(samples, 0.0) * (1.0 + ROUNDING) + ROUNDING)


def _samples(cell: Cell, wanted: float, energy: Array, local_steps: int) -> tuple[Array, NDArray[np.int8]]:
    """floor(min(wanted, D_i, D_p)) and which of the three it is, D_p = energy / (tau (varsigma/2) C_i vartheta_i^2)."""
    affordable = _whole(energy / (local_steps * cell.energy_per_sample))
    whole_wanted, owned = _whole(np.asarray(wanted)), np.floor(cell.data_size)
    wanted_or_owned = np.minimum(whole_wanted, owned)
    owned_binds = np.where(owned < whole_wanted, Status.DATA, Status.ACCURACY)
    limit = np.where(affordable < wanted_or_owned, Status.ENERGY, owned_binds)
    return np.minimum(affordable, wanted_or_owned), limit.astype(np.int8)


def _power_limit(cell: Cell, tx_power: Array) -> NDArray[np.int8]:
    return np.where(tx_power >= cell.max_power, Status.POWER, Status.ENERGY).astype(np.int8)


@dataclass(frozen=True)
class PaperPlanner:
    """Algorithm 2 as printed: one pass of coordinate descent a round (Section IV-C).

    d_k^i = SampledDataSize(p_{k-1}^i), then p_k^i = PowerComputation(d_k^i).

    Note:
        Started at P_max it stalls: d = D_p(P_max) uses all the energy, so p stays at P_max and d never reaches
        1/epsilon although a lower power would allow it. `ExactPlanner` does not. Where no power at all fits the
        energy, the paper's p_k^i does not exist; the UE takes no part and keeps p_{k-1}^i.
    """

    epsilon: float
    local_steps: int = 1

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    def __call__(self, cell: Cell, channel_gain: Array, previous_power: Array) -> Plan:
        """Plan of one round.

        Args:
            cell: the selected UEs.
            channel_gain: g_k^i of this round, shape (..., num_ue).
            previous_power: p_{k-1}^i [W], the UE's power in its own last round, P_max at first.
        """
        energy_left = cell.max_energy - upload_cost(cell, channel_gain, previous_power).energy
        num_samples, samples_limit = _samples(cell, 1.0 / self.epsilon, energy_left, self.local_steps)
        compute_energy = compute_cost(cell, num_samples, self.local_steps).energy
        tx_power = power_computation(cell, channel_gain, cell.max_energy - compute_energy)
        return make_plan(
            feasible=(num_samples >= MIN_SAMPLES) & decoded(cell, channel_gain, tx_power),
            num_samples=num_samples,
            tx_power=tx_power,
            samples_limit=samples_limit,
            power_limit=_power_limit(cell, tx_power),
            local_steps=self.local_steps,
            carried_power=np.where(tx_power > 0.0, tx_power, previous_power),
        )


@dataclass(frozen=True)
class ExactPlanner:
    """Joint optimum of (P3) and (P4) for each UE: accuracy first, then time.

    Time grows with d and falls with p, so d = min(1/epsilon, D_i) and p is the largest power that the remaining
    energy allows, as long as the update stays decodable: p >= p_phi = phi N0 B / g. That least power costs
    p_phi Z / (B log2(1 + phi)), and what it leaves of E_max caps d.
    """

    epsilon: float
    local_steps: int = 1

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)

    def __call__(self, cell: Cell, channel_gain: Array, previous_power: Array | None = None) -> Plan:
        """Plan of one round; `previous_power` plays no part."""
        with np.errstate(divide="ignore"):
            least_power = cell.snr_threshold * cell.noise_power / channel_gain  # p_phi
        least_energy = least_power * longest_upload(cell)
        num_samples, samples_limit = _samples(
            cell, 1.0 / self.epsilon, cell.max_energy - least_energy, self.local_steps
        )
        compute_energy = compute_cost(cell, num_samples, self.local_steps).energy
        tx_power = power_computation(cell, channel_gain, cell.max_energy - compute_energy)
        # Where d takes all but the least energy, the two routes to p_phi differ by rounding only.
        tx_power = np.minimum(np.maximum(tx_power, least_power), cell.max_power)
        return make_plan(
            feasible=(num_samples >= MIN_SAMPLES) & decoded(cell, channel_gain, tx_power),
            num_samples=num_samples,
            tx_power=tx_power,
            samples_limit=samples_limit,
            power_limit=_power_limit(cell, tx_power),
            local_steps=self.local_steps,
        )


@dataclass(frozen=True)
class FixedPlanner:
    """A given number of samples, sent at P_max or at PowerComputation's power: the paper's baselines.

    A UE that owns fewer samples uses them all; one whose energy does not suffice takes no part.
    """

    num_samples: int
    power: Literal["max", "computed"] = "max"
    local_steps: int = 1

    def __post_init__(self) -> None:
        if self.num_samples < MIN_SAMPLES:
            raise AutoFLError(f"num_samples: {self.num_samples} is too few; three batches need at least {MIN_SAMPLES}")

    def __call__(self, cell: Cell, channel_gain: Array, previous_power: Array | None = None) -> Plan:
        """Plan of one round; `previous_power` plays no part."""
        shape = np.broadcast_shapes(channel_gain.shape, cell.data_size.shape)
        num_samples = np.broadcast_to(np.minimum(float(self.num_samples), np.floor(cell.data_size)), shape)
        samples_limit = np.where(num_samples < self.num_samples, Status.DATA, Status.ACCURACY).astype(np.int8)
        energy_left = cell.max_energy - compute_cost(cell, num_samples, self.local_steps).energy
        if self.power == "computed":
            tx_power = power_computation(cell, channel_gain, energy_left)
        else:
            tx_power = np.broadcast_to(cell.max_power, shape)
        upload_energy = upload_cost(cell, channel_gain, tx_power).energy
        return make_plan(
            feasible=(num_samples >= MIN_SAMPLES)
            & decoded(cell, channel_gain, tx_power)
            & (upload_energy <= energy_left + ROUNDING * cell.max_energy),
            num_samples=num_samples,
            tx_power=tx_power,
            samples_limit=samples_limit,
            power_limit=_power_limit(cell, tx_power),
            local_steps=self.local_steps,
        )
