"""What other readings of the paper do to its claims: verdicts by reading, counts, and what helps on
CIFAR-10.

A reading is judged by the same rules as the main runs, but with fewer seeds and without the
correction for many claims: it shows what a verdict depends on, and decides none.
"""

from collections.abc import Sequence

import numpy as np

from autofl.report.table import Table
from autofl_paper.claims import CLAIMS
from autofl_paper.results import Study
from autofl_paper.verdicts import JUDGED, MEANINGS, Judgement, View, judge

Judged = dict[tuple[str, str], list[Judgement]]
"""By reading and meaning of accuracy."""
HELP = ("AutoFL", "Per-FedAvg", "FedAvg-2")


def judge_readings(study: Study) -> Judged:
    """The verdicts on the claims that a sensitivity study can judge, each alone."""
    judged: Judged = {}
    for reading in dict.fromkeys(row.reading for row in study.rows):
        rows = [row for row in study.rows if row.reading == reading]
        for meaning in MEANINGS:
            view = View(rows, meaning)
            judged[reading, meaning] = [
                judge(claim, view) for claim in CLAIMS if not claim.main_only
            ]
    measured = {
        one.claim.name
        for verdicts in judged.values()
        for one in verdicts
        if one.interval is not None
    }
    return {
        key: [one for one in verdicts if one.claim.name in measured]
        for key, verdicts in judged.items()
    }


def counts_table(judged: Judged) -> Table:
    """For each reading how many of the claims are supported, a tie, refuted, inconclusive, by the
    accuracy meant.
    """
    body = []
    for reading in dict.fromkeys(reading for reading, _ in judged):
        cells = []
        for meaning in MEANINGS:
            verdicts = [one.verdict for one in judged[reading, meaning]]
            cells.append(" / ".join(str(verdicts.count(verdict)) for verdict in JUDGED))
        body.append([reading, *cells])
    return Table(["reading", "adapted", "global", "MAML adapted, FedAvg global"], body)


def words_on(judged: Judged, data: str) -> str:
    """Which reading supports most claims, and which claims no reading supports."""
    score = {
        key: sum(one.verdict == "supported" for one in verdicts) for key, verdicts in judged.items()
    }
    best = max(score, key=lambda key: score[key])
    claims = [one.claim for one in judged[best]]

    def named(verdicts: Sequence[str]) -> str:
        names = [
            f"{claim.words} ({', '.join(claim.studies)})"
            for place, claim in enumerate(claims)
            if all(column[place].verdict in verdicts for column in judged.values())
        ]
        return "; ".join(names) or "none"

    meaning = {"mixed": "MAML judged adapted and FedAvg global"}.get(best[1], f"{best[1]} accuracy")
    return (
        f'{data}: most claims are supported under "{best[0]}" with {meaning}, {score[best]} of {len(claims)}.'
        f" Supported under every reading: {named(['supported'])}."
        f" Under none: {named(['tie', 'refuted', 'inconclusive'])}."
    )


def help_table(study: Study) -> Table:
    """What a user may do on CIFAR-10: each reading's best and last adapted accuracy, and seeds that
    diverged.
    """
    body = []
    for reading in dict.fromkeys(row.reading for row in study.rows):
        cells = []
        for arm in HELP:
            rows = [row.values for row in study.rows if (row.reading, row.arm) == (reading, arm)]
            best, last = (
                100.0 * np.median([row[f"{name}_adapted"] for row in rows])
                for name in ("best", "last")
            )
            apart = sum(max(row["diverged_adapted"], row["diverged_global"]) > 0.0 for row in rows)
            known = 100.0 * np.median([row["best_global"] for row in rows])
            cells += [f"{best:.1f} / {last:.1f}", f"{known:.1f}", f"{apart} of {len(rows)}"]
        body.append([reading, *cells])
    parts = ("best / last adapted [%]", "best global [%]", "diverged")
    return Table(["reading", *(f"{arm}, {part}" for arm in HELP for part in parts)], body)
