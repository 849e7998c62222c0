"""The page of the paper's figures, from their results alone: pictures, tables, verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.report.results import Column, cell_text
from autofl.report.table import Table
from autofl_paper.claims import CLAIMS
from autofl_paper.curves import NUM_TARGETS, SHIFTS, derived
from autofl_paper.few_shot import adaptation_table, read_adaptation
from autofl_paper.figures import (
    DRAWN,
    LETTERS,
    draw,
    draw_sensitivity,
    draw_targets,
    heading,
    law_of,
)
from autofl_paper.page import PICTURES, Page, data_name, made_where, records
from autofl_paper.paper import FIGURES
from autofl_paper.quantities import STUDIES
from autofl_paper.readings import Judged, counts_table, help_table, judge_readings
from autofl_paper.recipes import SENSITIVITY
from autofl_paper.recipes import STUDIES as RECIPES
from autofl_paper.results import Results, Row, read_results
from autofl_paper.verdicts import (
    JUDGED,
    Above,
    Claim,
    Judgement,
    Meaning,
    View,
    corrected,
    judge,
    num_judged,
    steady,
)

HOW = """Verdicts are on the adapted model. A claim is judged on the median over seeds of its quantity, at all five
targets; the page docs/reproduction.md has the rules."""
CLAIM_HEADINGS = (
    "claim",
    "data",
    "measured",
    "median [95 %]",
    "seeds above",
    "verdict",
    "each target",
    "moved",
    "global",
)


PLAIN = (Above(), Above(rows=True))
"""The rules that the page takes for granted."""


def read_figures(folder: Path) -> dict[str, Results]:
    """The studies of the figures in a folder, with what follows from their rows and curves."""
    studies = read_results(folder, RECIPES)
    for name, study in studies.items():
        about = study.about
        rows = []
        for row in study.rows:
            more = derived(row.values, row.study, about["data"], about["targets"], row.curve)
            rows.append(replace(row, values=row.values | more))
        studies[name] = replace(study, rows=rows)
    return studies


def view_of(
    studies: Mapping[str, Results],
    adapted: Sequence[Row],
    meaning: Meaning,
    shift: int = 0,
) -> View:
    """The main studies, as claims look at them."""
    rows = list(adapted)
    for study in studies.values():
        if study.name not in SENSITIVITY:
            rows += study.rows
    return View(rows, meaning, shift)


def judge_all(
    studies: Mapping[str, Results],
    adapted: Sequence[Row] = (),
    meaning: Meaning = "adapted",
) -> list[Judgement]:
    """The verdict on every claim, from the main studies; none at smoke scale, whose numbers mean
    nothing.

    One that would be another with all targets moved by a step is inconclusive.
    """
    together = []
    num = 0
    for shift in (0, *SHIFTS):
        view = view_of(studies, adapted, meaning, shift)
        alone = [judge(claim, view) for claim in CLAIMS]
        num = num or num_judged(alone)
        together.append(corrected(alone, num))
    judged = [steady(one, others) for one, *others in zip(*together, strict=True)]

    smoke = {name for name, study in studies.items() if study.about["scale"] == "smoke"}
    for place, one in enumerate(judged):
        if smoke & set(one.claim.studies) and one.verdict in JUDGED:
            judged[place] = replace(one, verdict="smoke scale")
    return judged


def data_of(claim: Claim, studies: Mapping[str, Results]) -> str:
    """The data a claim is judged on, as they were here."""
    names = []
    for name in claim.studies:
        if name in studies and len(claim.studies) > 2:  # a claim about everything
            names.append(data_name(studies[name].about))
        elif name in studies:
            names.append(f"{data_name(studies[name].about)}, {law_of(studies[name])}")
        else:
            names.append(f"{name}: not run yet")
    return "; ".join(dict.fromkeys(names))


def figure_table(name: str, study: Results) -> Table:
    """The numbers of a figure, mean ± half a 95 % interval over seeds."""
    kind = FIGURES[name].kind
    if kind == "rounds_to_converge":
        return _axis_table(study, Column("K* [rounds]", "rounds_adapted", 1.0, 0))
    if kind == "best_accuracy":
        return _axis_table(study, Column("best [%]", "best_adapted", 100.0, 1))
    columns = _columns(kind, study)
    body = []
    for arm in study.arms:
        rows = study.rows_of(arm)
        body.append([arm, *(_cell(rows, column) for column in columns)])
    return Table(["algorithm", *(column.heading for column in columns)], body)


def _columns(kind: str, study: Results) -> list[Column]:
    if kind == "loss":
        return [
            Column("last F(w), adapted", "loss_adapted", 1.0, 3),
            Column("last f(w)", "loss_global", 1.0, 3),
        ]
    if kind == "accuracy":
        return [
            Column("best adapted [%]", "best_adapted", 100.0, 1),
            Column("best global [%]", "best_global", 100.0, 1),
            Column("K* adapted [rounds]", "rounds_adapted", 1.0, 0),
            Column("K* global [rounds]", "rounds_global", 1.0, 0),
        ]
    targets = [f"{100 * target:g} %" for target in study.about["targets"]]
    columns = []
    for k, text in enumerate(targets, 1):
        columns.append(Column(f"to {text} [s]", f"time{k}_adapted", 1.0, 1))
    return [
        *columns,
        Column("round [s]", "round_time", 1.0, 3),
        Column("updates heard [%]", "heard", 100.0, 1),
    ]


def _cell(rows: Sequence[Row], column: Column) -> str:
    """A cell over seeds; losses of runs that diverged are counted, not averaged."""
    values = np.array([row.values[column.name] for row in rows])
    if not column.name.startswith("loss_"):
        return cell_text(values, column)
    metric = column.name.removeprefix("loss_")
    apart = np.array([row.values[f"diverged_{metric}"] > 0.0 for row in rows])
    if apart.all():
        return "diverged"
    text = cell_text(values[~apart], column)
    return f"{text}; {int(apart.sum())} of {len(rows)} diverged" if apart.any() else text


def _point(rows: Sequence[Row], column: Column) -> str:
    """The mean at a point of an axis, whose interval is in the picture."""
    values = np.array([row.values[column.name] for row in rows])
    there = values[~np.isnan(values)] * column.factor
    text = f"{there.mean():.{column.digits}f}" if len(there) else "–"
    return text if len(there) == len(rows) else f"{text} ({len(there)} of {len(rows)})"


def _axis_table(study: Results, column: Column) -> Table:
    """A row for each point of the axis, a column for each algorithm, adapted model."""
    axis = "R [m]" if study.name == "radius" else "l"
    body = []
    for x in study.places:
        cells = [_point(study.rows_of(arm, x=x), column) for arm in study.arms]
        body.append([str(x), *cells])
    return Table([axis, *(f"{arm}, {column.heading}" for arm in study.arms)], body)


def claims_table(studies: Mapping[str, Results], adapted: Sequence[Row]) -> Table:
    """Claim, data, what was measured (median and interval over seeds), rule, verdict; and letters
    of the verdicts at each target alone, uncorrected, and with all targets a step lower and higher.
    """
    by_global = judge_all(studies, adapted, "global")
    view = view_of(studies, adapted, "adapted")
    body = []
    for one, other in zip(judge_all(studies, adapted), by_global, strict=True):
        alone = [judge(one.claim, view, k) for k in range(1, NUM_TARGETS + 1)]
        body.append(
            [
                one.claim.words,
                data_of(one.claim, studies),
                _asked(one.claim),
                one.measured,
                f"{one.above}/{one.telling}" if one.interval is not None else "–",
                one.verdict,
                _letters(alone) if one.claim.timed else "",
                _letters(one.moved),
                other.verdict,
            ]
        )
    return Table(CLAIM_HEADINGS, body)


def _asked(claim: Claim) -> str:
    """What is measured, and the rule where it is not "> 1"."""
    return claim.quantity if claim.rule in PLAIN else f"{claim.quantity}; {claim.rule}"


def _letters(judged: Sequence[Judgement]) -> str:
    return "".join(LETTERS.get(one.verdict, "") for one in judged)


def about_line(study: Results) -> str:
    """Data, scale, commit, machine and time of a study."""
    return f"{heading(study)}; {study.about['rounds']} rounds, {made_where(study)}"


def page_of(folder: Path, names: Sequence[str] | None) -> Page:
    """All that is shown of the results in a folder; pictures and tables of the named figures, or of
    all.
    """
    studies = read_figures(folder)
    if not studies:
        raise AutoFLError(f"{folder}: no results of a reproduction in it")
    adapted = read_adaptation(folder)
    judged = judge_all(studies, adapted)
    readings = {name: judge_readings(studies[name]) for name in SENSITIVITY if name in studies}
    tables = {}
    for name, figure in FIGURES.items():
        if figure.study in studies:
            tables[name] = figure_table(name, studies[figure.study])

    # The marked blocks of the page: always all of them, since a page is filled as a whole.
    blocks = {}
    for name, table in tables.items():
        blocks[name] = _figure_block(name, studies[FIGURES[name].study], table)
    verdicts = [one.verdict for one in judged]
    kinds = (*JUDGED, "not run yet", "smoke scale")
    blocks["claims"] = claims_table(studies, adapted).markdown()
    blocks["count"] = ", ".join(f"{verdicts.count(v)} {v}" for v in kinds if v in verdicts)
    has_targets = all(name in studies for name in STUDIES)
    if has_targets:
        blocks["targets"] = f"![Ratios of times against the target]({PICTURES}targets.png)"
    if adapted:
        blocks["adaptation"] = adaptation_table(adapted).markdown()
    for name, by_reading in readings.items():
        blocks[name] = _reading_block(studies[name], by_reading)

    # The pictures that are asked for.
    pictures: dict[str, Callable[[], Figure]] = {}
    wanted = [name for name in tables if names is None or name in names]
    for name in wanted:
        pictures[name] = partial(draw, name, studies[FIGURES[name].study])
    if has_targets and names is None:
        pictures["targets"] = partial(draw_targets, [studies[name] for name in STUDIES])
    if names is None or set(names) & set(SENSITIVITY):
        for name, by_reading in readings.items():
            title = heading(studies[name])
            for meaning in DRAWN:
                one = partial(draw_sensitivity, by_reading, meaning, title)
                pictures[f"{name}-{meaning}"] = one

    # Tables for the screen, and the same as plain values.
    shown = []
    figures = []
    for name in wanted:
        says = FIGURES[name].says
        here = heading(studies[FIGURES[name].study])
        title = f"{name}.png, the paper says: {says}; here: {here}"
        shown.append(replace(tables[name], title=title))
        plain = {"name": name, "picture": f"{name}.png", "paper": says}
        figures.append({**plain, "table": records(tables[name])})
    claims = _short_claims(judged, studies)
    return Page(
        "Reproducing the paper's figures",
        HOW,
        pictures,
        blocks,
        [*shown, claims],
        {"figures": figures, "claims": records(claims)},
    )


def _figure_block(name: str, study: Results, table: Table) -> str:
    """A figure with its numbers, and what the paper says."""
    figure = FIGURES[name]
    return (
        f"![{figure.title}]({PICTURES}{name}.png)\n\n{table.markdown()}\n\n"
        f"The paper: {figure.says}. Here: {heading(study)}."
    )


def _short_claims(judged: Sequence[Judgement], studies: Mapping[str, Results]) -> Table:
    """The claims whose runs are there, as a screen shows them."""
    body = []
    for one in judged:
        if one.interval is not None:
            data = data_of(one.claim, studies)
            body.append([one.claim.name, one.claim.words, data, one.measured, one.verdict])
    return Table(["name", "claim", "data", "measured", "verdict"], body)


def _reading_block(study: Results, judged: Judged) -> str:
    parts = []
    for meaning in DRAWN:
        parts.append(f"![Claims by readings, {meaning}]({PICTURES}{study.name}-{meaning}.png)")
    parts.append(counts_table(judged).markdown())
    parts.append(f"{' / '.join(JUDGED)}. {about_line(study)}")
    if study.name == "sensitivity-cifar10":
        parts.append(help_table(study).markdown())
    return "\n\n".join(parts)
