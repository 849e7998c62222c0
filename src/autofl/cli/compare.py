"""autofl compare: several arms and seeds over the same network."""

import json
from typing import Annotated

import typer

from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import (
    AggregatorName,
    Attack,
    Attackers,
    Config,
    Device,
    Force,
    Json,
    Out,
    PlannerName,
    Ray,
    Resume,
    Scenario,
    Set,
    Workers,
    device_for,
    folder_for,
    interruptible,
    num_workers,
    options,
    report_new_runs,
    resuming,
    say_foregone,
    settings_to_resume,
)
from autofl.report.table import counted

EXAMPLE = "Example: autofl compare --seeds 5 --set data.name=mnist; autofl compare --arms autofl,./mine.toml"


def command(
    config: Config = None,
    scenario: Scenario = None,
    arms: Annotated[
        str | None,
        typer.Option(
            "--arms",
            "--algorithms",
            metavar="NAME,...",
            help="Arms, separated by commas; your own as a file, or an algorithm as module:object.",
        ),
    ] = None,
    planner: PlannerName = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    attack: Attack = None,
    attackers: Attackers = None,
    aggregator: AggregatorName = None,
    device: Device = None,
    ray: Ray = None,
    out: Out = None,
    force: Force = False,
    resume: Resume = None,
    workers: Workers = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Compare arms over the same network, fading and data, several seeds each: a table and
    pictures.
    """
    from autofl.config import load_settings

    chosen = options(
        {
            "compare.arms": None
            if arms is None
            else json.dumps([*map(str.strip, arms.split(","))]),
            "planner.name": planner,
            "compare.seeds": seeds,
            "attack.name": attack,
            "attack.share": attackers,
            "aggregator.name": aggregator,
            "simulation.device": device_for(device, ray),
        }
    )
    said = [*(overrides or ()), *chosen]
    if resume is not None:
        settings = settings_to_resume(resume, False, config or scenario, out, force, said)
        folder = resume
    else:
        settings = load_settings(config, said, scenario)
        folder = folder_for(out, "compare")
    arms_compared = [settings.with_arm(arm) for arm in settings.compare.arms]
    names = [one.arm_name for one in arms_compared]
    number = settings.compare.seeds
    say(f"{', '.join(names)}; {counted(number, 'seed')} each; into {folder}")
    say_foregone(*arms_compared)
    from autofl.jobs.many import run_comparison

    count = num_workers(workers, settings.simulation.threads)
    again = resuming("autofl compare", folder, settings)
    bar = ProgressBar(len(names) * number * settings.stop.rounds)
    with bar, interruptible(folder, again):
        runs = run_comparison(
            settings,
            folder,
            force=force,
            resume=resume is not None,
            workers=count,
            ray=ray,
            on_progress=bar,
        )
    report_new_runs(runs, folder, settings.compare.target_accuracy, as_json)
