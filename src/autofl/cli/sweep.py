"""autofl sweep: settings over lists and ranges, planned or simulated. --plan loads no PyTorch."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofl.cli.screen import ProgressBar, Stages, say, show_table
from autofl.cli.shared import (
    Config,
    Device,
    Json,
    Ray,
    Scenario,
    Set,
    Workers,
    device_for,
    interruptible,
    keys_like,
    num_workers,
    options,
    print_json,
    say_foregone,
)
from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.jobs.job import Job

EXAMPLE = (
    "Example: autofl sweep --plan --over cell.max_energy=1e-3:1e-2:10 --over planner.name=paper,exact;"
    " autofl sweep --over data.labels=1,2,5 --seeds 3 --set stop.rounds=50"
)


def command(
    config: Config = None,
    scenario: Scenario = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="LOW:HIGH:COUNT, the same with :log, or values with commas; repeat.",
            autocompletion=keys_like,
        ),
    ] = None,
    planned: Annotated[
        bool, typer.Option("--plan", help="Plan one round of each instead of simulating.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each combination.")] = 1,
    target: Annotated[
        float | None,
        typer.Option(
            help="Accuracy for time to accuracy; default compare.target_accuracy. With --plan: forecast to it."
        ),
    ] = None,
    device: Device = None,
    ray: Ray = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results; default: one under runs/ for exactly this sweep."
        ),
    ] = None,
    workers: Workers = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Plan or simulate every combination of values of some settings: a table and a picture.

    After an interruption, the same command continues; finished runs are kept.
    """
    from autofl.config import dump_said, load_settings
    from autofl.files import inside, write_whole
    from autofl.jobs.sweep import jobs_of, parse_axis
    from autofl.lock import locked
    from autofl.report.sweep import sweep_json, sweep_table, write_sweep
    from autofl.results import Results

    if not over:
        raise AutoFLError("sweep: say over what, for example --over cell.max_energy=1e-3:1e-2:10")
    if target is not None and not 0.0 < target <= 1.0:
        raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
    if planned and (device or ray or workers):
        raise AutoFLError("--plan simulates nothing; leave --device, --ray and --workers out")
    said = [*(overrides or ()), *options({"simulation.device": device_for(device, ray)})]

    def load(more: Sequence[str]) -> "Settings":
        return load_settings(config, [*said, *more], scenario)

    axes = [parse_axis(text) for text in over]
    base = dump_said(load([]))  # of several arms, perhaps
    asked = repr((base, axes, seeds, planned, target))
    folder = out or Path("runs") / f"sweep-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
    jobs = jobs_of(axes, load, seeds, inside(folder, "runs"))
    say_foregone(*(job.settings for job in jobs))
    first = jobs[0].settings
    with locked(folder):
        write_whole(folder / "config.toml", base)
        if planned:
            rows = _plan(jobs, target)
        else:
            target = first.compare.target_accuracy if target is None else target
            count = num_workers(workers, first.simulation.threads)
            rows = _simulate(jobs, target, folder, count, ray)
        results = Results.of(
            arms=[job.values for job in jobs],
            seeds=[job.settings.seed for job in jobs],
            measured=rows,
            names=[job.folder.name for job in jobs],
            target=target,
        )
        files = write_sweep(results, first.arm_name, base, folder)
    if as_json:
        return print_json(sweep_json(results))
    show_table(sweep_table(results))
    say(f"written: {', '.join(map(str, files))}")
    return None


def _plan(jobs: "Sequence[Job]", target: float | None) -> list[dict[str, float]]:
    """A planned round of each job, with a target also a forecast."""
    from autofl.jobs.sweep import planned

    rows = []
    with Stages() as stages:
        for number, job in enumerate(jobs, start=1):
            stages(f"{number} of {len(jobs)}: {job.label}")
            row = planned(job.settings)
            if target is not None:
                row |= _forecast(job, target)
            rows.append(row)
    return rows


def _forecast(job: "Job", target: float) -> dict[str, float]:
    """Medians and 95 % limits of rounds, time [s] and energy of a UE [J] to the target."""
    from autofl.forecast.predict import forecast
    from autofl.report.sweep import FORECAST

    told = forecast(job.settings, target).table()
    columns: dict[str, Any] = {}
    for name, key in zip(FORECAST, ("rounds", "sim_time", "energy"), strict=True):
        columns[name] = told[key]["median"]
        columns[f"{name}_low_95"] = told[key]["low_95"]
        columns[f"{name}_high_95"] = told[key]["high_95"]
    # None stands for never.
    return {name: math.nan if value is None else value for name, value in columns.items()}


def _simulate(
    jobs: "Sequence[Job]", target: float, folder: Path, workers: int, ray: str | None
) -> list[dict[str, float]]:
    """What is read off the run of each job."""
    from autofl.jobs.many import distinct, run_jobs, unfinished
    from autofl.records import read_run
    from autofl.report.summary import measure

    left = unfinished(jobs)
    say(f"{len(distinct(jobs))} runs, {len(left)} of them to be made, into {folder}")
    total = sum(job.settings.stop.rounds for job in left)
    bar = ProgressBar(max(1, total), each_run=len(left) <= 20)
    with bar, interruptible(folder / "runs", "the same command"):
        run_jobs(jobs, workers, ray, bar)
    return [measure(read_run(job.folder), target) for job in jobs]
