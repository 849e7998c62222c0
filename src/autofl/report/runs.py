"""The runs a report is about, and which of them went wrong."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autofl.config import flat_settings
from autofl.config.arms import arm_names, name_of_arm, read_arm, settings_of, title_of
from autofl.errors import AutoFLError
from autofl.files import quoted
from autofl.records import Run, find_runs, read_run
from autofl.report.table import percent
from autofl.units import PathLike

SAME_RUN = ("compare.",)
"""Settings that have no effect on a single run."""
MOST_IN_LABEL = 4
"""Settings up to which a label names all that differ; beyond, only those that tell the runs apart.
"""
MOSTLY = 0.5
"""The share of guarded steps from which a bound is no longer for exceptions."""


def read_runs(runs: Run | PathLike | Iterable[Run | PathLike]) -> list[Run]:
    """Runs given in any form: already read, run folders, or folders of them; a single one will do.

    A folder that is named twice is one run.
    """
    if isinstance(runs, Run | str | os.PathLike):
        runs = [runs]
    read: dict[Path, Run] = {}
    for given in runs:
        if isinstance(given, Run):
            read[given.folder] = given
        else:
            for folder in find_runs(given):
                if folder not in read:
                    read[folder] = read_run(folder)
    return list(read.values())


def group(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs grouped by what they differ in other than seeds: the algorithm and, where they differ,
    other settings.
    """
    groups: dict[str, list[Run]] = {}
    for run, label in zip(runs, _labels(runs), strict=True):
        groups.setdefault(label, []).append(run)
    for label, members in groups.items():
        members.sort(key=lambda run: run.manifest["seed"])
        if len({run.manifest["seed"] for run in members}) < len(members):
            raise AutoFLError(
                f"{label}: the same run with the same seed is given twice; name each run once"
            )
    return groups


def with_labels(runs: Sequence[Run]) -> list[tuple[str, Run]]:
    """Each run with what it is called, group by group."""
    return [(label, run) for label, members in group(runs).items() for run in members]


def newest_of_equal(runs: Sequence[Run]) -> tuple[list[Run], str | None]:
    """The runs without those that were made again with the same settings and seed; what was left
    out, in words.
    """
    labels = _labels(runs)
    newest: dict[tuple[str, Any], int] = {}
    for index in sorted(range(len(runs)), key=lambda index: _ended_at(runs[index])):
        newest[labels[index], runs[index].manifest.get("seed")] = index
    kept = sorted(newest.values())
    if len(kept) == len(runs):
        return list(runs), None

    older = Counter(label for index, label in enumerate(labels) if index not in kept)
    which = "; ".join(f"{count} of {label}" for label, count in older.items())
    words = f"of runs with the same settings and seed only the newest is shown; left out: {which}"
    return [runs[index] for index in kept], words


def _ended_at(run: Run) -> float:
    ended = run.manifest.get("ended_at")
    return float(ended) if ended is not None else math.inf  # it is still running


def _labels(runs: Sequence[Run]) -> list[str]:
    """What to call each run; those that differ in nothing but their seeds are called the same."""
    if not runs:
        raise AutoFLError("no runs to report on")
    rules = _rules(runs)
    flat = [flat_settings(run.config) for run in runs]
    arms = [_settings_of_arm(run) for run in runs]

    # The names of parts come first, since they say most.
    passed_over = (*SAME_RUN, "arm.")
    keys = {key for config in flat for key in config if not key.startswith(passed_over)}
    differing = [key for key in sorted(keys - {"seed", "arm"}) if _differs(key, flat, arms)]
    differing.sort(key=lambda key: not key.endswith(".name"))
    shown = differing if len(differing) <= MOST_IN_LABEL else _telling(differing, rules, flat)

    labels = []
    for rule, config in zip(rules, flat, strict=True):
        words = [rule]
        for key in shown:
            # A setting of a part that only other runs have says nothing about this one.
            if key in config or _name_of(key) not in differing:
                words.append(f"{key.removesuffix('.name')} = {config.get(key, 'unset')}")
        if len(shown) < len(differing):
            words.append(f"and {len(differing) - len(shown)} more settings")
        labels.append(", ".join(words))
    return labels


def _rules(runs: Sequence[Run]) -> list[str]:
    """What each run does: its arm, and whether on devices."""
    names: dict[str, set[str]] = {}
    for run in runs:
        names.setdefault(label_of_run(run), set()).add(str(run.manifest.get("algorithm")))
    rules = []
    for run in runs:
        rule = label_of_run(run)
        if len(names[rule]) > 1:  # two rules of the same name, from two modules
            rule += f" ({run.manifest['algorithm']})"
        if run.devices:
            rule += ", on devices"
        rules.append(rule)
    return rules


def _settings_of_arm(run: Run) -> dict[str, Any]:
    """The settings that go with the arm of a run, under its name; nothing for one that is unknown."""
    try:
        arm = run.config["arm"]
        return {"arm": name_of_arm(arm), **settings_of(arm)}
    except (AutoFLError, KeyError):
        return {}


def _name_of(key: str) -> str:
    """The key that names the part to which a setting belongs."""
    return f"{key.partition('.')[0]}.name"


def _differs(key: str, flat: Sequence[dict[str, Any]], arms: Sequence[dict[str, Any]]) -> bool:
    """Whether runs differ in a setting, other than by what an arm or a part of another name brings
    along.
    """
    everywhere = all(key in config for config in flat)
    values: dict[tuple[str, ...], set[str]] = {}
    for config, arm in zip(flat, arms, strict=True):
        brings_more = arm.keys() - {"arm", "planner"}
        name = str(arm["arm"]) if brings_more else ""
        planner = repr(arm.get("planner")) if key.startswith("planner.") else ""
        part = "" if everywhere or key == _name_of(key) else str(config.get(_name_of(key)))
        values.setdefault((name, planner, part), set()).add(repr(config.get(key)))
    return any(len(of_one) > 1 for of_one in values.values())


def _telling(
    keys: Sequence[str], rules: Sequence[str], flat: Sequence[dict[str, Any]]
) -> list[str]:
    """Those of many settings that are needed to tell the runs apart: each of them splits runs that
    were one so far.
    """
    shown: list[str] = []
    apart: list[tuple[str, ...]] = [(rule,) for rule in rules]
    for key in keys:
        further = [
            (*before, repr(config.get(key))) for before, config in zip(apart, flat, strict=True)
        ]
        if len(set(further)) > len(set(apart)):
            shown.append(key)
            apart = further
    return shown


def label_of_run(run: Run) -> str:
    """What to call the algorithm of a run; one that an own program wrote may not say it."""
    name = str(run.manifest.get("algorithm", "?"))
    known = name in arm_names()
    return str(run.manifest.get("label") or (title_of(name) if known else name))


def has_diverged(run: Run) -> bool:
    return run.manifest.get("stop") == "diverged"


def was_unheard(run: Run) -> bool:
    """Whether there were rounds, and no update was decoded in any of them."""
    return _last_round(run) > 0 and not run.rounds["num_decoded"].any()


def lost_updates(run: Run) -> set[str]:
    """Why devices' updates were not used; nothing for a simulation."""
    if not run.devices:
        return set()
    lost = set()
    for ue, outcome in zip(run.devices["ue"], run.devices["outcome"], strict=True):
        if outcome != "ok" and not str(outcome).startswith(("introduction: ", "evaluation: ")):
            lost.add(f"UE {ue}: {outcome}")
    return lost


def diverged_words(runs: Sequence[Run]) -> str | None:
    """Which runs diverged, in which round, and what to try; None where none did."""
    named = _named(runs, has_diverged)
    if not named:
        return None
    which = ", ".join(
        f"{name} in round {_last_round(run)}{_suspects(run)}" for name, run in named.items()
    )
    steps = {run.config.get("learning", {}).get("outer_lr") for run in named.values()} - {None}
    here = sorted(step if isinstance(step, str) else f"{step:g}" for step in steps)
    smaller = "learning.outer_lr" + (f" ({', '.join(here)} here)" if here else "")
    if any(_algorithm_of(run) == "per-fedavg" for run in named.values()):
        smaller += ", or of learning.inner_lr, or learning.guard=1, or learning.variant=first-order"
    return (
        f"{_share(named, runs)} diverged: {which}; the weights kept are the last finite ones."
        f" Try a smaller value of {smaller}"
    )


def _algorithm_of(run: Run) -> str:
    """The algorithm of a run; empty where its arm is unknown."""
    try:
        return str(read_arm(run.config["arm"])["algorithm"])
    except (AutoFLError, KeyError):
        return ""


def _suspects(run: Run) -> str:
    """Who may have made a run diverge, where its manifest names anybody."""
    problem = run.manifest.get("problem")
    if not problem or not run.manifest.get("suspects"):
        return ""
    return f" ({problem.removeprefix('diverged; ')})"


def guarded_share(run: Run) -> float:
    """The share of local steps, of all UEs heard, that the algorithm's guard acted on; NaN where
    there is none.
    """
    if "guarded" not in run.ues or "local_steps" not in run.ues:  # of an earlier version
        return math.nan
    heard = run.ues["decoded"] == 1
    steps = int(run.ues["local_steps"][heard].sum())
    return float(run.ues["guarded"].sum()) / steps if steps else math.nan


def guarded_words(runs: Sequence[Run]) -> str | None:
    """How often the guard acted, run by run; None where it never did."""
    shares = {name: guarded_share(run) for name, run in _named(runs, _was_guarded).items()}
    if not shares:
        return None
    listed = ", ".join(f"{name} {percent(share, 1)}" for name, share in shares.items())
    if max(shares.values()) < MOSTLY:
        return (
            f"local steps that were guarded (learning.guard, learning.grad_clip): {listed};"
            " ues.csv says whose and when"
        )
    return (
        "careful: learning.guard or learning.grad_clip cut most local steps short, so these bounds and not the"
        f" gradients decide how far a UE moves ({listed} of the steps); widen them, or make learning.inner_lr and"
        " learning.outer_lr smaller; ues.csv says whose steps and when"
    )


def _was_guarded(run: Run) -> bool:
    return guarded_share(run) > 0.0


def unheard_words(runs: Sequence[Run]) -> str | None:
    """In which runs no update was ever decoded, and where to look for the reason; None where there
    is no such run.
    """
    named = _named(runs, was_unheard)
    if not named:
        return None
    which = f"{_share(named, runs)} ({', '.join(named)})"
    members = list(named.values())
    lost: set[str] = set().union(*map(lost_updates, members))
    if lost:
        reasons = "; ".join(sorted(lost)[:3])
        return f"no update was used in {which}, so the model is still the first one: {reasons}"

    asked = sum(len(run.ues["status"]) for run in members)
    infeasible = sum(int((run.ues["status"] == "infeasible").sum()) for run in members)
    return (
        f"nobody was ever heard in {which}: no update was decoded, so the model is"
        f" still the first one; {infeasible} of the {asked} UEs selected could not take part;"
        f" for the reasons see: autofl plan {quoted(members[0].folder / 'config.toml')}"
    )


def _named(runs: Sequence[Run], concerns: Callable[[Run], bool]) -> dict[str, Run]:
    """The runs that a warning concerns, by label and seed."""
    named = {f"{label} seed {run.manifest['seed']}": run for label, run in with_labels(runs)}
    return {name: run for name, run in named.items() if concerns(run)}


def _share(named: Mapping[str, Run], runs: Sequence[Run]) -> str:
    return "the run" if len(runs) == 1 else f"{len(named)} of {len(runs)} runs"


def _last_round(run: Run) -> int:
    return int(run.rounds["round"].max(initial=0))
