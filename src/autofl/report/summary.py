"""What runs say side by side: one row per algorithm, means over seeds with intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofl.quality import convergence_round, mean_interval, time_to_accuracy
from autofl.records import Run
from autofl.report.runs import group, guarded_share
from autofl.report.table import Table
from autofl.units import Array

METRICS = ("adapted", "global")
SHORT = 24
"""Letters up to which a label stands in a heading."""


@dataclass(frozen=True)
class Row:
    """One algorithm: values of each seed, in the order of `seeds`; NaN where a target was not
    reached.
    """

    label: str
    seeds: tuple[int, ...]
    values: dict[str, Array]


def summarise(runs: Sequence[Run], target: float) -> list[Row]:
    """Rows in the order in which the algorithms come."""
    return [
        Row(
            label=label,
            seeds=tuple(int(run.manifest["seed"]) for run in members),
            values={
                name: np.array([measure(run, target)[name] for run in members]) for name in _NAMES
            },
        )
        for label, members in group(runs).items()
    ]


PARTS = ("computing", "sending", "downlink", "overhead")
"""What a round's time is made of."""
ROUNDING = 1e-9
"""Share of a round up to which what is left of it beside its parts is the rounding of sums of up to
1e6 rounds.
"""
_NAMES = (
    *(f"{quantity}_{metric}" for metric in METRICS for quantity in ("time", "final", "rounds")),
    "energy",
    "energy_to_target",
    "sim_time",
    "guarded",
    "round_time",
    *PARTS,
)


def measure(run: Run, target: float) -> dict[str, float]:
    """What is read off one run, SI units; NaN where a target was not reached."""
    quantities: dict[str, float] = {}
    for metric in METRICS:
        rounds, sim_time, accuracy = run.evaluated(f"{metric}_accuracy")
        quantities[f"time_{metric}"] = time_to_accuracy(sim_time, accuracy, target)
        quantities[f"final_{metric}"] = float(accuracy[-1]) if len(accuracy) else math.nan
        quantities[f"rounds_{metric}"] = (
            convergence_round(rounds, accuracy) if len(accuracy) else math.nan
        )
    energy = run.rounds["energy"].astype(np.float64)
    sim_time = run.rounds["sim_time"].astype(np.float64)
    senders = float((run.ues["energy"].astype(np.float64) > 0.0).sum())  # decoded or not
    quantities["energy"] = float(energy.sum()) / senders if senders else math.nan
    reached = quantities["time_adapted"]
    before = float(energy[sim_time <= reached].sum()) / float(
        run.manifest.get("num_ue") or math.nan
    )
    quantities["energy_to_target"] = math.nan if math.isnan(reached) else before
    quantities["sim_time"] = float(sim_time[-1]) if len(sim_time) else math.nan
    quantities["guarded"] = guarded_share(run)
    return quantities | average_round(run)


def average_round(run: Run) -> dict[str, float]:
    """The mean time of a round [s], and of its parts: the slowest UE computing and sending, the
    downlink, the rest.
    """
    trained = run.rounds["round"].astype(np.int64) > 0
    if not trained.any():
        return dict.fromkeys(("round_time", *PARTS), math.nan)
    compute, upload = (run.ues[name].astype(np.float64) for name in ("compute_time", "upload_time"))
    order = np.lexsort((compute + upload, run.ues["round"].astype(np.int64)))
    slowest = order[
        np.diff(run.ues["round"].astype(np.int64)[order], append=-1) != 0
    ]  # the last one of each round
    told = "downlink_time" in run.rounds  # by runs of earlier versions it is not
    down = float(run.rounds["downlink_time"].astype(np.float64)[trained].sum()) if told else 0.0
    parts = np.array([compute[slowest].sum(), upload[slowest].sum(), down]) / int(trained.sum())
    whole = float(run.rounds["round_time"].astype(np.float64)[trained].mean())
    rest = whole - float(parts.sum())
    overhead = rest if rest > ROUNDING * whole else 0.0
    return {"round_time": whole, **dict(zip(PARTS, [*parts.tolist(), overhead], strict=True))}


@dataclass(frozen=True)
class Column:
    """A column of the table: its heading, the value it shows, a factor to the unit shown, and
    digits.
    """

    heading: str
    name: str
    factor: float
    digits: int


def columns(target: float) -> list[Column]:
    percent = f"{100 * target:g} %"
    return [
        Column(f"time to {percent} adapted [s]", "time_adapted", 1.0, 1),
        Column(f"time to {percent} global [s]", "time_global", 1.0, 1),
        Column("final adapted [%]", "final_adapted", 100.0, 1),
        Column("final global [%]", "final_global", 100.0, 1),
        Column("K* [rounds]", "rounds_adapted", 1.0, 0),
        Column("energy per UE and round [mJ]", "energy", 1e3, 2),
        Column(f"energy per UE to {percent} [mJ]", "energy_to_target", 1e3, 1),
        Column("average round [ms]", "round_time", 1e3, 1),
    ]


def cell_text(values: Array, column: Column) -> str:
    """Mean ± half the 95 % interval over the seeds that have a value; how many do, where some do
    not.
    """
    there = values[~np.isnan(values)] * column.factor
    if len(there) == 0:
        return "–"
    mean, half = mean_interval(there)
    digits = (
        3 if column.digits == 1 and abs(mean) < 1.0 else column.digits
    )  # seconds may be milliseconds
    text = f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")
    return text if len(there) == len(values) else f"{text} ({len(there)} of {len(values)})"


def parts_text(row: Row) -> str:
    """The parts of an average round [ms], means over seeds."""
    parts = [1e3 * float(row.values[name].mean()) for name in PARTS]
    return "–" if math.isnan(sum(parts)) else " + ".join(f"{part:.3g}" for part in parts)


def speed_text(row: Row, first: Row) -> str:
    """Time to the target relative to the first row's, paired by seed (geometric mean)."""
    if row.seeds != first.seeds:
        return "–"
    own = row.values["time_adapted"]
    other = first.values["time_adapted"]
    both = (own > 0.0) & (
        other > 0.0
    )  # not reached is NaN, reached before training is 0: neither has a ratio
    ratio = own[both] / other[both]
    return f"{np.exp(np.log(ratio).mean()):.2f}" if len(ratio) else "–"


def table(rows: Sequence[Row], target: float) -> Table:
    """A line for each row: mean and interval of each quantity, and time relative to the first."""
    shown = columns(target)
    first = rows[0].label if len(rows[0].label) <= SHORT else "first row"
    made_of = f"its {', '.join(PARTS)} [ms]"
    headings = ["algorithm", *(column.heading for column in shown), made_of, f"time / {first}"]
    body = [
        [
            row.label,
            *(cell_text(row.values[column.name], column) for column in shown),
            parts_text(row),
            speed_text(row, rows[0]),
        ]
        for row in rows
    ]
    return Table(headings, body)


def note(rows: Sequence[Row]) -> str:
    """What the numbers of the table are, in words."""
    counts = {len(row.seeds) for row in rows}
    seeds = (
        f"{max(counts)} seeds" if len(counts) == 1 else "the seeds of a row, where it has several"
    )
    many = (
        f"mean ± half a 95 % interval over {seeds}"
        if max(counts) > 1
        else "one seed, so no interval"
    )
    return (
        f"{many}; time: when the mean of three evaluations in a row passes the target; adapted: after one step on each"
        " UE's own data, whose length the UE measures where learning.inner_lr is auto (AutoFL-J), or the model an"
        " algorithm keeps for it, global: without; K*: first round from which adapted accuracy stays within 1 % (std)"
        " over 20 rounds; average round: its slowest UE computing and sending, the downlink, and overhead with all else"
        " that a round waits for; (k of n): only k seeds reached it; –: none did"
    )


def as_json(rows: Sequence[Row], target: float) -> dict[str, Any]:
    """The same for machines, SI units, with each seed's value."""

    def plain(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        "target_accuracy": target,
        "rows": [
            {
                "label": row.label,
                "seeds": list(row.seeds),
                **{
                    name: {
                        "mean": plain(mean_interval(values[~np.isnan(values)])[0]),
                        "half_width_95": plain(mean_interval(values[~np.isnan(values)])[1]),
                        "values": [plain(float(value)) for value in values],
                    }
                    for name, values in row.values.items()
                },
            }
            for row in rows
        ],
    }
