"""autofl reproduce testbed: the time that was predicted against the time that real links took."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import load_settings
from autofl.deploy.commands import Tell, down, run, up
from autofl.deploy.testbed import Testbed
from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.quality import time_to_accuracy
from autofl.records import Run, is_run, read_run
from autofl.report.devices import round_overheads
from autofl.report.plots import COLOURS, figure_of, save
from autofl.report.table import Table, percent
from autofl.units import Array

ALGORITHMS = ("autofl-j", "autofl", "per-fedavg", "fedavg-1", "fedavg-2")
SCALES = {
    "quick": ("cell.num_ue=5", "simulation.num_selected=3", "stop.rounds=30", "evaluation.every=2"),
    "full": ("stop.rounds=50", "evaluation.every=1"),
}
BEFOREHAND = 30
"""Rounds at most in which the overhead is measured before a run, and seconds they may take."""
GUESS = 0.05
"""Overhead in seconds with which these rounds are planned."""


Values = dict[str, Any]
"""What is measured of a run, by name."""


def round_times(made: Run, slow: float) -> tuple[Array, Array, Array]:
    """Rounds in which a device was asked, their predicted and their measured seconds."""
    asked = made.devices["round"].astype(np.int64)
    whole = made.devices["round_time"].astype(np.float64)
    timed = np.flatnonzero(~np.isnan(whole))
    k, first = np.unique(asked[timed], return_index=True)
    modelled = made.rounds["round_time"].astype(np.float64)
    rows = np.searchsorted(made.rounds["round"].astype(np.int64), k)
    return k.astype(np.float64), slow * modelled[rows], whole[timed[first]]


def overhead_of(made: Run) -> float:
    """Seconds of a round besides computing and sending as measured: the median, without the first
    third of the rounds, in which each device trains for the first time.

    Nothing modelled goes in, so that an error of the model stays in the prediction.
    """
    beside = round_overheads(made)
    return max(float(np.median(beside[len(beside) // 3 :])), 0.0)


def row_of(made: Run, slow: float, overhead: float, target: float) -> Values:
    """What is measured of a run, in seconds on links and processors that are `slow` times slower
    than modelled.

    overhead: of a round, measured beforehand; round_error: median of |predicted / measured - 1|;
    constant_error: the same, had each round been predicted with the mean of all as measured;
    total_error: of the sum of all rounds; sending, computing: measured over modelled seconds of an
    update, median (a device holds an update back until computing has taken as long as modelled);
    predicted, measured: of all rounds; to_target: seconds to the accuracy `target`, None if it is
    not reached; bytes_up: of an update, median; energy: [J] of all UEs in all rounds, as modelled;
    host_time: with everything, evaluation too, which is not part of a round.
    """
    k, predicted, measured = round_times(made, slow)
    rounds, _, accuracy = made.evaluated("adapted_accuracy")
    passed = np.array([measured[k <= number].sum() for number in rounds])
    reached = time_to_accuracy(passed, accuracy, target)
    return {
        "algorithm": str(made.manifest["algorithm"]),
        "seed": int(made.manifest["seed"]),
        "slow": slow,
        "overhead": overhead,
        "rounds": len(k),
        "round_error": float(np.median(np.abs(predicted / measured - 1.0))),
        "constant_error": float(np.median(np.abs(measured.mean() / measured - 1.0))),
        "total_error": float(abs(predicted.sum() / measured.sum() - 1.0)),
        "sending": _over_modelled(made, slow, "send_time", "upload_time"),
        "computing": _over_modelled(made, slow, "train_time", "compute_time"),
        "predicted": float(predicted.sum()),
        "measured": float(measured.sum()),
        "target": target,
        "to_target": None if np.isnan(reached) else reached,
        "bytes_up": float(np.nanmedian(made.devices["bytes_up"].astype(np.float64))),
        "energy": float(made.ues["energy"].astype(np.float64).sum()),
        "host_time": float(made.manifest["host_time"]),
    }


def _over_modelled(made: Run, slow: float, seen: str, modelled: str) -> float:
    """Median over all updates that came of seconds measured over modelled."""
    planned = {}
    for k, ue, seconds in zip(made.ues["round"], made.ues["ue"], made.ues[modelled], strict=True):
        planned[int(k), int(ue)] = slow * float(seconds)

    shares = []
    devices = made.devices
    for row in np.flatnonzero(devices["outcome"] == "ok"):
        pair = int(devices["round"][row]), int(devices["ue"][row])
        shares.append(float(devices[seen][row]) / planned[pair])
    return float(np.nanmedian(shares))


def study_testbed(
    folder: Path,
    scale: str,
    seeds: int,
    slow: float,
    tell: Tell,
    algorithms: Sequence[str] = ALGORITHMS,
) -> list[Values]:
    """Each algorithm and seed on the testbed: the overhead first, then the run that is planned and
    predicted with it.

    Finished runs are kept.
    """
    if seeds < 1:
        raise AutoFLError(f"--seeds: {seeds} is not at least 1")
    Testbed(folder, 1, slow)  # refuses what no time scale can be
    rows = []
    runs = []
    for seed in range(1, seeds + 1):
        words = [
            f"seed={seed}",
            "deploy.join=120",
            f"deploy.deadline={max(slow, 60.0)}",
            *SCALES[scale],
        ]
        settings = load_settings(None, words)
        folders = {name: folder / f"{name}-seed{seed}" for name in algorithms}
        left = [name for name in algorithms if not _is_done(folders[name], words, slow)]
        site = folder / f"site{seed}"
        testbed = Testbed(site, settings.resolved().cell.count, slow)
        if left:
            testbed.build()
            try:
                for name in left:
                    up(settings, site, tell, testbed)  # from the second on it mends what has ended
                    _make([*words, f"arm={name}"], site, folders[name], slow, tell)
            finally:
                down(site)
                testbed.remove()
        for place in folders.values():
            made = read_run(place)
            overhead = slow * float(made.config["cell"]["overhead"])
            rows.append(row_of(made, slow, overhead, settings.compare.target_accuracy))
            runs.append(made)

    write_whole(folder / "testbed.json", json.dumps(rows, indent=2) + "\n")
    write_whole(folder / "testbed.md", table_of(rows).markdown() + "\n")
    write_whole(folder / "rounds.csv", rounds_of(runs, slow))
    _draw(runs, slow, folder)
    return rows


def _is_done(place: Path, words: Sequence[str], slow: float) -> bool:
    """Whether this run is finished; a run with other settings in its place is refused."""
    if not is_run(place):
        return False
    made = read_run(place)
    wanted = load_settings(None, words).resolved()
    is_other = (made.config["cell"]["num_ue"], made.config["stop"]["rounds"]) != (
        wanted.cell.num_ue,
        wanted.stop.rounds,
    )
    if is_other or made.manifest.get("slow", 1.0) != slow:
        raise AutoFLError(f"{place}: a run of another scale or another --slow; name another --out")
    return bool(made.manifest["status"] == "finished")


def _make(words: Sequence[str], site: Path, place: Path, slow: float, tell: Tell) -> None:
    """Measure the overhead in a few rounds, then plan and make the run with it."""
    few = (
        f"stop.rounds={BEFOREHAND}",
        f"stop.sim_time={BEFOREHAND / slow!r}",
        f"cell.overhead={GUESS / slow!r}",
    )
    first = load_settings(None, [*words, *few])
    before = run(first, site, place.with_name(place.name + "-before"), lambda so_far: None)
    if not (before.devices["outcome"] == "ok").any():
        raise AutoFLError(f"{before.folder}: no update arrived; devices.csv says why")
    overhead = overhead_of(before)
    tell(f"{place.name}: {1e3 * overhead:.1f} ms of overhead in a round, beforehand")
    settings = load_settings(None, [*words, f"cell.overhead={overhead / slow!r}"])
    run(settings, site, place, lambda so_far: None)


def table_of(rows: Sequence[Values]) -> Table:
    """What is measured of each run."""
    body = []
    for row in rows:
        reached = f"not in {row['rounds']} rounds"
        if row["to_target"] is not None:
            reached = f"{row['to_target']:.1f} s"
        cells = [
            row["algorithm"],
            str(row["seed"]),
            f"{1e3 * row['overhead']:.0f} ms",
            f"{row['predicted']:.1f} s",
            f"{row['measured']:.1f} s",
            percent(row["round_error"], 1),
            percent(row["constant_error"], 1),
            f"{row['sending']:.2f}",
            reached,
        ]
        body.append(cells)
    headings = [
        "algorithm",
        "seed",
        "overhead",
        "predicted",
        "measured",
        "error of a round",
        "by a constant",
        "sending",
        f"to {100 * rows[0]['target']:g} %",
    ]
    return Table(headings, body)


def rounds_of(runs: Sequence[Run], slow: float) -> str:
    """Every round as a line of a CSV: predicted and measured seconds."""
    lines = ["algorithm,seed,round,predicted,measured"]
    for made in runs:
        head = f"{made.manifest['algorithm']},{made.manifest['seed']}"
        times = zip(*round_times(made, slow), strict=True)
        lines += [
            f"{head},{k:.0f},{predicted:.6g},{measured:.6g}" for k, predicted, measured in times
        ]
    return "\n".join(lines) + "\n"


def _draw(runs: Sequence[Run], slow: float, folder: Path) -> None:
    with figure_of(5.0, 4.4) as figure:
        axes = figure.subplots()
        names = list(dict.fromkeys(str(made.manifest["label"]) for made in runs))
        for made in runs:
            place = names.index(str(made.manifest["label"]))
            _, predicted, measured = round_times(made, slow)
            axes.loglog(predicted, measured, ".", color=COLOURS[place % len(COLOURS)], alpha=0.5)
        for place, name in enumerate(names):
            axes.plot([], [], ".", color=COLOURS[place % len(COLOURS)], label=name)
        axes.axline((1.0, 1.0), (10.0, 10.0), color="grey", linewidth=0.8)
        axes.set_xlabel(f"predicted time of a round [s], {slow:g} times slower")
        axes.set_ylabel("measured [s]")
        axes.legend(frameon=False)
        save(figure, folder / "testbed")
