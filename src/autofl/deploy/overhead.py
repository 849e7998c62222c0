"""The measured time of a round beyond computing and sending, by device and for the whole round."""

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable

from autofl.records import DeviceRecord

LAST = 20
"""Rounds of which the median is taken."""


class Overheads:
    """Running estimates. A device's: order to reply, less computing and sending. A round's: less those of the slowest.

    Where sending is not seen, as with messages, it counts as overhead.
    """

    def __init__(self) -> None:
        self._of_ue: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=LAST))
        self._of_round: deque[float] = deque(maxlen=LAST)

    def add(self, records: Iterable[DeviceRecord], round_time: float) -> None:
        """What was measured in a round that took `round_time` [s], evaluation apart; a round without a reply says
        nothing, nor does one in which the server waited for a device in vain."""
        asked = list(records)
        heard = [record for record in asked if not math.isnan(record.reply_time) and not math.isnan(record.train_time)]
        for record in heard:
            self._of_ue[record.ue].append(record.reply_time - busy_time(record))
        if heard and all(record.outcome == "not connected" or record in heard for record in asked):
            self._of_round.append(max(round_time - max(map(busy_time, heard)), 0.0))

    def of_ue(self, ue: int) -> float | None:
        """Of this device [s]."""
        return statistics.median(self._of_ue[ue]) if self._of_ue[ue] else None

    @property
    def of_round(self) -> float | None:
        """T_over [s], None before the first round."""
        return statistics.median(self._of_round) if self._of_round else None


def busy_time(record: DeviceRecord) -> float:
    """Seconds of computing and sending, of which the device says the first: no more than its reply took."""
    said = record.train_time + (0.0 if math.isnan(record.send_time) else record.send_time)
    return min(said, record.reply_time)
