"""The page of the joint planner's studies, from their results alone."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.files import finite_or_null
from autofl.report.plots import COLOURS, DASHES, figure_of
from autofl.report.table import Table, drawn_text
from autofl.units import Array
from autofl_paper.joint import (
    ALL,
    AUTOFL_J,
    FEDAVG_J,
    JOINT_STUDIES,
    PLAIN,
    TUNED,
    TUNED_FEDAVG,
    TUNED_MAML,
    tune_command,
)
from autofl_paper.joint_results import LEVELS
from autofl_paper.joint_tables import arm_table, choice_table, limits_of, ratio_table, ratios
from autofl_paper.page import PICTURES, Page, data_name, made_where, records
from autofl_paper.results import Results, named, read_results

PICTURED = ("AutoFL", PLAIN, TUNED_MAML, TUNED_FEDAVG, AUTOFL_J, FEDAVG_J)
PANELS = {"joint-paper": "paper", "joint-physical": "physical"}
PICTURE = "joint"
HOW = """Time is simulated, until the adapted accuracy, averaged over three evaluations in a row, reaches the target.
The seeds judged here were not used for tuning. Medians are over seeds. A ratio is paired by seed: the other's time over
the arm's, with its median and a 95 % bootstrap interval of that median. If the other does not reach the target, the
time of its last evaluation is used instead (≥ if this moves the median). If the arm itself does not reach it, the ratio
counts as 0; if neither does, the seed is left out. The energy of a UE is counted until the first target. Limits are
checked for every UE in every round: energy, power, range of frequency, and the band of the round."""


def draw_way(studies: dict[str, Results]) -> Figure:
    """Accuracy against time, a panel for each cell: medians over seeds, and the middle half of
    them.
    """
    shown = [name for name in PANELS if name in studies]
    with figure_of(4.4 * len(shown), 3.6) as figure:
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, shown, strict=True):
            _draw_cell(axes, studies[name])
            axes.set_title(f"{PANELS[name]}: {drawn_text(heading(studies[name]))}", fontsize=8)
        panels[0].set_ylabel("test accuracy, adapted model [%]")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8
        )
        return figure


def _draw_cell(axes: Axes, study: Results) -> None:
    """The arms of one cell."""
    for place, arm in enumerate(PICTURED):
        if not study.rows_of(arm):
            continue
        way = np.array([study.column(named("time", level), arm) for level in LEVELS]).T
        low, middle, high = quartiles(way)

        # What the untrained model knows takes no time, and has no place on a logarithmic axis.
        there = np.isfinite(middle) & (low > 0.0)
        y = 100.0 * np.array(LEVELS)[there]
        style: Any = {"color": COLOURS[place], "linestyle": DASHES[place]}
        axes.plot(middle[there], y, label=arm, **style)

        # The slowest quarter may never get there; its edge is drawn at half as long again.
        capped = np.minimum(high[there], middle[there].max(initial=0.0) * 1.5)
        axes.fill_betweenx(y, low[there], capped, color=COLOURS[place], alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    for target in study.about["targets"]:
        axes.axhline(100.0 * target, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("simulated time [s]")


def quartiles(way: Array) -> tuple[Array, Array, Array]:
    """Over seeds, of times of shape (num_seeds, num_levels); infinite where too few reached it."""
    ordered = np.sort(np.where(np.isnan(way), np.inf, way), axis=0)
    last = len(ordered) - 1
    low = ordered[math.floor(0.25 * last)]
    high = ordered[math.ceil(0.75 * last)]
    return low, np.median(ordered, axis=0), high


def heading(study: Results) -> str:
    """Data, seeds and scale."""
    about = study.about
    ues = f"{about['num_selected']} of {about['num_ue']} UEs"
    return f"{data_name(about)}, l = 5, {ues}, {about['seeds']} seeds, {about['scale']}"


def about_line(study: Results) -> str:
    """Everything about the runs of a study."""
    about = study.about
    return (
        f"{heading(study)} scale; at most {about['rounds']} rounds; {made_where(study)}"
        f" `autofl reproduce {study.name} --scale {about['scale']}`"
    )


def tuned_table() -> Table:
    """The constants of each cell."""
    body = [
        [cell, algorithm, str(c.num_samples), str(c.local_steps), f"{c.bits:g}", f"{c.frequency:g}"]
        for (cell, algorithm), c in TUNED.items()
    ]
    return Table(["cell", "update of", "d", "tau", "bits a weight", "f / vartheta"], body)


def tables_of(study: Results) -> list[Table]:
    """What a reader sees of a study; everything else stays in its CSV file."""
    if study.name == "joint-choice":
        return [choice_table(study)]
    return [arm_table(study), ratio_table(study)]


def plain_of(study: Results, tables: Sequence[Table]) -> dict[str, Any]:
    """The tables and every ratio of a study as plain values."""
    measured = []
    for (condition, arm, other, target), ratio in ratios(study).items():
        pair = {"with": condition, "arm": arm, "against": other, "target": target}
        measured.append(finite_or_null({**pair, **asdict(ratio)}))
    return {
        "about": study.about,
        "arms": records(tables[0]),
        "limits": limits_of(study),
        "ratios": measured,
    }


def page_of(folder: Path, names: Sequence[str] | None) -> Page:
    """All that is shown of the results in a folder; on the screen the named studies, or all."""
    studies = read_results(folder, JOINT_STUDIES)
    if not studies:
        raise AutoFLError(f"{folder}: no results of the joint planner's studies in it")
    pictures = {}
    blocks = {}
    if any(name in studies for name in PANELS):
        pictures[PICTURE] = partial(draw_way, studies)
        blocks["joint-picture"] = f"![Accuracy against time]({PICTURES}{PICTURE}.png)"

    shown = []
    plain = {}
    for name, study in studies.items():
        tables = tables_of(study)
        texts = [table.markdown() for table in tables]
        blocks[name] = "\n\n".join([*texts, limits_of(study), about_line(study)])
        blocks[f"{name}-ratios"] = texts[-1]
        if names is None or name in names or ALL in names:
            shown += [replace(table, title=name) for table in tables]
            shown[-1] = replace(shown[-1], title=f"{name}. {limits_of(study)}")
            plain[name] = plain_of(study, tables)
    found_by = f"The first row was found by `{tune_command(*next(iter(TUNED)))}`."
    blocks["joint-tuned"] = f"{tuned_table().markdown()}\n\n{found_by}"
    return Page("The joint planner, measured", HOW, pictures, blocks, shown, plain)
