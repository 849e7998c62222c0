"""Tables of the joint planner's studies: medians of each arm, and paired ratios of times with their
intervals.

Not every run gets to a target. Its time is then known to be at least that of its last evaluation. A
ratio counts such a
run against the arm that is praised: the slower arm's time is taken as that of its last evaluation,
a quicker arm that does not get there gives a ratio of 0, and where neither does the seed says
nothing.
"""

import math
from collections import Counter
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
    wanted = [(arm, "AutoFL") for arm in arms if arm.startswith((AUTOFL_J, FEDAVG_J))]
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
    """A row for each pair: the ratio of times to each target, and the share of energy."""
    targets = study.about["targets"]
    measured = ratios(study)
    body = []
    for condition, arm, other in pairs_of(study):
        times = [str(measured[condition, arm, other, target]) for target in targets]
        energy = energy_share(study, arm, other, named("energy", targets[0]), condition)
        body.append([condition, arm, other, *times, energy])
    headings = [
        "arm",
        "against",
        *(f"times faster to {percent(target)}" for target in targets),
        f"energy to {percent(targets[0])}, share [%]",
    ]
    return _table(headings, body)


def arm_table(study: Results) -> Table:
    """Medians over seeds; a target that was not reached counts as an endless time."""
    first, second = study.about["targets"]
    body = []
    for condition, arm in compared_arms(study):
        rounds = study.column(named("rounds", second), arm, condition)
        energy = study.column(named("energy", first), arm, condition)
        cells = [
            *_both_times(study, condition, arm),
            _to_target(rounds, "{:.0f}", count=False),
            _to_target(energy, "{:.3g}", count=False),
            _median(100.0 * study.column("heard", arm, condition), "{:.0f}"),
        ]
        body.append([condition, arm, *cells])
    headings = [
        "arm",
        f"to {percent(first)} [s]",
        f"to {percent(second)} [s]",
        f"rounds to {percent(second)}",
        f"energy to {percent(first)} [J]",
        "heard [%]",
    ]
    return _table(headings, body)


def choice_table(study: Results) -> Table:
    """A row for each cell: the choice of autofl plan beside the best constants of the grid."""
    first, second = study.about["targets"]
    body = []
    for condition, arm, other in pairs_of(study):
        chosen = " / ".join(_both_times(study, condition, arm))
        constants = " / ".join(_both_times(study, condition, other))
        ratio = median_ratio(*(times_of(study, one, second, condition) for one in (arm, other)))
        body.append([condition, chosen, other, constants, str(ratio)])
    times = f"to {percent(first)} / {percent(second)} [s]"
    faster = f"times faster to {percent(second)}"
    return Table(["cell", f"choice, {times}", "best constants", f"they, {times}", faster], body)


def limits_of(study: Results) -> str:
    """How often a UE went beyond a limit in any round of the study, and which runs diverged."""
    checked = sum(row.values["checked"] for row in study.rows)
    beyond = sum(row.values["violations"] for row in study.rows)
    broken = "No plan broke a limit" if beyond == 0 else "Plans broke limits"

    # A run that diverges has no place in the tables but that it does not reach its targets.
    diverged = Counter(row.arm for row in study.rows if row.values["diverged"] > 0)
    runs = ", ".join(f"{number} of {arm}" for arm, number in diverged.items())
    return f"{broken}: {beyond:.0f} of {checked:,.0f}. Runs that diverged: {runs or 'none'}."


def _table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> Table:
    """A table whose rows begin with the condition, which is left out where there is only one."""
    if any(row[0] for row in body):
        return Table(["with", *headings], body)
    return Table(headings, [row[1:] for row in body])


def _both_times(study: Results, condition: str, arm: str) -> list[str]:
    """The median time to each target."""
    names = [named("time", target) for target in study.about["targets"]]
    return [_to_target(study.column(name, arm, condition), "{:.3g}") for name in names]


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
