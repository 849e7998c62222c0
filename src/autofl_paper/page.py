"""The report of a reproduction, from its results alone: pictures, tables, verdicts, and the marked
blocks of a page.
"""

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.report.plots import save
from autofl.report.results import Column, cell_text
from autofl.report.table import Table
from autofl_paper.adaptation_page import adaptation_table, rows_of
from autofl_paper.claims import CLAIMS
from autofl_paper.curves import NUM_TARGETS, SHIFTS
from autofl_paper.few_shot import Adapted, read_adaptation
from autofl_paper.figures import (
    DRAWN,
    LETTERS,
    data_name,
    draw,
    draw_sensitivity,
    draw_targets,
    heading,
    law_of,
)
from autofl_paper.paper import FIGURES
from autofl_paper.quantities import STUDIES
from autofl_paper.readings import counts_table, help_table, judge_readings, words_on
from autofl_paper.reasons import why_not
from autofl_paper.recipes import SENSITIVITY
from autofl_paper.results import Row, Study, read_results
from autofl_paper.verdicts import (
    JUDGED,
    Claim,
    Judgement,
    KStar,
    Meaning,
    View,
    corrected,
    judge,
    num_judged,
    steady,
)

CLAIM_HEADINGS = [
    "claim", "data", "where", "what is measured", "median [95 % interval]", "seeds above", "rule", "p (corrected)",
    "verdict", "at each target, or otherwise", "with global accuracy", "why not",
]  # fmt: skip
WORDS_BEFORE = {"holds": "supported", "partly": "partly", "does not hold": "refuted"}
OTHER_KSTAR: dict[KStar, str] = {"quiet": "20 quiet rounds", "plateau": "1 point from the end"}
"""Other definitions of K*, as the page names them."""
BLOCK = "<!-- {name} -->\n{text}\n<!-- end {name} -->"


def view_of(
    studies: dict[str, Study],
    adapted: Sequence[Adapted],
    meaning: Meaning,
    kstar: KStar = "rounds",
    shift: int = 0,
) -> View:
    """The main studies, as claims look at them."""
    rows = [
        row for study in studies.values() if study.name not in SENSITIVITY for row in study.rows
    ]
    return View([*rows, *rows_of(adapted)], meaning, kstar, shift)


def judge_all(
    studies: dict[str, Study],
    adapted: Sequence[Adapted] = (),
    meaning: Meaning = "adapted",
    kstar: KStar = "rounds",
) -> list[Judgement]:
    """The verdict on every claim, from the main studies; none at smoke scale, whose numbers mean
    nothing.

    One that would be another with all targets moved by a step is inconclusive.
    """
    alone = {
        shift: [judge(claim, view_of(studies, adapted, meaning, kstar, shift)) for claim in CLAIMS]
        for shift in (0, *SHIFTS)
    }
    together = [corrected(judged, num_judged(alone[0])) for judged in alone.values()]
    judged = [steady(one, others) for one, *others in zip(*together, strict=True)]
    smoke = {name for name, study in studies.items() if study.about["scale"] == "smoke"}
    return [
        replace(one, verdict="smoke scale")
        if smoke & set(one.claim.studies) and one.verdict in JUDGED
        else one
        for one in judged
    ]


def data_of(claim: Claim, studies: dict[str, Study]) -> str:
    """The data a claim is judged on, as they were here."""
    names = [
        f"{data_name(studies[name].about)}, {law_of(studies[name])}"
        if name in studies
        else f"{name}: not run yet"
        for name in claim.studies
    ]
    return "; ".join(dict.fromkeys(names))


@dataclass(frozen=True)
class Line:
    """A line of the summary: a figure, where its picture is, what the paper says and what was
    measured.
    """

    figure: str
    picture: Path
    says: str
    measured: str


def figure_table(name: str, study: Study) -> Table:
    """The numbers of a figure, mean ± half a 95 % interval over seeds."""
    kind = FIGURES[name].kind
    if kind in ("rounds_to_converge", "best_accuracy"):
        return _axis_table(study, kind)
    targets = [f"{100 * target:g} %" for target in study.about["targets"]]
    columns = {
        "learning_time": [
            *(
                Column(f"time to {text} [s]", f"time{k}_adapted", 1.0, 1)
                for k, text in enumerate(targets, 1)
            ),
            Column(f"to {targets[3]}, global [s]", "time4_global", 1.0, 1),
            Column("round [s]", "round_time", 1.0, 3),
            Column("updates heard [%]", "heard", 100.0, 1),
        ],
        "loss": [
            Column("last F(w), adapted", "loss_adapted", 1.0, 3),
            Column("last f(w)", "loss_global", 1.0, 3),
        ],
        "accuracy": [
            Column("best adapted [%]", "best_adapted", 100.0, 1),
            Column("best global [%]", "best_global", 100.0, 1),
            Column("K* adapted [rounds]", "rounds_adapted", 1.0, 0),
            Column("K* global [rounds]", "rounds_global", 1.0, 0),
            *(
                Column(f"{words}, adapted", f"{kstar}_adapted", 1.0, 0)
                for kstar, words in OTHER_KSTAR.items()
            ),
        ],
    }[kind]
    body = []
    for arm in study.arms():
        rows = [row for row in study.rows if row.arm == arm]
        body.append([arm, *(_cell(rows, column) for column in columns)])
    return Table(["algorithm", *(column.heading for column in columns)], body)


def _cell(rows: Sequence[Row], column: Column) -> str:
    """A cell over seeds; losses of runs that diverged are counted, not averaged."""
    values = np.array([row.values[column.name] for row in rows])
    if not column.name.startswith("loss_"):
        return cell_text(values, column)
    apart = np.array(
        [row.values[f"diverged_{column.name.removeprefix('loss_')}"] > 0.0 for row in rows]
    )
    if not apart.any():
        return cell_text(values, column)
    count = "diverged" if apart.all() else f"{int(apart.sum())} of {len(rows)} diverged"
    return count if apart.all() else f"{cell_text(values[~apart], column)}; {count}"


def _axis_table(study: Study, kind: str) -> Table:
    """A row for each point of the axis, a column for each algorithm, adapted model."""
    column = (
        Column("K* [rounds]", "rounds_adapted", 1.0, 0)
        if kind == "rounds_to_converge"
        else Column("best [%]", "best_adapted", 100.0, 1)
    )
    axis = "R [m]" if study.name == "radius" else "l"
    body = []
    for x in sorted({row.x for row in study.rows}):
        members = [
            [row for row in study.rows if row.arm == arm and row.x == x] for arm in study.arms()
        ]
        body.append([str(x), *(_cell(rows, column) for rows in members)])
    return Table([axis, *(f"{arm}, {column.heading}" for arm in study.arms())], body)


def claims_table(studies: dict[str, Study], adapted: Sequence[Adapted]) -> Table:
    """Claim, data, what was measured (median and interval over seeds), rule, verdict, what it
    depends on, why not.
    """
    main, by_global = (judge_all(studies, adapted, meaning) for meaning in ("adapted", "global"))
    others = zip(*(judge_all(studies, adapted, kstar=kstar) for kstar in OTHER_KSTAR), strict=True)
    view, global_view = (view_of(studies, adapted, meaning) for meaning in ("adapted", "global"))
    body = []
    for one, other, by_kstar in zip(main, by_global, others, strict=True):
        claim = one.claim
        judged = one.verdict in JUDGED
        body.append(
            [
                claim.words,
                data_of(claim, studies),
                claim.where,
                claim.quantity,
                one.measured,
                f"{one.above} of {one.telling}" if one.interval is not None else "–",
                str(claim.rule),
                f"{one.evidence.least:.2g}" if one.interval is not None else "–",
                one.verdict,
                _hangs_on(one, by_kstar, view),
                other.verdict,
                _reason(one, view, global_view) if judged and one.verdict != "supported" else "",
            ]
        )
    return Table(CLAIM_HEADINGS, body)


def _reason(one: Judgement, view: View, global_view: View) -> str:
    """Why a claim is not supported."""
    if one.hangs_on_targets:
        return f"measured: {one.evidence.verdict} at these targets, but not at others"
    return why_not(one.claim, view, global_view)


def _hangs_on(one: Judgement, by_kstar: Sequence[Judgement], view: View) -> str:
    """The verdict at each of the five targets, uncorrected; with all of them moved by a step; by
    other definitions of K*; what is left without l = 1.
    """
    if one.verdict not in JUDGED:
        return ""
    words = []
    if one.claim.timed:
        words.append(
            " ".join(LETTERS[judge(one.claim, view, k).verdict] for k in range(1, NUM_TARGETS + 1))
        )
    if one.moved:
        words.append(
            f"moved: {', '.join(f'{other.measured}, {other.verdict}' for other in one.moved)}"
        )
    words += [
        f"{name}: {old.measured}, {old.verdict}"
        for name, old in zip(OTHER_KSTAR.values(), by_kstar, strict=True)
        if old.interval != one.interval
    ]
    if one.claim.studies == ("labels",):
        words.append(f"without l = 1: {judge(one.claim, view.without('labels', 1)).measured}")
    return "; ".join(words)


def changes_table(judged: Sequence[Judgement], before: dict[str, tuple[str, str]]) -> Table:
    """Claims that were judged before: the verdict then and the verdict now."""
    body = [
        [
            one.claim.words,
            ", ".join(one.claim.studies),
            *before[one.claim.name],
            one.measured,
            one.verdict,
        ]
        for one in judged
        if one.claim.name in before and WORDS_BEFORE[before[one.claim.name][1]] != one.verdict
    ]
    return Table(["claim", "study", "before", "verdict before", "measured", "verdict"], body)


def read_before(folder: Path) -> dict[str, tuple[str, str]]:
    """What the page said at one target, by claim: what was measured, and the verdict."""
    path = folder / "before.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {line["claim"]: (line["measured"], line["verdict"]) for line in csv.DictReader(file)}


def about_line(study: Study) -> str:
    """Data, scale, commit, machine and time of a study."""
    about = study.about
    commit = str(about["commit"] or "unknown")[:10]
    return (
        f"{heading(study)}; {about['rounds']} rounds, {about['runs']} runs in {_duration(about['seconds'])}"
        f" ({about['device']}, {about['cores']} cores, PyTorch {about['torch']}), commit {commit}."
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def blocks(folder: Path, studies: dict[str, Study], pictures: str) -> dict[str, str]:
    """The generated parts of the page by name; `pictures` is the path from the page to the
    pictures.
    """
    adapted = read_adaptation(folder)
    texts = {}
    for name, shown in FIGURES.items():
        if shown.study not in studies:
            continue
        study = studies[shown.study]
        texts[name] = (
            f"![{shown.title}]({pictures}{name}.png)\n\n{figure_table(name, study).markdown()}\n\n"
            f"The paper: {shown.says}. Here: {about_line(study)}"
            f" `autofl reproduce {name} --scale {study.about['scale']}`"
        )
    judged = judge_all(studies, adapted)
    texts["claims"] = claims_table(studies, adapted).markdown()
    verdicts = [one.verdict for one in judged]
    texts["count"] = ", ".join(
        f"{verdicts.count(v)} {v}" for v in (*JUDGED, "not run yet", "smoke scale") if v in verdicts
    )
    if all(name in studies for name in STUDIES):
        texts["targets"] = f"![Ratios of times against the target]({pictures}targets.png)"
    if adapted:
        texts["adaptation"] = adaptation_table(adapted).markdown()
    if before := read_before(folder):
        texts["changes"] = changes_table(judged, before).markdown()
    for name in SENSITIVITY:
        if name in studies:
            texts[name] = _reading_block(studies[name], pictures)
    return texts


def _reading_block(study: Study, pictures: str) -> str:
    judged = judge_readings(study)
    parts = [
        f"![Claims by readings, {meaning}]({pictures}{study.name}-{meaning}.png)"
        for meaning in DRAWN
    ]
    parts += [words_on(judged, data_name(study.about)), counts_table(judged).markdown()]
    parts += [f"{' / '.join(JUDGED)}. {about_line(study)}"]
    if study.name == "sensitivity-cifar10":
        parts += [help_table(study).markdown()]
    return "\n\n".join(parts)


def fill(page: str, texts: dict[str, str]) -> str:
    """A page with its marked blocks replaced; a block without results says so."""

    def filled(match: re.Match[str]) -> str:
        name = match.group(1)
        return BLOCK.format(name=name, text=texts.get(name, "Not measured yet."))

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end \1 -->", filled, page, flags=re.DOTALL)


def report(
    folder: Path, out: Path, page: Path | None = None, names: Sequence[str] | None = None
) -> list[Line]:
    """Draw the named figures, or every figure whose study is there; write report.md, fill the page.

    Returns what the summary shows of the figures that were drawn.
    """
    studies = read_results(folder)
    if not studies:
        raise AutoFLError(f"{folder}: no results of a reproduction in it")
    if page is not None and not page.is_file():
        raise AutoFLError(f"{page}: no such page")
    out.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, shown in FIGURES.items():
        if shown.study in studies and (names is None or name in names):
            pictures = save(draw(name, studies[shown.study]), out / name)
            lines.append(Line(name, pictures[0], shown.says, _shortly(name, studies[shown.study])))
    if names is None and all(name in studies for name in STUDIES):
        save(draw_targets([studies[name] for name in STUDIES]), out / "targets")
    for name in SENSITIVITY:
        if name in studies and (names is None or set(names) & set(SENSITIVITY)):
            judged = judge_readings(studies[name])
            for meaning in DRAWN:
                pictures = save(
                    draw_sensitivity(judged, meaning, heading(studies[name])),
                    out / f"{name}-{meaning}",
                )
            words = words_on(judged, data_name(studies[name].about)).split(".")[0]
            lines.append(Line(name, pictures[0], "leaves them open", words))
    parts = blocks(folder, studies, "")
    text = "\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items()) + "\n"
    write_whole(out / "report.md", text, sync=False)
    if page is not None:
        way = Path(os.path.relpath(out.resolve(), page.parent.resolve())).as_posix()
        filled = fill(page.read_text(encoding="utf-8"), blocks(folder, studies, f"{way}/"))
        write_whole(page.resolve(), filled)
    return lines


def _shortly(name: str, study: Study) -> str:
    """The first numbers of a figure's table in one line."""
    table = figure_table(name, study)
    if FIGURES[name].kind in ("rounds_to_converge", "best_accuracy"):
        first = table.rows[0]
        last = table.rows[-1]
        return f"AutoFL {first[1]} at {table.headings[0]} = {first[0]}, {last[1]} at {last[0]}"
    return f"{table.headings[1]}: " + ", ".join(f"{row[0]} {row[1]}" for row in table.rows)
