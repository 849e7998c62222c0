"""The paper's claims on convergence, on network and data (Fig. 4 and 5, Sec. IV) and on new UEs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autofl.units import Array
from autofl_paper.paper import GRADIENT_ROUNDS, ROUNDS_TO_CONVERGE
from autofl_paper.quantities import (
    ALL,
    AT_TARGETS,
    OTHERS,
    STUDIES,
    Timed,
    acceleration,
    at,
    each_timed,
    error_leads,
    geometric_mean,
    growth,
    loss_leads,
    median_of,
    plain,
    ratio,
)
from autofl_paper.verdicts import About, Claim, Measured, View

FEW = 5
"""Samples on which a UE adapts fast."""


def convergence(study: str) -> list[Claim]:
    """Fig. 4, one data setting."""

    def later(view: View, pairs: Sequence[tuple[str, str]]) -> dict[str, Array]:
        return {
            f"{b} / {a}": ratio(view("rounds", study, b), view("rounds", study, a))
            for a, b in pairs
        }

    first = [("AutoFL", other) for other in OTHERS]
    order = [("AutoFL", "Per-FedAvg"), ("Per-FedAvg", "FedAvg-1"), ("Per-FedAvg", "FedAvg-2")]

    def claim(name: str, words: str, quantity: str, values: Callable[[View], Measured]) -> Claim:
        return Claim(f"{name}-{study}", words, (study,), "V-C, Fig. 4", quantity, plain(values))

    return [
        claim("best-accuracy", "AutoFL reaches the highest accuracy", "least error, each other / AutoFL",
              lambda view: error_leads(view, study)),
        claim("least-loss", "AutoFL reaches the smallest training loss", "last loss, each other / AutoFL",
              lambda view: loss_leads(view, study)),
        claim("rounds-first", "AutoFL converges first", "K*, each other / AutoFL",
              lambda view: later(view, first)),
        claim("rounds-order", "AutoFL converges before Per-FedAvg, and that before FedAvg",
              "K*, later / earlier, three pairs", lambda view: later(view, order)),
    ]  # fmt: skip


def order_of_magnitude() -> Claim:
    """Sec. IV-B: K* of (30), which counts rounds until the mean of ||grad F||^2 is small, against
    such rounds.
    """

    def told_over_measured(view: View) -> Array:
        view.places("mnist")  # only where its data are judged
        return np.array(
            [np.exp(np.mean([np.log(told / rounds) for rounds, told in GRADIENT_ROUNDS.values()]))]
        )

    return Claim(
        "rounds-told",
        "K* of (30) is right in order of magnitude",
        ("mnist",),
        "IV-B",
        "rounds by (30) / rounds measured",
        plain(told_over_measured),
        About(1.0, 10.0),
        main_only=True,
    )


def rounds_to_converge() -> list[Claim]:
    """Fig. 4e, the only numbers of Sec. V-C."""
    return [
        Claim(
            f"rounds-about-{arm.lower()}",
            f"{arm} starts to converge after about {rounds} rounds",
            ("mnist",),
            "V-C, Fig. 4e",
            "K* [rounds]",
            plain(lambda view, arm=arm: view("rounds", "mnist", arm)),  # type: ignore[misc]
            About(rounds, 1.3),
        )
        for arm, rounds in ROUNDS_TO_CONVERGE.items()
    ]


def always() -> list[Claim]:
    """Sec. IV-A: AutoFL "always outperforms Per-FedAvg in learning time and convergence
    performances".
    """

    def everywhere(view: View) -> dict[str, tuple[str, int]]:
        points = {study: (study, 0) for study in STUDIES}
        for study in ("radius", "labels"):
            for x in view.places(study):
                points[f"{study} {x}"] = (study, x)
        return points

    def time(view: View) -> dict[str, Timed]:
        ratios = {}
        for name, (study, x) in everywhere(view).items():
            ratios[name] = at(study, "Per-FedAvg", "AutoFL", x)
        return ratios

    def least_error(view: View) -> dict[str, Array]:
        ratios = {}
        for name, (study, x) in everywhere(view).items():
            per_fedavg = view.error(study, "Per-FedAvg", x)
            ratios[name] = ratio(per_fedavg, view.error(study, "AutoFL", x))
        return ratios

    studies = (*STUDIES, "radius", "labels")
    where = "everywhere"
    return [
        Claim("always-time", "AutoFL always outperforms Per-FedAvg in learning time", studies, "IV-A",
              AT_TARGETS.format(f"Per-FedAvg / AutoFL {where}"), each_timed(time), timed=True),
        Claim("always-accuracy", "AutoFL always outperforms Per-FedAvg in convergence", studies, "IV-A",
              f"least error, Per-FedAvg / AutoFL {where}", plain(least_error)),
    ]  # fmt: skip


PLANNED = {"with MAML": ("Per-FedAvg", "AutoFL"), "without MAML": ("FedAvg-1", "FedAvg-2")}
"""Algorithms with fixed d and p, and with planned ones."""


def k_star(view: View, study: str, arm: str, x: int) -> Array:
    """Rounds to convergence."""
    return view("rounds", study, arm, x)


def error(view: View, study: str, arm: str, x: int) -> Array:
    """Share of wrong answers at the best evaluation."""
    return view.error(study, arm, x)


def heard(view: View, study: str, arm: str, x: int) -> Array:
    """Share of the updates that are heard; none at all would have no ratio."""
    return np.maximum(view.column("heard", study, arm, x), 1e-3)


@dataclass(frozen=True)
class Axis:
    """A quantity of every algorithm at the points of a study's axis; values of shape
    (num_places, num_seeds).
    """

    study: str
    of: Callable[[View, str, str, int], Array]

    def over(self, view: View, one: Callable[[View, int], Array]) -> tuple[list[int], Array]:
        """The points, and one number for each of them and each seed."""
        places = view.places(self.study)
        return places, np.stack([one(view, x) for x in places])

    def mean(self, view: View, x: int) -> Array:
        """Geometric mean of the four algorithms."""
        return geometric_mean(self.of(view, self.study, arm, x) for arm in ALL)

    def gain(self, view: View, x: int, pair: tuple[str, str]) -> Array:
        """What planning gains: fixed / planned."""
        fixed, planned = pair
        return ratio(self.of(view, self.study, fixed, x), self.of(view, self.study, planned, x))

    def planning(self, view: View, x: int) -> Array:
        """What planning gains, geometric mean with MAML and without."""
        return geometric_mean(self.gain(view, x, pair) for pair in PLANNED.values())

    def planning_everywhere(self, view: View) -> dict[str, Array]:
        """What planning gains in the median over the axis, with MAML and without."""
        gains = {}
        for name, pair in PLANNED.items():
            gains[name] = median_of(self.gain(view, x, pair) for x in view.places(self.study))
        return gains

    def lead(self, view: View, x: int) -> Array:
        """AutoFL's lead: geometric mean of the others / AutoFL."""
        others = geometric_mean(self.of(view, self.study, other, x) for other in OTHERS)
        return ratio(others, self.of(view, self.study, "AutoFL", x))


def network_and_data() -> list[Claim]:
    """Fig. 5: trends over all points of an axis."""

    def trend(
        name: str,
        words: str,
        figure: str,
        quantity: str,
        axis: Axis,
        of: Callable[[View, int], Array],
        sign: int = 1,
    ) -> Claim:
        text = f"{quantity}, factor over the axis"
        if sign < 0:
            text += ", inverted"

        def factor(view: View) -> Array:
            return growth(*axis.over(view, of), sign)

        name = f"{axis.study}-{name}"
        return Claim(name, words, (axis.study,), f"V-D, Fig. {figure}", text, plain(factor))

    def faster(name: str, words: str, figure: str, quantity: str, axis: Axis) -> Claim:
        text = f"{quantity}, growth over the outer half, and / inner half"

        def halves(view: View) -> dict[str, Array]:
            return acceleration(*axis.over(view, axis.mean))

        name = f"radius-{name}"
        return Claim(name, words, ("radius",), f"V-D, Fig. {figure}", text, plain(halves))

    def gains(name: str, words: str, figure: str, quantity: str, axis: Axis) -> Claim:
        text = f"{quantity}, fixed / planned, median over radii"
        values = plain(axis.planning_everywhere)
        return Claim(f"radius-{name}", words, ("radius",), f"V-D, Fig. {figure}", text, values)

    rounds = Axis("radius", k_star)
    errors = Axis("radius", error)
    updates = Axis("radius", heard)
    rounds_by_labels = Axis("labels", k_star)
    errors_by_labels = Axis("labels", error)
    four = "mean of the four"
    return [
        trend("rounds", "K* grows with the radius", "5a", f"K*, {four}", rounds, rounds.mean),
        faster("rounds-faster", "K* grows ever faster with the radius", "5a", f"K*, {four}", rounds),
        trend("accuracy", "Accuracy falls with the radius", "5b", f"error, {four}", errors, errors.mean),
        faster("accuracy-faster", "Accuracy falls ever faster with the radius", "5b", f"error, {four}", errors),
        trend("heard", "Fewer UEs are decoded the larger the radius", "5", f"updates heard, {four}", updates,
              updates.mean, -1),
        gains("planning-rounds", "Planning makes K* smaller", "5a", "K*", rounds),
        gains("planning-accuracy", "Planning makes accuracy higher", "5b", "error", errors),
        trend("planning-rounds-more", "Planning gains more in K* the larger the radius", "5a",
              "K*, fixed / planned", rounds, rounds.planning),
        trend("planning-accuracy-more", "Planning gains more in accuracy the larger the radius", "5b",
              "error, fixed / planned", errors, errors.planning),
        trend("rounds", "K* falls with the number of labels of a UE", "5c", f"K*, {four}", rounds_by_labels,
              rounds_by_labels.mean, -1),
        trend("accuracy", "Accuracy grows with the number of labels of a UE", "5d", f"error, {four}",
              errors_by_labels, errors_by_labels.mean, -1),
        trend("gain-rounds", "AutoFL gains more in K* the more heterogeneous the data", "5c",
              "K*, others / AutoFL", rounds_by_labels, rounds_by_labels.lead, -1),
        trend("gain-accuracy", "AutoFL gains more in accuracy the more heterogeneous the data", "5d",
              "error, others / AutoFL", errors_by_labels, errors_by_labels.lead, -1),
    ]  # fmt: skip


def fast_adaptation(study: str) -> list[Claim]:
    """The paper's title, at UEs that took no part in training."""
    new = f"{study}.new"

    def leads(view: View) -> dict[str, Array]:
        ours = view.error(new, "AutoFL", FEW)
        return {
            "FedAvg-1": ratio(view.error(new, "FedAvg-1", FEW), ours),
            "FedAvg-2": ratio(view.error(new, "FedAvg-2", FEW), ours),
        }

    def gain(view: View) -> Array:
        before = 1.0 - view.column("best_global", new, "AutoFL", FEW)
        after = 1.0 - view.column("best_adapted", new, "AutoFL", FEW)
        return ratio(before, after)

    words = f"one step on {FEW} samples"
    return [
        Claim(f"new-gain-{study}", "AutoFL's model adapts fast to a new UE", (study,), "title",
              f"error before / after {words}", plain(gain)),
        Claim(f"new-lead-{study}", "After adaptation to a new UE AutoFL is ahead of conventional FL", (study,), "title",
              f"error after {words}, FedAvg / AutoFL", plain(leads)),
    ]  # fmt: skip
