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


def facts(run: Run) -> dict[str, Any]:
    """Measured and modelled cost of a deployment, SI units; None where nothing was measured."""
    refused = Counter(
        f"UE {ue}: {why}" if int(ue) >= 0 else str(why)
        for ue, why in zip(run.devices["ue"], run.devices["outcome"], strict=True)
        if str(why).startswith(OTHERS)
    )
    run = _updates(run)
    ok = run.devices["outcome"] == "ok"
    sent = run.ues["decoded"].astype(np.int64) == 1
    lost = Counter(_plain(outcome) for outcome in run.devices["outcome"][~ok].tolist())
    return {
        "folder": str(run.folder),
        "updates_asked": len(ok),
        "updates_used": int(ok.sum()),
        "left_out": dict(lost),
        "refused": dict(refused),
        "round_time": _both(_round_times(run), run.rounds["round_time"].astype(np.float64)[1:]),
        "overhead": percentiles(round_overheads(run)),
        "train_time": _both(
            _column(run, "train_time")[ok], run.ues["compute_time"].astype(np.float64)[sent]
        ),
        "energy": _both(_column(run, "energy")[ok], run.ues["energy"].astype(np.float64)[sent]),
        "bytes_up": _both(_column(run, "bytes_up")[ok], _booked_bytes(run)[sent]),
        "bytes_down": _both(_column(run, "bytes_down"), np.empty(0)),
        "privacy": run.manifest.get("privacy"),
    }


def _updates(run: Run) -> Run:
    """The run with the rows of devices that were asked for an update, and no others."""
    asked = zip(run.devices["ue"].tolist(), run.devices["outcome"].tolist(), strict=True)
    there = np.array(
        [ue != NOBODY and not str(outcome).startswith(OTHERS) for ue, outcome in asked],
        dtype=np.bool_,
    )
    return replace(run, devices={name: column[there] for name, column in run.devices.items()})


def _booked_bytes(run: Run) -> Array:
    """Z / 8 of each update as recorded; for older runs, which do not record it, from the settings."""
    if "bytes_up" in run.ues:
        return run.ues["bytes_up"].astype(np.float64)
    bits = float(
        run.config.get("cell", {}).get(
            "update_bits", 32.0 * run.manifest.get("num_weights", math.nan)
        )
    )
    return np.full(len(run.ues["ue"]), bits / 8.0)


def _plain(outcome: str) -> str:
    """A reason without the name of the weight concerned, so that equal reasons are counted
    together.
    """
    head, _, tail = outcome.partition(": ")
    return tail if tail and " " not in head else outcome


def _column(run: Run, name: str) -> Array:
    return run.devices[name].astype(np.float64)


def _round_times(run: Run) -> Array:
    """Of each round with replies, its duration; for older runs, which do not record it, the time to
    the last reply.
    """
    rounds = run.devices["round"].astype(np.int64)
    replied = _column(run, "reply_time")
    whole = (
        _column(run, "round_time")
        if "round_time" in run.devices
        else np.full(len(rounds), math.nan)
    )
    answered = [rounds == k for k in np.unique(rounds[~np.isnan(replied)])]
    return np.array(
        [
            whole[there][0] if not np.isnan(whole[there][0]) else np.nanmax(replied[there])
            for there in answered
        ]
    )


def round_overheads(run: Run) -> Array:
    """For each round with an update that was used: its duration minus the longest computing and
    sending of a device.

    Empty for older runs, which do not record it. Where sending was not observed, it counts as
    overhead.
    """
    if not {"round_time", "send_time"} <= set(run.devices):
        return np.empty(0)
    used = run.devices["outcome"] == "ok"
    rounds = run.devices["round"].astype(np.int64)
    said = _column(run, "train_time") + np.nan_to_num(_column(run, "send_time"))
    busy = np.fmin(
        said, _column(run, "reply_time")
    )  # a device cannot have been busy for longer than its reply took
    whole = _column(run, "round_time")
    return np.array(
        [
            whole[there][0] - busy[there].max()
            for k in np.unique(rounds[used])
            if (there := used & (rounds == k)).any()
        ]
    )


def percentiles(values: Array) -> dict[str, float | None]:
    """Median and 99th percentile."""
    if not len(values):
        return {"median": None, "p99": None}
    return {"median": float(np.median(values)), "p99": float(np.percentile(values, 99))}


def _both(measured: Array, modelled: Array) -> dict[str, float | None]:
    """Medians of what was measured and of what the model says."""

    def median(values: Array) -> float | None:
        there = values[~np.isnan(values)]
        return float(np.median(there)) if len(there) else None

    return {"measured": median(measured), "modelled": median(modelled)}


def lines(run: Run) -> list[str]:
    """The same in words, one statement per line."""
    costs = facts(run)
    lost = ", ".join(f"{num} {reason}" for reason, num in costs["left_out"].items())
    used = f"{costs['updates_used']} of {costs['updates_asked']} updates used"
    energy = costs["energy"]
    down = costs["bytes_down"]["measured"]
    told = "no device reports its energy"
    if energy["measured"] is not None:
        told = f"its machine used {energy['measured']:.3g} J meanwhile"
    said = [
        f"devices of {run.folder}: {used}{f'; left out: {lost}' if lost else ''}",
        f"a round: {_text(costs['round_time'], 's')} ({_way(run)}){_overhead_text(costs['overhead'])}",
        f"a client update: {_text(costs['train_time'], 's')}; {told}, {_number(energy['modelled'], 'J')} modelled",
        f"an update up: {_text(costs['bytes_up'], 'bytes')}; an order down: {_number(down, 'bytes')}",
    ]
    if costs["refused"]:
        some = ", ".join(
            why if num == 1 else f"{why} ({num} times)"
            for why, num in list(costs["refused"].items())[:5]
        )
        said.insert(1, f"other replies refused: {some}")
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
    ways = {
        str(one.get("transport", "")).partition(" ")[0]
        for one in run.manifest.get("devices", {}).values()
    }
    asked = " and ".join(sorted(ways - {"", "away"})) or "messages"
    slow = float(run.manifest.get("slow") or 1.0)
    return (
        f"{asked}, not a radio"
        if slow == 1.0
        else f"{asked}; a testbed {slow:g} times slower than modelled"
    )


def _overhead_text(overhead: dict[str, float | None]) -> str:
    if overhead["median"] is None:
        return ""
    return f"; beyond computing and sending {overhead['median']:.3g} s (median), {overhead['p99']:.3g} s (99 %)"


def _text(both: dict[str, float | None], unit: str) -> str:
    return f"{_number(both['measured'], unit)} measured, {_number(both['modelled'], unit)} modelled"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "not"
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.3g} {unit}"


def plot_devices(runs: Sequence[Run], folder: PathLike) -> list[Path]:
    """The picture of each run as PNG and SVG."""
    stems = (
        ["devices"] if len(runs) == 1 else [f"devices-{place + 1}" for place in range(len(runs))]
    )
    return [
        path
        for run, stem in zip(runs, stems, strict=True)
        for path in save(draw_devices(run), Path(folder) / stem)
    ]


def draw_devices(run: Run) -> Figure:
    """Time of each round, measured and modelled, and what came of asking each device."""
    run = _updates(run)
    with figure_of(8.0, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        rounds = np.unique(run.devices["round"].astype(np.int64))
        time = _column(run, "reply_time")
        asked = run.devices["round"].astype(np.int64)
        slowest = [
            np.max(time[asked == k], initial=0.0, where=~np.isnan(time[asked == k])) for k in rounds
        ]
        left.plot(rounds, slowest, "o-", color=COLOURS[0], label="measured, to the last reply")
        modelled = run.rounds["round_time"].astype(np.float64)
        left.plot(
            run.rounds["round"][1:],
            modelled[1:],
            "s--",
            color=COLOURS[1],
            label="modelled, by radio",
        )
        left.set_yscale("log")
        left.set_xlabel("round")
        left.set_ylabel("time of a round [s]")
        left.xaxis.get_major_locator().set_params(integer=True)
        left.legend()
        ues = run.devices["ue"].astype(np.int64)
        outcomes = run.devices["outcome"]
        known, place = np.unique(ues, return_inverse=True)
        bottom = np.zeros(len(known))
        reasons = np.array([_plain(outcome) for outcome in outcomes.tolist()])
        for colour, reason in enumerate(
            sorted(set(reasons.tolist()), key=lambda reason: (reason != "ok", reason))
        ):
            count = np.bincount(place[reasons == reason], minlength=len(known))
            there = count > 0
            name = "used" if reason == "ok" else drawn_text(reason[:40])
            right.bar(
                known[there],
                count[there],
                bottom=bottom[there],
                color=COLOURS[(2 + colour) % 7],
                label=name,
            )
            bottom = bottom + count
        right.set_xlabel("UE")
        right.set_ylabel("updates asked for")
        right.xaxis.get_major_locator().set_params(integer=True)
        right.yaxis.get_major_locator().set_params(integer=True)
        right.set_ylim(top=max(1.0, 1.35 * float(bottom.max(initial=0.0))))
        right.legend(fontsize=8, loc="upper center", ncols=2)
        figure.suptitle(f"On devices: {drawn_text(run.folder.name)}", fontsize=10)
        return figure
