"""The measured time of a round beyond computing and sending, by device and for the whole round."""

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from autofl.records import DeviceRecord

LAST = 20
"""Rounds of which the median is taken."""
FEWEST = 3
"""Fewest devices whose median says something about the others."""
FACTOR = 3.0
"""How many times the median of the devices' overheads that of one may count in its round.

Devices that wait for the same processor have up to twice the median.
"""


class Overheads:
    """Running estimates. A device's: order to reply, less computing and sending. A round's: less
    those of the slowest.

    Where sending is not seen, as with messages, it counts as overhead.
    """

    def __init__(self) -> None:
        self._of_ue: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=LAST))
        self._of_round: deque[float] = deque(maxlen=LAST)

    def add(self, records: Iterable[DeviceRecord], round_time: float) -> None:
        """What was measured in a round that took `round_time` [s], evaluation apart; a round
        without a reply says nothing, nor does one in which the server waited for a device in vain.
        """
        asked = [record for record in records if is_asked(record)]
        heard = [
            record
            for record in asked
            if not math.isnan(record.reply_time) and not math.isnan(record.train_time)
        ]
        for record in heard:
            self._of_ue[record.ue].append(overhead_of(record))
        if heard and len(heard) == len(asked):
            busy = max(busy_time(record) for record in heard)
            self._of_round.append(max(round_time - _too_late(heard) - busy, 0.0))

    def of_ue(self, ue: int) -> float | None:
        """Of this device [s]."""
        return _median(self._of_ue[ue])

    @property
    def of_round(self) -> float | None:
        """T_over [s], None before the first round."""
        return _median(self._of_round)


def _median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds else None


def _too_late(heard: Sequence[DeviceRecord]) -> float:
    """Seconds by which the last reply would have come sooner, had no device far more overhead than
    the others.

    A device that says it computed for no time and replies just before the deadline would else
    decide what all are planned with.
    """
    if len(heard) < FEWEST:
        return 0.0
    most = FACTOR * statistics.median(overhead_of(record) for record in heard)
    expected = max(min(record.reply_time, busy_time(record) + most) for record in heard)
    return max(record.reply_time for record in heard) - expected


def is_asked(record: DeviceRecord) -> bool:
    """Whether an order was sent to this device; its outcome says so too, but in words."""
    return not math.isnan(record.bytes_down)


def busy_time(record: DeviceRecord) -> float:
    """Seconds of computing and sending, of which the device says the first: no more than its reply
    took.
    """
    said = record.train_time
    if not math.isnan(record.send_time):
        said += record.send_time
    return min(said, record.reply_time)


def overhead_of(record: DeviceRecord) -> float:
    """Seconds from order to reply beyond computing and sending."""
    return record.reply_time - busy_time(record)
