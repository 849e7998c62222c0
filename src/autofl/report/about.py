"""What a report is about: its title, a conclusion in sentences, the settings, and where each run
came from.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofl.config import Settings, flat_settings
from autofl.quality import mean_interval
from autofl.records import OWN_DATA, Run
from autofl.records.checks import sum_of
from autofl.records.run import CONFIG, ROUNDS
from autofl.report.runs import group
from autofl.report.summary import Row
from autofl.report.table import Table

DATA_NAMES = {
    "mnist5k": "MNIST-5k",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}


def title_of(runs: Sequence[Run]) -> str:
    """What the runs have in common: data, who owns it, how many UEs and seeds."""
    run = runs[0]
    data = run.config.get("data", {})
    law = {
        "labels": f"l = {data.get('labels')}",
        "iid": "i.i.d.",
        "dirichlet": "Dirichlet",
        "own": "own partition",
    }
    seeds = len({member.manifest["seed"] for member in runs})
    asked = [member.config.get("simulation", {}).get("num_selected") for member in runs]
    selected = (
        asked[0] if all(one == asked[0] for one in asked) else None
    )  # a planner that chooses asks more
    parts = [
        DATA_NAMES.get(run.manifest.get("data", ""), run.manifest.get("data")),
        None
        if run.manifest.get("data") == OWN_DATA
        else law.get(data.get("partition"), data.get("partition")),
        None if "num_ue" not in run.manifest else f"{run.manifest['num_ue']} UEs",
        None if selected is None else f"{selected} a round",
        f"{seeds} seed{'s' if seeds > 1 else ''}",
    ]
    return ", ".join(part for part in parts if part)


def conclusion(rows: Sequence[Row], target: float) -> list[str]:
    """What the table says, in sentences, including where the intervals do not support an order."""
    percent = f"{100 * target:g} % adapted accuracy"
    reached = {
        row.label: row.values["time_adapted"]
        for row in rows
        if not np.isnan(row.values["time_adapted"]).any()
    }
    if len(rows) == 1:
        only = rows[0]
        first = (
            f"{only.label} reaches {percent} after {_mean(reached[only.label], 1.0)} simulated seconds."
            if reached
            else f"{only.label} does not reach {percent} in {_which(rows)} run."
        )
        return [
            first,
            f"Its final adapted accuracy is {_mean(only.values['final_adapted'], 100.0)} %.",
        ]
    sentences = [
        _fastest(reached, percent)
        if reached
        else f"Nobody reaches {percent} in {_which(rows)} run."
    ]
    left = [row for row in rows if row.label not in reached]
    never = [row.label for row in left if np.isnan(row.values["time_adapted"]).all()]
    at_times = [row.label for row in left if row.label not in never]
    if reached:
        sentences += [f"In some runs only: {'; '.join(at_times)}."] if at_times else []
        sentences += [f"In no run: {'; '.join(never)}."] if never else []
    best = max(rows, key=lambda row: _middle(row.values["final_adapted"], -math.inf))
    sentences.append(
        f"The highest final adapted accuracy is that of {best.label}: {_mean(best.values['final_adapted'], 100.0)} %."
    )
    frugal = [row for row in rows if row.label in reached]
    if len(frugal) > 1:
        least = min(frugal, key=lambda row: _middle(row.values["energy_to_target"], math.inf))
        spent = _mean(least.values["energy_to_target"], 1e3)
        sentences.append(
            f"The least energy per UE to that accuracy is that of {least.label}: {spent} mJ."
        )
    return sentences


def _which(rows: Sequence[Row]) -> str:
    """Of a target that no row always reaches: `any` run, or `every` one where some runs do reach
    it.
    """
    return "any" if all(np.isnan(row.values["time_adapted"]).all() for row in rows) else "every"


def _fastest(reached: dict[str, Any], percent: str) -> str:
    """Who is first, who follows, and whether the seeds can tell them apart."""
    order = sorted(reached, key=lambda label: float(reached[label].mean()))
    words = f"{order[0]} reaches {percent} first, after {_mean(reached[order[0]], 1.0)} simulated seconds"
    if len(order) == 1:
        return f"{words}."
    words += f"; {order[1]} follows after {_mean(reached[order[1]], 1.0)}"
    (early, half), (late, other) = (mean_interval(reached[label]) for label in order[:2])
    if math.isnan(half) or math.isnan(other):
        return f"{words}. With one seed there is no interval, so the order may be chance."
    return f"{words}." + (" Their 95 % intervals overlap." if early + half >= late - other else "")


def _middle(values: Any, otherwise: float) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else otherwise


def _mean(values: Any, factor: float) -> str:
    mean, half = mean_interval(factor * values[~np.isnan(values)])
    digits = 1 if abs(mean) >= 1.0 else 3
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def settings_table(runs: Sequence[Run], all_of_them: bool = False) -> Table:
    """Settings that are not the defaults, or not the same for all runs; or every setting. Seeds are
    left out.
    """
    usual = {
        key: value_words(value)
        for key, value in flat_settings(Settings().resolved().table()).items()
    }
    groups = {label: flat_settings(members[0].config) for label, members in group(runs).items()}
    keys = dict.fromkeys(key for config in groups.values() for key in config if key != "seed")
    rows = []
    for key in keys:
        values = {label: value_words(config.get(key, "unset")) for label, config in groups.items()}
        sharing: dict[str, list[str]] = {}
        for label, value in values.items():
            sharing.setdefault(value, []).append(label)
        same = len(sharing) == 1
        text = (
            next(iter(sharing))
            if same
            else "; ".join(f"{', '.join(who)}: {v}" for v, who in sharing.items())
        )
        if all_of_them or not same or text != usual.get(key):
            rows.append(
                [key, text, "" if key not in usual or (same and text == usual[key]) else usual[key]]
            )
    return Table(["setting", "value", "default"], rows)


def decisions_table(runs: Sequence[Run]) -> Table:
    """What was decided for each group of runs beyond the parts of single UEs, and why."""
    rows = [
        [label, *row]
        for label, members in group(runs).items()
        for row in members[0].manifest.get("decisions", [])
    ]
    return Table(["run", "decision", "value", "why"], rows)


def value_words(value: Any) -> str:
    """A setting as written in its file."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def provenance(runs: Sequence[Run]) -> Table:
    """Where each run came from: version, commit, seed, machine, how it ended, and checksums of
    settings and rounds.
    """
    rows = [
        [
            label,
            str(run.manifest["seed"]),
            *(_known(run.manifest.get(key)) for key in ("version", "commit")),
            ", ".join(
                str(run.manifest[key])
                for key in ("engine", "device", "machine", "torch")
                if run.manifest.get(key)
            ),
            f"{run.manifest.get('status', '?')}, {_known(run.manifest.get('stop'))}",
            _known(run.manifest.get("rounds")),
            sum_of(run.folder / CONFIG)[:12],
            sum_of(run.folder / ROUNDS)[:12],
            str(run.folder.name),
        ]
        for label, members in group(runs).items()
        for run in members
    ]
    headings = [
        "run",
        "seed",
        "version",
        "commit",
        "computed by",
        "ended",
        "rounds",
        "config.toml",
        "rounds.csv",
    ]
    return Table([*headings, "folder"], rows)


def _known(value: Any) -> str:
    return "–" if value is None else str(value)[:12]
