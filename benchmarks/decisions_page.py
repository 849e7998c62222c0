"""The tables of docs/decisions.md, from the rows that `decisions.py` keeps."""

import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from autofl_paper.joint_tables import Times, median_ratio

BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
ALONE = """\
Each UE trains alone, from the same first weights, on its own samples, for the seconds that AutoFL-J needs and with the
energy that a UE of it has spent by then: plain gradient steps of ten samples, the best step size of three on another
seed. Its model is judged as it is, on the UE's own test samples.
"""
SEARCH = """\
What the search found, and what it cost. Of 60 settings drawn at random all run on one seed, the best 15 on a second,
the best 5 on a third, and these five also with a measured alpha. A run is given up after some ten times the seconds
that AutoFL-J needs, and judged by the mean logarithm of its two times. The band is the same, and the split of a batch.
"""
HOW = """
Seconds are simulated ones until the adapted accuracy, smoothed over three evaluations, reaches 85 / 90 % (MNIST),
80 / 84 % (Fashion-MNIST) or 45 / 50 % (CIFAR-10), evaluated in every round: medians over seeds from 51 on. Ratios are
medians of the ratios seed by seed, with their 95 % bootstrap intervals; ≥ where a run of the slower arm was given up.
"""
FEW = 3
"""With fewer seeds there is no interval."""
NOW, BEFORE, THRIFTY = "now", "before", "thrift 1"


class Rows:
    """Rows of one file: of a task and an arm, by seed."""

    def __init__(self, folder: Path, file: str) -> None:
        path = folder / f"{file}.json"
        self.rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def of(self, task: object, arm: str) -> dict[int, dict]:
        start = f"{task}|{arm}|"
        found = {
            int(key[len(start) :]): row for key, row in self.rows.items() if key.startswith(start)
        }
        return dict(sorted(found.items()))


def times(rows: dict[int, dict], target: int, seeds: Iterable[int]) -> Times:
    """Of these seeds; a run that does not get there is known to take longer than it lasted."""
    there = [rows[seed] for seed in seeds]
    time = [math.nan if row["time"][target] is None else row["time"][target] for row in there]
    return Times(np.array(time), np.array([row["last"] for row in there]))


def ratios(ours: dict[int, dict], others: dict[int, dict], target: int) -> str:
    """How many times as fast we are on the seeds that both have."""
    seeds = sorted(ours.keys() & others.keys())
    if not seeds:
        return "–"
    ratio = median_ratio(times(ours, target, seeds), times(others, target, seeds))
    if ratio.pairs and not ratio.reached:
        return "not reached"
    return str(ratio).partition(" [")[0] if len(seeds) < FEW else str(ratio)


def factor(ours: dict[int, dict], others: dict[int, dict], target: int) -> float:
    """The median of these ratios; NaN where there are none."""
    seeds = sorted(ours.keys() & others.keys())
    return (
        median_ratio(times(ours, target, seeds), times(others, target, seeds)).median
        if seeds
        else math.nan
    )


def median(rows: dict[int, dict], name: str, target: int) -> float:
    """Over seeds; a run that does not get there counts as endless."""
    values = [math.inf if row[name][target] is None else row[name][target] for row in rows.values()]
    return float(np.median(values)) if values else math.nan


def shown(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "not reached"
    return f"{value:,.0f}" if value >= 10.0**digits else f"{value:.{digits}g}"


def both(rows: dict[int, dict], name: str = "time", factor: float = 1.0) -> str:
    """Of the two targets."""
    return (
        " / ".join(shown(factor * median(rows, name, target)) for target in (0, 1)) if rows else "–"
    )


def each(rows: dict[int, dict]) -> str:
    """Energy of a UE in a round in which it takes part [mJ], up to the second target."""
    values = [
        1e3 * row["energy"][1] / row["ue_rounds"][1]
        for row in rows.values()
        if row["energy"][1] and row["ue_rounds"][1]
    ]
    return shown(float(np.median(values))) if values else "–"


def table(head: str, rows: list[list[str]]) -> str:
    num = head.count("|") + 1
    return "\n".join(
        [f"| {head} |", "|" + "---|" * num, *("| " + " | ".join(row) + " |" for row in rows)]
    )


def verdict(task, rows: dict[int, dict]) -> str:
    if task.at_most is None or not rows:
        return "–"
    missed = [
        shown(bound)
        for target, bound in enumerate(task.at_most)
        if median(rows, "time", target) > bound
    ]
    return " / ".join(map(shown, task.at_most)) + (
        f", **missed: {', '.join(missed)}**" if missed else ""
    )


def defaults_table(rows: Rows, tasks) -> str:
    lines = []
    for task in tasks:
        now, before = rows.of(task, NOW), rows.of(task, BEFORE)
        faster = " / ".join(ratios(now, before, target) for target in (0, 1)) if before else "–"
        seeds = f"{len(now)}, {len(before)}"
        lines.append(
            [task.name, task.data, both(before), both(now), verdict(task, now), faster, seeds]
        )
    return table(
        "cell | task | before [s] | now [s] | at most [s] | times as fast | seeds now, before",
        lines,
    )


def energy_table(rows: Rows, tasks) -> str:
    lines = []
    for task in tasks:
        now, before, thrifty = (rows.of(task, arm) for arm in (NOW, BEFORE, THRIFTY))
        for name, of in (("now", now), ("now, `planner.thrift = 1`", thrifty), ("before", before)):
            if of:
                most = max(row["most"] for row in of.values())
                over = sum(row["over"] for row in of.values())
                lines.append(
                    [
                        str(task),
                        name,
                        both(of),
                        both(of, "energy", 1e3),
                        each(of),
                        f"{most:.3g}",
                        str(over),
                    ]
                )
    head = "task | planner | seconds | mJ of all UEs | mJ of a UE and round | most of E_max | above E_max"
    return table(head, lines)


def parts_table(rows: Rows, task: str, arms: list[str]) -> str:
    lines, printed, last = [], rows.of(task, arms[0]), None
    for arm in arms:
        here = rows.of(task, arm)
        if not here:
            continue
        over_printed = " / ".join(ratios(here, printed, target) for target in (0, 1))
        step = "–" if last is None else " / ".join(ratios(here, last, target) for target in (0, 1))
        lines.append(
            [
                arm if last is None else f"+ {arm}",
                both(here),
                step,
                over_printed,
                both(here, "energy", 1e3),
            ]
        )
        last = here
    return table("what is decided | seconds | this step | in all | mJ of all UEs", lines)


def against_table(folder: Path, tasks) -> str:
    now, judged = Rows(folder, "defaults"), Rows(folder, "judged")
    lines = []
    for task in (task for task in tasks if judged.of(task, "constants")):
        ours = now.of(task, NOW)
        arms = {"AutoFL-J": ours} | {
            arm: judged.of(task, arm)
            for arm in ("constants", "constants, alpha measured", "FedAvg-J")
        }
        for arm, of in arms.items():
            if of:
                ahead = (
                    "–" if of is ours else " / ".join(ratios(ours, of, target) for target in (0, 1))
                )
                lines.append(
                    [str(task), arm, both(of), ahead, both(of, "energy", 1e3), str(len(of))]
                )
    return table(
        "task | arm | seconds | AutoFL-J is so many times as fast | mJ of all UEs | seeds", lines
    )


def of_ues_alone(alone: dict[int, dict], tuning_seed: int) -> tuple[np.ndarray, int]:
    """Their accuracy when AutoFL-J reaches its targets, and which step size is best on the seed
    that chooses it.
    """
    best = int(np.argmax(np.array(alone[tuning_seed]["accuracy"]).sum(axis=0)))
    judged = [
        np.array(row["accuracy"])[:, best] for seed, row in alone.items() if seed != tuning_seed
    ]
    return np.median(judged, axis=0), best


def alone_table(folder: Path, tasks, steps, tuning_seed: int) -> str:
    judged, lines = Rows(folder, "judged"), []
    for task in tasks:
        alone = judged.of(task, "alone")
        if tuning_seed not in alone or len(alone) < 2:
            continue
        share, best = of_ues_alone(alone, tuning_seed)
        lines.append(
            [
                str(task),
                f"{steps[best]:g}",
                " / ".join(f"{100 * one:.1f} %" for one in share),
                task.goals,
            ]
        )
    head = "task | step size | accuracy when AutoFL-J reaches its two targets | which are"
    return f"{ALONE}\n" + table(head, lines)


def search_table(folder: Path, tasks) -> str:
    search, found = Rows(folder, "search"), Rows(folder, "found").rows
    lines = []
    for task in tasks:
        rows = [row for key, row in search.rows.items() if key.startswith(f"{task}|")]
        if str(task) not in found:
            continue
        chosen = found[str(task)]
        for name, choice in (
            ("constants", chosen["choice"]),
            ("constants, alpha measured", chosen["choice with alpha"]),
        ):
            kept = {
                key: value for key, value in choice.items() if key != "downlink" or task.scenario
            }
            if name != "constants":
                kept.pop("inner_lr")
            lines.append(
                [
                    str(task),
                    name,
                    ", ".join(f"{key} {value}" for key, value in kept.items()),
                    "",
                    "",
                    "",
                ]
            )
        lines[-2][3:] = [
            str(len(rows)),
            f"{sum(row['last'] for row in rows):.0f}",
            f"{sum(row['cpu'] for row in rows):.0f}",
        ]
    return table("task | arm | best found | runs | simulated seconds | CPU seconds", lines)


def guesses_table(folder: Path) -> str:
    rows, now, lines = Rows(folder, "guesses"), Rows(folder, "defaults"), []
    for name in dict.fromkeys(key.rpartition("|")[0] for key in rows.rows):
        task, _, arm = name.partition("|")
        wrong, right = rows.of(task, arm), now.of(task, NOW)
        cost = " / ".join(ratios(right, wrong, target) for target in (0, 1))
        lines.append([task, f"`{arm}`", both(wrong), cost])
    return table("task | wrong | seconds | times the time of the right one", lines)


def failures(folder: Path) -> str:
    """How many runs of AutoFL-J diverged or never got to the second target."""
    every = {
        key: row for file in ("defaults", "guesses") for key, row in Rows(folder, file).rows.items()
    }
    ours = {key: row for key, row in every.items() if f"|{BEFORE}|" not in key}
    diverged = sum(row["stop"] == "diverged" for row in ours.values())
    short = sorted({key.rpartition("|")[0] for key, row in ours.items() if row["time"][1] is None})
    late = (
        f" Not every run reaches the second target: {'; '.join(short).replace('|', ', ')}."
        if short
        else ""
    )
    return f"Of {len(ours)} runs of AutoFL-J on this page, {diverged} diverged.{late}"


def summary(folder: Path, tasks, judged, chains, tuning_seed: int) -> str:
    """What was found, in three sentences, and what was missed."""
    rows, parts, rivals = Rows(folder, "defaults"), Rows(folder, "parts"), Rows(folder, "judged")
    said, missed = [], []

    asked = [
        (task, target) for task in tasks if task.at_most and rows.of(task, NOW) for target in (0, 1)
    ]
    late = [
        (task, target)
        for task, target in asked
        if median(rows.of(task, NOW), "time", target) > task.at_most[target]
    ]
    gains = {
        (task, target): factor(rows.of(task, NOW), rows.of(task, BEFORE), target)
        for task in tasks
        for target in (0, 1)
        if rows.of(task, BEFORE)
    }
    if gains:
        values = np.array(list(gains.values()))
        said.append(
            f"With defaults only AutoFL-J is {values.min():.1f} to {values.max():.1f} times as fast as the version"
            f" before (commit 724498f), {np.median(values):.1f} times in the median of cells and targets, and keeps"
            f" {len(asked) - len(late)} of the {len(asked)} times that were asked of it."
        )
        slower = [
            f"{task} at {name_of(target)}: {gain:.2f}"
            for (task, target), gain in gains.items()
            if gain < 1.0
        ]
        missed += [f"slower than before: {'; '.join(slower)}"] if slower else []
    dearer = [
        f"{task} at {name_of(target)}: {ratio:.2f} times"
        for task in tasks
        for target in (0, 1)
        if (ratio := energy_ratio(rows.of(task, NOW), rows.of(task, BEFORE), target)) > 1.0
    ]
    missed += [f"more energy of all UEs than before: {'; '.join(dearer)}"] if dearer else []
    missed += [
        f"{task} at {name_of(target)}: {shown(median(rows.of(task, NOW), 'time', target))} s instead of at most"
        f" {task.at_most[target]:g} s"
        for task, target in late
    ]

    for task, arms in list(chains.items())[:1]:
        steps = [arm for arm in arms if parts.of(task, arm)]
        gains = [
            f"{after} (× {shown(factor(parts.of(task, after), parts.of(task, first), 0), 2)})"
            for first, after in itertools.pairwise(steps)
        ]
        whole = (
            factor(parts.of(task, steps[-1]), parts.of(task, steps[0]), 0) if steps else math.nan
        )
        if gains:
            said.append(
                f"Over AutoFL as printed it is {whole:.0f} times as fast in {task}: {'; '.join(gains)}."
            )

    ahead = {
        (task.name, task.data, target): factor(
            rows.of(task, NOW), rivals.of(task, "constants"), target
        )
        for task in judged
        for target in (0, 1)
        if rivals.of(task, "constants")
    }
    if ahead:
        values = np.array(list(ahead.values()))
        alike = [
            factor(rows.of(task, NOW), rivals.of(task, "constants, alpha measured"), target)
            for task in judged
            for target in (0, 1)
            if rivals.of(task, "constants, alpha measured")
        ]
        tenfold = [value for (name, _, _), value in ahead.items() if name == "mixed"]
        there = (
            f", {min(tenfold):.2f} to {max(tenfold):.2f} where UEs differ tenfold"
            if tenfold
            else ""
        )
        said.append(
            f"Against the best constants of a search in each cell it is {np.median(values):.2f} times as fast in the"
            f" median, {values.min():.2f} at least{there}; if the constants' UEs measure the step of their adaptation"
            f" as ours do, {np.median(alike):.2f} and {min(alike):.2f}."
        )
        if min(alike) < 0.95:
            missed.append(
                f"slower than constants with a measured alpha: {min(alike):.2f} times as fast"
            )
        if np.median(values) < 1.5:
            missed.append(f"1.5 times the best constants in the median: {np.median(values):.2f}")
        if values.min() < 0.95:
            behind = [
                f"{name}, {data} at {name_of(at)}: {value:.2f}"
                for (name, data, at), value in ahead.items()
                if value < 0.95
            ]
            missed.append(f"nowhere below 0.95 of the best constants: {'; '.join(behind)}")
        if tenfold and min(tenfold) < 3.0:
            missed.append(
                f"3 times the best constants where UEs differ tenfold: {min(tenfold):.2f} to {max(tenfold):.2f}"
            )
    for task in judged:
        alone = rivals.of(task, "alone")
        beside = factor(rows.of(task, NOW), rivals.of(task, "FedAvg-J"), 1)
        if beside < 1.05:
            missed.append(
                f"{task}: FedAvg-J is about as fast; AutoFL-J is {beside:.2f} times as fast at the second target"
            )
        if len(alone) > 1 and tuning_seed in alone:
            share, _ = of_ues_alone(alone, tuning_seed)
            if share[1] >= 0.99 * task.targets[1]:
                missed.append(
                    f"{task}: UEs that train alone for as long and with as much energy are at"
                    f" {100 * share[0]:.1f} / {100 * share[1]:.1f} % when AutoFL-J is at {task.goals}"
                )
    return " ".join(said) + (
        "\n\nMissed, and what speaks against it:\n\n" + "\n".join(f"- {one}" for one in missed)
        if missed
        else ""
    )


def energy_ratio(ours: dict[int, dict], others: dict[int, dict], target: int) -> float:
    """Energy of all UEs until the target, over that of another, median over the seeds that both
    have.
    """
    seeds = sorted(ours.keys() & others.keys())
    pairs = [(ours[seed]["energy"][target], others[seed]["energy"][target]) for seed in seeds]
    return float(np.median([one / other for one, other in pairs if one and other] or [math.nan]))


def name_of(target: int) -> str:
    return "the second target" if target else "the first target"


def write_page(path: Path, folder: Path, tasks, judged, chains, steps, tuning_seed: int) -> None:
    """Redraws what stands between the marks of the page."""
    rows, parts = Rows(folder, "defaults"), Rows(folder, "parts")
    blocks = [
        summary(folder, tasks, judged, chains, tuning_seed),
        HOW,
        "## Defaults only\n",
        defaults_table(rows, tasks),
        f"\n{failures(folder)}\n",
        "## Energy\n",
        energy_table(rows, tasks),
        "\n## The factor in parts\n",
    ]
    for task, arms in chains.items():
        if all(parts.of(task, arm) for arm in arms):
            num = len(parts.of(task, arms[0]))
            blocks += [f"{task}, {num} seeds. Each row adds one decision to the row above.\n"]
            blocks += [parts_table(parts, task, arms), ""]
    if Rows(folder, "found").rows:
        blocks += [
            "## Against the best constants\n",
            against_table(folder, judged),
            "",
        ]
        blocks += [SEARCH, search_table(folder, judged), ""]
    if any("|alone|" in key for key in Rows(folder, "judged").rows):
        blocks += ["## Each UE alone\n", alone_table(folder, judged, steps, tuning_seed), ""]
    if Rows(folder, "guesses").rows:
        blocks += ["## A wrong first guess\n", guesses_table(folder), ""]
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(
        before + BEGIN + "\n\n" + "\n".join(blocks).strip() + "\n\n" + END + after, encoding="utf-8"
    )
