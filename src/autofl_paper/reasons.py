"""Why a claim is not supported: what was measured about it, and what is only a conjecture and says
so.
"""

from collections.abc import Callable

import numpy as np

from autofl.units import Array
from autofl_paper.claims_convergence import PLANNED
from autofl_paper.curves import LEVELS, NUM_TARGETS
from autofl_paper.paper import GRADIENT_ROUNDS
from autofl_paper.quantities import ALL, STUDIES, at, median_of, ratio, timed
from autofl_paper.verdicts import Claim, View, judge, median_interval, shown

Reason = Callable[[View, str], str]
"""From the measured numbers and the study of a claim to words."""
MAML = ("AutoFL", "Per-FedAvg")


def _conjecture(words: str) -> Reason:
    return lambda view, study: f"conjecture: {words}"


def _same_plan(view: View, study: str) -> str:
    share = _median(
        ratio(
            view.column("round_time", study, "FedAvg-2"), view.column("round_time", study, "AutoFL")
        )
    )
    return (
        f"measured: FedAvg-2 has the same plan, its rounds take {share:.3f} times AutoFL's; conjecture: one step with"
        " alpha = 0.03 changes a gradient little"
    )


def _equal_rounds(fixed: str, planned: str) -> Reason:
    def words(view: View, study: str) -> str:
        share = _median(ratio(*(view.column("round_time", study, arm) for arm in (fixed, planned))))
        return (
            f"measured: {fixed}'s rounds (d = 5 at P_max) take {share:.2f} times {planned}'s, so the number of rounds"
            " decides"
        )

    return words


def _noisy(view: View, study: str) -> str:
    share = _median(ratio(view("unrest", study, "Per-FedAvg"), view("unrest", study, "FedAvg-1")))
    return (
        f"measured: Per-FedAvg's accuracy jumps {share:.1f} times as much as FedAvg-1's between evaluations;"
        " conjecture: of five samples each of its three batches gets one or two"
    )


def _diverges(view: View, study: str) -> str:
    counts = []
    for arm in MAML:
        apart = np.maximum(
            *(view.column(f"diverged_{metric}", study, arm) for metric in ("adapted", "global"))
        )
        counts.append(f"{arm} in {int(apart.sum())} of {len(apart)} seeds")
    return f"measured: the exact meta-gradient diverges, {' and '.join(counts)}"


def _by_size(small: int, large: int) -> Reason:
    def words(view: View, study: str) -> str:
        arms = [f"Per-FedAvg, d = {d}" for d in (large, small)]
        share = _median(ratio(*(view.column("round_time", study, arm) for arm in arms)))
        return f"measured: a round with d = {large} takes {share:.2f} times one with d = {small}"

    return words


def _any_size(view: View, study: str) -> str:
    shares = {
        d: _median(timed(at(study, f"Per-FedAvg, d = {d}", "AutoFL"))(view, None))
        for d in view.sizes(study)
    }
    best = min(shares, key=lambda d: shares[d])
    heard = float(view.column("num_samples", study, "AutoFL").mean())
    return f"measured: the fastest is d = {best}, {shares[best]:.2f} times AutoFL's time; AutoFL's mean d is {heard:.0f}"


def _out_of_energy(view: View, study: str) -> str:
    share = float(np.nanmean(view.column("at_max_power", study, "Per-FedAvg, d = 60")))
    return (
        f"measured: {100 * (1 - share):.0f} % of them lack energy, not power: computing takes (varsigma/2) C_i 60 f^2 ="
        " 3 mJ at C_i = 1e5, all of E_max"
    )


def _by_kstar(view: View, study: str) -> str:
    rounds = [f"{arm} {_rounds(view, study, arm)}" for arm in ALL]
    never = [f"{arm} {int(np.isinf(view('rounds', study, arm)).sum())}" for arm in ALL]
    return (
        f"measured: rounds to {100 * LEVELS[study]:g} % in the median seed {', '.join(rounds)}; seeds that never do"
        f" {', '.join(never)}"
    )


def _rounds(view: View, study: str, arm: str) -> str:
    return shown(median_interval(view("rounds", study, arm)).median)


def _starts(view: View, study: str) -> str:
    rounds = [
        _median(view("time4", study, arm) / view.column("round_time", study, arm)) for arm in ALL
    ]
    shown_rounds = ", ".join(f"{arm} {k:.0f}" for arm, k in zip(ALL, rounds, strict=True))
    return (
        f"measured: rounds to 85 % {shown_rounds}; conjecture: the text names no accuracy at which a curve starts"
        " to converge, and the figure was read at another one"
    )


def _grows(view: View, study: str) -> str:
    first, last = (
        _median(at(study, "Per-FedAvg", "AutoFL", column="near")(view, k)) for k in (1, NUM_TARGETS)
    )
    return f"measured: the ratio grows from {first:.2f} at the first of the five to {last:.2f} at the last"


def _seldom_reached(view: View, study: str) -> str:
    counts = [
        f"{arm} in {int(np.isfinite(view(f'time{NUM_TARGETS}', study, arm)).sum())}" for arm in ALL
    ]
    return f"measured: the last target is reached by {', '.join(counts)} seeds"


def _gains(view: View, study: str) -> str:
    values = []
    for name, (fixed, planned) in PLANNED.items():
        gains = [
            ratio(*(view("rounds", study, arm, x) for arm in (fixed, planned)))
            for x in view.places(study)
        ]
        values.append(f"{name} {_median(median_of(gains)):.2f}")
    return f"measured: K*, fixed / planned, in the median seed {', '.join(values)}"


def _one_run(view: View, study: str) -> str:
    pairs = [
        f"{rounds} rounds against {told} (epsilon = {eps:g})"
        for eps, (rounds, told) in GRADIENT_ROUNDS.items()
    ]
    return f"measured: {', '.join(pairs)} in one run (docs/theory.md, section 6); one run gives no verdict"


def _heard(view: View, study: str) -> str:
    places = view.places("radius")
    middle = places[len(places) // 2]
    near, far = (
        100.0 * float(view.column("heard", "radius", "FedAvg-1", x).mean())
        for x in (middle, places[-1])
    )
    return f"measured: at {middle} m {near:.1f} % of FedAvg-1's updates are heard, at {places[-1]} m {far:.1f} %"


def _worst_place(quantity: str) -> Reason:
    def lead(view: View, study: str, x: int) -> float:
        if quantity == "error":
            return _median(
                ratio(view.error(study, "Per-FedAvg", x), view.error(study, "AutoFL", x))
            )
        return _median(timed(at(study, "Per-FedAvg", "AutoFL", x))(view, None))

    def words(view: View, study: str) -> str:
        places = [
            *((s, 0) for s in STUDIES),
            *((s, x) for s in ("radius", "labels") for x in view.places(s)),
        ]
        leads = {place: lead(view, *place) for place in places}
        (where, x), least = min(leads.items(), key=lambda item: item[1])
        return f"measured: the smallest median lead in {quantity} is {least:.2f}, at {where}{f' = {x}' if x else ''}"

    return words


def _before(view: View, study: str) -> str:
    new = f"{study}.new"
    errors = [1.0 - view.column("best_global", new, arm, 5) for arm in ("FedAvg-2", "AutoFL")]
    return f"measured: before adaptation FedAvg-2's error at new UEs is {_median(ratio(*errors)):.2f} times AutoFL's"


def _median(values: Array) -> float:
    return float(np.nanmedian(values))


_SPENT = _conjecture(
    "MAML spends its samples on three batches, FedAvg-2 all of them on one gradient"
)
_FEW_LABELS = "conjecture: one step shows which few labels a UE owns, so adapting to few is easier than to ten"
REASONS: dict[str, Reason] = {
    "rapidly": _seldom_reached,
    "least-time-cifar10": _diverges,
    "least-time": _same_plan,
    "twice-cifar10": _diverges,
    "twice": _grows,
    "maml-planned-cifar10": _diverges,
    "maml-planned": _same_plan,
    "maml-fixed-cifar10": _diverges,
    "maml-both-cifar10": _diverges,
    "maml-fixed": _noisy,
    "maml-both": _noisy,
    "maml-more": lambda view, study: _diverges(view, "cifar10"),
    "accuracy-more": lambda view, study: _diverges(view, "cifar10"),
    "loss-more": lambda view, study: _diverges(view, "cifar10"),
    "plan-both-cifar10": _diverges,
    "plan-fedavg": _equal_rounds("FedAvg-1", "FedAvg-2"),
    "plan": _equal_rounds("Per-FedAvg", "AutoFL"),
    "autofl-fedavg-1-cifar10": _diverges,
    "autofl-fedavg-1": _same_plan,
    "iid-steadier": _conjecture("adaptation hides part of the fluctuation of the global model"),
    "no-size-faster": _any_size,
    "size-each": _by_size(20, 40),
    "size-more": lambda view, study: _by_size(5, 40)(view, "samples-cifar10"),
    "size": _by_size(40, 60),
    "why-60": _out_of_energy,
    "best-accuracy-cifar10": _diverges,
    "least-loss-cifar10": _diverges,
    "best-accuracy": _SPENT,
    "least-loss": _SPENT,
    "rounds-about": _starts,
    "rounds-told": _one_run,
    "rounds": _by_kstar,
    "always-time": _worst_place("time"),
    "always": _worst_place("error"),
    "radius-planning-rounds": _gains,
    "radius": _heard,
    "labels-gain": _conjecture("few labels make every adapted model better, not AutoFL's alone"),
    "new-lead": _before,
    "new-gain": _before,
}
"""By the beginning of a claim's name; the first that fits counts."""


def why_not(claim: Claim, view: View, by_global: View) -> str:
    """What is known of the reason for a claim that is not supported."""
    if claim.name.startswith(("iid-faster", "labels-rounds", "labels-accuracy")):
        return f"measured: with the global model {judge(claim, by_global).measured}; {_FEW_LABELS}"
    try:
        reason = next(words for prefix, words in REASONS.items() if claim.name.startswith(prefix))
        return reason(view, claim.studies[0])
    except KeyError:
        return "not known yet: the runs that would show it are not there"
