"""How far a round takes the model: what a planner must know of learning to weigh it against time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array

MOST = 1e9
"""Upper limit of each constant."""


@dataclass(frozen=True)
class Pace:
    """Rounds to the target where m UEs are heard and each makes tau steps on d samples.

        K = constant + (per_step + noise / (d m)) / tau + (per_ue + rounding omega) / m

    omega is the compressor's variance, E|Q(x) - x|^2 / |x|^2; per_ue is there because a few UEs
    stand in for all. A round of such UEs covers 1/K of the way. Where UEs differ, each contributes
    1/(m K) with its own K, and the round's progress is the sum over those that are heard.

    The defaults are fitted to the MNIST pilots that come with the package: l = 5, 90 % adapted
    accuracy; a test makes the fit again.
    """

    constant: float = 2.43
    per_step: float = 5.24
    per_ue: float = 3.69
    noise: float = 579.0
    rounding: float = 0.738

    def __post_init__(self) -> None:
        if (
            not all(0.0 <= value <= MOST for value in self.values)
            or self.constant + self.per_step < 1.0 / MOST
        ):
            raise AutoFLError(
                f"pace: {self.values} must be numbers from 0 to {MOST:g}, the first two not both 0"
            )

    @property
    def values(self) -> list[float]:
        return [self.constant, self.per_step, self.per_ue, self.noise, self.rounding]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Pace":
        if len(values) != 5:
            raise AutoFLError(
                f"pace: {len(values)} values; it takes five: constant, per_step, per_ue, noise, rounding"
            )
        return cls(*values)

    def progress(
        self, local_steps: Array, num_samples: Array, variance: Array, num_heard: int
    ) -> Array:
        """1/(m K), what one UE of m adds; shapes broadcast."""
        noise = self.noise / (num_samples * num_heard)
        by_ue = (self.per_ue + self.rounding * variance) / num_heard
        rounds = self.constant + (self.per_step + noise) / local_steps + by_ue
        return np.asarray(1.0 / (num_heard * rounds))
