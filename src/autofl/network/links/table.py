"""A staircase of your own: measured rates, another standard, or a curve in small steps."""

import math
from dataclasses import dataclass
from typing import Annotated

from autofl.errors import AutoFLError
from autofl.network.links.base import Law
from autofl.network.links.nr import staircase
from autofl.units import db_to_ratio


@dataclass(frozen=True)
class Levels:
    """Pairs of spectral efficiency and the SNR from which it is available."""

    levels: Annotated[list[list[float]], "[[bit/s/Hz, SNR in dB], ...]"]

    def __post_init__(self) -> None:
        if not self.levels or any(len(pair) != 2 for pair in self.levels):
            raise AutoFLError("levels: give pairs [bit/s/Hz, SNR in dB], at least one")
        if any(
            not 0.0 < bits <= 100.0 or not -100.0 <= snr_db <= 200.0 for bits, snr_db in self.levels
        ):
            raise AutoFLError(
                "levels: an efficiency is > 0 and <= 100 bit/s/Hz, an SNR between -100 and 200 dB"
            )

    def law(self) -> Law:
        return Law(
            levels=staircase(
                [(bits * math.log(2.0), db_to_ratio(snr_db)) for bits, snr_db in self.levels]
            )
        )
