"""The paper's claims on convergence, on network and data (Fig. 4 and 5, Sec. IV) and on new UEs."""

from collections.abc import Callable, Sequence

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
        "4 (F(w_0) - F(w_K)) / (beta epsilon) / rounds until the mean of ‖grad F‖² over them is at most epsilon,"
        " geometric mean of epsilon = 0.5 and 0.2",
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
        points = {
            f"{study} {x}": (study, x) for study in ("radius", "labels") for x in view.places(study)
        }
        return {study: (study, 0) for study in STUDIES} | points

    def time(view: View) -> dict[str, Timed]:
        return {
            name: at(study, "Per-FedAvg", "AutoFL", x)
            for name, (study, x) in everywhere(view).items()
        }

    def error(view: View) -> dict[str, Array]:
        places = everywhere(view).items()
        return {
            name: ratio(view.error(s, "Per-FedAvg", x), view.error(s, "AutoFL", x))
            for name, (s, x) in places
        }

    studies = (*STUDIES, "radius", "labels")
    where = "at each data set, radius and number of labels"
    return [
        Claim("always-time", "AutoFL always outperforms Per-FedAvg in learning time", studies, "IV-A",
              AT_TARGETS.format(f"Per-FedAvg / AutoFL {where}"), each_timed(time), timed=True),
        Claim("always-accuracy", "AutoFL always outperforms Per-FedAvg in convergence", studies, "IV-A",
              f"least error, Per-FedAvg / AutoFL {where}", plain(error)),
    ]  # fmt: skip


def _over(study: str, of: Callable[[View, int], Array], view: View) -> tuple[list[int], Array]:
    """The points of an axis and a quantity there, shape (num_places, num_seeds)."""
    places = view.places(study)
    return places, np.stack([of(view, x) for x in places])


def _rounds_at(study: str) -> Callable[[View, int], Array]:
    return lambda view, x: geometric_mean(view("rounds", study, arm, x) for arm in ALL)


def _error_at(study: str) -> Callable[[View, int], Array]:
    return lambda view, x: geometric_mean(view.error(study, arm, x) for arm in ALL)


PLANNED = {"with MAML": ("Per-FedAvg", "AutoFL"), "without MAML": ("FedAvg-1", "FedAvg-2")}
"""Algorithms with fixed d and p, and with planned ones."""


def _planning(quantity: Callable[[View, str, int], Array]) -> Callable[[View, int], Array]:
    """What planning gains at a radius: fixed / planned, geometric mean with MAML and without."""
    pairs = PLANNED.values()
    return lambda view, x: geometric_mean(
        ratio(quantity(view, a, x), quantity(view, b, x)) for a, b in pairs
    )


def _lead(quantity: Callable[[View, str, int], Array]) -> Callable[[View, int], Array]:
    """AutoFL's lead at a number of labels: geometric mean of the others / AutoFL."""
    return lambda view, x: ratio(
        geometric_mean(quantity(view, other, x) for other in OTHERS), quantity(view, "AutoFL", x)
    )


def network_and_data() -> list[Claim]:
    """Fig. 5: trends over all points of an axis."""

    def trend(
        study: str,
        name: str,
        words: str,
        figure: str,
        quantity: str,
        of: Callable[[View, int], Array],
        sign: int = 1,
    ) -> Claim:
        text = f"{quantity}: factor over the axis by Theil and Sen's slope through all points" + (
            ", inverted" if sign < 0 else ""
        )
        return Claim(f"{study}-{name}", words, (study,), f"V-D, Fig. {figure}", text,
                     plain(lambda view: growth(*_over(study, of, view), sign)))  # fmt: skip

    def faster(
        name: str, words: str, figure: str, quantity: str, of: Callable[[View, int], Array]
    ) -> Claim:
        text = f"{quantity}: growth over the outer half, and over it / over the inner half, parabola through all points"
        return Claim(f"radius-{name}", words, ("radius",), f"V-D, Fig. {figure}", text,
                     plain(lambda view: acceleration(*_over("radius", of, view))))  # fmt: skip

    def gains(
        name: str, words: str, figure: str, quantity: str, of: Callable[[View, str, int], Array]
    ) -> Claim:
        def values(view: View) -> dict[str, Array]:
            places = view.places("radius")
            return {
                name: median_of(ratio(of(view, fixed, x), of(view, planned, x)) for x in places)
                for name, (fixed, planned) in PLANNED.items()
            }

        text = f"{quantity}, fixed / planned, median over all radii, with MAML and without"
        return Claim(
            f"radius-{name}", words, ("radius",), f"V-D, Fig. {figure}", text, plain(values)
        )

    def heard(view: View, x: int) -> Array:
        return geometric_mean(
            np.maximum(view.column("heard", "radius", arm, x), 1e-3) for arm in ALL
        )

    rounds = {
        study: lambda view, arm, x, s=study: view("rounds", s, arm, x)
        for study in ("radius", "labels")
    }
    error = {
        study: lambda view, arm, x, s=study: view.error(s, arm, x) for study in ("radius", "labels")
    }
    four = "geometric mean of the four"
    return [
        trend("radius", "rounds", "K* grows with the radius", "5a", f"K*, {four}", _rounds_at("radius")),
        faster("rounds-faster", "K* grows ever faster with the radius", "5a", f"K*, {four}", _rounds_at("radius")),
        trend("radius", "accuracy", "Accuracy falls with the radius", "5b", f"error, {four}", _error_at("radius")),
        faster("accuracy-faster", "Accuracy falls ever faster with the radius", "5b", f"error, {four}",
               _error_at("radius")),
        trend("radius", "heard", "Fewer UEs are decoded the larger the radius", "5", f"updates heard, {four}", heard,
              -1),
        gains("planning-rounds", "Planning makes K* smaller", "5a", "K*", rounds["radius"]),
        gains("planning-accuracy", "Planning makes accuracy higher", "5b", "error", error["radius"]),
        trend("radius", "planning-rounds-more", "Planning gains more in K* the larger the radius", "5a",
              "K*, fixed / planned", _planning(rounds["radius"])),
        trend("radius", "planning-accuracy-more", "Planning gains more in accuracy the larger the radius", "5b",
              "error, fixed / planned", _planning(error["radius"])),
        trend("labels", "rounds", "K* falls with the number of labels of a UE", "5c", f"K*, {four}",
              _rounds_at("labels"), -1),
        trend("labels", "accuracy", "Accuracy grows with the number of labels of a UE", "5d", f"error, {four}",
              _error_at("labels"), -1),
        trend("labels", "gain-rounds", "AutoFL gains more in K* the more heterogeneous the data", "5c",
              "K*, others / AutoFL", _lead(rounds["labels"]), -1),
        trend("labels", "gain-accuracy", "AutoFL gains more in accuracy the more heterogeneous the data", "5d",
              "error, others / AutoFL", _lead(error["labels"]), -1),
    ]  # fmt: skip


def fast_adaptation(study: str) -> list[Claim]:
    """The paper's title, at UEs that took no part in training."""
    new = f"{study}.new"

    def leads(view: View) -> dict[str, Array]:
        error = view.error(new, "AutoFL", FEW)
        return {
            other: ratio(view.error(new, other, FEW), error) for other in ("FedAvg-1", "FedAvg-2")
        }

    def gain(view: View) -> Array:
        before, after = (
            1.0 - view.column(f"best_{m}", new, "AutoFL", FEW) for m in ("global", "adapted")
        )
        return ratio(before, after)

    words = f"one step on {FEW} samples of a UE that was not in training"
    return [
        Claim(f"new-gain-{study}", "AutoFL's model adapts fast to a new UE", (study,), "title",
              f"error before / after {words}", plain(gain)),
        Claim(f"new-lead-{study}", "After adaptation to a new UE AutoFL is ahead of conventional FL", (study,), "title",
              f"error after {words}, FedAvg-1 and FedAvg-2 / AutoFL", plain(leads)),
    ]  # fmt: skip
