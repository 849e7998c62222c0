"""The paper's figures, drawn from committed results: the adapted model on the left, the global one
on the right.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from autofl.quality import mean_interval
from autofl.report.plots import (
    COLOURS,
    DASHES,
    ENOUGH_SEEDS,
    MARKERS,
    band,
    curves,
    figure_of,
    legend,
)
from autofl.report.table import drawn_text
from autofl.units import Array
from autofl_paper.curves import LEVELS, METRICS, centred, near_targets, time_at
from autofl_paper.page import data_name
from autofl_paper.paper import FIGURES, TIME_RATIO
from autofl_paper.recipes import SENSITIVITY
from autofl_paper.results import Curve, Results
from autofl_paper.verdicts import Judgement, Meaning, median_interval

LEAST_ACCURACY = {"cifar10": 0.20}
"""Where the axis of accuracy begins; 30 % elsewhere."""
AXES = {"radius": "radius of the cell R [m]", "labels": "labels of a UE, l"}


def law_of(study: Results) -> str:
    """Who owns which labels."""
    if study.about["partition"] == "iid":
        return "i.i.d."
    return {"labels": "l varies", "radius": "l = 5, R varies"}.get(study.name, "l = 5")


def heading(study: Results) -> str:
    """What every picture says: the data that was used, the setting and the scale."""
    about = study.about
    law = law_of(study)
    cell = f"{about['num_ue']} UEs, {about['num_selected']} a round"
    setting = [] if study.name in SENSITIVITY else [law, cell]
    seeds = f"{about['seeds']} seed{'s' if about['seeds'] > 1 else ''}"
    return ", ".join([data_name(about), *setting, seeds, f"{about['scale']} scale"])


def draw(name: str, study: Results) -> Figure:
    """One figure of the paper."""
    shown = FIGURES[name]
    with figure_of(8.0, 3.5) as figure:
        KINDS[shown.kind](figure, study)
        number = f"Fig. {name.removeprefix('fig')}"
        figure.suptitle(f"{number}: {shown.title}\nhere: {drawn_text(heading(study))}", fontsize=9)
        return figure


def _learning_time(figure: Figure, study: Results) -> None:
    least = LEAST_ACCURACY.get(str(study.about["data"]), 0.30)
    times: dict[str, dict[str, tuple[Array, Array]]] = {}
    for metric in METRICS:
        times[metric] = {}
        for arm in study.arms:
            members = _members(study, arm)
            times[metric][arm] = time_to_levels(members, f"{metric}_accuracy", least)

    # A panel with nothing in it is left out; if both are empty the first says so.
    drawn = []
    for metric in METRICS:
        if any(len(levels) for levels, _ in times[metric].values()):
            drawn.append(metric)
    drawn = drawn or ["adapted"]
    panels = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    for axes, metric in zip(panels, drawn, strict=True):
        for place, (arm, (accuracy, time)) in enumerate(times[metric].items()):
            band(axes, 100.0 * accuracy, time, place, drawn_text(arm), interval=True)
        last = axes.get_xlim()[1]
        for target in study.about["targets"]:
            if 100.0 * target < last:  # beyond it the picture would be empty
                axes.axvline(100.0 * target, color="grey", linewidth=0.6, linestyle=":")
        axes.set_xlabel(f"test accuracy, {metric} model [%]")
    for metric in set(METRICS) - set(drawn):
        words = f"the {metric} model reaches {100 * least:g} %\nwith no algorithm in every seed"
        panels[0].text(
            0.5, 0.97, words, ha="center", va="top", transform=panels[0].transAxes, fontsize=8
        )
    panels[0].set_ylabel("learning time [simulated s]")
    panels[0].set_ylim(bottom=0.0)  # after both are drawn, since they share it
    _one_legend(panels)


def time_to_levels(members: Sequence[Curve], column: str, least: float) -> tuple[Array, Array]:
    """Time to reach each accuracy, as far as every seed got; shape (num_runs, num_levels)."""
    tops = []
    for run in members:
        rounds, _, values = run.evaluated(column)
        tops.append(float(centred(rounds, values).max()))
    levels = np.arange(least, min(tops, default=0.0), 0.005)
    if not len(levels):
        return levels, np.empty((0, 0))
    return levels, np.stack([time_at(run, column, levels) for run in members])


def _against_rounds(
    figure: Figure, study: Results, columns: Sequence[tuple[str, str]], factor: float
) -> None:
    panels = figure.subplots(1, 2, sharey=factor != 1.0)
    for axes, (column, words) in zip(panels, columns, strict=True):
        for place, arm in enumerate(study.arms):
            x, values = curves(_members(study, arm), column, "round")
            if column.endswith("loss"):
                x, values = _until_diverged(x, values)
            band(axes, x, factor * values, place, drawn_text(arm), interval=True)
        axes.set_xlabel("round")
        axes.set_ylabel(words)
    _one_legend(panels)


def _until_diverged(x: Array, values: Array) -> tuple[Array, Array]:
    """Rounds, and losses of shape (num_seeds, num), up to the first beyond ten times the loss at
    the start.
    """
    apart = (values > 10.0 * values[:, :1]).any(axis=0)
    num = int(np.argmax(apart)) if apart.any() else len(x)
    return x[:num], values[:, :num]


def _loss(figure: Figure, study: Results) -> None:
    columns = [
        ("adapted_train_loss", "training loss F(w), adapted model"),
        ("train_loss", "training loss f(w), global model"),
    ]
    _against_rounds(figure, study, columns, 1.0)
    for axes in figure.axes:
        first = max(float(np.asarray(line.get_ydata())[0]) for line in axes.lines)
        axes.set_ylim(
            0.0, min(axes.get_ylim()[1], 2.0 * first)
        )  # a run that diverges leaves the picture


def _accuracy(figure: Figure, study: Results) -> None:
    columns = [(f"{metric}_accuracy", f"test accuracy, {metric} model [%]") for metric in METRICS]
    _against_rounds(figure, study, columns, 100.0)


def _points(figure: Figure, study: Results, quantity: str, words: str, factor: float) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric in zip(panels, METRICS, strict=True):
        for place, arm in enumerate(study.arms):
            x, mean, bars, share = points(study, arm, f"{quantity}_{metric}")
            style: Any = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4}
            many = (
                share > 0.5
            )  # a mean over fewer seeds is one over the lucky: hollow, and not joined
            axes.errorbar(
                x[many],
                factor * mean[many],
                yerr=factor * bars[:, many],
                capsize=2,
                linestyle=DASHES[place],
                label=drawn_text(arm),
                **style,
            )
            few = ~many & (share > 0.0)
            axes.plot(x[few], factor * mean[few], linestyle="none", markerfacecolor="none", **style)
        axes.set_xlabel(AXES[study.name])
        axes.set_ylabel(f"{words}, {metric} model")
    _one_legend(panels)


def points(study: Results, arm: str, quantity: str) -> tuple[Array, Array, Array, Array]:
    """Places on the axis, mean over the seeds that have a value, how far the bar goes below and
    above it, and the share of the seeds that have one.

    The bar is the 95 % interval of the mean from five seeds on, else the range of the seeds.
    """
    summaries = []
    shares = []
    for x in study.places:
        values = study.column(quantity, arm, x=x)
        there = values[~np.isnan(values)]
        shares.append(len(there) / max(len(values), 1))
        mean, half = mean_interval(there)
        if 0 < len(there) < ENOUGH_SEEDS:
            summaries.append((mean, mean - there.min(), there.max() - mean))
        else:
            summaries.append((mean, half, half))
    means, *bars = np.array(summaries).T
    places = np.array(study.places, dtype=np.float64)
    return places, means, np.array(bars), np.array(shares)


def _members(study: Results, arm: str) -> list[Curve]:
    return [row.curve for row in study.rows if row.arm == arm and row.curve is not None]


def _one_legend(panels: Any) -> None:
    """In the panel that leaves it more room: the left one, unless nothing is drawn there; none
    where nothing is.
    """
    drawn = [axes for axes in panels if axes.get_legend_handles_labels()[0]]
    if drawn:
        legend(drawn[0])


KINDS: dict[str, Callable[[Figure, Results], None]] = {
    "learning_time": _learning_time,
    "loss": _loss,
    "accuracy": _accuracy,
    "rounds_to_converge": lambda figure, study: _points(
        figure, study, "rounds", f"K* [rounds to {100 * LEVELS[study.name]:g} %]", 1.0
    ),
    "best_accuracy": lambda figure, study: _points(
        figure, study, "best", "best accuracy [%]", 100.0
    ),
}

RATIOS = (("Per-FedAvg", "AutoFL"), ("FedAvg-1", "AutoFL"), ("FedAvg-2", "AutoFL"))
TARGET_AXIS = {"cifar10": (0.30, 0.60)}
"""Targets that are drawn; 70 to 94 % elsewhere."""
RATIO_AXIS = (0.1, 10.0)


def draw_targets(studies: Sequence[Results]) -> Figure:
    """How ratios of times depend on the target: median over seeds with its 95 % interval. A side
    that never reaches a target makes the ratio 0 or infinite, at the edge of the picture.
    """
    with figure_of(10.0, 3.6) as figure:
        panels = figure.subplots(1, len(studies), sharey=True)
        for axes, study in zip(panels, studies, strict=True):
            first, last = TARGET_AXIS.get(str(study.about["data"]), (0.70, 0.94))
            levels = np.arange(first, last + 0.001, 0.01)
            for place, pair in enumerate(RATIOS, 1):
                medians, low, high = ratios_at(study, *pair, levels)
                x = 100.0 * levels
                axes.fill_between(x, low, high, color=COLOURS[place], alpha=0.2, linewidth=0)
                axes.plot(
                    x,
                    medians,
                    color=COLOURS[place],
                    linestyle=DASHES[place],
                    label=drawn_text(" / ".join(pair)),
                )
            near = 100.0 * near_targets(str(study.about["data"]))
            axes.axvspan(near[0] - 0.5, near[-1] + 0.5, color="grey", alpha=0.2, linewidth=0)
            for target in study.about["targets"]:
                axes.axvline(100.0 * float(target), color="grey", linewidth=0.6, linestyle=":")
            for bound in (1.0, TIME_RATIO):
                axes.axhline(bound, color="black", linewidth=0.6)
            axes.set_yscale("log")
            axes.set_ylim(*RATIO_AXIS)
            axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0", "0.2", "0.5", "1", "2", "5", "∞"])
            axes.set_xlabel("target, adapted model [%]")
            axes.set_title(drawn_text(f"{data_name(study.about)}, {law_of(study)}"), fontsize=9)
        panels[0].set_ylabel("ratio of times to the target")
        legend(panels[0])
        return figure


def ratios_at(study: Results, slow: str, fast: str, levels: Array) -> tuple[Array, Array, Array]:
    """Median over seeds of a ratio of times at each level, and its interval; NaN where most seeds
    say nothing.
    """
    times = []
    for arm in (slow, fast):
        reached = [time_at(curve, "adapted_accuracy", levels) for curve in _members(study, arm)]
        times.append(np.nan_to_num(np.stack(reached), nan=np.inf, posinf=np.inf))
    one, other = times
    with np.errstate(invalid="ignore", divide="ignore"):
        values = one / other
    result = []
    for column in values.T:
        telling = column[~np.isnan(column)]
        if 2 * len(telling) <= len(column):
            result.append((np.nan, np.nan, np.nan))
            continue
        interval = median_interval(telling)
        result.append((interval.value, interval.low, interval.high))
    medians, low, high = np.clip(np.array(result).T, *RATIO_AXIS)
    return medians, low, high


MARKS = {
    "supported": ("#009E73", "S"),
    "tie": ("#56B4E9", "T"),
    "refuted": ("#D55E00", "R"),
    "inconclusive": ("#DDDDDD", "?"),
    "not run yet": ("#FFFFFF", ""),
}
LETTERS = {verdict: letter for verdict, (_, letter) in MARKS.items()}
DRAWN: tuple[Meaning, ...] = ("adapted", "mixed")
"""Meanings of accuracy that are drawn; the counts of all three are in a table."""


def draw_sensitivity(
    judged: dict[tuple[str, str], list[Judgement]], meaning: Meaning, title: str
) -> Figure:
    """Claims by readings, coloured and lettered. Claims on whose verdict all readings agree are
    named below the page's table and left out, so that what is drawn can be read at the width of a
    page.
    """
    readings = list(dict.fromkeys(reading for reading, _ in judged))
    columns = [judged[reading, meaning] for reading in readings]
    rows = [
        row
        for row in range(len(columns[0]))
        if len({column[row].verdict for column in columns}) > 1
    ]
    names = [f"{_short(columns[0][row])}" for row in rows]
    with figure_of(10.0, 2.6 + 0.21 * len(rows)) as figure:
        axes = figure.subplots()
        for x, column in enumerate(columns):
            for y, row in enumerate(rows):
                colour, letter = MARKS[column[row].verdict]
                axes.add_patch(_square(x, y, colour))
                axes.text(x, y, letter, ha="center", va="center", fontsize=9)
        axes.set_xlim(-0.5, len(readings) - 0.5)
        axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        axes.set_xticks(
            range(len(readings)),
            readings,
            rotation=60,
            ha="left",
            rotation_mode="anchor",
            fontsize=9,
        )
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(rows)), names, fontsize=9)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        words = {"mixed": "MAML judged adapted, FedAvg global"}.get(meaning, f"{meaning} accuracy")
        told = "S supported, T tie, R refuted, ? inconclusive; claims that all readings agree on are left out"
        figure.suptitle(f"What verdicts hang on, {words}: {title}\n{told}", fontsize=10)
        return figure


def _short(one: Judgement) -> str:
    """A claim in few words: what follows the colon, where there is one, and its study."""
    study = one.claim.studies[0].removeprefix("samples-")
    return f"{one.claim.words.rpartition(': ')[2]} ({study})"


def _square(column: int, row: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, alpha=0.75, linewidth=0
    )
