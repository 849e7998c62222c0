"""Tables of the joint planner's studies: medians of each arm, and paired ratios of times with their
intervals.

Not every run gets to a target. Its time is then known to be at least that of its last evaluation. A
ratio counts such a
run against the arm that is praised: the slower arm's time is taken as that of its last evaluation,
a quicker arm that does not get there gives a ratio of 0, and where neither does the seed says
nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofl.report.table import Table, percent
from autofl.rng import stream
from autofl.units import Array, BoolArray
from autofl_paper.joint import (
    AUTOFL_J,
    CHOICE,
    FEDAVG_J,
    NOTHING,
    RIVALS,
    TUNED_FEDAVG,
    TUNED_MAML,
)
from autofl_paper.recipes import ALGORITHMS
from autofl_paper.results import Results, named

RESAMPLES = 10_000
FOUR = tuple(ALGORITHMS.values())
FASTEST = "fastest of the paper's four"


@dataclass(frozen=True)
class Times:
    """Time to a target for each seed, NaN where it was not reached, and the time of the last
    evaluation [s].
    """

    time: Array
    last: Array

    @property
    def reached(self) -> BoolArray:
        return ~np.isnan(self.time)


@dataclass(frozen=True)
class Ratio:
    """How many times less time an arm takes than another: median over seeds, 95 % bootstrap
    interval of the median.
    """

    median: float
    low: float
    high: float
    is_least: (
        bool  # whether the median would be larger if the slower arm's unfinished runs were known
    )
    reached: int
    reached_other: int
    seeds: int
    pairs: int  # seeds in which at least one of the two gets there

    def __str__(self) -> str:
        if self.pairs == 0:
            return "–"
        digits = 1 if self.median >= 10.0 else 2
        sign = "≥ " if self.is_least else ""
        return f"{sign}{self.median:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def paired(arm: Times, other: Times) -> tuple[Array, BoolArray]:
    """Time of the other over that of the arm for each seed, and which are only known to be at least
    that.
    """
    slower = np.where(other.reached, other.time, other.last)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(arm.reached, slower / arm.time, np.where(other.reached, 0.0, math.nan))
    return ratio, arm.reached & ~other.reached


def median_ratio(arm: Times, other: Times) -> Ratio:
    """The ratio of two arms over the same seeds."""
    ratio, at_least = paired(arm, other)
    there = ~np.isnan(ratio)
    values = ratio[there]
    counts = (int(arm.reached.sum()), int(other.reached.sum()), len(ratio), int(there.sum()))
    if not len(values):
        return Ratio(math.nan, math.nan, math.nan, False, *counts)
    draws = stream(0, "bootstrap").integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(
        np.median(values[draws], axis=-1), [0.025, 0.975], method="inverted_cdf"
    )
    median = float(np.median(values))
    beyond = float(np.median(np.where(at_least[there], np.inf, values)))
    return Ratio(median, float(low), float(high), beyond > median, *counts)


def times_of(study: Results, arm: str, target: float, condition: str = "") -> Times:
    """The times of an arm by seed; FASTEST is for each seed the least of the paper's four."""
    if arm != FASTEST:
        return Times(
            study.column(named("time", target), arm, condition),
            study.column("last", arm, condition),
        )
    times = []
    lasts = []
    for name in FOUR:
        if study.rows_of(name, condition):
            one = times_of(study, name, target, condition)
            times.append(np.where(one.reached, one.time, np.inf))
            lasts.append(one.last)
    least = np.min(times, axis=0)
    return Times(np.where(np.isinf(least), np.nan, least), np.min(lasts, axis=0))


def compared_arms(study: Results) -> list[tuple[str, str]]:
    """Condition and arm, in order."""
    return list(dict.fromkeys((row.reading, row.arm) for row in study.rows))


def pairs_of(study: Results) -> list[tuple[str, str, str]]:
    """What is compared: condition, arm, and the one it is compared with."""
    pairs = []
    for condition in study.readings:
        arms = [arm for place, arm in compared_arms(study) if place == condition]
        known = {*arms, FASTEST}
        for arm, other in _wanted(study, condition, arms):
            if {arm, other} <= known:
                pairs.append((condition, arm, other))
    return pairs


def _wanted(study: Results, condition: str, arms: Sequence[str]) -> list[tuple[str, str]]:
    """Who is compared with whom in a study, where both are there."""
    if study.name == "joint-guesses":
        return [(arm, AUTOFL_J) for arm in arms if arm != AUTOFL_J]
    if study.name == "joint-choice":
        return [(CHOICE, best_of(study, condition, arms))]
    if study.name == "joint-cifar10":
        return [(arm, FASTEST) for arm in arms if arm not in FOUR]
    if study.name == "joint-ablation":
        without = [(AUTOFL_J, arm) for arm in arms if arm.startswith("without ")]
        alone = [(arm, NOTHING) for arm in arms if arm.startswith("only ")]
        return [(AUTOFL_J, "AutoFL"), *without, *alone]
    wanted = [(arm, "AutoFL") for arm in arms if arm != "AutoFL"]
    wanted += [(AUTOFL_J, other) for other in (TUNED_MAML, TUNED_FEDAVG, *RIVALS)]
    return [*wanted, (FEDAVG_J, TUNED_FEDAVG)]


def best_of(study: Results, condition: str, arms: Sequence[str]) -> str:
    """The constants with the least median time to the second target, those that do not get there
    last.
    """
    target = study.about["targets"][1]

    def time(arm: str) -> float:
        times = times_of(study, arm, target, condition)
        return float(np.median(np.where(times.reached, times.time, np.inf)))

    return min((arm for arm in arms if arm != CHOICE), key=time)


def ratios(study: Results) -> dict[tuple[str, str, str, float], Ratio]:
    """Every ratio of a study by condition, arm, the other and target."""
    measured = {}
    for condition, arm, other in pairs_of(study):
        for target in study.about["targets"]:
            mine = times_of(study, arm, target, condition)
            theirs = times_of(study, other, target, condition)
            measured[condition, arm, other, target] = median_ratio(mine, theirs)
    return measured


def energy_share(study: Results, arm: str, other: str, name: str, condition: str = "") -> str:
    """An arm's energy over the other's, median over the seeds in which both are known [%]."""
    if not study.rows_of(other, condition):
        return "–"
    mine = study.column(name, arm, condition)
    theirs = study.column(name, other, condition)
    there = ~np.isnan(mine) & ~np.isnan(theirs) & (theirs != 0.0)
    return f"{100.0 * float(np.median(mine[there] / theirs[there])):.0f}" if there.any() else "–"


def ratio_table(study: Results) -> Table:
    """A row for each pair: the ratio of times to each target, how many runs of both reached it,
    shares of energy.
    """
    targets = study.about["targets"]
    measured = ratios(study)
    body = []
    for condition, arm, other in pairs_of(study):
        cells = []
        for target in targets:
            ratio = measured[condition, arm, other, target]
            cells += [str(ratio), f"{ratio.reached} and {ratio.reached_other} of {ratio.seeds}"]
        for name in ("energy_heard", named("energy", targets[0])):
            cells.append(energy_share(study, arm, other, name, condition))
        body.append([condition, arm, other, *cells])
    headings = ["arm", "against"]
    for target in targets:
        headings += [f"times faster to {percent(target)}", "reached"]
    headings += [
        "energy of a UE heard in a round, share [%]",
        f"total energy to {percent(targets[0])}, share [%]",
    ]
    return _table(headings, body)


def arm_table(study: Results) -> Table:
    """Medians over seeds; a target that was not reached counts as an endless time."""
    first, second = study.about["targets"]
    body = []
    for condition, arm in compared_arms(study):

        def column(name: str, target: float, arm: str = arm, condition: str = condition) -> Array:
            return study.column(named(name, target), arm, condition)

        cells = [
            _to_target(column("time", first), "{:.3g}"),
            _to_target(column("time", second), "{:.3g}"),
            _to_target(column("rounds", first), "{:.0f}", count=False),
            _to_target(column("rounds", second), "{:.0f}", count=False),
            _median(1e3 * study.column("energy_heard", arm, condition), "{:.2f}"),
            _to_target(column("energy", first), "{:.3g}", count=False),
            _median(100.0 * study.column("heard", arm, condition), "{:.0f}"),
        ]
        body.append([condition, arm, *cells])
    headings = [
        "arm",
        f"time to {percent(first)} [s]",
        f"time to {percent(second)} [s]",
        f"rounds to {percent(first)}",
        f"rounds to {percent(second)}",
        "energy of a UE heard in a round [mJ]",
        f"total energy to {percent(first)} [J]",
        "heard [%]",
    ]
    return _table(headings, body)


DECIDED = {
    "tau": ("local_steps", 1.0, "{:.1f}"),
    "d": ("num_samples", 1.0, "{:.1f}"),
    "bits a weight": ("bits_per_weight", 1.0, "{:.2f}"),
    "f / vartheta": ("frequency_share", 1.0, "{:.2f}"),
    "round [ms]": ("round_time", 1e3, "{:.1f}"),
}
"""What an arm decided, by heading: the quantity, its factor and its form."""


def limit_table(study: Results) -> Table:
    """How close the UEs came to their limits, and how often beyond; and what was decided."""
    body = []
    for condition, arm in compared_arms(study):
        rows = [row.values for row in study.rows_of(arm, condition)]
        beyond = int(sum(row["violations"] for row in rows))
        checked = int(sum(row["checked"] for row in rows))
        diverged = int(sum(row["diverged"] for row in rows))
        cells = [
            f"{max(row['energy_share'] for row in rows):.4f}",
            f"{max(row['power_share'] for row in rows):.4f}",
            f"{beyond} of {checked}",
            f"{diverged} of {len(rows)}",
        ]
        for name, factor, form in DECIDED.values():
            cells.append(_median(factor * study.column(name, arm, condition), form))
        body.append([condition, arm, *cells])
    headings = ["arm", "largest e / E_max", "largest p / P_max", "violations", "diverged", *DECIDED]
    return _table(headings, body)


def _table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> Table:
    """A table whose rows begin with the condition, which is left out where there is only one."""
    if any(row[0] for row in body):
        return Table(["with", *headings], body)
    return Table(headings, [row[1:] for row in body])


def _median(values: Array, form: str) -> str:
    there = values[~np.isnan(values)]
    return form.format(float(np.median(there))) if len(there) else "–"


def _to_target(values: Array, form: str, count: bool = True) -> str:
    """The median where what was not reached is endless, and how many reached it if not all."""
    there = ~np.isnan(values)
    middle = float(np.median(np.where(there, values, np.inf)))
    text = form.format(middle) if math.isfinite(middle) else "–"
    if count and not there.all():
        return f"{text} ({int(there.sum())} of {len(values)})"
    return text
