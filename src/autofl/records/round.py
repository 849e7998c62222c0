"""What happened in a round: the record every simulation and deployment writes."""

from dataclasses import dataclass, field

import numpy as np

from autofl.network import DECISIONS, LIMITS, STATUS_NAMES, Cell, Plan, RoundCost, make_plan
from autofl.units import Array, BoolArray, IntArray

NAN = float("nan")
_NOBODY = Cell(distance=np.empty(0))
NO_PLAN = make_plan(_NOBODY, num_samples=np.empty(0, np.int64), tx_power=np.empty(0))
NO_COST = RoundCost(np.empty(0), np.empty(0), np.empty(0), np.array(0.0))


@dataclass(frozen=True)
class Evaluation:
    """Quality of a model, means over UEs; NaN where it was not measured."""

    train_loss: float = NAN  # f(w), Eq. (1)
    adapted_train_loss: float = NAN  # F(w), Eq. (3)
    global_accuracy: float = NAN
    adapted_accuracy: float = NAN
    gradient_norm_sq: float = NAN  # ||grad F(w)||^2
    adapt_lr: float = NAN  # alpha of the adaptation


@dataclass(frozen=True)
class RoundRecord:
    """One round: what it cost, and for each selected UE what was planned and what came of it.

    Round 0 is the model before training: no UE, no plan, no cost. Arrays have shape
        (num_selected,), SI units.
    """

    round: int
    sim_time: float = 0.0  # simulated seconds since the start, this round included
    ue: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    probability: Array = field(default_factory=lambda: np.empty(0))  # with which each was selected
    channel_gain: Array = field(default_factory=lambda: np.empty(0))
    snr: Array = field(default_factory=lambda: np.empty(0))
    plan: Plan = NO_PLAN
    cost: RoundCost = NO_COST
    bytes_up: Array = field(
        default_factory=lambda: np.empty(0)
    )  # of the updates that arrived, 0 for the others
    decoded: BoolArray = field(default_factory=lambda: np.empty(0, np.bool_))  # and arrived
    guarded: IntArray | None = (
        None  # local steps that the algorithm's guard acted on; None for no guard
    )
    evaluation: Evaluation | None = None
    stop: str | None = None  # why the run ends with this round
    downlink_bits: float = NAN  # bits per weight of what was sent down; NaN where nothing was
    inner_lr: float = (
        NAN  # alpha of the local steps; NaN where there is none, or nobody was decoded
    )
    outer_lr: float = NAN  # beta; NaN where each gradient is taken at length 1
    step_length: float = NAN  # of the longest local step there may be; NaN where it has no bound
    suspects: tuple[
        tuple[int, float], ...
    ] = ()  # of a round that diverged: UEs, lengths over the median

    def ue_columns(self) -> dict[str, list[object]]:
        """A column for each decision, each cost and each thing known of the selected UEs, as plain
        values.
        """
        columns: dict[str, list[object]] = {name: getattr(self, name).tolist() for name in _KNOWN}
        columns |= {name: getattr(self.plan, name).tolist() for name in DECISIONS}
        columns |= {name: getattr(self.cost, name).tolist() for name in _COSTS}
        columns["bytes_up"] = self.bytes_up.tolist()
        columns |= {
            name: [STATUS_NAMES[code] for code in getattr(self.plan, name)] for name in LIMITS
        }
        columns["decoded"] = self.decoded.astype(int).tolist()
        columns["guarded"] = [0] * len(self.ue) if self.guarded is None else self.guarded.tolist()
        return columns


_KNOWN = ("ue", "probability", "channel_gain", "snr")
_COSTS = RoundCost.PER_UE
UE_COLUMNS = (*_KNOWN, *DECISIONS, *_COSTS, "bytes_up", *LIMITS, "decoded", "guarded")
"""Columns of a UE in a round, from the fields of `Plan` and `RoundCost`."""


NOBODY = -1
"""The UE of a node that has not said which it is, in devices.csv."""


@dataclass(frozen=True)
class DeviceRecord:
    """What came of asking one device for an update, as measured; NaN where nothing was measured."""

    ue: int
    outcome: str  # "ok", or why its update was left out
    reply_time: float = NAN  # seconds from order to reply, as the server saw it
    train_time: float = NAN  # seconds of the client update, as the device saw it
    energy: float = NAN  # joules the device's machine used meanwhile, where the platform tells
    bytes_down: float = NAN  # of the order
    bytes_up: float = NAN  # of the reply, with all that is in it
    send_time: float = (
        NAN  # seconds from the first byte of the reply to its last, where that is seen
    )
    round_time: float = (
        NAN  # seconds of the whole round, evaluation apart, the same for all of its devices
    )
