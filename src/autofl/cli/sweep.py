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
    exit_status,
    keys_like,
    num_workers,
    options,
    print_json,
    say_foregone,
)
from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.experiments.sweep import Point
    from autofl.report.sweep import Sweep, Values

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
    from autofl.config import dump_settings, load_settings
    from autofl.experiments.sweep import parse_axis, points_of
    from autofl.files import write_whole
    from autofl.lock import locked

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
    # of several algorithms, perhaps
    points = points_of(axes, load, seeds)
    base = dump_settings(load([]), of_many=True)
    say_foregone(*(point.settings for point in points))
    asked = repr((base, axes, seeds, planned, target))
    folder = out or Path("runs") / f"sweep-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
    with locked(folder):
        write_whole(folder / "config.toml", base)
        sweep = (
            _plan(points, target)
            if planned
            else _simulate(
                points,
                target,
                folder,
                num_workers(workers, points[0].settings.simulation.threads),
                ray,
            )
        )
        _show(sweep, folder, base, as_json)


def _plan(points: "Sequence[Point]", target: float | None) -> "Sweep":
    from autofl.experiments.sweep import planned
    from autofl.report.sweep import Sweep

    results: list[Values] = []
    with Stages() as stages:
        for place, point in enumerate(points, start=1):
            stages(f"{place} of {len(points)}: {point.label}")
            results.append(
                {**planned(point.settings), **({} if target is None else _forecast(point, target))}
            )
    return Sweep("planned" if target is None else "forecast", tuple(points), tuple(results), target)


def _forecast(point: "Point", target: float) -> dict[str, float]:
    """Medians and 95 % limits of rounds, time [s] and energy of a UE [J] to the target."""
    from autofl.forecast.predict import forecast
    from autofl.report.sweep import FORECAST

    told = forecast(point.settings, target).table()
    columns: dict[str, Any] = {}
    for name, key in zip(FORECAST, ("rounds", "sim_time", "energy"), strict=True):
        low = f"{name}_low_95"
        high = f"{name}_high_95"
        columns |= {name: told[key]["median"], low: told[key]["low_95"], high: told[key]["high_95"]}
    return {
        name: math.nan if value is None else value for name, value in columns.items()
    }  # None: never


def _simulate(
    points: "Sequence[Point]", target: float | None, folder: Path, workers: int, ray: str | None
) -> "Sweep":
    from autofl.experiments.sweep import run_points, unfinished
    from autofl.files import inside
    from autofl.records import read_run
    from autofl.report.summary import measure
    from autofl.report.sweep import Sweep

    store = inside(folder, "runs")
    left = unfinished(points, store)
    say(
        f"{len({point.name for point in points})} runs, {len(left)} of them to be made, into {folder}"
    )
    total = sum(point.settings.stop.rounds for point in left)
    with ProgressBar(max(1, total), each_run=len(left) <= 20) as bar:
        try:
            places = run_points(points, store, workers=workers, ray=ray, on_progress=bar)
        except KeyboardInterrupt as error:
            say(
                f"interrupted; the same command continues from here (finished runs are in {store})",
                whole=True,
            )
            raise typer.Exit(exit_status(error)) from None
    accuracy = points[0].settings.compare.target_accuracy if target is None else target
    results = [measure(read_run(place), accuracy) for place in places]
    return Sweep("simulated", tuple(points), tuple(results), accuracy)


def _show(sweep: "Sweep", folder: Path, base: str, as_json: bool) -> None:
    from autofl.report.sweep import write_sweep

    files = write_sweep(sweep, folder, base)
    if as_json:
        return print_json(
            {"kind": sweep.kind, "target_accuracy": sweep.target, "rows": sweep.rows()}
        )
    show_table(sweep.table)
    say(f"written: {', '.join(str(path) for path in files)}")
    return None
