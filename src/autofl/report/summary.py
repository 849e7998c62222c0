"""Runs side by side: what is read off each of them, and the table that `autofl report` shows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofl.quality import convergence_round, mean_interval, time_to_accuracy
from autofl.records import Run
from autofl.report.results import Column, cells
from autofl.report.runs import guarded_share, with_labels
from autofl.report.table import NONE, Table
from autofl.results import Results, plain
from autofl.units import Array

METRICS = ("adapted", "global")
PARTS = ("computing", "sending", "downlink", "overhead")
"""What a round's time is made of."""
ROUNDING = 1e-9
"""Share of a round up to which what is left of it beside its parts is the rounding of sums of up to
1e6 rounds.
"""
SHORT = 24
"""Letters up to which a label stands in a heading."""


def summarise(runs: Sequence[Run], target: float) -> Results:
    """What each run gave, in the order in which the algorithms come."""
    members = with_labels(runs)
    return Results.of(
        arms=[{"algorithm": label} for label, _ in members],
        seeds=[int(run.manifest["seed"]) for _, run in members],
        measured=[measure(run, target) for _, run in members],
        names=[run.folder.name for _, run in members],
        target=target,
    )


def measure(run: Run, target: float) -> dict[str, float]:
    """What is read off one run, SI units; NaN where a target was not reached."""
    quantities: dict[str, float] = {}
    for metric in METRICS:
        rounds, sim_time, accuracy = run.evaluated(f"{metric}_accuracy")
        quantities[f"time_{metric}"] = time_to_accuracy(sim_time, accuracy, target)
        quantities[f"final_{metric}"] = _last(accuracy)
        quantities[f"rounds_{metric}"] = math.nan
        if len(accuracy):
            quantities[f"rounds_{metric}"] = convergence_round(rounds, accuracy)

    # A UE that sends spends energy, decoded or not.
    energy = run.rounds["energy"].astype(np.float64)
    sim_time = run.rounds["sim_time"].astype(np.float64)
    senders = float((run.ues["energy"].astype(np.float64) > 0.0).sum())
    quantities["energy"] = float(energy.sum()) / (senders or math.nan)

    # Up to the target energy is a mean over all UEs, since who sends changes from round to round.
    reached = quantities["time_adapted"]
    num_ue = float(run.manifest.get("num_ue") or math.nan)
    quantities["energy_to_target"] = math.nan
    if not math.isnan(reached):
        until = float(energy[sim_time <= reached].sum())
        quantities["energy_to_target"] = until / num_ue

    quantities["sim_time"] = _last(sim_time)
    quantities["guarded"] = guarded_share(run)
    return quantities | average_round(run)


def _last(values: Array) -> float:
    return float(values[-1]) if len(values) else math.nan


def average_round(run: Run) -> dict[str, float]:
    """The mean time of a round [s], and of its parts: the slowest UE computing and sending, the
    downlink, the rest.
    """
    trained = run.rounds["round"].astype(np.int64) > 0
    num_rounds = int(trained.sum())
    if num_rounds == 0:
        return dict.fromkeys(("round_time", *PARTS), math.nan)

    # The slowest UE of a round is the last one of it, once they are sorted by round and time.
    index = run.ues["round"].astype(np.int64)
    compute = run.ues["compute_time"].astype(np.float64)
    upload = run.ues["upload_time"].astype(np.float64)
    order = np.lexsort((compute + upload, index))
    slowest = order[np.diff(index[order], append=-1) != 0]

    down = 0.0
    if "downlink_time" in run.rounds:  # runs of earlier versions do not say it
        down = float(run.rounds["downlink_time"].astype(np.float64)[trained].sum())
    known = np.array([compute[slowest].sum(), upload[slowest].sum(), down]) / num_rounds
    whole = float(run.rounds["round_time"].astype(np.float64)[trained].mean())
    rest = whole - float(known.sum())
    overhead = rest if rest > ROUNDING * whole else 0.0
    parts = zip(PARTS, [*known.tolist(), overhead], strict=True)
    return {"round_time": whole, **dict(parts)}


def table(results: Results) -> Table:
    """A line for each arm: mean and interval of each quantity, and time relative to the first."""
    target = results.target_text
    columns = [
        Column(f"time to {target} adapted [s]", "time_adapted", 1.0, 1),
        Column(f"time to {target} global [s]", "time_global", 1.0, 1),
        Column("final adapted [%]", "final_adapted", 100.0, 1),
        Column("final global [%]", "final_global", 100.0, 1),
        Column("K* [rounds]", "rounds_adapted", 1.0, 0),
        Column("energy per UE and round [mJ]", "energy", 1e3, 2),
        Column(f"energy per UE to {target} [mJ]", "energy_to_target", 1e3, 1),
        Column("average round [ms]", "round_time", 1e3, 1),
    ]
    arms = results.by_arm()
    first = arms[0].label if len(arms[0].label) <= SHORT else "first row"
    headings = [
        "algorithm",
        *(column.heading for column in columns),
        f"its {', '.join(PARTS)} [ms]",
        f"time / {first}",
    ]
    rows = [
        [arm.label, *cells(arm, columns), parts_text(arm), speed_text(arm, arms[0])] for arm in arms
    ]
    return Table(headings, rows)


def parts_text(arm: Results) -> str:
    """The parts of an average round [ms], means over seeds."""
    parts = [1e3 * float(arm.values[name].mean()) for name in PARTS]
    return NONE if math.isnan(sum(parts)) else " + ".join(f"{part:.3g}" for part in parts)


def speed_text(arm: Results, first: Results) -> str:
    """Time to the target relative to the first arm's, paired by seed (geometric mean)."""
    if arm.seeds != first.seeds:
        return NONE
    own = arm.values["time_adapted"]
    other = first.values["time_adapted"]
    # Not reached is NaN and reached before training is 0: neither has a ratio.
    both = (own > 0.0) & (other > 0.0)
    if not both.any():
        return NONE
    return f"{np.exp(np.log(own[both] / other[both]).mean()):.2f}"


def note(results: Results) -> str:
    """What the numbers of the table are, in words."""
    counts = {len(arm.seeds) for arm in results.by_arm()}
    if max(counts) == 1:
        many = "one seed, so no interval"
    elif len(counts) == 1:
        many = f"mean ± half a 95 % interval over {max(counts)} seeds"
    else:
        many = "mean ± half a 95 % interval over the seeds of a row, where it has several"
    return (
        f"{many}; time: when the mean of three evaluations in a row passes the target; adapted: after one step on each"
        " UE's own data, whose length the UE measures where learning.inner_lr is auto (AutoFL-J), or the model an"
        " algorithm keeps for it, global: without; K*: first round from which adapted accuracy stays within 1 % (std)"
        " over 20 rounds; average round: its slowest UE computing and sending, the downlink, and overhead with all else"
        " that a round waits for; (k of n): only k seeds reached it; –: none did"
    )


def as_json(results: Results) -> dict[str, Any]:
    """The same for machines, SI units, with each seed's value."""
    rows = []
    for arm in results.by_arm():
        row: dict[str, Any] = {"label": arm.label, "seeds": list(arm.seeds)}
        rows.append(row | {name: _over_seeds(values) for name, values in arm.values.items()})
    return {"target_accuracy": results.target, "rows": rows}


def _over_seeds(values: Array) -> dict[str, Any]:
    mean, half = mean_interval(values[~np.isnan(values)])
    return {
        "mean": plain(mean),
        "half_width_95": plain(half),
        "values": [plain(value) for value in values.tolist()],
    }
