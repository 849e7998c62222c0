"""What happened in one round, and the air in which it does. NumPy alone."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from autofl.channels import Channel, channel_at
from autofl.errors import AutoFLError
from autofl.network import (
    DECISIONS,
    LIMITS,
    STATUS_NAMES,
    Cell,
    Plan,
    RoundCost,
    make_plan,
)
from autofl.quality import Evaluation
from autofl.units import Array, BoolArray, IntArray

NAN = float("nan")
MOST_GAIN = 1e20
"""More must be an error of units; rates and times would leave the range of numbers."""
NOBODY = Cell(distance=np.empty(0))
NO_PLAN = make_plan(NOBODY, num_samples=np.empty(0, np.int64), tx_power=np.empty(0))
NO_COST = RoundCost(np.empty(0), np.empty(0), np.empty(0), np.array(0.0))


def _no_numbers() -> Array:
    return np.empty(0)


def _no_counts() -> IntArray:
    return np.empty(0, np.int64)


def _nobody() -> BoolArray:
    return np.empty(0, np.bool_)


@dataclass(frozen=True)
class Round:
    """What happened in one round, arrays of shape (num_selected,), SI units.

    It is made in three steps: who is selected and how well they are heard; what is planned and what
    that costs; what arrived and what came of it. Round 0 is the model before training: no UE, no
    plan, no cost.

    Fields:
        k: the round.
        ue: A_k, in the order of their numbers.
        probability: with which each was selected.
        cell: of the selected UEs.
        gain: g_k^i, the true one.
        known: what the planner knows of it; the same array where it knows it.
        plan: every decision.
        sends: takes part as far as the base station knows.
        decoded: sends, and is decoded.
        snr: xi_k^i.
        cost: of what was planned and, once updates came, of what was really sent.
        arrived: decoded, and the server has the update.
        bits: really sent [bit], of the updates that arrived.
        guarded: local steps that the algorithm's guard acted on.
        sim_time: simulated seconds since the start, this round included.
        evaluation: of the model after it, if it was evaluated.
        stop: why the run ends with this round.
        inner_lr: alpha of the local steps; NaN where there is none, or nobody was decoded.
        outer_lr: beta; NaN where each gradient is taken at length 1.
        step_length: of the longest local step there may be; NaN where it has no bound.
        suspects: of a round that diverged, UEs and the lengths of their updates over the median.
    """

    k: int
    ue: IntArray = field(default_factory=_no_counts)
    probability: Array = field(default_factory=_no_numbers)
    cell: Cell = NOBODY
    gain: Array = field(default_factory=_no_numbers)
    known: Array = field(default_factory=_no_numbers)
    plan: Plan = NO_PLAN
    sends: BoolArray = field(default_factory=_nobody)
    decoded: BoolArray = field(default_factory=_nobody)
    snr: Array = field(default_factory=_no_numbers)
    cost: RoundCost = NO_COST
    arrived: BoolArray = field(default_factory=_nobody)
    bits: Array = field(default_factory=_no_numbers)
    guarded: IntArray = field(default_factory=_no_counts)
    sim_time: float = 0.0
    evaluation: Evaluation | None = None
    stop: str | None = None
    inner_lr: float = NAN
    outer_lr: float = NAN
    step_length: float = NAN
    suspects: tuple[tuple[int, float], ...] = ()

    @property
    def guess(self) -> Array | None:
        """What is known of the gains; None where they are known exactly."""
        return None if self.known is self.gain else self.known

    @property
    def orders(self) -> Plan:
        """The plan of the UEs that train, in the order of `ue[decoded]`."""
        return self.plan.part(self.decoded)

    @property
    def downlink_bits(self) -> float:
        """Bits per weight of what was sent down; NaN where nothing was."""
        if not self.sends.any():
            return NAN
        return self.cell.downlink_bits / self.cell.num_weights

    @property
    def bytes_up(self) -> Array:
        """Of the updates that arrived, 0 for the others."""
        return np.where(self.arrived, self.bits / 8.0, 0.0)

    def row_of(self, ue: IntArray) -> IntArray:
        """Where these UEs stand in A_k."""
        return np.searchsorted(self.ue, ue)

    def ue_columns(self) -> dict[str, list[object]]:
        """A column for each decision, each cost and each thing known of the selected UEs."""
        columns: dict[str, list[object]] = {
            "ue": self.ue.tolist(),
            "probability": self.probability.tolist(),
            "channel_gain": self.gain.tolist(),
            "snr": self.snr.tolist(),
        }
        columns |= {name: getattr(self.plan, name).tolist() for name in DECISIONS}
        columns |= {name: getattr(self.cost, name).tolist() for name in RoundCost.PER_UE}
        columns["bytes_up"] = self.bytes_up.tolist()
        for name in LIMITS:
            columns[name] = [STATUS_NAMES[code] for code in getattr(self.plan, name)]
        columns["decoded"] = self.arrived.astype(int).tolist()
        columns["guarded"] = self.guarded.tolist()
        return columns


UE_COLUMNS = tuple(Round(0).ue_columns())
"""Columns of a UE in a round: those of `Plan` and `RoundCost`, and what is known of it."""


class Air(Protocol):
    """The cell as the base station currently knows it, and its channels."""

    @property
    def cell(self) -> Cell: ...

    def gains(self, seed: int, k: int, ue: IntArray, start: float) -> tuple[Array, Array]:
        """Gains of these UEs in round k, which begins at the simulated time `start` [s].

        Those that decide decoding, and what the planner knows of them: by default the same array.
        """
        ...


@dataclass(frozen=True)
class ChannelAir:
    """The air of a simulation: a cell and a channel model."""

    cell: Cell
    channel: Channel

    def gains(self, seed: int, k: int, ue: IntArray, start: float) -> tuple[Array, Array]:
        channel = channel_at(self.channel, start)
        true = channel.gain(self.cell, seed, k)
        in_range = (true >= 0.0) & (true <= MOST_GAIN)
        if true.shape != (self.cell.num_ue,) or not in_range.all():
            raise AutoFLError(
                f"channel {type(self.channel).__name__}: round {k}: it must give each UE a gain"
                f" from 0 to {MOST_GAIN:g}"
            )
        known = channel.estimate(self.cell, seed, k, true)
        here = true[ue]
        return here, here if known is true else known[ue]
