"""The recipe of each figure: a small function that returns the settings of its curves. NumPy only.

Figures share runs: a study is a set of runs that one or several figures show. Settings are written
as one would give them to `autofl simulate --set`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofl.errors import AutoFLError
from autofl_paper.curves import read_figure
from autofl_paper.paper import FIGURES, LABELS, RADIUS, SAMPLE_SIZES
from autofl_paper.results import Reader, write_rows
from autofl_paper.study import Arm, Runs, Studies, digits_here

if TYPE_CHECKING:
    from autofl_paper.page import Page

ALGORITHMS = {
    "autofl": "AutoFL",
    "per-fedavg": "Per-FedAvg",
    "fedavg-1": "FedAvg-1",
    "fedavg-2": "FedAvg-2",
}
CURVES = ("mnist-iid", "mnist", "cifar10", "samples-mnist", "samples-cifar10")
"""Studies shown as curves; of the others only what is read off each run is kept."""
ADAPTED = ("mnist-iid", "mnist", "cifar10")
"""Studies whose last models are adapted on few samples, at the UEs that trained them and at UEs
that did not.
"""
DIGITS = (0.70, 0.75, 0.80, 0.85, 0.90)
TARGETS = {"mnist": DIGITS, "mnist5k": DIGITS, "cifar10": (0.35, 0.40, 0.45, 0.50, 0.55)}
"""Accuracies of "time to accuracy", in steps of five points up to the highest that any of the four
algorithms reaches in the median seed of the full scale.
"""


@dataclass(frozen=True)
class Scale:
    """How much of everything. Radii begin to matter beyond 600 m, where preset `paper` first fails
    to decode.
    """

    name: str
    seeds: int  # of curves
    point_seeds: int  # of Fig. 5
    cifar_seeds: int
    reading_seeds: int  # of the sensitivity studies
    rounds: int
    reading_rounds: int
    cifar_rounds: int
    every: int  # rounds from one evaluation to the next
    cifar_every: int
    test_samples: int  # of each UE
    cifar_test_samples: int
    sizes: tuple[int, ...]
    radii: tuple[int, ...]
    labels: tuple[int, ...]
    readings: tuple[str, ...]  # of the sensitivity study


READINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "half C_i": ("cell.cycles_per_sample={uniform=[40000, 60000]}",),
    "double C_i": ("cell.cycles_per_sample={uniform=[160000, 240000]}",),
    "epsilon 0.05": ("planner.epsilon=0.05",),
    "epsilon 0.01": ("planner.epsilon=0.01",),
    "|A_k| = 10": ("simulation.num_selected=10",),
    "|A_k| = 20": ("simulation.num_selected=20",),
    "physical fading": ("preset=physical",),
    "pixels 0 to 1": ("data.standardise=false",),
    "exact planner": ("planner.name=exact",),
    "first-order": ("learning.variant=first-order",),
    "FedAvg steps alpha": (),
    "physical, exact": ("preset=physical", "planner.name=exact"),
    "FedAvg alpha, |A_k| = 10": ("simulation.num_selected=10",),
    "FedAvg alpha, pixels 0 to 1": ("data.standardise=false",),
    "adapted on 1": ("evaluation.adapt_samples=1",),
    "adapted on 5": ("evaluation.adapt_samples=5",),
    "adapted on d": (),
}
"""What the paper leaves open, one at a time around the default, and three combinations."""
CIFAR_READINGS: dict[str, tuple[str, ...]] = {
    **{
        name: READINGS[name]
        for name in (
            "default",
            "pixels 0 to 1",
            "first-order",
            "FedAvg steps alpha",
            "FedAvg alpha, pixels 0 to 1",
        )
    },
    "alpha 0.02": ("learning.inner_lr=0.02",),
    "alpha 0.006": ("learning.inner_lr=0.006",),
    "clipped at 2": ("learning.grad_clip=2.0",),
    "clipped at 10": ("learning.grad_clip=10.0",),
    "Hessian guarded": ("learning.guard=0.2",),
}
"""Readings on CIFAR-10: those that bear on whether exact MAML diverges there, and what a user may
do about it.
"""
PLANNED = ("AutoFL", "FedAvg-2")
PLANNED_SIZE = 35
"""The mean d of AutoFL's plans with the default settings: what "adapted on d" takes for those that
plan.
"""
FEDAVG_ALPHA = {"cifar10": "learning.outer_lr=0.06", "mnist": "learning.outer_lr=0.03"}
"""FedAvg's own step is not given: beta by default, alpha in the readings that say so."""

SCALES = {
    "smoke": Scale(
        name="smoke",  # to see that everything works; its numbers mean nothing
        seeds=1,
        point_seeds=1,
        cifar_seeds=1,
        reading_seeds=1,
        rounds=10,
        reading_rounds=10,
        cifar_rounds=4,
        every=5,
        cifar_every=2,
        test_samples=20,
        cifar_test_samples=20,
        sizes=(5, 40, 60),
        radii=(200, 1000),
        labels=(2, 5),
        readings=("default", "|A_k| = 10"),
    ),
    "quick": Scale(
        name="quick",
        seeds=3,
        point_seeds=2,
        cifar_seeds=2,
        reading_seeds=2,
        rounds=200,
        reading_rounds=200,
        cifar_rounds=400,
        every=5,
        cifar_every=20,
        test_samples=100,
        cifar_test_samples=100,
        sizes=(5, 20, 40, 60),
        radii=(200, 600, 1000),
        labels=(1, 2, 5, 10),
        readings=(
            "default",
            "half C_i",
            "epsilon 0.05",
            "|A_k| = 10",
            "physical fading",
            "pixels 0 to 1",
            "first-order",
            "adapted on 5",
        ),
    ),
    "full": Scale(
        name="full",
        seeds=20,
        point_seeds=12,  # the fewest that can pass a sign test corrected for a hundred claims
        cifar_seeds=16,
        reading_seeds=6,
        rounds=600,
        reading_rounds=300,
        cifar_rounds=1500,
        every=2,
        cifar_every=10,
        test_samples=200,
        cifar_test_samples=100,
        sizes=SAMPLE_SIZES,
        radii=(50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000),
        labels=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        readings=tuple(READINGS),
    ),
}


def _digits(scale: Scale, *overrides: str) -> tuple[str, ...]:
    """The common settings of MNIST runs."""
    shared = (
        f"data.name={digits_here(scale.name)}",
        f"stop.rounds={scale.rounds}",
        f"evaluation.every={scale.every}",
        f"evaluation.test_samples={scale.test_samples}",
    )
    return (*shared, *overrides)


def _cifar(scale: Scale) -> tuple[str, ...]:
    return (
        "data.name=cifar10",
        f"stop.rounds={scale.cifar_rounds}",
        f"evaluation.every={scale.cifar_every}",
        f"evaluation.test_samples={scale.cifar_test_samples}",
    )


def _four(study: str, shared: tuple[str, ...], num_seeds: int, x: int = 0) -> list[Arm]:
    """The paper's four algorithms."""
    return [
        Arm(study, label, (*shared, f"arm={name}"), num_seeds, x)
        for name, label in ALGORITHMS.items()
    ]


def _sizes(study: str, scale: Scale, shared: tuple[str, ...], num_seeds: int) -> list[Arm]:
    """AutoFL, and Per-FedAvg with several d and PowerComputation's power."""
    fixed = ("arm=per-fedavg", "planner.power=computed")
    return [
        Arm(study, "AutoFL", (*shared, "arm=autofl"), num_seeds),
        *(
            Arm(
                study,
                f"Per-FedAvg, d = {d}",
                (*shared, *fixed, f"planner.num_samples={d}"),
                num_seeds,
            )
            for d in scale.sizes
        ),
    ]


def mnist_iid(scale: Scale) -> list[Arm]:
    """Fig. 2a, 4a, 4d."""
    return _four("mnist-iid", _digits(scale, "data.partition=iid"), scale.seeds)


def mnist(scale: Scale) -> list[Arm]:
    """Fig. 2b, 4b, 4e."""
    return _four("mnist", _digits(scale), scale.seeds)


def cifar10(scale: Scale) -> list[Arm]:
    """Fig. 2c, 4c, 4f."""
    return _four("cifar10", _cifar(scale), scale.cifar_seeds)


def samples_mnist(scale: Scale) -> list[Arm]:
    """Fig. 3a."""
    return _sizes("samples-mnist", scale, _digits(scale), scale.seeds)


def samples_cifar10(scale: Scale) -> list[Arm]:
    """Fig. 3b."""
    return _sizes("samples-cifar10", scale, _cifar(scale), scale.cifar_seeds)


def radius(scale: Scale) -> list[Arm]:
    """Fig. 5a, 5b; the point R = 200 m is Fig. 2b's."""
    return [
        arm
        for r in scale.radii
        for arm in _four(
            "radius",
            _digits(scale, *_apart("cell.distance={disc=%d}", r, RADIUS)),
            scale.point_seeds,
            r,
        )
    ]


def labels(scale: Scale) -> list[Arm]:
    """Fig. 5c, 5d; the point l = 5 is Fig. 2b's."""
    return [
        arm
        for num in scale.labels
        for arm in _four(
            "labels", _digits(scale, *_apart("data.labels=%d", num, LABELS)), scale.point_seeds, num
        )
    ]


def _apart(override: str, value: int, default: int) -> tuple[str, ...]:
    """Nothing where the value is the default, so that the run is the same as that of another study."""
    return () if value == default else (override % value,)


def sensitivity(scale: Scale) -> list[Arm]:
    """Fig. 2a, 2b, 3a and the ends of Fig. 5, on MNIST, under other readings of what the paper
    leaves open.
    """
    thin = replace(
        scale,
        seeds=scale.reading_seeds,
        point_seeds=scale.reading_seeds,
        rounds=scale.reading_rounds,
        every=5,
        sizes=tuple(d for d in scale.sizes if d in (5, 40, 60)),
        radii=(RADIUS, 600, 1000),
        labels=(1, LABELS, 10),
    )
    studies = (mnist_iid, mnist, samples_mnist, *((radius, labels) if scale.name == "full" else ()))
    base = [arm for study in studies for arm in study(thin)]
    return [
        _read(arm, name, READINGS[name], FEDAVG_ALPHA["mnist"])
        for name in scale.readings
        for arm in base
    ]


def sensitivity_cifar10(scale: Scale) -> list[Arm]:
    """Fig. 2c under other readings, at the same length: the reading "default" is Fig. 2c's own
    runs.
    """
    base = cifar10(replace(scale, cifar_seeds=scale.reading_seeds))
    names = CIFAR_READINGS if scale.name == "full" else ("default", "first-order", "alpha 0.02")
    return [
        _read(arm, name, CIFAR_READINGS[name], FEDAVG_ALPHA["cifar10"])
        for name in names
        for arm in base
    ]


def _read(arm: Arm, reading: str, overrides: tuple[str, ...], alpha: str) -> Arm:
    """An arm under a reading. What a reading sets that an arm does not use is left out, so that
    arms share runs.
    """
    fedavg = arm.name.startswith("FedAvg")
    unused = (
        *(("learning.variant", "learning.grad_clip", "learning.guard") if fedavg else ()),
        *(("planner.",) if arm.name not in PLANNED else ()),
    )
    own = tuple(override for override in overrides if not override.startswith(unused or ("-",)))
    if reading.startswith("FedAvg") and fedavg:
        own = (*own, alpha)
    if reading == "adapted on d":
        size = PLANNED_SIZE if arm.name in PLANNED else _fixed_size(arm.name)
        own = (*own, f"evaluation.adapt_samples={size}")
    return replace(arm, reading=reading, overrides=(*arm.overrides, *own))


def _fixed_size(arm: str) -> int:
    """d of an algorithm that does not plan it."""
    return int(arm.rpartition("d = ")[2]) if "d = " in arm else 5


STUDIES: dict[str, Callable[[Scale], list[Arm]]] = {
    "mnist-iid": mnist_iid,
    "mnist": mnist,
    "cifar10": cifar10,
    "samples-mnist": samples_mnist,
    "samples-cifar10": samples_cifar10,
    "radius": radius,
    "labels": labels,
    "sensitivity": sensitivity,
    "sensitivity-cifar10": sensitivity_cifar10,
}
SENSITIVITY = ("sensitivity", "sensitivity-cifar10")


def studies_of(names: Sequence[str]) -> list[str]:
    """The studies behind these figures, in the order of STUDIES; sensitivity studies go by their
    own names.
    """
    known = [*FIGURES, *SENSITIVITY, "all"]
    for name in names:
        if name not in known:
            raise AutoFLError(f"{name}: no such figure; there are {', '.join(known)}, joint, radio")
    wanted = (
        set(STUDIES) if "all" in names else {FIGURES[n].study if n in FIGURES else n for n in names}
    )
    return [study for study in STUDIES if study in wanted]


def _reader(study: str, scale: Scale) -> Reader:
    return partial(read_figure, targets_of=TARGETS, keep=study in CURVES)


def _about(study: str, scale: Scale, data: str) -> dict[str, Any]:
    return {"targets": TARGETS[data]}


def _adapt(study: str, runs: Runs, device: str, folder: Path) -> None:
    """Adapt the final models on few samples, where a study is about that."""
    if study in ADAPTED:
        from autofl_paper.few_shot import collect_adaptation

        write_rows(collect_adaptation(runs, device), folder / f"{study}.adapted.csv")


def _page(folder: Path, names: Sequence[str] | None) -> "Page":
    from autofl_paper.reproduction import page_of

    return page_of(folder, names)


FIGURE_STUDIES = Studies(
    folder="results",
    scales=SCALES,
    arms=STUDIES,
    named=studies_of,
    reader=_reader,
    about=_about,
    page=_page,
    last=SENSITIVITY,
    beside=_adapt,
)
