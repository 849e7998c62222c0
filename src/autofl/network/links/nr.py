"""The modulation and coding schemes of NR: 3GPP TS 38.214, Tables 5.1.3.1-1 and 5.1.3.1-2."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from autofl.errors import AutoFLError
from autofl.network.links.base import Law
from autofl.ranges import Checked, Range
from autofl.units import db_to_ratio

QAM64 = (
    *((2, rate) for rate in (120, 157, 193, 251, 308, 379, 449, 526, 602, 679)),
    *((4, rate) for rate in (340, 378, 434, 490, 553, 616, 658)),
    *((6, rate) for rate in (438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948)),
)
"""Modulation order Q_m and 1024 R of MCS 0 to 28, Table 5.1.3.1-1."""
QAM256 = (
    *((2, rate) for rate in (120, 193, 308, 449, 602)),
    *((4, rate) for rate in (378, 434, 490, 553, 616, 658)),
    *((6, rate) for rate in (466, 517, 567, 616, 666, 719, 772, 822, 873)),
    *((8, rate) for rate in (682.5, 711, 754, 797, 841, 885, 916.5, 948)),
)
"""The same of MCS 0 to 27, Table 5.1.3.1-2."""


@dataclass(frozen=True)
class _Nr(Checked):
    """A table of MCS: efficiency Q_m R (1 - overhead) from the SNR Gamma (2^(Q_m R) - 1) on.

    PUSCH without transform precoding has the tables of PDSCH (TS 38.214, clause 6.1.4.1).

    Note:
        The standard has no SNRs. Gamma is the distance to Shannon's bound at a block error rate of
        10 %: 2 dB is a round figure for LDPC codes of NR (about 1 dB for QPSK, 3 dB for 256-QAM,
        whose constellation alone loses up to 1.5 dB). Give `snr_db` where measured thresholds are
        at hand. MCS 17 of the first table carries less than 16.
    """

    gap_db: Annotated[
        float, Range(ge=0, le=60), "Gamma [dB], how much more SNR than Shannon's bound an MCS needs"
    ] = 2.0
    overhead: Annotated[
        float,
        Range(ge=0, lt=1),
        "share of pilots and control; 0.08 for uplink FR1 in TS 38.306, 4.1.2",
    ] = 0.08
    snr_db: Annotated[
        list[float] | None,
        Range(ge=-100, le=200),
        "SNR of each MCS [dB] in the order of the table, instead of gap_db",
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.snr_db is not None and len(self.snr_db) != len(self.table):
            raise AutoFLError(
                f"snr_db: {len(self.snr_db)} values; the table has {len(self.table)} MCS"
            )

    @property
    def table(self) -> Sequence[tuple[int, float]]:
        raise NotImplementedError

    def law(self) -> Law:
        efficiency = [order * rate / 1024.0 for order, rate in self.table]
        if self.snr_db is None:
            snr = [db_to_ratio(self.gap_db) * (2.0**bits - 1.0) for bits in efficiency]
        else:
            snr = [db_to_ratio(value) for value in self.snr_db]
        share = (1.0 - self.overhead) * math.log(2.0)
        return Law(
            levels=staircase([(share * bits, xi) for bits, xi in zip(efficiency, snr, strict=True)])
        )


class Nr64(_Nr):
    """MCS index table 1, up to 64-QAM."""

    @property
    def table(self) -> Sequence[tuple[int, float]]:
        return QAM64


class Nr256(_Nr):
    """MCS index table 2, up to 256-QAM."""

    @property
    def table(self) -> Sequence[tuple[int, float]]:
        return QAM256


def staircase(pairs: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Levels that rise in both: one that needs as much SNR as a better one is left out."""
    kept: list[tuple[float, float]] = []
    for y, snr in sorted(pairs, reverse=True):
        if not kept or (snr < kept[-1][1] and y < kept[-1][0]):
            kept.append((y, snr))
    return tuple(reversed(kept))
