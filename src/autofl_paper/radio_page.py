"""The page of the study `radio`, from its results alone: one picture, verdicts, and what the radio
did.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.report.plots import figure_of
from autofl.report.table import Table
from autofl.units import Array
from autofl_paper.figures import LETTERS
from autofl_paper.page import PICTURES, Page, data_name, made_where
from autofl_paper.radio import CELLS, RADIO, at_radius, with_size
from autofl_paper.radio_claims import AUTOFL, PER_FEDAVG, judge_cells
from autofl_paper.results import Results, read_results
from autofl_paper.verdicts import MARGINS, Effect, Judgement, Unit, Verdict

LOOKS: dict[Verdict, tuple[str, str]] = {
    "supported": ("#009E73", "o"),
    "tie": ("#E69F00", "s"),
    "refuted": ("#D55E00", "X"),
    "inconclusive": ("#999999", "D"),
}
"""Colour and marker of a verdict."""
LIMITS: dict[Unit, tuple[float, float]] = {
    "ratio": (math.log(0.2), math.log(5.0)),
    "points": (-12.0, 25.0),
}
"""Of the axes; what lies beyond is drawn at the edge."""
TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)
HOW = """An effect above 1 (or above 0 points) speaks for the claim; it is a mean over seeds, of logarithms if it is a
ratio, with Student's 95 % interval. supported: the whole interval is above, and the effect is beyond the margin of 5 %
or half a point; refuted: the same below; tie: the interval is within the margin; inconclusive: everything else."""


def draw_claims(results: Results, judged: Sequence[Sequence[Judgement]]) -> Figure:
    """Every claim in every cell: effect and interval in the colour of the verdict, the margin of a
    tie shaded.
    """
    blocks: dict[Unit, list[Sequence[Judgement]]] = {unit: [] for unit in MARGINS}
    for row in judged:
        blocks[unit_of(row[0])].append(row)
    cells = results.readings
    with figure_of(3.0 + 2.1 * len(cells), 2.0 + 0.24 * len(judged)) as figure:
        heights = [len(rows) for rows in blocks.values()]
        panels = figure.subplots(
            2, len(cells), sharey="row", squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for panels_of_block, (unit, rows) in zip(panels, blocks.items(), strict=True):
            for place, axes in enumerate(panels_of_block):
                _draw_block(axes, unit, [row[place] for row in rows])
            words = [f"{row[0].claim.words}  {row[0].claim.where}" for row in rows]
            panels_of_block[0].set_yticks(range(len(rows)), words, fontsize=7.5)
        for axes, cell in zip(panels[0], cells, strict=True):
            axes.set_title(CELLS[cell].title, fontsize=9)
        for verdict, (colour, marker) in LOOKS.items():
            panels[0][0].plot([], [], marker, color=colour, label=verdict)
        figure.legend(
            *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4
        )
        return figure


def unit_of(one: Judgement) -> Unit:
    """What the effect of a claim is measured in."""
    assert isinstance(one.claim.rule, Effect)
    return one.claim.rule.unit


def _draw_block(axes: Axes, unit: Unit, judged: Sequence[Judgement]) -> None:
    left, right = LIMITS[unit]
    margin = MARGINS[unit]
    axes.axvspan(-margin, margin, color="#E69F00", alpha=0.2, linewidth=0)
    axes.axvline(0.0, color="black", linewidth=0.6)
    for y, one in enumerate(judged):
        if one.interval is None:
            axes.text(0.0, y, "target not reached", ha="center", va="center", fontsize=6)
            continue
        colour, marker = LOOKS[one.verdict]
        ends = np.clip([one.interval.low, one.interval.high], left, right)
        axes.plot(ends, [y, y], color=colour, linewidth=1.4)
        effect = np.clip(one.interval.value, left, right)
        axes.plot(effect, y, marker, color=colour, markersize=5, clip_on=False)
    axes.set_xlim(left, right)
    axes.set_ylim(len(judged) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="x", labelsize=7)
    if unit == "ratio":
        axes.set_xticks([math.log(tick) for tick in TICKS], [f"{tick:g}" for tick in TICKS])
        axes.set_xlabel("ratio", fontsize=8)
    else:
        axes.set_xlabel("points of accuracy", fontsize=8)


def claim_table(results: Results, judged: Sequence[Sequence[Judgement]]) -> Table:
    """Every claim: effect, interval and letter of the verdict in each cell."""
    cells = [CELLS[cell].title for cell in results.readings]
    body = []
    for row in judged:
        claim = row[0].claim
        verdicts = [f"{one.measured} {LETTERS[one.verdict]}" for one in row]
        body.append([claim.words, claim.where, claim.quantity, *verdicts])
    return Table(["claim", "Fig.", "what is measured", *cells], body)


def count_table(results: Results, judged: Sequence[Sequence[Judgement]]) -> Table:
    """How many claims of each cell have which verdict."""
    body = []
    for place, cell in enumerate(results.readings):
        counts = Counter(row[place].verdict for row in judged)
        body.append([CELLS[cell].title, *(str(counts[verdict]) for verdict in LOOKS)])
    return Table(["cell", *LOOKS], body)


def air_table(results: Results) -> Table:
    """What the radio did: medians over seeds of what `on_air` reads off AutoFL's and Per-FedAvg's
    runs.
    """
    body = []
    for cell in results.readings:
        for arm in (AUTOFL, PER_FEDAVG, with_size(60)):

            def middle(name: str, cell: str = cell, arm: str = arm) -> float:
                return _middle(results.column(name, arm, cell))

            def percent(*names: str) -> str:
                return ", ".join(f"{100 * middle(name):.3g}" for name in names)

            cells = [
                CELLS[cell].title,
                arm,
                percent("planned", "heard"),
                f"{middle('round_time'):.3g}",
                f"{middle('samples'):.0f}",
                percent("power_share"),
                percent("samples_by_energy", "power_by_energy"),
                percent("energy_of_computing"),
            ]
            body.append(cells)
    headings = [
        "cell",
        "algorithm",
        "may send, heard [%]",
        "round [s]",
        "d",
        "p / P_max [%]",
        "d, p cut by energy [%]",
        "computing [% of energy]",
    ]
    return Table(headings, body)


def _middle(values: Array) -> float:
    there = values[~np.isnan(values)]
    return float(np.median(there)) if len(there) else math.nan


def radius_table(results: Results) -> Table:
    """Fig. 5a and 5b in numbers: who is heard at each radius, and what comes of it."""
    body = []
    for cell in results.readings:
        first, *others = CELLS[cell].radii
        for radius in (first, *others):
            arms = [AUTOFL, PER_FEDAVG]
            if radius != first:
                arms = [at_radius(arm, radius) for arm in arms]
            heard = _middle(results.column("heard", arms[0], cell))
            rounds = _middle(results.column("rounds", arms[0], cell))
            best = [f"{100 * _middle(results.column('best', arm, cell)):.1f}" for arm in arms]
            body.append(
                [CELLS[cell].title, str(radius), f"{100 * heard:.0f}", f"{rounds:.0f}", *best]
            )
    headings = [
        "cell",
        "radius [m]",
        "AutoFL's updates heard [%]",
        "K* of AutoFL",
        "best accuracy of AutoFL [%]",
        "of Per-FedAvg [%]",
    ]
    return Table(headings, body)


def budget_table(results: Results) -> Table:
    """Who can send by E_max: with the paper's, and the least that serves half and nine tenths of
    the UEs.
    """
    body = []
    for cell, by_budget in results.about["budgets"].items():
        shares = {float(budget): share for budget, share in by_budget.items()}
        texts = []
        for part in (0.5, 0.9):
            enough = [budget for budget, share in shares.items() if share >= part]
            texts.append(f"{min(enough):g} J" if enough else f"> {max(shares):g} J")
        with_papers = f"{100 * shares[min(shares)]:.0f}"
        most = f"{100 * max(shares.values()):.0f}"
        body.append([CELLS[cell].title, with_papers, *texts, most])
    headings = [
        "cell",
        "can send with the paper's 3 mJ [%]",
        "E_max for half of the UEs",
        "for 90 %",
        "can send at 50 J [%]",
    ]
    return Table(headings, body)


def about_line(results: Results) -> str:
    """Everything about the runs of the study."""
    about = results.about
    targets = ", ".join(f"{100 * target:g}" for target in about["targets"])
    return (
        f"{data_name(about)}, {about['num_selected']} of {about['num_ue']} UEs a round, {about['seeds']} seeds,"
        f" {about['rounds']} rounds, {about['scale']} scale; time is simulated, to {targets} % adapted accuracy,"
        f" geometric mean; {made_where(results)} `autofl reproduce radio --scale {about['scale']}`"
    )


def page_of(folder: Path) -> Page:
    """All that is shown of the results in a folder."""
    studies = read_results(folder, [RADIO])
    if not studies:
        raise AutoFLError(f"{folder}: no results of the study radio in it")
    results = studies[RADIO]
    judged = judge_cells(results)
    claims = claim_table(results, judged)
    tables = [claims, air_table(results), radius_table(results), budget_table(results)]
    texts = [table.markdown() for table in tables]
    blocks = {
        "radio-picture": f"![Each claim in each cell: effect, interval, verdict]({PICTURES}{RADIO}.png)",
        "radio-count": count_table(results, judged).markdown(),
        "radio-claims": texts[0],
        "radio-air": texts[1],
        "radio-radius": texts[2],
        "radio-budgets": texts[3],
        "radio-about": about_line(results),
    }
    plain: dict[str, Any] = {"about": results.about, "claims": []}
    for row in judged:
        for one, cell in zip(row, results.readings, strict=True):
            told = {
                "name": one.claim.name,
                "claim": one.claim.words,
                "figure": one.claim.where,
                "quantity": one.claim.quantity,
                "cell": cell,
                "unit": unit_of(one),
                "measured": one.measured,
                "seeds": one.telling,
                "verdict": one.verdict,
            }
            plain["claims"].append(told)
    pictures = {RADIO: partial(draw_claims, results, judged)}
    return Page("The paper's claims with real radio", HOW, pictures, blocks, tables, plain)
