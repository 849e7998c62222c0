"""What a report is about: its title, the settings, what was decided, and where each run came from."""

import json
from collections.abc import Sequence
from typing import Any

from autofl.config import Settings, flat_settings
from autofl.records import OWN_DATA, Run
from autofl.records.checks import sum_of
from autofl.records.run import CONFIG, ROUNDS
from autofl.report.runs import group, with_labels
from autofl.report.table import NONE, Table, counted

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
    source = run.manifest.get("data", "")
    laws = {"labels": f"l = {data.get('labels')}", "iid": "i.i.d.", "dirichlet": "Dirichlet", "own": "own partition"}  # fmt: skip
    parts = [DATA_NAMES.get(source, source)]
    if source != OWN_DATA:
        parts.append(laws.get(data.get("partition"), data.get("partition")))
    if "num_ue" in run.manifest:
        parts.append(f"{run.manifest['num_ue']} UEs")

    # A planner that chooses asks more UEs than others, so this is not always common to all.
    asked = [member.config.get("simulation", {}).get("num_selected") for member in runs]
    if asked[0] is not None and all(one == asked[0] for one in asked):
        parts.append(f"{asked[0]} a round")
    seeds = len({member.manifest["seed"] for member in runs})
    parts.append(counted(seeds, "seed"))
    return ", ".join(part for part in parts if part)


def settings_table(runs: Sequence[Run], all_of_them: bool = False) -> Table:
    """Settings that are not the defaults, or not the same for all runs; or every setting. Seeds are
    left out.
    """
    usual = flat_settings(Settings().resolved().table())
    defaults = {key: value_words(value) for key, value in usual.items()}
    groups = {label: flat_settings(members[0].config) for label, members in group(runs).items()}
    keys = dict.fromkeys(key for config in groups.values() for key in config if key != "seed")
    rows = []
    for key in keys:
        labels_by_value: dict[str, list[str]] = {}
        for label, config in groups.items():
            value = value_words(config.get(key, "unset"))
            labels_by_value.setdefault(value, []).append(label)
        default = defaults.get(key)
        is_default = list(labels_by_value) == [default]
        if len(labels_by_value) == 1:
            text = next(iter(labels_by_value))
        else:
            text = "; ".join(f"{', '.join(who)}: {value}" for value, who in labels_by_value.items())
        if all_of_them or not is_default:
            rows.append([key, text, "" if is_default or default is None else default])
    return Table(["setting", "value", "default"], rows)


def decisions_table(runs: Sequence[Run]) -> Table:
    """What was decided for each group of runs beyond the parts of single UEs, and why."""
    rows = []
    for label, members in group(runs).items():
        decisions = members[0].manifest.get("decisions", [])
        rows += [[label, *row] for row in decisions]
    return Table(["run", "decision", "value", "why"], rows)


def value_words(value: Any) -> str:
    """A setting as written in its file."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def provenance(runs: Sequence[Run]) -> Table:
    """Where each run came from: version, commit, seed, machine, how it ended, and checksums of
    settings and rounds.
    """
    headings = ["run", "seed", "version", "commit", "computed by", "ended", "rounds", "config.toml",
                "rounds.csv", "folder"]  # fmt: skip
    rows = []
    for label, run in with_labels(runs):
        said = run.manifest
        by = [said[key] for key in ("engine", "device", "machine", "torch") if said.get(key)]
        rows.append(
            [
                label,
                str(said["seed"]),
                _known(said.get("version")),
                _known(said.get("commit")),
                ", ".join(map(str, by)),
                f"{said.get('status', '?')}, {_known(said.get('stop'))}",
                _known(said.get("rounds")),
                sum_of(run.folder / CONFIG)[:12],
                sum_of(run.folder / ROUNDS)[:12],
                run.folder.name,
            ]
        )
    return Table(headings, rows)


def _known(value: Any) -> str:
    return NONE if value is None else str(value)[:12]
