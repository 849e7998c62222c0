"""What other readings of the paper do to its claims: counts of verdicts, and what helps on CIFAR-10.

A reading is judged by the same rules as the main runs, but with fewer seeds and without the
correction for many claims: it shows what a verdict depends on, and decides none.
"""

from collections.abc import Sequence

import numpy as np

from autofl.report.table import Table
from autofl_paper.claims import CLAIMS
from autofl_paper.results import Results
from autofl_paper.verdicts import JUDGED, MEANINGS, Judgement, View, judge

Judged = dict[tuple[str, str], list[Judgement]]
"""By reading and meaning of accuracy."""
HELP = ("AutoFL", "Per-FedAvg", "FedAvg-2")


def judge_readings(study: Results) -> Judged:
    """The verdicts on the claims that a sensitivity study can judge, each alone."""
    judged: Judged = {}
    measured = set()
    for reading in study.readings:
        rows = [row for row in study.rows if row.reading == reading]
        for meaning in MEANINGS:
            view = View(rows, meaning)
            verdicts = [judge(claim, view) for claim in CLAIMS if not claim.main_only]
            measured |= {one.claim.name for one in verdicts if one.interval is not None}
            judged[reading, meaning] = verdicts
    for key, verdicts in judged.items():
        judged[key] = [one for one in verdicts if one.claim.name in measured]
    return judged


def counts_table(judged: Judged) -> Table:
    """For each reading how many of the claims are supported, a tie, refuted, inconclusive, by the
    accuracy meant.
    """
    body = []
    for reading in dict.fromkeys(reading for reading, _ in judged):
        cells = []
        for meaning in MEANINGS:
            verdicts = [one.verdict for one in judged[reading, meaning]]
            cells.append("/".join(str(verdicts.count(verdict)) for verdict in JUDGED))
        body.append([reading, *cells])
    return Table(["reading", "adapted", "global", "MAML adapted, FedAvg global"], body)


def help_table(study: Results) -> Table:
    """What a user may do on CIFAR-10: each reading's best and last adapted accuracy, and seeds that
    diverged.
    """
    body = []
    for reading in study.readings:
        cells = []
        for arm in HELP:
            rows = [row.values for row in study.rows_of(arm, reading)]
            best = _median_percent(rows, "best_adapted")
            last = _median_percent(rows, "last_adapted")
            apart = sum(max(row["diverged_adapted"], row["diverged_global"]) > 0.0 for row in rows)
            cells += [f"{best} / {last}", _median_percent(rows, "best_global")]
            cells.append(f"{apart} of {len(rows)}")
        body.append([reading, *cells])
    parts = ("best / last adapted [%]", "best global [%]", "diverged")
    return Table(["reading", *(f"{arm}, {part}" for arm in HELP for part in parts)], body)


def _median_percent(rows: Sequence[dict[str, float]], name: str) -> str:
    return f"{100.0 * np.median([row[name] for row in rows]):.1f}"
