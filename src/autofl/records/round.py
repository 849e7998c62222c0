"""What happened in a round: the record every simulation and deployment writes."""

from dataclasses import dataclass, field

import numpy as np

from autofl.units import Array, BoolArray, IntArray

NAN = float("nan")


@dataclass(frozen=True)
class Evaluation:
    """Quality of a model, means over UEs; NaN where it was not measured."""

    train_loss: float = NAN  # f(w), Eq. (1)
    adapted_train_loss: float = NAN  # F(w), Eq. (3)
    global_accuracy: float = NAN
    adapted_accuracy: float = NAN
    gradient_norm_sq: float = NAN  # ||grad F(w)||^2


@dataclass(frozen=True)
class RoundRecord:
    """One round: what it cost, and for each selected UE what was planned and what came of it.

    Round 0 is the model before training: no UE, no cost. Arrays have shape (num_selected,), SI units.
    """

    round: int
    sim_time: float = 0.0  # simulated seconds since the start, this round included
    round_time: float = 0.0
    ue: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    channel_gain: Array = field(default_factory=lambda: np.empty(0))
    num_samples: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    tx_power: Array = field(default_factory=lambda: np.empty(0))
    snr: Array = field(default_factory=lambda: np.empty(0))
    upload_time: Array = field(default_factory=lambda: np.empty(0))
    compute_time: Array = field(default_factory=lambda: np.empty(0))
    energy: Array = field(default_factory=lambda: np.empty(0))
    status: tuple[str, ...] = ()
    decoded: BoolArray = field(default_factory=lambda: np.empty(0, np.bool_))
    evaluation: Evaluation | None = None
    stop: str | None = None  # why the run ends with this round


@dataclass(frozen=True)
class DeviceRecord:
    """What came of asking one device for an update, as measured; NaN where nothing was measured."""

    ue: int
    outcome: str  # "ok", or why its update was left out
    reply_time: float = NAN  # seconds from order to reply, as the server saw it
    train_time: float = NAN  # seconds of the client update, as the device saw it
    energy: float = NAN  # joules the device's machine used meanwhile, where the platform tells
    bytes_down: float = NAN  # of the order
    bytes_up: float = NAN  # of the reply
