"""The report of a reproduction, from its results alone: pictures, tables, verdicts, and the marked blocks of a page."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autofl.errors import AutoFLError
from autofl.report.plots import save
from autofl.report.summary import Column, cell_text
from autofl.report.table import Table
from autofl.reproduction.claims import CLAIMS
from autofl.reproduction.figures import draw, draw_sensitivity, heading
from autofl.reproduction.paper import FIGURES
from autofl.reproduction.reasons import why_not
from autofl.reproduction.recipes import SENSITIVITY
from autofl.reproduction.results import Row, Study, read_results
from autofl.reproduction.verdicts import MEANINGS, Claim, Judgement, Meaning, View, judge

BLOCK = "<!-- {name} -->\n{text}\n<!-- end {name} -->"


def judge_all(studies: dict[str, Study], meaning: Meaning = "adapted") -> list[Judgement]:
    """The verdict on every claim, from the main studies."""
    rows = [row for study in studies.values() if study.name not in SENSITIVITY for row in study.rows]
    return _judge_rows(rows, meaning)


def _judge_rows(rows: list[Row], meaning: Meaning) -> list[Judgement]:
    view = View(rows, meaning)
    return [judge(claim, view) for claim in CLAIMS]


def readings_of(studies: dict[str, Study]) -> list[Row]:
    """The rows of the sensitivity study, of both data sets."""
    return [row for name in SENSITIVITY if name in studies for row in studies[name].rows]


def judge_readings(rows: Sequence[Row]) -> dict[tuple[str, str], list[Judgement]]:
    """By reading and meaning of accuracy, the verdicts on the claims that the sensitivity study can judge."""
    readings = list(dict.fromkeys(row.reading for row in rows))
    judged = {
        (reading, meaning): _judge_rows([row for row in rows if row.reading == reading], meaning)
        for reading in readings
        for meaning in MEANINGS
    }
    measured = {
        judgement.claim.name for verdicts in judged.values() for judgement in verdicts if judgement.interval is not None
    }
    return {key: _on_claims(measured, verdicts) for key, verdicts in judged.items()}


def _on_claims(names: set[str], verdicts: list[Judgement]) -> list[Judgement]:
    return [judgement for judgement in verdicts if judgement.claim.name in names]


@dataclass(frozen=True)
class Line:
    """A line of the summary: a figure, where its picture is, what the paper says and what was measured."""

    figure: str
    picture: Path
    says: str
    measured: str


def figure_table(name: str, study: Study) -> Table:
    """The numbers of a figure, mean ± half a 95 % interval over seeds."""
    kind = FIGURES[name].kind
    if kind in ("rounds_to_converge", "best_accuracy"):
        return _axis_table(study, kind)
    target = f"{100 * study.about['target_accuracy']:g} %"
    columns = {
        "learning_time": [
            Column(f"time to {target} adapted [s]", "time_adapted", 1.0, 1),
            Column(f"time to {target} global [s]", "time_global", 1.0, 1),
            Column("round [s]", "round_time", 1.0, 3),
            Column("updates heard [%]", "heard", 100.0, 1),
        ],
        "loss": [Column("last F(w), adapted", "loss_adapted", 1.0, 3), Column("last f(w)", "loss_global", 1.0, 3)],
        "accuracy": [
            Column("best adapted [%]", "best_adapted", 100.0, 1),
            Column("best global [%]", "best_global", 100.0, 1),
            Column("K* adapted [rounds]", "rounds_adapted", 1.0, 0),
            Column("K* global [rounds]", "rounds_global", 1.0, 0),
        ],
    }[kind]
    body = []
    for arm in study.arms():
        rows = [row for row in study.rows if row.arm == arm]
        cells = [cell_text(np.array([row.values[c.name] for row in rows]), c) for c in columns]
        body.append([arm, *cells])
    return Table(["algorithm", *(column.heading for column in columns)], body)


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
        cells = []
        for arm in study.arms():
            rows = [row for row in study.rows if row.arm == arm and row.x == x]
            cells.append(cell_text(np.array([row.values[column.name] for row in rows]), column))
        body.append([str(x), *cells])
    return Table([axis, *(f"{arm}, {column.heading}" for arm in study.arms())], body)


def claims_table(studies: dict[str, Study]) -> Table:
    """Claim, where, what was measured (median and interval over seeds), rule, verdict, for global too, and why not."""
    verdicts = zip(judge_all(studies), judge_all(studies, "global"), strict=True)
    body = [_claim_row(adapted, by_global.verdict) for adapted, by_global in verdicts]
    heading = ["claim", "where", "what is measured", "median [interval]", "rule", "verdict", "with global accuracy"]
    return Table([*heading, "why not"], body)


def _claim_row(adapted: Judgement, by_global: str) -> list[str]:
    claim = adapted.claim
    return [*_told(claim), adapted.measured, str(claim.rule), adapted.verdict, by_global, _why(adapted)]


def _why(judged: Judgement) -> str:
    return why_not(judged.claim.name) if judged.verdict in ("partly", "does not hold") else ""


def _told(claim: Claim) -> tuple[str, str, str]:
    return claim.words, claim.where, claim.quantity


def sensitivity_table(rows: Sequence[Row]) -> Table:
    """For each reading how many of the claims hold, hold partly, do not hold, by the accuracy that is meant."""
    judged = judge_readings(rows)
    body = []
    for reading in dict.fromkeys(reading for reading, _ in judged):
        counts = []
        for meaning in MEANINGS:
            verdicts = [judgement.verdict for judgement in judged[reading, meaning]]
            counts.append(" / ".join(str(verdicts.count(v)) for v in ("holds", "partly", "does not hold")))
        body.append([reading, *counts])
    return Table(["reading", "adapted", "global", "MAML adapted, FedAvg global"], body)


def sensitivity_words(rows: Sequence[Row]) -> str:
    """Which reading makes most claims true, and which claims no reading makes true."""
    judged = judge_readings(rows)
    score = {key: sum(judgement.verdict == "holds" for judgement in verdicts) for key, verdicts in judged.items()}
    best = max(score, key=lambda key: score[key])
    total = sum(judgement.verdict != "not measured" for judgement in judged[best])
    names = [judgement.claim for judgement in judged[best]]
    never = [
        claim.words
        for place, claim in enumerate(names)
        if all(verdicts[place].verdict != "holds" for verdicts in judged.values())
    ]
    always = [
        claim.words
        for place, claim in enumerate(names)
        if all(verdicts[place].verdict in ("holds", "not measured") for verdicts in judged.values())
    ]
    meaning = {"mixed": "MAML judged adapted and FedAvg global"}.get(best[1], f"{best[1]} accuracy")
    words = (
        f'Most claims hold under the reading "{best[0]}" with {meaning}: {score[best]} of {total}.'
        if score[best] < total
        else f'All {total} claims hold under the reading "{best[0]}" with {meaning}.'
    )
    words += f" Under every reading: {'; '.join(always) or 'none'}. Under no reading: {'; '.join(never) or 'none'}."
    return words


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


def blocks(studies: dict[str, Study], pictures: str) -> dict[str, str]:
    """The generated parts of the page by name; `pictures` is the path from the page to the pictures."""
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
    texts["claims"] = claims_table(studies).markdown()
    counts = [judgement.verdict for judgement in judge_all(studies)]
    texts["count"] = ", ".join(
        f"{counts.count(verdict)} {verdict}"
        for verdict in ("holds", "partly", "does not hold", "not measured")
        if verdict in counts
    )
    if rows := readings_of(studies):
        made = " ".join(about_line(studies[name]) for name in SENSITIVITY if name in studies)
        texts["sensitivity"] = (
            f"![Claims by readings]({pictures}sensitivity.png)\n\n{sensitivity_words(rows)}\n\n"
            f"{sensitivity_table(rows).markdown()}\n\nHolds / partly / does not hold. {made}"
        )
    return texts


def fill(page: str, texts: dict[str, str]) -> str:
    """A page with its marked blocks replaced; a block without results says so."""

    def filled(match: re.Match[str]) -> str:
        name = match.group(1)
        return BLOCK.format(name=name, text=texts.get(name, "Not measured yet."))

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end \1 -->", filled, page, flags=re.DOTALL)


def report(folder: Path, out: Path, page: Path | None = None, names: Sequence[str] | None = None) -> list[Line]:
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
    rows = readings_of(studies)
    if rows and (names is None or set(names) & set(SENSITIVITY)):
        title = "; ".join(heading(studies[name]) for name in SENSITIVITY if name in studies)
        pictures = save(draw_sensitivity(judge_readings(rows), title), out / "sensitivity")
        lines.append(Line("sensitivity", pictures[0], "leaves them open", sensitivity_words(rows).split(".")[0]))
    parts = blocks(studies, "")
    (out / "report.md").write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items()) + "\n", "utf-8")
    if page is not None:
        way = Path(os.path.relpath(out.resolve(), page.parent.resolve())).as_posix()
        filled = fill(page.read_text(encoding="utf-8"), blocks(studies, f"{way}/"))
        page.write_text(filled, encoding="utf-8")
    return lines


def _shortly(name: str, study: Study) -> str:
    """The first numbers of a figure's table in one line."""
    table = figure_table(name, study)
    if FIGURES[name].kind in ("rounds_to_converge", "best_accuracy"):
        first, last = table.rows[0], table.rows[-1]
        return f"AutoFL {first[1]} at {table.headings[0]} = {first[0]}, {last[1]} at {last[0]}"
    return f"{table.headings[1]}: " + ", ".join(f"{row[0]} {row[1]}" for row in table.rows)
