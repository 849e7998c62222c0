"""Small-scale fading laws of the power gain h_i, and how likely each is to exceed a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array


class Fading(Protocol):
    """A law of the small-scale gain h_i; anything with these two methods will do."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Independent gains h_i of the given shape."""
        ...

    def survival(self, gain: Array) -> Array:
        """P(h_i >= gain)."""
        ...


@dataclass(frozen=True)
class Rayleigh:
    """h ~ Rayleigh(scale s), mean s sqrt(pi/2): what the paper prints ("Rayleigh distribution
    parameter 40").
    """

    scale: float

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.rayleigh(self.scale, shape)

    def survival(self, gain: Array) -> Array:
        """P(h >= x) = exp(-x^2 / (2 s^2)) for x >= 0."""
        return np.exp(-0.5 * (np.maximum(gain, 0.0) / self.scale) ** 2)


@dataclass(frozen=True)
class Exponential:
    """h ~ Exp(mean m): the power gain of a channel whose amplitude is Rayleigh distributed."""

    mean: float

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.exponential(self.mean, shape)

    def survival(self, gain: Array) -> Array:
        """P(h >= x) = exp(-x / m) for x >= 0."""
        return np.exp(-np.maximum(gain, 0.0) / self.mean)


@dataclass(frozen=True)
class NoFading:
    """h fixed, 1 unless said otherwise; an array gives each UE its own."""

    gain: float | Array = 1.0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(np.asarray(self.gain, dtype=np.float64), shape).copy()

    def survival(self, gain: Array) -> Array:
        return np.where(np.asarray(gain) <= self.gain, 1.0, 0.0)


@dataclass(frozen=True)
class OwnFading:
    """A law given by a function `draw(rng, shape)`; `survival` is needed only for success
    probabilities.
    """

    draw_gain: Callable[[np.random.Generator, tuple[int, ...]], Array]
    survival_of: Callable[[Array], Array] | None = None

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        gain = np.asarray(self.draw_gain(rng, shape), dtype=np.float64)
        if gain.shape != shape or not np.all(np.isfinite(gain) & (gain >= 0.0)):
            raise AutoFLError(
                f"own fading law: it must return finite gains >= 0 of shape {shape}, got shape {gain.shape}"
            )
        return gain

    def survival(self, gain: Array) -> Array:
        if self.survival_of is None:
            raise AutoFLError(
                "own fading law: give OwnFading(draw, survival) to get success probabilities"
            )
        return self.survival_of(gain)
