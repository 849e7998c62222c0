"""The page of the study `radio`, from its results alone: one picture, verdicts, and what the radio
did.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.report.about import DATA_NAMES
from autofl.report.plots import figure_of, save
from autofl.report.table import Table
from autofl_paper.joint_results import JointStudy
from autofl_paper.page import fill
from autofl_paper.radio import CELLS, RADIO, with_size
from autofl_paper.radio_claims import (
    AUTOFL,
    MARGIN,
    PER_FEDAVG,
    Finding,
    Unit,
    Verdict,
    judge_all,
)
from autofl_paper.radio_results import read_radio

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


def draw_claims(study: JointStudy) -> Figure:
    """Every claim in every cell: effect and interval in the colour of the verdict, the margin of a
    tie shaded.
    """
    findings = list(judge_all(study).values())
    blocks: dict[Unit, list[list[Finding]]] = {
        unit: [row for row in findings if row[0].claim.unit == unit] for unit in MARGIN
    }
    cells = [finding.cell for finding in findings[0]]
    with figure_of(3.0 + 2.1 * len(cells), 2.0 + 0.24 * len(findings)) as figure:
        heights = [len(rows) for rows in blocks.values()]
        panels = figure.subplots(
            2, len(cells), sharey="row", squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for axes_of_block, (unit, rows) in zip(panels, blocks.items(), strict=True):
            for place, axes in enumerate(axes_of_block):
                _draw_block(axes, unit, [row[place] for row in rows])
            axes_of_block[0].set_yticks(
                range(len(rows)), [_words(row[0]) for row in rows], fontsize=7.5
            )
        for axes, cell in zip(panels[0], cells, strict=True):
            axes.set_title(CELLS[cell].title, fontsize=9)
        for verdict, (colour, marker) in LOOKS.items():
            panels[0][0].plot([], [], marker, color=colour, label=verdict)
        figure.legend(
            *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4
        )
        return figure


def _words(finding: Finding) -> str:
    return f"{finding.claim.words}  {finding.claim.figure}"


def _draw_block(axes: Axes, unit: Unit, findings: Sequence[Finding]) -> None:
    left, right = LIMITS[unit]
    axes.axvspan(-MARGIN[unit], MARGIN[unit], color="#E69F00", alpha=0.2, linewidth=0)
    axes.axvline(0.0, color="black", linewidth=0.6)
    for y, finding in enumerate(findings):
        if not finding.seeds:
            axes.text(0.0, y, "target not reached", ha="center", va="center", fontsize=6)
            continue
        colour, marker = LOOKS[finding.verdict]
        if not math.isnan(finding.low):
            axes.plot(
                np.clip([finding.low, finding.high], left, right),
                [y, y],
                color=colour,
                linewidth=1.4,
            )
        axes.plot(
            np.clip(finding.effect, left, right),
            y,
            marker,
            color=colour,
            markersize=5,
            clip_on=False,
        )
    axes.set_xlim(left, right)
    axes.set_ylim(len(findings) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="x", labelsize=7)
    if unit == "ratio":
        axes.set_xticks([math.log(tick) for tick in TICKS], [f"{tick:g}" for tick in TICKS])
        axes.set_xlabel("ratio", fontsize=8)
    else:
        axes.set_xlabel("points of accuracy", fontsize=8)


def claim_table(study: JointStudy) -> Table:
    """Every claim: effect, interval and verdict in each cell."""
    findings = judge_all(study)
    cells = [CELLS[finding.cell].title for finding in next(iter(findings.values()))]
    body = [
        [
            row[0].claim.words,
            row[0].claim.figure,
            row[0].claim.quantity,
            *(f"{x} {x.verdict}" for x in row),
        ]
        for row in findings.values()
    ]
    return Table(["claim", "Fig.", "what is measured", *cells], body)


def count_table(study: JointStudy) -> Table:
    """How many claims of each cell have which verdict."""
    columns = zip(*judge_all(study).values(), strict=True)
    body = []
    for findings in columns:
        counts = Counter(finding.verdict for finding in findings)
        body.append([CELLS[findings[0].cell].title, *(str(counts[verdict]) for verdict in LOOKS)])
    return Table(["cell", *LOOKS], body)


def air_table(study: JointStudy) -> Table:
    """What the radio did: medians over seeds of what `on_air` reads off AutoFL's and Per-FedAvg's
    runs.
    """
    headings = ["cell", "algorithm", "SNR at P_max, quartiles [dB]", "may send, heard [%]", "round [s]",
                "computing, sending, receiving [% of a round]", "d", "p / P_max [%]", "d, p cut by energy [%]",
                "computing [% of energy]"]  # fmt: skip
    body = []
    for cell in dict.fromkeys(row.condition for row in study.rows):
        for arm in (AUTOFL, PER_FEDAVG, with_size(60)):
            rows = [row.values for row in study.rows_of(arm, cell)]
            middle = {name: _middle([values[name] for values in rows]) for name in rows[0]}
            percent = {name: f"{100 * value:.3g}" for name, value in middle.items()}
            body.append(
                [
                    CELLS[cell].title,
                    arm,
                    ", ".join(f"{middle[f'snr_{q}']:.1f}" for q in (25, 50, 75)),
                    f"{percent['planned']}, {percent['heard']}",
                    f"{middle['round_time']:.3g}",
                    ", ".join(percent[name] for name in ("computing", "sending", "receiving")),
                    f"{middle['samples']:.0f}",
                    percent["power_share"],
                    f"{percent['samples_by_energy']}, {percent['power_by_energy']}",
                    percent["energy_of_computing"],
                ]
            )
    return Table(headings, body)


def _middle(values: Sequence[float]) -> float:
    there = [value for value in values if not math.isnan(value)]
    return float(np.median(there)) if there else math.nan


def radius_table(study: JointStudy) -> Table:
    """Fig. 5a and 5b in numbers: who is heard at each radius, and what comes of it."""
    headings = ["cell", "radius [m]", "AutoFL's updates heard [%]", "K* of AutoFL", "best accuracy of AutoFL [%]",
                "of Per-FedAvg [%]"]  # fmt: skip
    body = []
    for cell in dict.fromkeys(row.condition for row in study.rows):
        for place, radius in enumerate(CELLS[cell].radii):
            arms = [
                name if not place else f"{name}, R = {radius} m" for name in (AUTOFL, PER_FEDAVG)
            ]
            auto, per = ([row.values for row in study.rows_of(arm, cell)] for arm in arms)
            body.append(
                [
                    CELLS[cell].title,
                    str(radius),
                    f"{100 * _middle([v['heard'] for v in auto]):.0f}",
                    f"{_middle([v['rounds'] for v in auto]):.0f}",
                    *(f"{100 * _middle([v['best'] for v in arm]):.1f}" for arm in (auto, per)),
                ]
            )
    return Table(headings, body)


def budget_table(study: JointStudy) -> Table:
    """Who can send by E_max: with the paper's, and the least that serves half and nine tenths of
    the UEs.
    """
    body = []
    for cell, told in study.about["budgets"].items():
        shares = {float(budget): share for budget, share in told.items()}
        least = [
            min((b for b, share in shares.items() if share >= part), default=None)
            for part in (0.5, 0.9)
        ]
        texts = [f"> {max(shares):g} J" if budget is None else f"{budget:g} J" for budget in least]
        body.append(
            [
                CELLS[cell].title,
                f"{100 * shares[min(shares)]:.0f}",
                *texts,
                f"{100 * max(shares.values()):.0f}",
            ]
        )
    return Table(
        [
            "cell",
            "can send with the paper's 3 mJ [%]",
            "E_max for half of the UEs",
            "for 90 %",
            "can send at 50 J [%]",
        ],
        body,
    )


def about_line(study: JointStudy) -> str:
    about = study.about
    data = DATA_NAMES.get(str(about["data"]), str(about["data"]))
    targets = ", ".join(f"{100 * target:g}" for target in about["targets"])
    return (
        f"{data}, {about['num_selected']} of {about['num_ue']} UEs a round, {about['seeds']} seeds, {about['rounds']}"
        f" rounds, {about['scale']} scale; time is simulated, to {targets} % adapted accuracy, geometric mean;"
        f" {about['runs']} runs in {about['seconds'] / 60:.0f} min ({about['device']}, {about['cores']} cores, PyTorch"
        f" {about['torch']}), commit {str(about['commit'] or 'unknown')[:10]}."
        f" `autofl reproduce radio --scale {about['scale']}`"
    )


def blocks(study: JointStudy, pictures: str) -> dict[str, str]:
    """The generated parts of the page by name; `pictures` is the path from the page to the picture."""
    return {
        "radio-picture": f"![Each claim in each cell: effect, interval, verdict]({pictures}{RADIO}.png)",
        "radio-count": count_table(study).markdown(),
        "radio-claims": claim_table(study).markdown(),
        "radio-air": air_table(study).markdown(),
        "radio-radius": radius_table(study).markdown(),
        "radio-budgets": budget_table(study).markdown(),
        "radio-about": about_line(study),
    }


def plain_results(study: JointStudy) -> dict[str, Any]:
    """Claims and tables as plain values."""
    return {
        "about": study.about,
        "claims": [
            {"name": x.claim.name, "claim": x.claim.words, "figure": x.claim.figure, "quantity": x.claim.quantity,
             "cell": x.cell, "unit": x.claim.unit, "measured": str(x), "seeds": x.seeds, "verdict": x.verdict}
            for row in judge_all(study).values() for x in row
        ],
    }  # fmt: skip


def report_radio(folder: Path, out: Path, page: Path | None = None) -> list[Path]:
    """Draw the picture, write report.md and tables.json, fill a page. Returns the files."""
    study = read_radio(folder)
    if page is not None and not page.is_file():
        raise AutoFLError(f"{page}: no such page")
    out.mkdir(parents=True, exist_ok=True)
    files = save(draw_claims(study), out / RADIO)
    texts = blocks(study, "")
    text = "\n\n".join(["# The paper's claims with real radio", *texts.values(), HOW])
    write_whole(out / "report.md", text + "\n", sync=False)
    tables = json.dumps(plain_results(study), indent=1, ensure_ascii=False)
    write_whole(out / "tables.json", tables + "\n", sync=False)
    if page is not None:
        way = Path(os.path.relpath(out.resolve(), page.parent.resolve())).as_posix()
        filled = fill(page.read_text(encoding="utf-8"), blocks(study, f"{way}/"))
        write_whole(page.resolve(), filled)
    return [*files, out / "report.md", out / "tables.json"]
