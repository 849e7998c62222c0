"""The paper's claims, each with a quantity that is measured for every seed and a rule that gives the verdict."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from autofl.reproduction.paper import BEST_SIZE, RADIUS, ROUNDS_TO_CONVERGE, TIME_RATIO, WORST_SIZE
from autofl.reproduction.verdicts import About, Above, Claim, View, difference, least_of, mean_of, ratio
from autofl.units import Array

OTHERS = ("Per-FedAvg", "FedAvg-1", "FedAvg-2")
ALL = ("AutoFL", *OTHERS)
LONGER, POSITIVE = Above(1.0), Above(0.0)


def _time(view: View, study: str, slow: str, fast: str) -> Array:
    return ratio(view("time", study, slow), view("time", study, fast))


def _learning_time(study: str, data: str) -> list[Claim]:
    """Fig. 2, one data setting."""

    def claim(name: str, words: str, slow: str, fast: str, rule: Above = LONGER) -> Claim:
        quantity = f"time to the target, {slow} / {fast}"
        return Claim(
            f"{name}-{study}",
            f"{words} ({data})",
            "V-B, Fig. 2",
            quantity,
            lambda view: _time(view, study, slow, fast),
            rule,
        )

    return [
        Claim(
            f"least-time-{study}",
            f"AutoFL needs the least time at equal accuracy ({data})",
            "V-B, Fig. 2",
            "time to the target, best of the others / AutoFL",
            lambda view: least_of(_time(view, study, other, "AutoFL") for other in OTHERS),
            LONGER,
        ),
        claim(
            "twice",
            "Per-FedAvg needs at least twice AutoFL's time",
            "Per-FedAvg",
            "AutoFL",
            Above(TIME_RATIO, weak=1.0),
        ),
        claim("maml-planned", "MAML beats conventional FL at AutoFL's d and p", "FedAvg-2", "AutoFL"),
        claim("maml-fixed", "MAML beats conventional FL at d = 5 and P_max", "FedAvg-1", "Per-FedAvg"),
        claim("plan-maml", "Planned d and p beat fixed ones, with MAML", "Per-FedAvg", "AutoFL"),
        claim("plan-fedavg", "Planned d and p beat fixed ones, without MAML", "FedAvg-1", "FedAvg-2"),
    ]


def _across_data() -> list[Claim]:
    """Fig. 2, one data setting against another."""

    def more_on_cifar(view: View) -> Array:
        gains = [_time(view, study, "FedAvg-2", "AutoFL") for study in ("cifar10", "mnist")]
        return ratio(*gains)

    def mean_ratio(view: View, quantity: str) -> Array:
        pairs = [ratio(view(quantity, "mnist", arm), view(quantity, "mnist-iid", arm)) for arm in ALL]
        with np.errstate(divide="ignore"):
            return np.exp(mean_of(np.log(pairs)))

    return [
        Claim(
            "maml-more-on-cifar10",
            "MAML's advantage is larger on CIFAR-10 than on MNIST",
            "V-B, Fig. 2",
            "FedAvg-2 / AutoFL in time, CIFAR-10 over MNIST",
            more_on_cifar,
            LONGER,
        ),
        Claim(
            "iid-faster",
            "I.i.d. data is learned faster than non-i.i.d.",
            "V-B, Fig. 2",
            "time to the target, non-i.i.d. / i.i.d., geometric mean of the four algorithms",
            lambda view: mean_ratio(view, "time"),
            LONGER,
        ),
        Claim(
            "iid-steadier",
            "I.i.d. data gives steadier results",
            "V-B, Fig. 2",
            "deviation of accuracy from one evaluation to the next, non-i.i.d. / i.i.d., geometric mean of the four",
            lambda view: mean_ratio(view, "unrest"),
            LONGER,
        ),
    ]


def _size(view: View, study: str, d: int) -> Array:
    return view("time", study, f"Per-FedAvg, d = {d}")


def _sample_sizes(study: str, data: str) -> list[Claim]:
    """Fig. 3, one data set."""

    def never_faster(view: View) -> Array:
        sizes = view.sizes(study)
        return least_of(ratio(_size(view, study, d), view("time", study, "AutoFL")) for d in sizes)

    def each_step(view: View) -> Array:
        rising = [d for d in view.sizes(study) if d <= BEST_SIZE]
        return least_of(ratio(_size(view, study, a), _size(view, study, b)) for a, b in pairwise(rising))

    return [
        Claim(
            f"no-size-faster-{study}",
            f"AutoFL is faster than Per-FedAvg with any d ({data})",
            "V-B, Fig. 3",
            "time to the target, best d / AutoFL",
            never_faster,
            LONGER,
        ),
        Claim(
            f"size-40-{study}",
            f"Per-FedAvg is faster with d = 40 than with d = 5 ({data})",
            "V-B, Fig. 3",
            "time to the target, d = 5 / d = 40",
            lambda view: ratio(_size(view, study, 5), _size(view, study, BEST_SIZE)),
            LONGER,
        ),
        Claim(
            f"size-each-{study}",
            f"Per-FedAvg gets faster with each step from d = 5 to 40 ({data})",
            "V-B, Fig. 3",
            "time to the target, d / next d, the worst step",
            each_step,
            LONGER,
        ),
        Claim(
            f"size-60-{study}",
            f"Per-FedAvg deteriorates at d = 60 ({data})",
            "V-B, Fig. 3",
            "time to the target, d = 60 / d = 40",
            lambda view: ratio(_size(view, study, WORST_SIZE), _size(view, study, BEST_SIZE)),
            LONGER,
        ),
    ]


def _more_by_size_on_cifar(view: View) -> Array:
    gains = [
        ratio(_size(view, study, 5), _size(view, study, BEST_SIZE)) for study in ("samples-cifar10", "samples-mnist")
    ]
    return ratio(*gains)


def _convergence(study: str, data: str) -> list[Claim]:
    """Fig. 4, one data setting."""
    return [
        Claim(
            f"best-accuracy-{study}",
            f"AutoFL reaches the highest accuracy ({data})",
            "V-C, Fig. 4",
            "best accuracy, AutoFL - best of the others [points]",
            lambda view: least_of(difference(view("best", study, "AutoFL"), view("best", study, o)) for o in OTHERS),
            POSITIVE,
            1,
            100.0,
        ),
        Claim(
            f"least-loss-{study}",
            f"AutoFL reaches the smallest training loss ({data})",
            "V-C, Fig. 4",
            "last training loss, best of the others - AutoFL",
            lambda view: least_of(difference(view("loss", study, o), view("loss", study, "AutoFL")) for o in OTHERS),
            POSITIVE,
            3,
        ),
    ]


def _rounds_of(arm: str) -> Callable[[View], Array]:
    return lambda view: view("rounds", "mnist", arm)


def _rounds_to_converge() -> list[Claim]:
    """Fig. 4e, the only numbers of Sec. V-C."""

    def order(view: View) -> Array:
        steps = [("AutoFL", "Per-FedAvg"), ("Per-FedAvg", "FedAvg-1"), ("Per-FedAvg", "FedAvg-2")]
        return least_of(difference(view("rounds", "mnist", b), view("rounds", "mnist", a)) for a, b in steps)

    return [
        *(
            Claim(
                f"rounds-{arm.lower()}",
                f"{arm} converges after about {rounds} rounds (non-i.i.d. MNIST)",
                "V-C, Fig. 4e",
                "K* [rounds]",
                _rounds_of(arm),
                About(rounds),
                0,
            )
            for arm, rounds in ROUNDS_TO_CONVERGE.items()
        ),
        Claim(
            "rounds-order",
            "AutoFL converges before Per-FedAvg, and that before FedAvg",
            "V-C, Fig. 4e",
            "K*, later - earlier, the worst of the three pairs [rounds]",
            order,
            POSITIVE,
            0,
        ),
    ]


def _of_four(view: View, quantity: str, study: str, x: int) -> Array:
    return mean_of(view(quantity, study, arm, x) for arm in ALL)


def _growth(view: View, quantity: str, study: str, begin: int, end: int) -> Array:
    """How much a quantity, the mean of the four algorithms, grows from one point to another."""
    return difference(_of_four(view, quantity, study, end), _of_four(view, quantity, study, begin))


def _ever_faster(view: View, quantity: str, sign: float) -> Array:
    """Growth (or fall) over the outer half of the radii less that over the inner half."""
    radii = view.places("radius")
    middle = min(radii, key=lambda r: abs(r - (radii[0] + radii[-1]) / 2.0))
    outer = _growth(view, quantity, "radius", middle, radii[-1])
    return difference(sign * outer, sign * _growth(view, quantity, "radius", radii[0], middle))


def _planning_gain(view: View, x: int) -> Array:
    pairs = (("AutoFL", "Per-FedAvg"), ("FedAvg-2", "FedAvg-1"))
    return mean_of(difference(view("best", "radius", a, x), view("best", "radius", b, x)) for a, b in pairs)


def _autofl_gain(view: View, x: int) -> Array:
    return difference(view("best", "labels", "AutoFL", x), mean_of(view("best", "labels", o, x) for o in OTHERS))


def _network_and_data() -> list[Claim]:
    """Fig. 5."""

    def ends(view: View, study: str) -> tuple[int, int]:
        places = view.places(study)
        return (RADIUS if study == "radius" else places[0]), places[-1]

    return [
        Claim(
            "radius-rounds",
            "K* grows with the radius",
            "V-D, Fig. 5a",
            "K* at the largest R - at 200 m, mean of the four [rounds]",
            lambda view: _growth(view, "rounds", "radius", *ends(view, "radius")),
            POSITIVE,
            0,
        ),
        Claim(
            "radius-rounds-faster",
            "K* grows ever faster with the radius",
            "V-D, Fig. 5a",
            "growth of K* over the outer half of the radii - over the inner half [rounds]",
            lambda view: _ever_faster(view, "rounds", 1.0),
            POSITIVE,
            0,
        ),
        Claim(
            "radius-accuracy",
            "Accuracy falls with the radius",
            "V-D, Fig. 5b",
            "best accuracy at 200 m - at the largest R, mean of the four [points]",
            lambda view: -_growth(view, "best", "radius", *ends(view, "radius")),
            POSITIVE,
            1,
            100.0,
        ),
        Claim(
            "radius-accuracy-faster",
            "Accuracy falls ever faster with the radius",
            "V-D, Fig. 5b",
            "fall over the outer half of the radii - over the inner half [points]",
            lambda view: _ever_faster(view, "best", -1.0),
            POSITIVE,
            1,
            100.0,
        ),
        Claim(
            "radius-planning",
            "Planning helps more the larger the radius",
            "V-D, Fig. 5b",
            "best accuracy, planned - fixed, at the largest R - at 200 m [points]",
            lambda view: difference(*(_planning_gain(view, x) for x in reversed(ends(view, "radius")))),
            POSITIVE,
            1,
            100.0,
        ),
        Claim(
            "labels-rounds",
            "K* falls with the number of labels of a UE",
            "V-D, Fig. 5c",
            "K* at the smallest l - at the largest, mean of the four [rounds]",
            lambda view: -_growth(view, "rounds", "labels", *ends(view, "labels")),
            POSITIVE,
            0,
        ),
        Claim(
            "labels-accuracy",
            "Accuracy grows with the number of labels of a UE",
            "V-D, Fig. 5d",
            "best accuracy at the largest l - at the smallest, mean of the four [points]",
            lambda view: _growth(view, "best", "labels", *ends(view, "labels")),
            POSITIVE,
            1,
            100.0,
        ),
        Claim(
            "labels-gain",
            "AutoFL gains more the more heterogeneous the data",
            "V-D, Fig. 5d",
            "best accuracy, AutoFL - mean of the others, at the smallest l - at the largest [points]",
            lambda view: difference(*(_autofl_gain(view, x) for x in ends(view, "labels"))),
            POSITIVE,
            1,
            100.0,
        ),
    ]


DATA = {"mnist-iid": "i.i.d. MNIST", "mnist": "non-i.i.d. MNIST", "cifar10": "non-i.i.d. CIFAR-10"}
CLAIMS: Sequence[Claim] = (
    *(claim for study, data in DATA.items() for claim in _learning_time(study, data)),
    *_across_data(),
    *_sample_sizes("samples-mnist", "MNIST"),
    *_sample_sizes("samples-cifar10", "CIFAR-10"),
    Claim(
        "size-more-on-cifar10",
        "The gain from d = 5 to 40 is larger on CIFAR-10",
        "V-B, Fig. 3",
        "time with d = 5 / d = 40, CIFAR-10 over MNIST",
        _more_by_size_on_cifar,
        LONGER,
    ),
    *(claim for study, data in DATA.items() for claim in _convergence(study, data)),
    *_rounds_to_converge(),
    *_network_and_data(),
)
