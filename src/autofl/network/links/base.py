"""What a rate law is. Two forms are enough, a curve and a staircase; planners are exact for both."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Protocol

import numpy as np

from autofl.errors import AutoFLError
from autofl.ranges import Checked, Range
from autofl.units import Array

DECODE_SLACK = 1e-12
"""Relative slack of the decoding test: a power computed to reach an SNR exactly may fall short by
rounding.
"""


@dataclass(frozen=True)
class Law(Checked):
    """Spectral efficiency y [nat/s/Hz] as a function of the SNR xi.

    Without levels a curve: y = min(ln(1 + xi/gap), ceiling), decodable from the cell's phi on. With
    levels a staircase: y of the highest level whose SNR is reached, and nothing is decoded below
    the lowest.
    """

    gap: Annotated[float, Range(gt=0)] = 1.0  # Gamma, power ratio
    ceiling: Annotated[float, Range(gt=0, finite=False)] = math.inf  # [nat/s/Hz]
    levels: tuple[tuple[float, float], ...] = ()  # (y [nat/s/Hz], SNR it needs), rising in both

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = np.array(self.levels).reshape(-1, 2)
        if (
            not (pairs > 0.0).all()
            or not np.isfinite(pairs).all()
            or not (np.diff(pairs, axis=0) > 0.0).all()
        ):
            raise AutoFLError(
                "link: levels must rise in efficiency and in SNR, all of them finite numbers > 0"
            )

    @property
    def is_shannon(self) -> bool:
        return not self.levels and self.gap == 1.0 and math.isinf(self.ceiling)

    @cached_property
    def _steps(self) -> tuple[Array, Array]:
        """Efficiencies and SNRs of the levels; the first stands for what is below the lowest."""
        pairs = np.array([(0.0, 0.0), *self.levels])
        return pairs[:, 0], pairs[:, 1]

    def _place(self, snr: Array) -> np.ndarray:
        return np.searchsorted(self._steps[1][1:] * (1.0 - DECODE_SLACK), snr, side="right")

    def efficiency(self, snr: Array) -> Array:
        """y [nat/s/Hz]; 0 below the lowest level."""
        if self.levels:
            return np.asarray(self._steps[0][self._place(snr)])
        y = np.log1p(snr / self.gap)  # log1p keeps tiny SNRs from rounding to 0
        return y if math.isinf(self.ceiling) else np.minimum(y, self.ceiling)

    def repeated(self, snr: Array) -> Array:
        """The same, but below the lowest level blocks are repeated and combined: y falls there in
        proportion to xi.
        """
        if not self.levels:
            return self.efficiency(snr)
        lowest, least = self.levels[0]
        return np.where(
            self._place(snr) > 0, self.efficiency(snr), lowest * np.asarray(snr) / least
        )

    def snr_of(self, efficiency: Array) -> Array:
        """The least SNR that gives y [nat/s/Hz]: that of the highest level not above it, or of the
        ceiling.

        Below the lowest level it falls in proportion to y, as for `repeated`.
        """
        if not self.levels:
            return self.gap * np.expm1(np.minimum(efficiency, self.ceiling))
        y, snr = self._steps
        place = np.searchsorted(y[1:] * (1.0 - DECODE_SLACK), efficiency, side="right")
        return np.where(place > 0, snr[place], snr[1] * np.asarray(efficiency) / y[1])

    def least_snr(self, phi: float) -> float:
        """The lowest SNR that is decoded: the cell's phi for a curve, that of the lowest level for
        a staircase.
        """
        return self.levels[0][1] if self.levels else phi

    def needed(self, snr: Array) -> Array:
        """The SNR that the rate chosen at this SNR needs; it is lower above a ceiling and between
        levels.
        """
        if self.levels:
            return np.asarray(self._steps[1][self._place(snr)])
        return (
            snr
            if math.isinf(self.ceiling)
            else np.minimum(snr, self.gap * math.expm1(self.ceiling))
        )


SHANNON = Law()
"""r = B log2(1 + xi), Eq. (9) of the paper."""


class Link(Protocol):
    """A rate law as a part: its settings, and the law that follows from them."""

    def law(self) -> Law: ...
