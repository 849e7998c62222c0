"""The paper's claims of Fig. 2, 3 and 5 in one cell of the study `radio`: effects over seeds, and
verdicts.

An effect is positive where a seed speaks for the claim: the logarithm of a ratio, or points of
accuracy. The interval is Student's, 95 %, of the mean over seeds. A claim of several comparisons
("the least time") holds if each does; one that fails refutes it, with an interval that is wider by
Bonferroni's method.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autofl.units import Array
from autofl_paper.paper import BEST_SIZE, TIME_RATIO, WORST_SIZE
from autofl_paper.radio import (
    ALL_LABELS,
    CELLS,
    FEW_LABELS,
    RADIO,
    at_radius,
    iid,
    with_labels,
    with_size,
)
from autofl_paper.recipes import ALGORITHMS
from autofl_paper.results import Results, named
from autofl_paper.verdicts import Claim, Effect, Judgement, Measured, Unit, judge

ALL = tuple(ALGORITHMS.values())
AUTOFL, PER_FEDAVG, FEDAVG_1, FEDAVG_2 = ALL
PLANNED = ((AUTOFL, PER_FEDAVG), (FEDAVG_2, FEDAVG_1))
"""Who plans d and p, and the same without planning."""


@dataclass(frozen=True)
class CellView:
    """The runs of one cell, looked up by arm; values of shape (num_seeds,)."""

    results: Results
    cell: str

    def __call__(self, quantity: str, arm: str) -> Array:
        return self.results.column(quantity, arm, self.cell)

    def faster(self, slow: str, fast: str) -> Array:
        """ln(time of `slow` / time of `fast`), mean over the targets that say something; NaN where
        none does.
        """
        return mean_over_targets(self.log_ratios(slow, fast))

    def times_faster(self, slow: str, fast: str, bound: float) -> Array:
        """ln(time of `slow` / time of `fast` / bound), mean over all targets; NaN where one of them
        says nothing.

        A run that ends before its target may still have needed `bound` times as long: what is known
        of the other targets, which are easier, must not speak for it.
        """
        ratios = self.log_ratios(slow, fast) - math.log(bound)
        is_bound = np.isnan(np.stack([self(name, slow) for name in self._names]))
        return np.mean(np.where(is_bound & (ratios < 0.0), np.nan, ratios), axis=0)

    @property
    def _names(self) -> list[str]:
        return [named("time", target) for target in self.results.about["targets"]]

    def log_ratios(self, slow: str, fast: str) -> Array:
        """ln of the ratio of times to each target, shape (num_targets, num_seeds)."""
        lasts = self("last", slow), self("last", fast)
        return np.stack(
            [log_ratio(self(name, slow), self(name, fast), *lasts) for name in self._names]
        )

    def mean(self, quantity: str, name: Callable[[str], str]) -> Array:
        """Mean of the four algorithms."""
        return np.mean([self(quantity, name(algorithm)) for algorithm in ALL], axis=0)

    def radius(self, place: int) -> Callable[[str], str]:
        """From an algorithm to its arm at a radius; the first radius is the scenario's own."""
        return lambda algorithm: (
            at_radius(algorithm, CELLS[self.cell].radii[place]) if place else algorithm
        )


def log_ratio(slow: Array, fast: Array, slow_last: Array, fast_last: Array) -> Array:
    """ln(slow / fast) of times to a target, NaN where it was not reached, for runs that end at
    `*_last`.

    Where one side does not get there its last time gives a bound; a bound on the wrong side of 0
    says nothing.
    """
    at_least = np.log(slow_last / fast)
    at_most = np.log(slow / fast_last)
    bound = np.where(
        np.isnan(slow),
        np.where(at_least > 0.0, at_least, np.nan),
        np.where(at_most < 0.0, at_most, np.nan),
    )
    return np.where(np.isnan(slow) | np.isnan(fast), bound, np.log(slow / fast))


def mean_over_targets(ratios: Array) -> Array:
    """Mean over the first axis of what is not NaN."""
    counts = (~np.isnan(ratios)).sum(axis=0)
    return np.asarray(np.nansum(ratios, axis=0) / np.where(counts, counts, np.nan))


def claim_of(
    name: str,
    words: str,
    figure: str,
    quantity: str,
    effect: Callable[[CellView], Measured],
    unit: Unit = "ratio",
) -> Claim:
    """A claim in our words, its figure, and what each seed says of it in a cell.

    A target that the untrained model meets takes no time; the logarithm of such a ratio is infinite
    and says nothing.
    """

    def values(view: CellView, target: int | None) -> Measured:
        with np.errstate(divide="ignore", invalid="ignore"):
            measured = effect(view)
        if isinstance(measured, dict):
            return {key: _finite(column) for key, column in measured.items()}
        return _finite(measured)

    return Claim(name, words, (RADIO,), figure, quantity, values, Effect(unit))


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)


def judge_cells(results: Results) -> list[list[Judgement]]:
    """For each claim its verdicts, cell by cell."""
    views = [CellView(results, cell) for cell in results.readings]
    claims = claims_of(results.about["sizes"])
    return [[judge(claim, view) for view in views] for claim in claims]


def _no_name(algorithm: str) -> str:
    return algorithm


def _learning_time(data: str, name: Callable[[str], str], figure: str) -> list[Claim]:
    """Fig. 2 for one data setting; `name` gives an algorithm's arm."""
    auto, per, one, two = (name(algorithm) for algorithm in ALL)

    def compared(key: str, words: str, slow: str, fast: str, bound: float = 1.0) -> Claim:
        shown = f"{slow} / {fast}".replace(", i.i.d.", "")
        quantity = f"time, {shown}" + ("" if bound == 1.0 else f" / {bound:g}")
        return claim_of(
            f"{key}-{data}",
            f"{words} ({data})",
            figure,
            quantity,
            lambda view: (
                view.faster(slow, fast) if bound == 1.0 else view.times_faster(slow, fast, bound)
            ),
        )

    def least(view: CellView) -> dict[str, Array]:
        return {
            algorithm: view.faster(name(algorithm), auto)
            for algorithm in (PER_FEDAVG, FEDAVG_1, FEDAVG_2)
        }

    return [
        claim_of(
            f"least-{data}",
            f"AutoFL needs the least time ({data})",
            figure,
            "time, each other / AutoFL",
            least,
        ),
        compared("twice", "Per-FedAvg needs twice AutoFL's time", per, auto, TIME_RATIO),
        compared("maml-planned", "MAML is faster at AutoFL's d and p", two, auto),
        compared("maml-fixed", "MAML is faster at d = 5 and P_max", one, per),
        compared("plan-maml", "Planning is faster, with MAML", per, auto),
        compared("plan-fedavg", "Planning is faster, without MAML", one, two),
    ]


def _across_data() -> list[Claim]:
    def unrest(view: CellView) -> Array:
        return np.mean(
            [np.log(view("unrest", arm) / view("unrest", iid(arm))) for arm in ALL], axis=0
        )

    return [
        claim_of(
            "iid-faster",
            "I.i.d. data is learned faster",
            "2",
            "time, non-i.i.d. / i.i.d., mean of the four",
            lambda view: mean_over_targets(np.stack([view.faster(arm, iid(arm)) for arm in ALL])),
        ),
        claim_of(
            "iid-steadier",
            "I.i.d. data gives steadier results",
            "2",
            "unrest, non-i.i.d. / i.i.d.",
            unrest,
        ),
    ]


def _sample_sizes(sizes: Sequence[int]) -> list[Claim]:
    """Fig. 3."""
    rising = [d for d in sizes if d <= BEST_SIZE]

    def any_size(view: CellView) -> dict[str, Array]:
        return {f"d = {d}": view.faster(with_size(d), AUTOFL) for d in sizes}

    def each_step(view: CellView) -> dict[str, Array]:
        return {f"{a} to {b}": view.faster(with_size(a), with_size(b)) for a, b in pairwise(rising)}

    return [
        claim_of(
            "any-size",
            "AutoFL is faster than Per-FedAvg with any d",
            "3",
            "time, each d / AutoFL",
            any_size,
        ),
        claim_of(
            "size-40",
            "d = 40 is faster than d = 5",
            "3",
            "time, d = 5 / d = 40",
            lambda view: view.faster(with_size(5), with_size(BEST_SIZE)),
        ),
        claim_of(
            "size-each",
            "Each step from d = 5 to 40 is faster",
            "3",
            "time, d / next d, each step",
            each_step,
        ),
        claim_of(
            "size-60",
            "d = 60 is slower than d = 40",
            "3",
            "time, d = 60 / d = 40",
            lambda view: view.faster(with_size(WORST_SIZE), with_size(BEST_SIZE)),
        ),
    ]


def _radius() -> list[Claim]:
    """Fig. 5a and 5b: R_1 is the scenario's radius, R_2 and R_3 are farther out in equal steps."""

    def rounds(view: CellView) -> list[Array]:
        return [view.mean("rounds", view.radius(place)) for place in range(3)]

    def best(view: CellView) -> list[Array]:
        return [100.0 * view.mean("best", view.radius(place)) for place in range(3)]

    def gain(view: CellView, place: int) -> Array:
        name = view.radius(place)
        return 100.0 * np.mean(
            [view("best", name(a)) - view("best", name(b)) for a, b in PLANNED], axis=0
        )

    def outer_less_inner(values: Sequence[Array]) -> Array:
        return (values[2] - values[1]) - (values[1] - values[0])

    return [
        claim_of(
            "radius-rounds",
            "K* grows with the radius",
            "5a",
            "K* at R_3 / at R_1",
            lambda view: np.log(rounds(view)[2] / rounds(view)[0]),
        ),
        claim_of(
            "radius-rounds-faster",
            "K* grows ever faster with the radius",
            "5a",
            "mean K* at R_1 and R_3 / K* at R_2",
            lambda view: np.log((rounds(view)[0] + rounds(view)[2]) / (2.0 * rounds(view)[1])),
        ),
        claim_of(
            "radius-accuracy",
            "Accuracy falls with the radius",
            "5b",
            "best at R_1 - at R_3 [points]",
            lambda view: best(view)[0] - best(view)[2],
            "points",
        ),
        claim_of(
            "radius-accuracy-faster",
            "Accuracy falls ever faster with the radius",
            "5b",
            "fall from R_2 to R_3 - from R_1 to R_2 [points]",
            lambda view: -outer_less_inner(best(view)),
            "points",
        ),
        claim_of(
            "radius-planning",
            "Planning helps more the larger the radius",
            "5b",
            "best, planned - fixed, at R_3 - at R_1 [points]",
            lambda view: gain(view, 2) - gain(view, 0),
            "points",
        ),
    ]


def _labels() -> list[Claim]:
    """Fig. 5c and 5d."""

    def at(labels: int) -> Callable[[str], str]:
        return lambda algorithm: with_labels(algorithm, labels)

    def lead(view: CellView, labels: int) -> Array:
        others = np.mean([view("best", with_labels(other, labels)) for other in ALL[1:]], axis=0)
        return 100.0 * (view("best", with_labels(AUTOFL, labels)) - others)

    return [
        claim_of(
            "labels-rounds",
            "K* falls with the labels of a UE",
            "5c",
            "K* at l = 1 / at l = 10",
            lambda view: np.log(
                view.mean("rounds", at(FEW_LABELS)) / view.mean("rounds", at(ALL_LABELS))
            ),
        ),
        claim_of(
            "labels-accuracy",
            "Accuracy grows with the labels of a UE",
            "5d",
            "best at l = 10 - at l = 1 [points]",
            lambda view: (
                100.0 * (view.mean("best", at(ALL_LABELS)) - view.mean("best", at(FEW_LABELS)))
            ),
            "points",
        ),
        claim_of(
            "labels-lead",
            "AutoFL gains more the more heterogeneous the data",
            "5d",
            "AutoFL's lead in best accuracy at l = 1 - at l = 10 [points]",
            lambda view: lead(view, FEW_LABELS) - lead(view, ALL_LABELS),
            "points",
        ),
    ]


def claims_of(sizes: Sequence[int]) -> list[Claim]:
    """The claims in the order of the figures; `sizes` are the d of Fig. 3."""
    return [
        *_learning_time("i.i.d.", iid, "2a"),
        *_learning_time("non-i.i.d.", _no_name, "2b"),
        *_across_data(),
        *_sample_sizes(sizes),
        *_radius(),
        *_labels(),
    ]
