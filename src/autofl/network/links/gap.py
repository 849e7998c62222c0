"""Shannon's capacity with a gap and a ceiling: what real codes and constellations leave of it."""

import math
from dataclasses import dataclass
from typing import Annotated

from autofl.network.links.base import Law
from autofl.ranges import Checked, Range
from autofl.units import db_to_ratio


@dataclass(frozen=True)
class Gap(Checked):
    """r = B min(log2(1 + xi/Gamma), ceiling), decodable from phi (cell.snr_threshold_db) on.

    TR 36.942, clause A.2, and TR 38.803, clause 5.2.7, approximate link adaptation in the same
    spirit, by a factor in front of Shannon's rate where this has one inside the logarithm, and by a
    lowest and a highest SNR.
    """

    gap_db: Annotated[
        float, Range(ge=0, le=60), "Gamma [dB], how much more SNR than Shannon's bound a rate needs"
    ] = 3.0
    ceiling: Annotated[
        float | None, Range(gt=0, le=100), "highest spectral efficiency [bit/s/Hz]; default none"
    ] = None

    def law(self) -> Law:
        ceiling = math.inf if self.ceiling is None else self.ceiling * math.log(2.0)
        return Law(gap=db_to_ratio(self.gap_db), ceiling=ceiling)
