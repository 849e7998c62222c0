"""autofl tune: the best constants by grid search."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofl.cli.screen import ProgressBar, say, show_table
from autofl.cli.shared import (
    Config,
    Device,
    Force,
    Json,
    Out,
    Ray,
    Scenario,
    Set,
    Workers,
    device_for,
    folder_for,
    interruptible,
    num_workers,
    numbers,
    options,
    print_json,
)
from autofl.errors import AutoFLError
from autofl.files import quoted, write_whole
from autofl.report.table import Table, counted, number_text, percent

if TYPE_CHECKING:
    from autofl.experiments.tuned import Trial, Tuned

EXAMPLE = (
    "Example: autofl tune --samples 5,20 --steps 1,4 --bits 2,4 --set compressor.name=quantise"
)


def command(
    config: Config = None,
    scenario: Scenario = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="One of `autofl parts algorithm`, or your own as module:object."),
    ] = None,
    samples: Annotated[
        str, typer.Option(metavar="D,...", help="Samples of a local step to try.")
    ] = "5,20,40",
    steps: Annotated[str, typer.Option(metavar="TAU,...", help="Local steps to try.")] = "1,4",
    bits: Annotated[
        str | None,
        typer.Option(metavar="B,...", help="Bits per weight to try; needs a compressor."),
    ] = None,
    selected: Annotated[
        str | None, typer.Option(metavar="N,...", help="Numbers of selected UEs to try.")
    ] = None,
    frequency: Annotated[
        str | None,
        typer.Option(metavar="SHARE,...", help="Shares of the CPUs' frequencies to try."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds for tuning; judge on other seeds.")
    ] = 3,
    target: Annotated[
        float | None, typer.Option(help="Accuracy; default compare.target_accuracy.")
    ] = None,
    device: Device = None,
    ray: Ray = None,
    out: Out = None,
    force: Force = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="With the same options and --out: keep finished runs, resume the others.",
        ),
    ] = False,
    workers: Workers = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Find the constants with the least median time to a target: what a user would pick instead of
    planning.
    """
    from autofl.config import dump_settings, load_settings

    chosen = options({"algorithm": algorithm, "simulation.device": device_for(device, ray)})
    settings = load_settings(config, [*(overrides or ()), *chosen], scenario)
    if resume and out is None:
        raise AutoFLError("--resume: name the folder to resume (--out)")
    if seeds < 1:
        raise AutoFLError(f"--seeds {seeds}: at least 1 is needed")
    from autofl.experiments.tuned import Grid, tune

    grid = Grid(
        num_samples=numbers("--samples", samples, int),
        local_steps=numbers("--steps", steps, int),
        bits=numbers("--bits", bits, float),
        num_selected=numbers("--selected", selected, int),
        frequency=numbers("--frequency", frequency, float),
    )
    folder = folder_for(out, "tune")
    target = settings.compare.target_accuracy if target is None else target
    count = len(list(grid))
    total = count * seeds
    say(f"{count} constants, {counted(seeds, 'seed')} each; into {folder}")
    bar = ProgressBar(total * settings.stop.rounds, each_run=total <= 20)
    again = f"the same command with --out {quoted(folder)} --resume"
    with bar, interruptible(folder, again):
        tuned = tune(
            settings,
            grid,
            folder,
            seeds=range(settings.seed, settings.seed + seeds),
            target=target,
            force=force,
            resume=resume,
            workers=num_workers(workers, settings.simulation.threads),
            ray=ray,
            on_progress=bar,
        )
    file = folder / "tuned.toml"
    if tuned.best_settings is not None:
        write_whole(file, dump_settings(tuned.best_settings))
    _show(tuned, folder, file, as_json)


def _show(tuned: "Tuned", folder: Path, file: Path, as_json: bool) -> None:
    """The table, and a file of the same; the best constants in a sentence."""
    from autofl.config.load import own_code_named

    told = {
        "target": tuned.target,
        "metric": tuned.settings.stop.metric,
        "seeds": list(tuned.seeds),
        "best": None if tuned.best is None else tuned.best.row(),
        "settings": None if tuned.best is None else str(file),
        "trials": [trial.row() for trial in tuned.trials],
    }
    write_whole(folder / "tuned.json", json.dumps(told, indent=2) + "\n")
    if as_json:
        print_json(told)
    else:
        headings = ["constants", "d", "tau", "bits", "|A_k|", "frequency"]
        headings += [f"s to {percent(tuned.target)}", "reached", "accuracy", ""]
        show_table(Table(headings, [_row(trial) for trial in tuned.trials]))
    if tuned.best is None or tuned.best_settings is None:
        say(
            f"no constants reach {percent(tuned.target)} in half of their runs; try others, or more stop.rounds"
        )
    else:
        own = "".join(f" {words}" for words in own_code_named(tuned.best_settings.table()))
        say(
            f"best: {tuned.best.constants.name}; autofl simulate {quoted(file)}{own} runs them on a seed not used for"
            " tuning",
            whole=True,
        )


def _row(trial: "Trial") -> list[str]:
    constants = trial.constants
    return [
        constants.name,
        str(constants.num_samples),
        str(constants.local_steps),
        number_text(constants.bits),
        number_text(constants.num_selected),
        number_text(constants.frequency),
        number_text(trial.row()["median_time"], ".3g"),
        f"{trial.num_reached}/{len(trial.times)}",
        percent(trial.row()["median_accuracy"], 1),
        trial.remark,
    ]
