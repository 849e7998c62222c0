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
from autofl_paper.joint_results import JointRow, JointStudy, named
from autofl_paper.recipes import ALGORITHMS

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


def times_of(study: JointStudy, arm: str, target: float, condition: str = "") -> Times:
    """The times of an arm by seed; FASTEST is for each seed the least of the paper's four."""
    if arm == FASTEST:
        four = [
            times_of(study, name, target, condition)
            for name in FOUR
            if study.rows_of(name, condition)
        ]
        times = np.array([one.time for one in four])
        lasts = np.array([one.last for one in four])
        least = np.where(np.isnan(times), np.inf, times).min(axis=0)
        return Times(np.where(np.isinf(least), np.nan, least), lasts.min(axis=0))
    rows = study.rows_of(arm, condition)
    return Times(
        np.array([row.values[named("time", target)] for row in rows]),
        np.array([row.values["last"] for row in rows]),
    )


def pairs_of(study: JointStudy) -> list[tuple[str, str, str]]:
    """What is compared: condition, arm, and the one it is compared with."""
    pairs = []
    for condition in dict.fromkeys(condition for condition, _ in study.arms()):
        arms = [arm for place, arm in study.arms() if place == condition]
        if study.name == "joint-guesses":
            wanted = [(arm, AUTOFL_J) for arm in arms if arm != AUTOFL_J]
        elif study.name == "joint-ablation":
            wanted = [
                (AUTOFL_J, "AutoFL"),
                *((AUTOFL_J, arm) for arm in arms if arm.startswith("without ")),
            ]
            wanted += [(arm, NOTHING) for arm in arms if arm.startswith("only ")]
        elif study.name == "joint-choice":
            wanted = [(CHOICE, best_of(study, condition))]
        elif study.name == "joint-cifar10":
            wanted = [(arm, FASTEST) for arm in arms if arm not in FOUR]
        else:
            wanted = [(arm, "AutoFL") for arm in arms if arm != "AutoFL"]
            wanted += [(AUTOFL_J, other) for other in (TUNED_MAML, TUNED_FEDAVG, *RIVALS)]
            wanted += [(FEDAVG_J, TUNED_FEDAVG)]
        known = {*arms, FASTEST}
        pairs += [(condition, arm, other) for arm, other in wanted if {arm, other} <= known]
    return pairs


def best_of(study: JointStudy, condition: str) -> str:
    """The constants with the least median time to the second target, those that do not get there
    last.
    """

    def time(arm: str) -> float:
        times = times_of(study, arm, study.targets[1], condition).time
        return float(np.median(np.where(np.isnan(times), np.inf, times)))

    return min(
        (arm for place, arm in study.arms() if place == condition and arm != CHOICE), key=time
    )


def ratios(study: JointStudy) -> dict[tuple[str, str, str, float], Ratio]:
    """Every ratio of a study by condition, arm, the other and target."""
    return {
        (*pair, target): median_ratio(
            times_of(study, pair[1], target, pair[0]), times_of(study, pair[2], target, pair[0])
        )
        for pair in pairs_of(study)
        for target in study.targets
    }


def energy_share(study: JointStudy, arm: str, other: str, name: str, condition: str = "") -> str:
    """An arm's energy over the other's, median over the seeds in which both are known [%]."""
    if not study.rows_of(other, condition):
        return "–"
    pairs = zip(study.rows_of(arm, condition), study.rows_of(other, condition), strict=True)
    shares = np.array(
        [mine.values[name] / theirs.values[name] for mine, theirs in pairs if theirs.values[name]]
    )
    there = shares[~np.isnan(shares)]
    return f"{100.0 * float(np.median(there)):.0f}" if len(there) else "–"


def ratio_table(study: JointStudy) -> Table:
    """A row for each pair: the ratio of times to each target, how many runs of both reached it,
    shares of energy.
    """
    measured = ratios(study)
    body = []
    for pair in pairs_of(study):
        cells = []
        for target in study.targets:
            ratio = measured[(*pair, target)]
            cells += [str(ratio), f"{ratio.reached} and {ratio.reached_other} of {ratio.seeds}"]
        names = ("energy_heard", named("energy", study.targets[0]))
        cells += [energy_share(study, pair[1], pair[2], name, pair[0]) for name in names]
        body.append([*_first(study, pair[0]), pair[1], pair[2], *cells])
    headings = ["arm", "against"]
    for target in study.targets:
        headings += [f"times faster to {percent(target)}", "reached"]
    headings += [
        "energy of a UE heard in a round, share [%]",
        f"total energy to {percent(study.targets[0])}, share [%]",
    ]
    return Table([*_heading(study), *headings], body)


def arm_table(study: JointStudy) -> Table:
    """Medians over seeds; a target that was not reached counts as an endless time."""
    first, second = study.targets
    body = []
    for condition, arm in study.arms():
        rows = study.rows_of(arm, condition)
        cells = [
            *(_to_target(rows, named("time", target), "{:.3g}") for target in study.targets),
            *(
                _to_target(rows, named("rounds", target), "{:.0f}", count=False)
                for target in study.targets
            ),
            _median(rows, "energy_heard", 1e3, "{:.2f}"),
            _to_target(rows, named("energy", first), "{:.3g}", count=False),
            _median(rows, "heard", 100.0, "{:.0f}"),
        ]
        body.append([*_first(study, condition), arm, *cells])
    headings = [
        *(f"time to {percent(target)} [s]" for target in (first, second)),
        *(f"rounds to {percent(target)}" for target in (first, second)),
        "energy of a UE heard in a round [mJ]",
        f"total energy to {percent(first)} [J]",
        "heard [%]",
    ]
    return Table([*_heading(study), "arm", *headings], body)


def limit_table(study: JointStudy) -> Table:
    """How close the UEs came to their limits, and how often beyond; and what was decided."""
    body = []
    for condition, arm in study.arms():
        rows = study.rows_of(arm, condition)
        beyond, checked = (
            int(sum(row.values[name] for row in rows)) for name in ("violations", "checked")
        )
        cells = [
            *(
                f"{max(row.values[name] for row in rows):.4f}"
                for name in ("energy_share", "power_share")
            ),
            f"{beyond} of {checked}",
            f"{int(sum(row.values['diverged'] for row in rows))} of {len(rows)}",
            _median(rows, "local_steps", 1.0, "{:.1f}"),
            _median(rows, "num_samples", 1.0, "{:.1f}"),
            _median(rows, "bits_per_weight", 1.0, "{:.2f}"),
            _median(rows, "frequency_share", 1.0, "{:.2f}"),
            _median(rows, "round_time", 1e3, "{:.1f}"),
        ]
        body.append([*_first(study, condition), arm, *cells])
    headings = [
        "largest e / E_max",
        "largest p / P_max",
        "violations",
        "diverged",
        "tau",
        "d",
        "bits a weight",
    ]
    return Table([*_heading(study), "arm", *headings, "f / vartheta", "round [ms]"], body)


def _heading(study: JointStudy) -> list[str]:
    return ["with"] if any(condition for condition, _ in study.arms()) else []


def _first(study: JointStudy, condition: str) -> list[str]:
    return [condition] if _heading(study) else []


def _median(rows: Sequence[JointRow], name: str, factor: float, form: str) -> str:
    values = np.array([row.values[name] for row in rows])
    there = values[~np.isnan(values)]
    return form.format(factor * float(np.median(there))) if len(there) else "–"


def _to_target(rows: Sequence[JointRow], name: str, form: str, count: bool = True) -> str:
    """The median where what was not reached is endless, and how many reached it if not all."""
    values = np.array([row.values[name] for row in rows])
    middle = float(np.median(np.where(np.isnan(values), np.inf, values)))
    reached = int((~np.isnan(values)).sum())
    text = form.format(middle) if math.isfinite(middle) else "–"
    return text if reached == len(values) or not count else f"{text} ({reached} of {len(values)})"
