"""What was measured on a device."""

from dataclasses import dataclass

NAN = float("nan")
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
