"""What a deployment measured, next to what the model says it costs; the two are never mixed."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from autofl.records import Run
from autofl.records.devices import NOBODY
from autofl.report.plots import COLOURS, figure_of, save
from autofl.report.table import drawn_text
from autofl.units import Array, PathLike

OTHERS = ("introduction: ", "evaluation: ", "channel: ")
"""Outcomes of requests other than for an update; a device has such a row only where its answer was
refused.
"""
MOST_REFUSED = 5
"""Most of them that are listed."""


def facts(run: Run) -> dict[str, Any]:
    """Measured and modelled cost of a deployment, SI units; None where nothing was measured."""
    refused: Counter[str] = Counter()
    for ue, why in _asked(run):
        if why.startswith(OTHERS):
            refused[why if ue == NOBODY else f"UE {ue}: {why}"] += 1

    run = _updates(run)
    ok = run.devices["outcome"] == "ok"
    sent = run.ues["decoded"].astype(np.int64) == 1
    lost = Counter(map(_plain, run.devices["outcome"][~ok].tolist()))
    compute_time = run.ues["compute_time"].astype(np.float64)
    energy = run.ues["energy"].astype(np.float64)
    return {
        "folder": str(run.folder),
        "updates_asked": len(ok),
        "updates_used": int(ok.sum()),
        "left_out": dict(lost),
        "refused": dict(refused),
        "round_time": _both(_round_times(run), run.rounds["round_time"].astype(np.float64)[1:]),
        "overhead": percentiles(round_overheads(run)),
        "train_time": _both(_column(run, "train_time")[ok], compute_time[sent]),
        "energy": _both(_column(run, "energy")[ok], energy[sent]),
        "bytes_up": _both(_column(run, "bytes_up")[ok], _booked_bytes(run)[sent]),
        "bytes_down": _both(_column(run, "bytes_down"), np.empty(0)),
        "privacy": run.manifest.get("privacy"),
    }


def _updates(run: Run) -> Run:
    """The run with the rows of devices that were asked for an update, and no others."""
    there = np.array([_is_update(*row) for row in _asked(run)], dtype=np.bool_)
    return replace(run, devices={name: column[there] for name, column in run.devices.items()})


def _asked(run: Run) -> list[tuple[int, str]]:
    """Who was asked, and what came of it."""
    devices = run.devices
    return list(zip(devices["ue"].astype(int).tolist(), devices["outcome"].tolist(), strict=True))


def _is_update(ue: int, outcome: str) -> bool:
    return ue != NOBODY and not outcome.startswith(OTHERS)


def _booked_bytes(run: Run) -> Array:
    """Z / 8 of each update as recorded; for older runs, which do not record it, from the settings."""
    if "bytes_up" in run.ues:
        return run.ues["bytes_up"].astype(np.float64)
    whole = 32.0 * run.manifest.get("num_weights", math.nan)
    bits = float(run.config.get("cell", {}).get("update_bits", whole))
    return np.full(len(run.ues["ue"]), bits / 8.0)


def _plain(outcome: str) -> str:
    """A reason without the name of the weight concerned, so that equal reasons are counted
    together.
    """
    head, _, tail = outcome.partition(": ")
    return tail if tail and " " not in head else outcome


def _column(run: Run, name: str) -> Array:
    """What was measured; NaN all along in older runs, which do not have this column."""
    if name not in run.devices:
        return np.full(len(run.devices["ue"]), math.nan)
    return run.devices[name].astype(np.float64)


def _round_times(run: Run) -> Array:
    """Of each round with replies its duration, or where it is not known the time to the last reply."""
    index = run.devices["round"].astype(np.int64)
    replied = _column(run, "reply_time")
    whole = _column(run, "round_time")
    times = []
    for k in np.unique(index[~np.isnan(replied)]):
        duration = whole[index == k][0]
        times.append(np.nanmax(replied[index == k]) if np.isnan(duration) else duration)
    return np.array(times)


def round_overheads(run: Run) -> Array:
    """For each round with an update that was used: its duration minus the longest computing and
    sending of a device.

    Empty for older runs, which do not record it. Where sending was not observed, it counts as
    overhead.
    """
    if not {"round_time", "send_time"} <= set(run.devices):
        return np.empty(0)
    used = run.devices["outcome"] == "ok"
    index = run.devices["round"].astype(np.int64)
    whole = _column(run, "round_time")
    # A device cannot have been busy for longer than its reply took.
    said = _column(run, "train_time") + np.nan_to_num(_column(run, "send_time"))
    busy = np.fmin(said, _column(run, "reply_time"))
    overheads = []
    for k in np.unique(index[used]):
        there = used & (index == k)
        overheads.append(whole[there][0] - busy[there].max())
    return np.array(overheads)


def percentiles(values: Array) -> dict[str, float | None]:
    """Median and 99th percentile."""
    if not len(values):
        return {"median": None, "p99": None}
    return {"median": float(np.median(values)), "p99": float(np.percentile(values, 99))}


def _both(measured: Array, modelled: Array) -> dict[str, float | None]:
    """Medians of what was measured and of what the model says."""
    return {"measured": _median(measured), "modelled": _median(modelled)}


def _median(values: Array) -> float | None:
    there = values[~np.isnan(values)]
    return float(np.median(there)) if len(there) else None


def lines(run: Run) -> list[str]:
    """The same in words, one statement per line."""
    costs = facts(run)
    used = (
        f"devices of {run.folder}: {costs['updates_used']} of {costs['updates_asked']} updates used"
    )
    if costs["left_out"]:
        lost = ", ".join(f"{num} {reason}" for reason, num in costs["left_out"].items())
        used += f"; left out: {lost}"
    said = [used]
    if costs["refused"]:
        some = []
        for why, num in list(costs["refused"].items())[:MOST_REFUSED]:
            some.append(why if num == 1 else f"{why} ({num} times)")
        said.append(f"other replies refused: {', '.join(some)}")

    round_time = f"a round: {_text(costs['round_time'], 's')} ({_way(run)})"
    overhead = costs["overhead"]
    if overhead["median"] is not None:
        round_time += f"; beyond computing and sending {overhead['median']:.3g} s (median),"
        round_time += f" {overhead['p99']:.3g} s (99 %)"
    said.append(round_time)

    energy = costs["energy"]
    measured = "no device reports its energy"
    if energy["measured"] is not None:
        measured = f"its machine used {energy['measured']:.3g} J meanwhile"
    down = _number(costs["bytes_down"]["measured"], "bytes")
    said += [
        f"a client update: {_text(costs['train_time'], 's')}; {measured},"
        f" {_number(energy['modelled'], 'J')} modelled",
        f"an update up: {_text(costs['bytes_up'], 'bytes')}; an order down: {down}",
    ]
    if costs["privacy"] is not None:
        spent = costs["privacy"]
        said.append(
            f"privacy of a device's updates: epsilon = {spent['epsilon']:.3g} at delta = {spent['delta']:g}"
            f" after {spent['releases']} of them; this does not cover its numbers of samples and of guarded steps,"
            " nor its evaluations"
        )
    return said


def _way(run: Run) -> str:
    """How the devices were asked."""
    devices = run.manifest.get("devices", {}).values()
    ways = {str(one.get("transport", "")).partition(" ")[0] for one in devices}
    asked = " and ".join(sorted(ways - {"", "away"})) or "messages"
    slow = float(run.manifest.get("slow") or 1.0)
    if slow == 1.0:
        return f"{asked}, not a radio"
    return f"{asked}; a testbed {slow:g} times slower than modelled"


def _text(both: dict[str, float | None], unit: str) -> str:
    return f"{_number(both['measured'], unit)} measured, {_number(both['modelled'], unit)} modelled"


def _number(value: float | None, unit: str) -> str:
    form = ".0f" if unit == "bytes" else ".3g"
    return "not" if value is None else f"{value:{form}} {unit}"


def plot_devices(runs: Sequence[Run], folder: PathLike) -> list[Path]:
    """The picture of each run as PNG and SVG."""
    paths = []
    for number, run in enumerate(runs, start=1):
        stem = "devices" if len(runs) == 1 else f"devices-{number}"
        paths += save(draw_devices(run), Path(folder) / stem)
    return paths


def draw_devices(run: Run) -> Figure:
    """Time of each round, measured and modelled, and what came of asking each device."""
    run = _updates(run)
    with figure_of(8.0, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        _draw_times(left, run)
        _draw_outcomes(right, run)
        figure.suptitle(f"On devices: {drawn_text(run.folder.name)}", fontsize=10)
        return figure


def _draw_times(axes: Any, run: Run) -> None:
    index = run.devices["round"].astype(np.int64)
    replied = np.nan_to_num(_column(run, "reply_time"))
    rounds = np.unique(index)
    slowest = [replied[index == k].max(initial=0.0) for k in rounds]
    modelled = run.rounds["round_time"].astype(np.float64)
    axes.plot(rounds, slowest, "o-", color=COLOURS[0], label="measured, to the last reply")
    axes.plot(run.rounds["round"][1:], modelled[1:], "s--", color=COLOURS[1],
              label="modelled, by radio")  # fmt: skip
    axes.set_yscale("log")
    axes.set(xlabel="round", ylabel="time of a round [s]")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()


def _draw_outcomes(axes: Any, run: Run) -> None:
    """A bar for each UE, made of what came of asking it; what was used stands at the bottom."""
    known, of_row = np.unique(run.devices["ue"].astype(np.int64), return_inverse=True)
    reasons = np.array([_plain(outcome) for outcome in run.devices["outcome"].tolist()])
    distinct = sorted(set(reasons.tolist()), key=lambda reason: (reason != "ok", reason))
    bottom = np.zeros(len(known))
    for number, reason in enumerate(distinct, start=2):
        count = np.bincount(of_row[reasons == reason], minlength=len(known))
        there = count > 0
        axes.bar(
            known[there],
            count[there],
            bottom=bottom[there],
            color=COLOURS[number % len(COLOURS)],
            label="used" if reason == "ok" else drawn_text(reason[:40]),
        )
        bottom = bottom + count
    axes.set(xlabel="UE", ylabel="updates asked for")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(top=max(1.0, 1.35 * float(bottom.max(initial=0.0))))
    axes.legend(fontsize=8, loc="upper center", ncols=2)
