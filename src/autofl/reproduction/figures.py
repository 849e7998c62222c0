"""The paper's figures, drawn from committed results: the adapted model on the left, the global one on the right."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from autofl.records import mean_interval
from autofl.report.plots import (
    COLOURS,
    DASHES,
    DATA_NAMES,
    ENOUGH_SEEDS,
    MARKERS,
    band,
    curves,
    figure_of,
    legend,
    time_to_each,
)
from autofl.reproduction.paper import FIGURES
from autofl.reproduction.recipes import SENSITIVITY
from autofl.reproduction.results import METRICS, Study
from autofl.reproduction.verdicts import MEANINGS, Judgement
from autofl.units import Array

LEAST_ACCURACY = {"cifar10": 0.20}
"""Where the axis of accuracy begins; 30 % elsewhere."""
AXES = {"radius": "radius of the cell R [m]", "labels": "labels of a UE, l"}


def data_name(about: dict[str, Any]) -> str:
    return DATA_NAMES.get(str(about["data"]), str(about["data"]))


def heading(study: Study) -> str:
    """What every picture says: the data that was used, the setting and the scale."""
    about = study.about
    law = "i.i.d." if about["partition"] == "iid" else "l = 5" if study.name != "labels" else "l varies"
    cell = f"{about['num_ue']} UEs, {about['num_selected']} a round"
    setting = [] if study.name in SENSITIVITY else [law, cell]
    seeds = f"{about['seeds']} seed{'s' if about['seeds'] > 1 else ''}"
    return ", ".join([data_name(about), *setting, seeds, f"{about['scale']} scale"])


def draw(name: str, study: Study) -> Figure:
    """One figure of the paper."""
    shown = FIGURES[name]
    with figure_of(8.0, 3.5) as figure:
        KINDS[shown.kind](figure, study)
        number = f"Fig. {name.removeprefix('fig')}"
        figure.suptitle(f"{number}: {shown.title}\nhere: {heading(study)}", fontsize=9)
        return figure


def _learning_time(figure: Figure, study: Study) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    least = LEAST_ACCURACY.get(str(study.about["data"]), 0.30)
    for axes, metric in zip(panels, METRICS, strict=True):
        for place, arm in enumerate(study.arms()):
            accuracy, time = time_to_each(_members(study, arm), f"{metric}_accuracy", least)
            band(axes, 100.0 * accuracy, time, place, arm, interval=True)
        axes.axvline(100.0 * float(study.about["target_accuracy"]), color="grey", linewidth=0.8, linestyle=":")
        if not axes.get_legend_handles_labels()[0]:
            axes.text(0.5, 0.5, f"no algorithm reaches {100 * least:g} %", ha="center", transform=axes.transAxes)
        axes.set_xlabel(f"test accuracy, {metric} model [%]")
        axes.set_ylim(bottom=0.0)
    panels[0].set_ylabel("learning time [simulated s]")
    _one_legend(panels)


def _against_rounds(figure: Figure, study: Study, columns: Sequence[tuple[str, str]], factor: float) -> None:
    panels = figure.subplots(1, 2, sharey=factor != 1.0)
    for axes, (column, words) in zip(panels, columns, strict=True):
        for place, arm in enumerate(study.arms()):
            x, values = curves(_members(study, arm), column, "round")
            if column.endswith("loss"):
                x, values = _until_diverged(x, values)
            band(axes, x, factor * values, place, arm, interval=True)
        axes.set_xlabel("round")
        axes.set_ylabel(words)
    _one_legend(panels)


def _until_diverged(x: Array, values: Array) -> tuple[Array, Array]:
    """Rounds, and losses of shape (num_seeds, num), up to the first beyond ten times the loss at the start."""
    apart = (values > 10.0 * values[:, :1]).any(axis=0)
    num = int(np.argmax(apart)) if apart.any() else len(x)
    return x[:num], values[:, :num]


def _loss(figure: Figure, study: Study) -> None:
    columns = [
        ("adapted_train_loss", "training loss F(w), adapted model"),
        ("train_loss", "training loss f(w), global model"),
    ]
    _against_rounds(figure, study, columns, 1.0)
    for axes in figure.axes:
        first = max(float(np.asarray(line.get_ydata())[0]) for line in axes.lines)
        axes.set_ylim(0.0, min(axes.get_ylim()[1], 2.0 * first))  # a run that diverges leaves the picture


def _accuracy(figure: Figure, study: Study) -> None:
    columns = [(f"{metric}_accuracy", f"test accuracy, {metric} model [%]") for metric in METRICS]
    _against_rounds(figure, study, columns, 100.0)


def _points(figure: Figure, study: Study, quantity: str, words: str, factor: float) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric in zip(panels, METRICS, strict=True):
        for place, arm in enumerate(study.arms()):
            x, mean, bars = points(study, arm, f"{quantity}_{metric}")
            style: Any = {"color": COLOURS[place], "linestyle": DASHES[place], "marker": MARKERS[place], "label": arm}
            axes.errorbar(x, factor * mean, yerr=factor * bars, capsize=2, markersize=4, **style)
        axes.set_xlabel(AXES[study.name])
        axes.set_ylabel(f"{words}, {metric} model")
    _one_legend(panels)


def points(study: Study, arm: str, quantity: str) -> tuple[Array, Array, Array]:
    """Places on the axis, mean over the seeds that have a value, and how far the bar goes below and above it.

    The bar is the 95 % interval of the mean from five seeds on, else the range of the seeds.
    """
    places = sorted({row.x for row in study.rows})
    summaries = []
    for x in places:
        values = np.array([row.values[quantity] for row in study.rows if row.arm == arm and row.x == x])
        there = values[~np.isnan(values)]
        mean, half = mean_interval(there)
        if 0 < len(there) < ENOUGH_SEEDS:
            summaries.append((mean, mean - there.min(), there.max() - mean))
        else:
            summaries.append((mean, half, half))
    means, *bars = np.array(summaries).T
    return np.array(places, dtype=np.float64), means, np.array(bars)


def _members(study: Study, arm: str) -> list[Any]:
    return [curve for (name, _), curve in study.curves.items() if name == arm]


def _one_legend(panels: Any) -> None:
    """In the panel that leaves it more room: the left one, unless nothing is drawn there."""
    legend(panels[0] if panels[0].get_legend_handles_labels()[0] else panels[1])


KINDS: dict[str, Callable[[Figure, Study], None]] = {
    "learning_time": _learning_time,
    "loss": _loss,
    "accuracy": _accuracy,
    "rounds_to_converge": lambda figure, study: _points(figure, study, "rounds", "K* [rounds]", 1.0),
    "best_accuracy": lambda figure, study: _points(figure, study, "best", "best accuracy [%]", 100.0),
}

VERDICT_MARKS = {
    "holds": ("#009E73", "H"),
    "partly": ("#F0E442", "p"),
    "does not hold": ("#D55E00", "–"),
    "not measured": ("#FFFFFF", ""),
}


def draw_sensitivity(judged: dict[tuple[str, str], list[Judgement]], title: str) -> Figure:
    """Claims by readings, coloured and lettered; a panel for each accuracy that could be meant."""
    readings = list(dict.fromkeys(reading for reading, _ in judged))
    names = [judgement.claim.words for judgement in judged[readings[0], "adapted"]]
    with figure_of(6.0 + 0.75 * len(readings), 1.6 + 0.2 * len(names)) as figure:
        for axes, meaning in zip(figure.subplots(1, 3, sharey=True), MEANINGS, strict=True):
            for column, reading in enumerate(readings):
                for row, judgement in enumerate(judged[reading, meaning]):
                    colour, letter = VERDICT_MARKS[judgement.verdict]
                    axes.add_patch(_square(column, row, colour))
                    axes.text(column, row, letter, ha="center", va="center", fontsize=7)
            axes.set_xlim(-0.5, len(readings) - 0.5)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_xticks(range(len(readings)), readings, rotation=90, fontsize=7)
            axes.set_title({"mixed": "MAML adapted,\nFedAvg global"}.get(meaning, f"{meaning} accuracy"), fontsize=8)
            axes.grid(visible=False)
            axes.tick_params(length=0)
        figure.axes[0].set_yticks(range(len(names)), names, fontsize=7)
        figure.suptitle(
            f"Which readings make which claims true: H holds, p partly, – does not hold\n{title}", fontsize=9
        )
        return figure


def _square(column: int, row: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, alpha=0.75, linewidth=0)
