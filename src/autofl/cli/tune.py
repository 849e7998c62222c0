"""autofl tune: the best constants by grid search."""

import json
from typing import Annotated, Any

import typer

from autofl.cli.screen import ProgressBar, say, show_table
from autofl.cli.shared import (
    ArmName,
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
    option_values,
    options,
    print_json,
)
from autofl.errors import AutoFLError
from autofl.files import quoted, write_whole
from autofl.report.table import Table, counted, number_text, percent

EXAMPLE = (
    "Example: autofl tune --samples 5,20 --steps 1,4 --bits 2,4 --set compressor.name=quantise"
)


def command(
    config: Config = None,
    scenario: Scenario = None,
    arm: ArmName = None,
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
    from autofl.config.load import own_code_named
    from autofl.jobs.tuned import best_of, grid, ranked, trial_json, tune

    chosen = options({"arm": arm, "simulation.device": device_for(device, ray)})
    settings = load_settings(config, [*(overrides or ()), *chosen], scenario)
    if resume and out is None:
        raise AutoFLError("--resume: name the folder to resume (--out)")
    if seeds < 1:
        raise AutoFLError(f"--seeds {seeds}: at least 1 is needed")
    tried = grid(
        num_samples=option_values("--samples", samples, int),
        local_steps=option_values("--steps", steps, int),
        bits=option_values("--bits", bits, float),
        num_selected=option_values("--selected", selected, int),
        frequency=option_values("--frequency", frequency, float),
    )
    folder = folder_for(out, "tune")
    target = settings.compare.target_accuracy if target is None else target
    total = len(tried) * seeds
    say(f"{len(tried)} constants, {counted(seeds, 'seed')} each; into {folder}")
    bar = ProgressBar(total * settings.stop.rounds, each_run=total <= 20)
    with bar, interruptible(folder, f"the same command with --out {quoted(folder)} --resume"):
        results = tune(
            settings,
            tried,
            folder,
            seeds=range(settings.seed, settings.seed + seeds),
            target=target,
            force=force,
            resume=resume,
            workers=num_workers(workers, settings.simulation.threads),
            ray=ray,
            on_progress=bar,
        )

    # What `simulate` takes: the best constants, and the first seed that did not tune them.
    best = best_of(results)
    file = folder / "tuned.toml"
    if best is not None:
        chosen_settings = best.applied(settings, settings.seed + seeds)
        write_whole(file, dump_settings(chosen_settings))

    trials = [trial_json(arm) for arm in ranked(results)]
    told = {
        "target": target,
        "metric": settings.stop.metric,
        "seeds": sorted(set(results.seeds)),
        "best": None if best is None else trials[0],
        "settings": None if best is None else str(file),
        "trials": trials,
    }
    write_whole(folder / "tuned.json", json.dumps(told, indent=2) + "\n")
    if as_json:
        print_json(told)
    else:
        headings = ["constants", "d", "tau", "bits", "|A_k|", "frequency"]
        headings += [f"s to {percent(target)}", "reached", "accuracy", ""]
        show_table(Table(headings, [_row(trial) for trial in trials]))
    if best is None:
        say(
            f"no constants reach {percent(target)} in half of their runs; try others, or more stop.rounds"
        )
        return
    own = "".join(f" {words}" for words in own_code_named(chosen_settings.table()))
    say(
        f"best: {best.name}; autofl simulate {quoted(file)}{own} runs them on a seed not used for tuning",
        whole=True,
    )


CONSTANTS = ("num_samples", "local_steps", "bits", "num_selected", "frequency")


def _row(trial: dict[str, Any]) -> list[str]:
    """A line of the table."""
    from autofl.jobs.tuned import Constants

    constants = {name: trial[name] for name in CONSTANTS}
    return [
        Constants(**constants).name,
        *map(number_text, constants.values()),
        number_text(trial["median_time"], ".3g"),
        f"{trial['reached']}/{len(trial['times'])}",
        percent(trial["median_accuracy"], 1),
        trial["remark"],
    ]
