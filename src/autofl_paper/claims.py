"""The paper's claims, each with a quantity that is measured for every seed and a rule that gives
the verdict.

Quantities are ratios that a true claim makes larger than 1: of times, of errors (1 - accuracy), of
    losses, of rounds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from autofl.units import Array
from autofl_paper.claims_convergence import (
    always,
    convergence,
    fast_adaptation,
    network_and_data,
    order_of_magnitude,
    rounds_to_converge,
)
from autofl_paper.curves import NUM_TARGETS
from autofl_paper.paper import BEST_SIZE, SAMPLE_SIZES, TIME_RATIO, WORST_SIZE
from autofl_paper.quantities import (
    ALL,
    AT_TARGETS,
    OTHERS,
    STUDIES,
    Timed,
    at,
    each_timed,
    error_leads,
    geometric_mean,
    growth,
    loss_leads,
    plain,
    ratio,
    timed,
)
from autofl_paper.verdicts import Above, Claim, Measured, View

PAIRS = {
    "autofl-fedavg-1": ("MAML with the plan beats FedAvg without: AutoFL before FedAvg-1", "FedAvg-1", "AutoFL"),
    "maml-planned": ("MAML beats conventional FL at AutoFL's d and p: AutoFL before FedAvg-2", "FedAvg-2", "AutoFL"),
    "maml-fixed": ("MAML beats conventional FL at d = 5 and P_max: Per-FedAvg before FedAvg-1", "FedAvg-1",
                   "Per-FedAvg"),
    "maml-both": ('"MAML-based outperform conventional": Per-FedAvg before FedAvg-2', "FedAvg-2",
                  "Per-FedAvg"),
    "plan-both": ('"AutoFL and FedAvg-2 outperform": FedAvg-2 before Per-FedAvg', "Per-FedAvg",
                  "FedAvg-2"),
    "plan-maml": ("Planned d and p beat fixed ones, with MAML: AutoFL before Per-FedAvg", "Per-FedAvg", "AutoFL"),
    "plan-fedavg": ("Planned d and p beat fixed ones, without MAML: FedAvg-2 before FedAvg-1", "FedAvg-1", "FedAvg-2"),
}  # fmt: skip
"""Every pair of algorithms that the text orders, the slower one first. The text contradicts itself
on Per-FedAvg and FedAvg-2: "maml-both" and "plan-both" cannot both be true.
"""


def _learning_time(study: str) -> list[Claim]:
    """Fig. 2, one data setting."""

    def step(view: View, arm: str, k: int) -> Array:
        with np.errstate(invalid="ignore"):
            return view(f"time{k + 1}", study, arm) - view(f"time{k}", study, arm)

    def rising(view: View) -> dict[str, Array]:
        steps = range(1, NUM_TARGETS)
        return {arm: growth(steps, np.stack([step(view, arm, k) for k in steps])) for arm in ALL}

    return [
        Claim(
            f"least-time-{study}",
            "AutoFL needs the least time at equal accuracy",
            (study,),
            "V-B, Fig. 2",
            AT_TARGETS.format("each other / AutoFL"),
            each_timed(lambda view: {other: at(study, other, "AutoFL") for other in OTHERS}),
            Above(rows=True),  # the three are in PAIRS
            timed=True,
        ),
        Claim(
            f"twice-{study}",
            'Near convergence Per-FedAvg takes "at least twice" AutoFL\'s time',
            (study,),
            "V-B, Fig. 2",
            "time near convergence, Per-FedAvg / AutoFL",
            timed(at(study, "Per-FedAvg", "AutoFL", column="near")),
            Above(TIME_RATIO),
            timed=True,
            main_only=True,
        ),
        *(
            Claim(f"{name}-{study}", words, (study,), "V-B, Fig. 2", AT_TARGETS.format(f"{slow} / {fast}"),
                  timed(at(study, slow, fast)), timed=True)
            for name, (words, slow, fast) in PAIRS.items()
        ),
        Claim(
            f"rapidly-{study}",
            "The time of all algorithms grows rapidly with the accuracy",
            (study,),
            "V-B, Fig. 2",
            "time from target to target, last step / first",
            plain(rising),
        ),
    ]  # fmt: skip


def _across_data() -> list[Claim]:
    """Fig. 2 and 4, one data setting against another."""

    def slower(view: View, k: int) -> Array:
        return geometric_mean(
            ratio(view(f"time{k}", "mnist", a), view(f"time{k}", "mnist-iid", a)) for a in ALL
        )

    def unrest(view: View) -> Array:
        return geometric_mean(
            ratio(view("unrest", "mnist", a), view("unrest", "mnist-iid", a)) for a in ALL
        )

    def gain(view: View, study: str) -> Array:
        return timed(at(study, "FedAvg-2", "AutoFL"))(view, None)

    both = ("mnist", "mnist-iid")
    return [
        Claim(
            "maml-more-on-cifar10",
            "MAML's advantage is larger on CIFAR-10 than on MNIST",
            ("cifar10", "mnist"),
            "V-B, Fig. 2",
            "FedAvg-2 / AutoFL in time, CIFAR-10 over MNIST",
            plain(lambda view: ratio(gain(view, "cifar10"), gain(view, "mnist"))),
        ),
        Claim(
            "iid-faster",
            "I.i.d. data is learned faster than non-i.i.d.",
            both,
            "V-B, Fig. 2",
            AT_TARGETS.format("non-i.i.d. / i.i.d., mean of the four"),
            timed(slower),
            timed=True,
        ),
        Claim(
            "iid-steadier",
            "I.i.d. data gives steadier results",
            both,
            "V-B, Fig. 2",
            "unrest of accuracy, non-i.i.d. / i.i.d., mean of the four",
            plain(unrest),
        ),
        *(
            Claim(
                f"{name}-more-on-cifar10",
                f"AutoFL's lead in {words} is larger on CIFAR-10 than on MNIST",
                ("cifar10", "mnist"),
                "V-C, Fig. 4",
                f"{words}, each other / AutoFL, CIFAR-10 over MNIST",
                plain(partial(_more_leads, of)),
            )
            for name, words, of in (
                ("accuracy", "error", error_leads),
                ("loss", "training loss", loss_leads),
            )
        ),
    ]


def _more_leads(of: Callable[[View, str], dict[str, Array]], view: View) -> dict[str, Array]:
    there = of(view, "cifar10")
    here = of(view, "mnist")
    return {other: ratio(there[other], here[other]) for other in OTHERS}


def _sample_sizes(study: str) -> list[Claim]:
    """Fig. 3, one data set."""

    def size(d: int) -> str:
        return f"Per-FedAvg, d = {d}"

    def never_faster(view: View) -> dict[str, Timed]:
        return {f"d = {d}": at(study, size(d), "AutoFL") for d in SAMPLE_SIZES}

    def each_step(view: View) -> dict[str, Timed]:
        rising = [d for d in SAMPLE_SIZES if d <= BEST_SIZE]
        return {f"{a} to {b}": at(study, size(a), size(b)) for a, b in pairwise(rising)}

    def at_max_power(view: View) -> Array:
        share = view.column("at_max_power", study, size(WORST_SIZE))
        return ratio(share, 1.0 - share)

    def on_time(
        name: str,
        words: str,
        quantity: str,
        values: Callable[[View, int | None], Measured],
        main_only: bool = False,
    ) -> Claim:
        text = AT_TARGETS.format(quantity)
        return Claim(
            f"{name}-{study}",
            words,
            (study,),
            "V-B, Fig. 3",
            text,
            values,
            timed=True,
            main_only=main_only,
        )

    return [
        on_time("no-size-faster", "AutoFL is faster than Per-FedAvg with any d", "each d / AutoFL",
                each_timed(never_faster), main_only=True),
        on_time("size-40", "Per-FedAvg is faster with d = 40 than with d = 5", "d = 5 / d = 40",
                timed(at(study, size(5), size(BEST_SIZE)))),
        on_time("size-each", "Per-FedAvg gets faster with each step from d = 5 to 40", "d / next d, each step",
                each_timed(each_step), main_only=True),
        on_time("size-60", "Per-FedAvg deteriorates at d = 60", "d = 60 / d = 40",
                timed(at(study, size(WORST_SIZE), size(BEST_SIZE)))),
        Claim(
            f"why-60-{study}",
            "Uploads fail at d = 60 because the power has reached its upper bound",
            (study,),
            "V-B, Fig. 3",
            "failed uploads, limited by P_max / by energy",
            plain(at_max_power),
        ),
    ]  # fmt: skip


def _more_by_size(view: View) -> Array:
    gains = [
        timed(at(study, "Per-FedAvg, d = 5", f"Per-FedAvg, d = {BEST_SIZE}"))(view, None)
        for study in ("samples-cifar10", "samples-mnist")
    ]
    return ratio(*gains)


CLAIMS: Sequence[Claim] = (
    *(claim for study in STUDIES for claim in _learning_time(study)),
    *_across_data(),
    *_sample_sizes("samples-mnist"),
    *_sample_sizes("samples-cifar10"),
    Claim(
        "size-more-on-cifar10",
        "The gain from d = 5 to 40 is larger on CIFAR-10",
        ("samples-cifar10", "samples-mnist"),
        "V-B, Fig. 3",
        "time with d = 5 / d = 40, CIFAR-10 over MNIST",
        plain(_more_by_size),
    ),
    *(claim for study in STUDIES for claim in convergence(study)),
    order_of_magnitude(),
    *rounds_to_converge(),
    *always(),
    *network_and_data(),
    *(claim for study in STUDIES for claim in fast_adaptation(study)),
)
