"""From what is measured for every seed to a verdict on a claim: what a claim is, tests, rules.

For each claim one number per seed is measured, nearly always a ratio; for a claim of several
comparisons ("the least time of all"), one for each of them. A verdict follows from these numbers
alone: sign tests need no law of the values, and a target that is never reached counts as an
infinite time. The p-values of all claims that are judged together are corrected by Bonferroni's
method.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from autofl.quality import mean_interval
from autofl.units import Array
from autofl_paper.curves import moved
from autofl_paper.results import Row

Verdict = Literal["supported", "tie", "refuted", "inconclusive", "not run yet", "smoke scale"]
JUDGED: tuple[Verdict, ...] = ("supported", "tie", "refuted", "inconclusive")
Meaning = Literal["adapted", "global", "mixed"]
MEANINGS: tuple[Meaning, ...] = ("adapted", "global", "mixed")
"""Which accuracy is meant; mixed: the MAML algorithms are judged adapted, FedAvg as it is."""
COVERAGE = 0.95
"""Least coverage of the interval of a median, where there are seeds enough."""
LEVEL = 0.05
"""Chance of one wrong verdict or more among all claims that are judged together."""
WAYS = 2
"""A verdict says one of three things: the claim holds, fails or is a tie. At most this many are
wrong at a time.
"""
MARGIN = 1.05
"""Factor within which two sides are a tie."""


class View:
    """The rows of one reading, looked up by study, arm and place on the axis, with the accuracy
    that is meant.

    `shift` moves all targets by so many steps.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        meaning: Meaning = "adapted",
        shift: int = 0,
    ) -> None:
        self._meaning = meaning
        self._shift = shift
        self._rows: dict[tuple[str, str, int], dict[int, dict[str, float]]] = {}
        for row in rows:
            self._rows.setdefault((row.study, row.arm, row.x), {})[row.seed] = row.values

    def places(self, study: str) -> list[int]:
        """The points of a study's axis."""
        points = sorted({x for name, _, x in self._rows if name == study})
        if not points:
            raise KeyError(study)
        return points

    def column(self, name: str, study: str, arm: str, x: int = 0) -> Array:
        """A column of an arm as it is, one value per seed in the order of the seeds."""
        cells = self._rows[study, arm, x]
        return np.array([cells[seed][name] for seed in sorted(cells)])

    def __call__(self, quantity: str, study: str, arm: str, x: int = 0) -> Array:
        """A quantity of the accuracy that is meant; what was never reached is infinite."""
        metric = self._meaning
        if metric == "mixed":
            metric = "global" if arm.startswith("FedAvg") else "adapted"
        name = quantity
        if name.startswith(("time", "near", "rounds")):
            name = moved(name, self._shift)
        values = self.column(f"{name}_{metric}", study, arm, x)
        if quantity == "rounds":  # a K* of 0 has no ratio
            values = np.maximum(values, 1.0)
        return np.where(np.isnan(values), math.inf, values)

    def error(self, study: str, arm: str, x: int = 0) -> Array:
        """Share of wrong answers at the best evaluation."""
        return 1.0 - self("best", study, arm, x)


@dataclass(frozen=True)
class Interval:
    """What a quantity is over seeds, and an interval that covers the truth with the stated
    probability.
    """

    value: float  # the median, or the mean
    low: float
    high: float
    coverage: float = COVERAGE


def median_interval(values: Array) -> Interval:
    """From order statistics: the k-th smallest and largest, with the largest k that keeps the
    coverage at 95 %.

    With fewer than six seeds no interval covers 95 %; it is then the range, and its coverage says
    so.
    """
    ordered = np.sort(values)
    num = len(ordered)
    tail = (
        np.cumsum([math.comb(num, k) for k in range(num + 1)]) / 2.0**num
    )  # P(at most k values below the median)
    inner = [k for k in range((num - 1) // 2 + 1) if 1.0 - 2.0 * tail[k] >= COVERAGE]
    k = max(inner, default=0)
    left = ordered[(num - 1) // 2]
    right = ordered[num // 2]
    median = float(left if left == right else (left + right) / 2.0)
    return Interval(
        median, float(ordered[k]), float(ordered[num - 1 - k]), float(1.0 - 2.0 * tail[k])
    )


def sign_tail(values: Array, bound: float) -> tuple[float, float]:
    """One-sided p-values of the sign test: that the median lies above the bound, and that it lies
    below.

    A value at the bound speaks for neither.
    """
    num = len(values)
    above = int((values > bound).sum())
    below = int((values < bound).sum())

    def tail(hits: int) -> float:
        return sum(math.comb(num, k) for k in range(hits, num + 1)) / 2.0**num

    return tail(above), tail(below)


@dataclass(frozen=True)
class Evidence:
    """p-values of the three things a verdict may say: that the claim holds, that it fails, that it
    is a tie.
    """

    holds: float = 1.0
    fails: float = 1.0
    tie: float = 1.0

    def times(self, factor: float) -> "Evidence":
        """Corrected by Bonferroni's method."""
        return Evidence(*(min(1.0, factor * p) for p in (self.holds, self.fails, self.tie)))

    @property
    def verdict(self) -> Verdict:
        """A tie is said first: an effect of less than 5 % is none, however sure."""
        if self.tie < LEVEL:
            return "tie"
        if self.holds < LEVEL:
            return "supported"
        return "refuted" if self.fails < LEVEL else "inconclusive"


class SignTest:
    """A rule that asks on which side of a bound the median lies."""

    interval = staticmethod(median_interval)

    def evidence(self, comparisons: Sequence[Array]) -> Evidence:
        raise NotImplementedError

    def says(self, comparisons: Sequence[Array]) -> tuple[Verdict, Evidence]:
        """The verdict on a claim that is judged alone: wrong with a chance of at most 5 %."""
        evidence = self.evidence(comparisons)
        return evidence.times(WAYS).verdict, evidence

    def shown(self, value: float) -> str:
        return shown(value)


@dataclass(frozen=True)
class Above(SignTest):
    """Every comparison's median lies above the bound: supported; one lies below: refuted; the least
    of them lies within 5 % of the bound: a tie.
    """

    bound: float = 1.0
    rows: bool = False  # each comparison is a claim of its own, judged together with this one

    def evidence(self, comparisons: Sequence[Array]) -> Evidence:
        """An intersection-union test: each comparison is tested on its own, and all must pass.

        That one fails is corrected for their number, unless each is corrected as a claim of its
        own: then this one follows from them. An empty comparison says nothing.
        """
        above = []
        below = []
        above_low = []
        below_high = []
        for values in comparisons:
            tails = sign_tail(values, self.bound)
            above.append(tails[0])
            below.append(tails[1])
            above_low.append(sign_tail(values, self.bound / MARGIN)[0])
            below_high.append(sign_tail(values, self.bound * MARGIN)[1])
        num = 1 if self.rows else len(comparisons)
        tie = max(max(above_low), num * min(below_high))
        return Evidence(max(above), num * min(below), tie).times(1.0)

    def __str__(self) -> str:
        return f"> {self.bound:g}"


@dataclass(frozen=True)
class About(SignTest):
    """The median lies within a factor of the value: supported; outside: refuted. There is no tie."""

    bound: float
    factor: float

    def evidence(self, comparisons: Sequence[Array]) -> Evidence:
        """Inside by two one-sided tests, outside by either."""
        (values,) = comparisons
        low = sign_tail(values, self.bound / self.factor)
        high = sign_tail(values, self.bound * self.factor)
        return Evidence(max(low[0], high[1]), min(high[0], low[1]))

    def __str__(self) -> str:
        return f"{self.bound:g}, within a factor of {self.factor:g}"


Unit = Literal["ratio", "points"]
MARGINS: dict[Unit, float] = {"ratio": math.log(1.05), "points": 0.5}
"""Below it an effect counts as none: 5 % of a time or of a number of rounds, half a point of
accuracy.
"""


@dataclass(frozen=True)
class Effect:
    """The mean lies surely above 0 and beyond the margin: supported; the same below: refuted;
    surely within the margin: a tie.

    An effect is the logarithm of a ratio, or points of accuracy; its interval is Student's.
    """

    unit: Unit = "ratio"
    bound: float = 0.0

    def interval(self, values: Array) -> Interval:
        effect, half = mean_interval(values)
        return Interval(effect, effect - half, effect + half)

    def says(self, comparisons: Sequence[Array]) -> tuple[Verdict, Evidence]:
        """All comparisons must hold, and one refutes; where some hold and some are ties, the least
        is a tie.
        """
        verdicts = {self._alone(values, len(comparisons)) for values in comparisons}
        for verdict in ("refuted", "inconclusive", "tie"):
            if verdict in verdicts:
                return verdict, Evidence()
        return "supported", Evidence()

    def _alone(self, values: Array, num: int) -> Verdict:
        """One of `num` comparisons; to refute the claim alone it has to be surer the more there are."""
        if not len(values):
            return "inconclusive"
        interval = self.interval(values)
        verdict = verdict_of(interval, MARGINS[self.unit])
        wide = mean_interval(values, 1.0 - (1.0 - COVERAGE) / num)[1]
        if verdict == "refuted" and interval.value + wide >= 0.0:
            return "inconclusive"
        return verdict

    def shown(self, value: float) -> str:
        """As a ratio, or in points."""
        if math.isnan(value):
            return "–"
        if self.unit == "points":
            return f"{round(value, 1) + 0.0:.1f}"
        ratio = math.exp(value)
        return f"{ratio:.2f}" if ratio < 10.0 else f"{ratio:.0f}"


def verdict_of(effect: Interval, margin: float) -> Verdict:
    """What an interval around an effect says, where 0 is no effect."""
    if effect.low > 0.0 and effect.value > margin:
        return "supported"
    if effect.high < 0.0 and effect.value < -margin:
        return "refuted"
    is_small = effect.low >= -margin and effect.high <= margin
    return "tie" if is_small else "inconclusive"


Measured = Array | dict[str, Array]
"""One number per seed, or one for each of several comparisons by name, all of which a claim
asserts.
"""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in our words, the studies it is about, what is measured for it, and the
    rule.

    `values` takes the number of a target where it is a time, None for all five. A claim that is
    `main_only` cannot be judged on the runs of other readings: they have too few sample sizes, or
    no curves.
    """

    name: str
    words: str
    studies: tuple[str, ...]
    where: str
    quantity: str
    values: Callable[[Any, int | None], Measured]  # of the view that its study has
    rule: Above | About | Effect = Above()
    timed: bool = False
    main_only: bool = False


@dataclass(frozen=True)
class Judgement:
    """A claim and what was measured of its worst comparison; no interval where runs are not there
    or say nothing.
    """

    claim: Claim
    verdict: Verdict
    interval: Interval | None = None
    worst: str = ""  # name of the comparison with the least median
    telling: int = 0  # seeds that say something
    above: int = 0  # of these, those above the rule's bound
    evidence: Evidence = Evidence()  # as it is; `corrected` multiplies it
    moved: tuple[
        "Judgement", ...
    ] = ()  # with all targets a step lower and a step higher, where that makes a difference

    @property
    def hangs_on_targets(self) -> bool:
        """Whether there would be a verdict, but another one with targets moved by a step."""
        said = self.evidence.verdict
        return said != "inconclusive" and any(other.verdict != said for other in self.moved)

    @property
    def measured(self) -> str:
        if self.interval is None:
            return "–"
        show = self.claim.rule.shown
        low = show(self.interval.low)
        high = show(self.interval.high)
        beside = f"[{low}, {high}]" if self.telling > 1 else "(one run)"
        worst = f"{self.worst}: " if self.worst else ""
        return f"{worst}{show(self.interval.value)} {beside}"


def shown(value: float) -> str:
    """Three digits, or the sign of infinity."""
    if math.isinf(value):
        return "∞"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"


def judge(claim: Claim, view: Any, target: int | None = None) -> Judgement:
    """The verdict on one claim alone, at one target of a time or at all."""
    try:
        values = claim.values(view, target)
    except KeyError:  # runs of this claim are not there
        return Judgement(claim, "not run yet")

    # Where neither side reached its target there is nothing to compare; where that is so for half
    # of the seeds, the others tell nothing about all.
    comparisons = {}
    for name, column in (values if isinstance(values, dict) else {"": values}).items():
        telling = column[~np.isnan(column)]
        comparisons[name] = telling if 2 * len(telling) > len(column) else telling[:0]
    intervals = {}
    for name, telling in comparisons.items():
        if len(telling):
            intervals[name] = claim.rule.interval(telling)
    if not intervals:
        return Judgement(claim, "inconclusive")

    worst = min(intervals, key=lambda name: intervals[name].value)
    verdict, evidence = claim.rule.says(list(comparisons.values()))
    telling = comparisons[worst]
    above = int((telling > claim.rule.bound).sum())
    return Judgement(claim, verdict, intervals[worst], worst, len(telling), above, evidence)


def num_judged(judged: Sequence[Judgement]) -> int:
    """A claim whose runs say nothing counts as one of them; one whose runs are not there does not."""
    return sum(one.verdict != "not run yet" for one in judged)


def corrected(judged: Sequence[Judgement], num: int) -> list[Judgement]:
    """The verdicts on `num` claims that are judged together, by Bonferroni's method: the chance of
    even one that is wrong is at most 5 %, however they depend on each other.
    """
    result = []
    for one in judged:
        evidence = one.evidence.times(WAYS * num)
        verdict = one.verdict if one.interval is None else evidence.verdict
        result.append(replace(one, verdict=verdict, evidence=evidence))
    return result


def steady(one: Judgement, others: Sequence[Judgement]) -> Judgement:
    """A verdict that is another one with all targets a step lower or higher hangs on the targets:
    inconclusive.

    `others` are the same claim with moved targets. Those that say nothing, or the same numbers, do
    not count.
    """
    told = tuple(other for other in others if other.interval is not None)
    if one.interval is None or all(other.interval == one.interval for other in told):
        return one
    one = replace(one, moved=told)
    return replace(one, verdict="inconclusive") if one.hangs_on_targets else one
