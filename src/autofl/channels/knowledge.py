"""What a planner knows of a channel: gains that were measured with an error, or some rounds ago."""

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import Annotated

import numpy as np

from autofl.channels.base import Channel, channel_at
from autofl.errors import AutoFLError
from autofl.network import Cell
from autofl.ranges import Checked, Range
from autofl.rng import stream
from autofl.units import Array

MARGINS: dict[Hashable, float] = {}
MOST_MARGINS = 64
"""What was learned of a channel and a cell, and how much of it is kept."""
LAW_VALUES = 2_000
LAW_ROUNDS = 50
"""Least number of ratios of true to known gain from which a quantile is learned, and of rounds they
come from.
"""


@dataclass(frozen=True)
class Knowledge(Checked, Channel):
    """A channel together with an imperfect estimate of it.

        known = true gain of round k - age, times 10^(error_db z / 10), times the margin,    z ~
        N(0, 1)

    The margin is the quantile of true/known at the chosen probability of outage: in that share of
    all rounds and UEs the true gain is below what the planner assumes. With an error alone it is
    10^(error_db z_p / 10), z_p the normal quantile; with old gains (an age, or a channel whose own
    estimate lags) it is learned from rounds of the same channel under other seeds, all UEs
    together.

    Note:
        This holds over all rounds, not given the estimate: a UE that seems strong is overestimated
        more often than others, and where only the strong are planned, more updates are lost than
        asked for. The first rounds know the gains of round 1.
    """

    channel: Channel
    error_db: Annotated[float, Range(ge=0)] = 0.0
    age: Annotated[int, Range(ge=0)] = 0
    outage: Annotated[float | None, Range(gt=0, lt=1)] = None  # None: no margin
    whole: "Knowledge | None" = None  # holds the margin where `channel` is that of one moment

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.age > 0 and channel_at(self.channel, 0.0) is not self.channel:
            raise AutoFLError(
                "knowledge.age counts rounds, and this channel follows the clock: set its estimate_delay"
            )

    def gain(self, cell: Cell, seed: int, k: int) -> Array:
        return self.channel.gain(cell, seed, k)

    def estimate(self, cell: Cell, seed: int, k: int, gain: Array) -> Array:
        return self._measured(cell, seed, k, gain) * self._margin(cell)

    def at(self, time: float) -> Channel:
        channel = channel_at(self.channel, time)
        return (
            self
            if channel is self.channel
            else replace(self, channel=channel, whole=self.whole or self)
        )

    def survival(self, cell: Cell, gain: Array) -> Array:
        return self.channel.survival(cell, gain)

    def _measured(self, cell: Cell, seed: int, k: int, gain: Array) -> Array:
        then = max(k - self.age, 1)
        before = gain if then == k else self.channel.gain(cell, seed, then)
        known = self.channel.estimate(cell, seed, then, before)
        if self.error_db > 0.0:
            error = stream(seed, "knowledge", k).standard_normal(cell.num_ue)
            known = known * 10.0 ** (self.error_db * error / 10.0)
        return known

    def _margin(self, cell: Cell) -> float:
        if self.outage is None:
            return 1.0
        if self.whole is not None:
            return self.whole._margin(cell)
        # Kept for equal channels and cells: a plan for a target looks at a cell many times.
        values = (getattr(cell, field.name) for field in fields(cell))
        plain = (value.tobytes() if isinstance(value, np.ndarray) else value for value in values)
        case = (self, *plain)
        try:
            is_known = case in MARGINS
        except TypeError:  # a part of a user's own that says nothing of when it is equal to another
            return self._quantile(cell, self.outage)
        if not is_known:
            if len(MARGINS) == MOST_MARGINS:
                MARGINS.clear()
            MARGINS[case] = self._quantile(cell, self.outage)
        return MARGINS[case]

    def _is_outdated(self, cell: Cell) -> bool:
        gain = np.ones(cell.num_ue)
        return self.age > 0 or self.channel.estimate(cell, 0, 1, gain) is not gain

    def _quantile(self, cell: Cell, outage: float) -> float:
        """The quantile of true/known at this probability: in closed form, or from rounds under
        other seeds.
        """
        if not self._is_outdated(cell):
            return float(10.0 ** (self.error_db * NormalDist().inv_cdf(outage) / 10.0))
        seeds = stream(0, "knowledge.law").integers(2**31, size=1 + LAW_VALUES // cell.num_ue)
        ratios = []
        for draw, seed in enumerate(seeds.tolist()):
            k = self.age + 2 + draw % LAW_ROUNDS
            gain = self.channel.gain(cell, seed, k)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios.append(gain / self._measured(cell, seed, k, gain))
        return float(np.nanquantile(np.concatenate(ratios), outage))
