"""From what is measured for every seed to a verdict on a claim: what a claim is, intervals, rules.

A verdict follows from the numbers alone. The interval is that of the median over seeds by order statistics: it needs no
law of the values, and a target that is never reached counts as an infinite time.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autofl.reproduction.results import Row
from autofl.units import Array

Verdict = Literal["holds", "partly", "does not hold", "not measured"]
Meaning = Literal["adapted", "global", "mixed"]
MEANINGS: tuple[Meaning, ...] = ("adapted", "global", "mixed")
"""Which accuracy is meant; mixed: the MAML algorithms are judged adapted, FedAvg as it is."""
COVERAGE = 0.9
"""Least coverage of the interval of a median, where there are seeds enough."""


class View:
    """The rows of one reading, looked up by study, arm and place on the axis, with the accuracy that is meant."""

    def __init__(self, rows: Iterable[Row], meaning: Meaning = "adapted") -> None:
        self._meaning = meaning
        self._rows: dict[tuple[str, str, int], dict[int, dict[str, float]]] = {}
        for row in rows:
            self._rows.setdefault((row.study, row.arm, row.x), {})[row.seed] = row.values

    def places(self, study: str) -> list[int]:
        """The points of a study's axis."""
        points = sorted({x for name, _, x in self._rows if name == study})
        if not points:
            raise KeyError(study)
        return points

    def sizes(self, study: str) -> list[int]:
        """The d of Per-FedAvg in a study of sample sizes."""
        names = [arm for name, arm, _ in self._rows if name == study and arm.startswith("Per-FedAvg, d = ")]
        return sorted(int(name.rpartition(" ")[2]) for name in names)

    def __call__(self, quantity: str, study: str, arm: str, x: int = 0) -> Array:
        """A quantity of an arm, one value a seed in the order of the seeds; what was never reached is infinite."""
        judged_global = self._meaning == "global" or (self._meaning == "mixed" and arm.startswith("FedAvg"))
        metric = "global" if judged_global else "adapted"
        cells = self._rows[study, arm, x]
        values = np.array([cells[seed][f"{quantity}_{metric}"] for seed in sorted(cells)])
        return np.where(np.isnan(values), math.inf, values)


def ratio(one: Array, other: Array) -> Array:
    """one / other, seed by seed as far as both go; NaN where neither reached its target."""
    one, other = _paired(one, other)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(one / other)


def difference(one: Array, other: Array) -> Array:
    """one - other, seed by seed as far as both go; NaN where neither converged."""
    one, other = _paired(one, other)
    with np.errstate(invalid="ignore"):
        return np.asarray(one - other)


def _paired(one: Array, other: Array) -> tuple[Array, Array]:
    num = min(len(one), len(other))
    return one[:num], other[:num]


def least_of(values: Iterable[Array]) -> Array:
    """The least of several, seed by seed; what says nothing is left out."""
    return np.asarray(np.fmin.reduce(list(values)))


def mean_of(values: Iterable[Array]) -> Array:
    """Mean of several, seed by seed; NaN where infinite ones cancel."""
    with np.errstate(invalid="ignore"):
        return np.mean(np.stack(list(values)), axis=0)


@dataclass(frozen=True)
class Interval:
    """Median over seeds and an interval that covers the true median with the stated probability."""

    median: float
    low: float
    high: float
    coverage: float


def median_interval(values: Array) -> Interval:
    """From order statistics: the k-th smallest and largest, with the largest k that keeps the coverage at 90 %.

    With fewer than five seeds no interval covers 90 %; it is then the range, and its coverage says so.
    """
    ordered = np.sort(values)
    num = len(ordered)
    tail = np.cumsum([math.comb(num, k) for k in range(num + 1)]) / 2.0**num  # P(at most k values below the median)
    inner = [k for k in range((num - 1) // 2 + 1) if 1.0 - 2.0 * tail[k] >= COVERAGE]
    k = max(inner, default=0)
    left, right = ordered[(num - 1) // 2], ordered[num // 2]
    median = 0.0 if np.isinf(left) and left == -right else float((left + right) / 2.0)
    return Interval(median, float(ordered[k]), float(ordered[num - 1 - k]), float(1.0 - 2.0 * tail[k]))


@dataclass(frozen=True)
class Above:
    """Holds if the whole interval lies above the bound.

    Partly if only the median does, or if the whole interval lies above the weaker bound where there is one.
    """

    bound: float
    weak: float | None = None

    def verdict(self, interval: Interval) -> Verdict:
        if interval.low > self.bound:
            return "holds"
        if interval.median > self.bound or (self.weak is not None and interval.low > self.weak):
            return "partly"
        return "does not hold"

    def __str__(self) -> str:
        weak = "" if self.weak is None else f"; partly: > {self.weak:g}"
        return f"> {self.bound:g}{weak}"


@dataclass(frozen=True)
class About:
    """Holds if the whole interval lies within 30 % of the value, partly if the median does."""

    value: float
    share: float = 0.3

    def verdict(self, interval: Interval) -> Verdict:
        low, high = self.value * (1.0 - self.share), self.value * (1.0 + self.share)
        if low <= interval.low and interval.high <= high:
            return "holds"
        return "partly" if low <= interval.median <= high else "does not hold"

    def __str__(self) -> str:
        return f"{self.value:g} ± {100 * self.share:g} %"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in our words, what is measured for it (one number a seed), and the rule."""

    name: str
    words: str
    where: str
    quantity: str
    values: Callable[[View], Array]
    rule: Above | About
    digits: int = 2
    factor: float = 1.0  # to the unit shown


@dataclass(frozen=True)
class Judgement:
    """A claim with what was measured; no interval where the runs are not there."""

    claim: Claim
    verdict: Verdict
    interval: Interval | None = None

    @property
    def measured(self) -> str:
        if self.interval is None:
            return "–"
        texts = [_number(value, self.claim) for value in (self.interval.median, self.interval.low, self.interval.high)]
        return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def _number(value: float, claim: Claim) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{round(claim.factor * value, claim.digits) + 0.0:.{claim.digits}f}"  # + 0.0: no minus before a zero


def judge(claim: Claim, view: View) -> Judgement:
    """The verdict on a claim from what is there."""
    try:
        values = claim.values(view)
    except (KeyError, ValueError):  # runs of this claim are not there
        return Judgement(claim, "not measured")
    telling = values[~np.isnan(values)]  # where neither side reached its target there is nothing to compare
    if 2 * len(telling) <= len(values):
        return Judgement(claim, "not measured")
    interval = median_interval(telling)
    return Judgement(claim, claim.rule.verdict(interval), interval)
