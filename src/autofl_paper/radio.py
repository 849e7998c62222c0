"""The study `radio`: the paper's Fig. 2, 3 and 5 on MNIST in cells with real radio, beside the
paper's own cell.

Cells, targets, radii and the margin of a tie were fixed before the runs were made.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autofl.config import load_settings
from autofl.core.decide import before_training, without_learning
from autofl.core.round import ChannelAir
from autofl.experiments.cell import whole_cell
from autofl_paper.paper import LABELS, SAMPLE_SIZES
from autofl_paper.radio_results import read_radio
from autofl_paper.recipes import ALGORITHMS
from autofl_paper.results import Reader
from autofl_paper.study import Arm, Studies, digits_here

if TYPE_CHECKING:
    from autofl_paper.page import Page

RADIO = "radio"
"""The study's name."""


@dataclass(frozen=True)
class RadioCell:
    """A cell of the study: a scenario that comes along, and the radii of Fig. 5 [m], in equal
    steps.
    """

    scenario: str
    title: str
    radii: tuple[
        int, int, int
    ]  # the scenario's own first; at the last one many UEs are out of reach


CELLS = {
    "paper": RadioCell("paper", "the paper's cell", (200, 600, 1000)),
    "umi": RadioCell("umi-phones", "UMi, phones", (115, 230, 345)),
    "uma": RadioCell("uma-phones", "UMa, phones", (290, 580, 870)),
    "vehicles": RadioCell("vehicles", "UMa, vehicles at 50 km/h", (290, 870, 1450)),
}
FEW_LABELS = 1
ALL_LABELS = 10
"""The ends of Fig. 5c and 5d."""
BUDGETS = (0.003, *(step * 10.0**decade for decade in (-2, -1, 0, 1) for step in (1, 2, 5)))
"""E_max [J] that every cell is tried with, the paper's first."""


@dataclass(frozen=True)
class RadioScale:
    """How much of everything."""

    name: str
    seeds: int
    rounds: int
    every: int  # rounds between evaluations
    test_samples: int  # of each UE
    targets: tuple[float, ...]  # adapted accuracies, all of which a time is measured to
    sizes: tuple[int, ...] = SAMPLE_SIZES
    cells: tuple[str, ...] = tuple(CELLS)


SCALES = {
    "smoke": RadioScale("smoke", 1, 4, 2, 20, (0.15, 0.2), sizes=(5, 40, 60), cells=("umi",)),
    "quick": RadioScale("quick", 2, 100, 2, 100, (0.75, 0.80, 0.85)),
    "full": RadioScale("full", 5, 200, 2, 200, (0.75, 0.80, 0.85, 0.90)),
}
"""smoke shows that everything works, its numbers mean nothing."""
ROUND_SECONDS = 0.025
"""Of one round on one core, its share of the evaluation included."""


def at_radius(algorithm: str, radius: int) -> str:
    """The name of an arm of Fig. 5a and 5b."""
    return f"{algorithm}, R = {radius} m"


def with_labels(algorithm: str, labels: int) -> str:
    """The name of an arm of Fig. 5c and 5d; l = 5 is Fig. 2b's."""
    return algorithm if labels == LABELS else f"{algorithm}, l = {labels}"


def iid(algorithm: str) -> str:
    """The name of an arm of Fig. 2a."""
    return f"{algorithm}, i.i.d."


def with_size(d: int) -> str:
    """The name of an arm of Fig. 3."""
    return f"Per-FedAvg, d = {d}"


def arms(scale: RadioScale) -> list[Arm]:
    """Every arm in every cell."""
    shared = (
        f"data.name={digits_here(scale.name)}",
        f"stop.rounds={scale.rounds}",
        f"evaluation.every={scale.every}",
        f"evaluation.test_samples={scale.test_samples}",
        # no loss is read here, and 100 take a fifth of the whole time
        "evaluation.train_samples=1",
    )
    return [
        Arm(RADIO, name, (*shared, *more), scale.seeds, reading=cell, scenario=CELLS[cell].scenario)
        for cell in scale.cells
        for name, more in _told(CELLS[cell], scale)
    ]


def _told(cell: RadioCell, scale: RadioScale) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The arms of a cell by name, less what all share."""
    for name, label in ALGORITHMS.items():
        own = f"arm={name}"
        yield label, (own,)
        yield iid(label), (own, "data.partition=iid")
        for radius in cell.radii[1:]:
            yield at_radius(label, radius), (own, f"cell.distance={{disc={radius}}}")
        for labels in (FEW_LABELS, ALL_LABELS):
            yield with_labels(label, labels), (own, f"data.labels={labels}")
    for d in scale.sizes:
        yield (
            with_size(d),
            ("arm=per-fedavg", "planner.power=computed", f"planner.num_samples={d}"),
        )


def shares_that_can_send(cell: RadioCell, num_seeds: int) -> dict[str, float]:
    """Share of the UEs that can send an update in round 1, by E_max [J]: planner `exact` finds who
    can; no learning.
    """
    shares = dict.fromkeys(BUDGETS, 0.0)
    for seed in range(1, num_seeds + 1):
        overrides = ["data.name=mnist", "planner.name=exact", f"seed={seed}"]
        network = whole_cell(load_settings(overrides=overrides, scenario=cell.scenario))
        air = network.air
        assert isinstance(air, ChannelAir)
        for budget in BUDGETS:
            ues = air.cell.having(max_energy=np.full(air.cell.num_ue, budget))
            here = replace(network, air=replace(air, cell=ues))
            made, _ = without_learning(here, before_training(here))
            shares[budget] += float(made.plan.feasible.mean()) / num_seeds
    return {f"{budget:g}": share for budget, share in shares.items()}


def _reader(study: str, scale: RadioScale) -> Reader:
    return partial(read_radio, targets=scale.targets)


def _about(study: str, scale: RadioScale, data: str) -> dict[str, Any]:
    budgets = {name: shares_that_can_send(CELLS[name], scale.seeds) for name in scale.cells}
    return {"targets": list(scale.targets), "sizes": list(scale.sizes), "budgets": budgets}


def _page(folder: Path, names: Sequence[str] | None) -> "Page":
    from autofl_paper.radio_page import page_of

    return page_of(folder)


RADIO_STUDY = Studies(
    folder=RADIO,
    scales=SCALES,
    arms={RADIO: arms},
    named=list,
    reader=_reader,
    about=_about,
    page=_page,
    seconds=lambda arm, rounds: rounds * ROUND_SECONDS,
)
