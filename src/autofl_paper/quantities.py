"""Quantities that claims are measured by, one value per seed: ratios, and combinations of several."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from autofl.units import Array
from autofl_paper.curves import NUM_TARGETS
from autofl_paper.verdicts import Measured, View

OTHERS = ("Per-FedAvg", "FedAvg-1", "FedAvg-2")
ALL = ("AutoFL", *OTHERS)
STUDIES = ("mnist-iid", "mnist", "cifar10")
AT_TARGETS = "time, {}"
Timed = Callable[[View, int], Array]
"""A ratio of times at one target."""


def _stacked(values: Iterable[Array]) -> Array:
    """Several quantities seed by seed, as far as all go."""
    several = list(values)
    num = min(len(one) for one in several)
    return np.stack([one[:num] for one in several])


def ratio(one: Array, other: Array) -> Array:
    """one / other, seed by seed as far as both go; NaN where neither reached its target."""
    num = min(len(one), len(other))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(one[:num] / other[:num])


def geometric_mean(values: Iterable[Array]) -> Array:
    """Over several quantities, seed by seed; NaN where one is NaN or 0 meets infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.exp(np.mean(np.log(_stacked(values)), axis=0))


def median_of(values: Iterable[Array]) -> Array:
    """The median of several, seed by seed, of those that are not NaN; the geometric mean of the
    middle two.
    """
    medians = []
    for column in _stacked(values).T:
        telling = np.sort(column[~np.isnan(column)])
        middle = telling[(len(telling) - 1) // 2 : len(telling) // 2 + 1]
        with np.errstate(invalid="ignore"):
            medians.append(math.sqrt(middle[0] * middle[-1]) if len(middle) else math.nan)
    return np.array(medians)


def growth(places: Sequence[float], values: Array, sign: int = 1) -> Array:
    """The factor by which values of shape (num_places, num_seeds) grow over the axis, by Theil and
    Sen's slope; with sign -1, by which they fall.

    The slope is the median of those between any two points, in logarithms: every point counts, no
    single one decides. What was never reached lies above all that was; between two such points
    nothing is known, and where that is so for half of the pairs, the trend is not known either.
    """
    x = np.asarray(places, dtype=np.float64)
    low, high = np.triu_indices(len(x), 1)
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # an error of 0 has no logarithm, and its slopes are infinite
        y = np.log(values)
        slopes = (y[high] - y[low]) / (x[high] - x[low])[:, None]
        known = np.isnan(slopes).mean(axis=0) < 0.5
        middle = np.full(slopes.shape[1], math.nan)
        middle[known] = np.nanmedian(slopes[:, known], axis=0)
        return np.asarray(np.exp(sign * middle * (x[-1] - x[0])))


def acceleration(places: Sequence[float], values: Array) -> dict[str, Array]:
    """Growth over the outer half of the axis, and over the outer half / over the inner half, of a
    parabola through all logarithms of values of shape (num_places, num_seeds): both are above 1
    where values grow ever faster.

    What was never reached lies above all that was: a parabola that has to pass there bends upwards
    without limit where such points lie at the ends, downwards where they lie in the middle, and
    nothing is known where they lie in both. NaN for fewer than three points.
    """
    names = ("outer half", "outer / inner half")
    if len(places) < 3:
        return dict.fromkeys(names, np.full(values.shape[1], math.nan))
    z = (np.asarray(places, dtype=np.float64) - places[0]) / (places[-1] - places[0])
    square, slope, _ = np.linalg.pinv(np.vander(z, 3))  # the parabola's coefficients by the points
    outer = 0.75 * square + 0.5 * slope  # c (1 - 1/4) + b/2; the inner half has c/4 + b/2
    with np.errstate(divide="ignore"):
        level = np.log(values)
    return {
        name: np.exp(_weighted(by, level))
        for name, by in zip(names, (outer, 0.5 * square), strict=True)
    }


def _weighted(by: Array, level: Array) -> Array:
    """sum_k by_k level_k for each seed, infinite levels included; NaN where they pull both ways."""
    endless = np.isinf(level)
    finite = by @ np.where(endless, 0.0, level)
    pulls = np.where(endless, np.sign(by)[:, None] * np.sign(level), 0.0)
    upwards = (pulls > 0.0).any(axis=0)
    downwards = (pulls < 0.0).any(axis=0)
    known = np.where(upwards, math.inf, np.where(downwards, -math.inf, finite))
    return np.asarray(np.where(upwards & downwards, math.nan, known))


def timed(of: Timed) -> Callable[[View, int | None], Array]:
    """A ratio of times at one target, or for None the median of the ratios at all of them."""

    def values(view: View, target: int | None) -> Array:
        if target is not None:
            return of(view, target)
        return median_of(of(view, place) for place in range(1, NUM_TARGETS + 1))

    return values


def each_timed(of: Callable[[View], dict[str, Timed]]) -> Callable[[View, int | None], Measured]:
    """Several comparisons of times, each by itself."""
    return lambda view, target: {name: timed(one)(view, target) for name, one in of(view).items()}


def at(study: str, slow: str, fast: str, x: int = 0, column: str = "time") -> Timed:
    """slow / fast at one target; column near: at those next to where the algorithms start to
    converge.
    """
    return lambda view, k: ratio(
        view(f"{column}{k}", study, slow, x), view(f"{column}{k}", study, fast, x)
    )


def plain(values: Callable[[View], Measured]) -> Callable[[View, int | None], Measured]:
    """A quantity that does not depend on a target."""
    return lambda view, target: values(view)


def error_leads(view: View, study: str) -> dict[str, Array]:
    """By how much AutoFL's error is smaller than that of each other algorithm."""
    return {other: ratio(view.error(study, other), view.error(study, "AutoFL")) for other in OTHERS}


def loss_leads(view: View, study: str) -> dict[str, Array]:
    return {
        other: ratio(view("loss", study, other), view("loss", study, "AutoFL")) for other in OTHERS
    }
