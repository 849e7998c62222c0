"""The report on the joint planner, from its results alone: a picture, tables, a page, and JSON for
machines.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.files import finite_or_null, write_whole
from autofl.report.about import DATA_NAMES
from autofl.report.plots import COLOURS, DASHES, figure_of, save
from autofl.report.table import Table, drawn_text
from autofl.units import Array
from autofl_paper.joint import (
    AUTOFL_J,
    FEDAVG_J,
    JOINT_STUDIES,
    PLAIN,
    TUNED,
    TUNED_FEDAVG,
    TUNED_MAML,
    tune_command,
)
from autofl_paper.joint_results import LEVELS, JointStudy, read_joint
from autofl_paper.joint_tables import arm_table, limit_table, ratio_table, ratios
from autofl_paper.page import fill

PICTURED = ("AutoFL", PLAIN, TUNED_MAML, TUNED_FEDAVG, AUTOFL_J, FEDAVG_J)
PANELS = {"joint-paper": "paper", "joint-physical": "physical"}
PICTURE = "joint"
TITLES = {
    "joint-paper": "In the cell of the paper",
    "joint-physical": "With physical fading",
    "joint-tight": "With a tenth of the energy",
    "joint-mixed": "Within 400 m, CPUs and budgets spread tenfold",
    "joint-ternary": "Without the entropy coder: ternary updates of 1.66 bit",
    "joint-ablation": "Each decision left out, and each alone",
    "joint-besides": "With what the paper leaves out",
    "joint-guesses": "With wrong guesses about learning",
    "joint-choice": "(P1): the choice against a grid of constants",
    "joint-cifar10": "CIFAR-10",
}
HOW = """Time is simulated, until the adapted accuracy, averaged over three evaluations in a row, reaches the target.
The seeds judged here were not used for tuning. Medians are over seeds. A ratio is paired by seed: the other's time over
the arm's, with its median and a 95 % bootstrap interval of that median. If the other does not reach the target, the
time of its last evaluation is used instead (≥ if this moves the median). If the arm itself does not reach it, the ratio
counts as 0; if neither does, the seed is left out. The energy of a UE is counted until the first target. Limits are
checked for every UE in every round: energy, power, range of frequency, and the band of the round."""


def draw_way(studies: dict[str, JointStudy]) -> Figure:
    """Accuracy against time, a panel for each cell: medians over seeds, and the middle half of
    them.
    """
    shown = [name for name in PANELS if name in studies]
    with figure_of(4.4 * len(shown), 3.6) as figure:
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, shown, strict=True):
            study = studies[name]
            for place, arm in enumerate(PICTURED):
                if rows := study.rows_of(arm):
                    low, middle, high = quartiles(np.array([row.way for row in rows]))
                    style: Any = {"color": COLOURS[place], "linestyle": DASHES[place]}
                    there = np.isfinite(middle) & (
                        low > 0.0
                    )  # what the untrained model knows takes no time
                    y = 100.0 * np.array(LEVELS)[there]
                    axes.plot(middle[there], y, label=arm, **style)
                    capped = np.minimum(high[there], middle[there].max(initial=0.0) * 1.5)
                    axes.fill_betweenx(
                        y, low[there], capped, color=COLOURS[place], alpha=0.15, linewidth=0
                    )
            axes.set_xscale("log")
            for target in study.targets:
                axes.axhline(100.0 * target, color="grey", linewidth=0.8, linestyle=":")
            axes.set_xlabel("simulated time [s]")
            axes.set_title(f"{PANELS[name]}: {drawn_text(heading(study))}", fontsize=8)
        panels[0].set_ylabel("test accuracy, adapted model [%]")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8
        )
        return figure


def quartiles(way: Array) -> tuple[Array, Array, Array]:
    """Over seeds, of times of shape (num_seeds, num_levels); infinite where too few reached it."""
    ordered = np.sort(np.where(np.isnan(way), np.inf, way), axis=0)
    last = len(ordered) - 1
    low = ordered[math.floor(0.25 * last)]
    high = ordered[math.ceil(0.75 * last)]
    return low, np.median(ordered, axis=0), high


def heading(study: JointStudy) -> str:
    """Data, seeds and scale."""
    about = study.about
    data = DATA_NAMES.get(str(about["data"]), str(about["data"]))
    return f"{data}, l = 5, {about['num_selected']} of {about['num_ue']} UEs, {about['seeds']} seeds, {about['scale']}"


def about_line(study: JointStudy) -> str:
    about = study.about
    name = study.name
    minutes = (
        f"{about['seconds'] / 60:.0f} min"
        if about["seconds"] >= 120
        else f"{about['seconds']:.0f} s"
    )
    return (
        f"{heading(study)} scale; at most {about['rounds']} rounds; {about['runs']} runs in {minutes}"
        f" ({about['device']}, {about['cores']} cores, PyTorch {about['torch']}), commit"
        f" {str(about['commit'] or 'unknown')[:10]}. `autofl reproduce {name} --scale {about['scale']}`"
    )


def tuned_table() -> Table:
    """The constants of each cell and the command that found them."""
    body = [
        [cell, algorithm, str(c.num_samples), str(c.local_steps), f"{c.bits:g}", f"{c.frequency:g}",
         f"`{tune_command(cell, algorithm)}`"]
        for (cell, algorithm), c in TUNED.items()
    ]  # fmt: skip
    return Table(
        ["cell", "update of", "d", "tau", "bits a weight", "f / vartheta", "found by"], body
    )


def blocks(studies: dict[str, JointStudy], pictures: str) -> dict[str, str]:
    """The generated parts of a page by name; `pictures` is the path from the page to the picture."""
    texts = {}
    if any(name in studies for name in PANELS):
        texts["joint-picture"] = f"![Accuracy against time]({pictures}{PICTURE}.png)"
    for name in JOINT_STUDIES:
        if name in studies:
            study = studies[name]
            tables = (arm_table(study), ratio_table(study), limit_table(study))
            texts[name] = "\n\n".join([*(table.markdown() for table in tables), about_line(study)])
            texts[f"{name}-ratios"] = tables[1].markdown()
    texts["joint-tuned"] = tuned_table().markdown()
    return texts


def page_text(studies: dict[str, JointStudy]) -> str:
    """The whole report as Markdown."""
    texts = blocks(studies, "")
    parts = [
        "# The joint planner, measured",
        HOW,
        *([texts[p]] if (p := "joint-picture") in texts else []),
    ]
    for name, title in TITLES.items():
        if name in studies:
            parts += [f"## {title}", texts[name]]
    return "\n\n".join([*parts, "## Tuned constants", texts["joint-tuned"]]) + "\n"


def plain_results(studies: dict[str, JointStudy]) -> dict[str, Any]:
    """Every table and ratio as plain values."""
    told = {}
    for name, study in studies.items():
        told[name] = {
            "about": study.about,
            "arms": _records(arm_table(study)),
            "limits": _records(limit_table(study)),
            "ratios": [
                finite_or_null({
                    "with": condition, "arm": arm, "against": other, "target": target, "pairs": ratio.pairs,
                    "median": ratio.median, "low": ratio.low, "high": ratio.high, "is_least": ratio.is_least,
                    "reached": ratio.reached, "reached_other": ratio.reached_other, "seeds": ratio.seeds,
                })
                for (condition, arm, other, target), ratio in ratios(study).items()
            ],
        }  # fmt: skip
    return told


def _records(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def report_joint(folder: Path, out: Path, page: Path | None = None) -> list[Path]:
    """Draw the picture, write report.md and tables.json, fill a page. Returns the files."""
    studies = read_joint(folder)
    if not studies:
        raise AutoFLError(f"{folder}: no results of the joint planner's studies in it")
    if page is not None and not page.is_file():
        raise AutoFLError(f"{page}: no such page")
    out.mkdir(parents=True, exist_ok=True)
    files = (
        save(draw_way(studies), out / PICTURE) if any(name in studies for name in PANELS) else []
    )
    write_whole(out / "report.md", page_text(studies), sync=False)
    tables = json.dumps(plain_results(studies), indent=1, ensure_ascii=False)
    write_whole(out / "tables.json", tables + "\n", sync=False)
    if page is not None:
        way = Path(os.path.relpath(out.resolve(), page.parent.resolve())).as_posix()
        text = fill(page.read_text(encoding="utf-8"), blocks(studies, f"{way}/"))
        write_whole(page.resolve(), text)
    return [*files, out / "report.md", out / "tables.json"]
