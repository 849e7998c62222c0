"""What a planner is, and how many samples the energy allows."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.network import Cell, Plan, Status, snr
from autofl.quality import Evaluation
from autofl.ranges import Range
from autofl.units import Array

Memory = Mapping[str, NDArray[Any]]
"""What a planner remembers from round to round: arrays by name, of any shape."""

MIN_SAMPLES = 3
"""D_in, D_o and D_h need one sample each, or no MAML step is possible."""
STEP_SAMPLES = Range(ge=MIN_SAMPLES, le=1_000_000_000)
"""Samples of a local step; more must be a typing error."""
ROUNDING = 1e-9
"""Slack before a number of samples is cut to an integer: 3 mJ / 50 uJ must give 60, not 59."""


class Planner(Protocol):
    """A planner: a frozen dataclass of settings with these two functions."""

    def init(self, cell: Cell) -> Memory:
        """The memory before the first round of this whole cell."""
        ...

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        """The plan of a round and the memory after it.

        Args:
            cell: the selected UEs; `cell.ue` are their numbers in the whole cell.
            channel_gain: g_k^i as the base station knows it, shape (..., num_ue).
            memory: of the whole cell; it is not changed in place.
        """
        ...


@runtime_checkable
class Observing(Protocol):
    """A planner that learns from the run: it sees every evaluation, that of the first weights
    included.
    """

    def observe(self, memory: Memory, evaluation: Evaluation) -> Memory:
        """The memory after an evaluation; that before it is not changed in place."""
        ...


def observed(planner: Planner, memory: Memory, evaluation: Evaluation | None) -> Memory:
    """The memory after a round's evaluation, if there was one and the planner observes."""
    if evaluation is None or not isinstance(planner, Observing):
        return memory
    return planner.observe(memory, evaluation)


class Memoryless:
    """Base of planners without memory: every round stands alone."""

    batched = False
    """Whether arrays may have leading axes, the last being the UE: several runs are then planned in
    one call.
    """

    def init(self, cell: Cell) -> Memory:
        return {}


def whole(samples: Array) -> Array:
    """Largest whole number of samples, at least 0."""
    return np.floor(np.maximum(samples, 0.0) * (1.0 + ROUNDING) + ROUNDING)


def affordable_samples(cell: Cell, wanted: float, energy: Array) -> tuple[Array, NDArray[np.int8]]:
    """floor(min(wanted, D_i, D_p)) and which of the three it is, D_p = energy / (tau (varsigma/2)
    C_i vartheta_i^2).
    """
    affordable = whole(energy / (cell.local_steps * cell.energy_per_sample))
    whole_wanted = whole(np.asarray(wanted))
    owned = np.floor(cell.data_size)
    wanted_or_owned = np.minimum(whole_wanted, owned)
    owned_binds = np.where(owned < whole_wanted, Status.DATA, Status.ACCURACY)
    limit = np.where(affordable < wanted_or_owned, Status.ENERGY, owned_binds)
    return np.minimum(affordable, wanted_or_owned), limit.astype(np.int8)


def power_limit(cell: Cell, gain: Array, tx_power: Array, slack: float = 0.0) -> NDArray[np.int8]:
    """What bounds the power: RATE at the top of the rate law, else POWER at P_max or where P_max
    would give no higher rate, else ENERGY.

    Args:
        slack: share of P_max that may be missing.
    """
    law = cell.link
    full = tx_power >= (1.0 - slack) * cell.max_power
    if not law.levels and np.isinf(law.ceiling):
        return np.where(full, Status.POWER, Status.ENERGY).astype(np.int8)
    top = law.levels[-1][0] if law.levels else law.ceiling
    at_full_power = law.efficiency(snr(cell, gain, cell.max_power))
    reached = law.efficiency(snr(cell, gain, tx_power))
    by_power = np.where(reached >= at_full_power * (1.0 - ROUNDING), Status.POWER, Status.ENERGY)
    return np.where(reached >= top * (1.0 - ROUNDING), Status.RATE, by_power).astype(np.int8)


def check_bits(planner: object, has_compressor: bool) -> None:
    """Refuse a planner that decides bits without a compressor to pack them: rounds would look
    cheaper than they are.
    """
    if getattr(planner, "needs_compressor", False) and not has_compressor:
        raise AutoFLError(
            f"planner {type(planner).__name__}: it decides bits, so it needs a compressor; set compressor.name"
        )
