"""autofl simulate: one run."""

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
    Set,
    device_for,
    free_folder,
    leave,
    options,
    report_new_runs,
    say_foregone,
)
from autofl.errors import AutoFLError

EXAMPLE = "Example: autofl simulate --algorithm autofl --set stop.rounds=50"


def command(
    config: Config = None,
    algorithm: Annotated[
        str | None, typer.Option(help="One of `autofl parts algorithm`, or your own as module:object.")
    ] = None,
    planner: PlannerName = None,
    attack: Attack = None,
    attackers: Attackers = None,
    aggregator: AggregatorName = None,
    device: Device = None,
    ray: Ray = None,
    out: Out = None,
    force: Force = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Simulate one algorithm and write its run folder."""
    from autofl.config import load_settings
    from autofl.records import is_run

    chosen = options(
        {
            "algorithm": algorithm,
            "planner.name": planner,
            "attack.name": attack,
            "attack.share": attackers,
            "aggregator.name": aggregator,
            "simulation.device": device_for(device, ray),
        }
    )
    settings = load_settings(config, [*(overrides or ()), *chosen])
    folder = out if out is not None else free_folder("simulate")
    if is_run(folder) and not force:
        raise AutoFLError(f"{folder}: a run is there already; name another folder (--out) or overwrite it (--force)")
    say(f"{settings.algorithm}, seed {settings.seed}, into {folder}")
    say_foregone(settings)
    from autofl.experiments.jobs import Job, run_with_progress

    with ProgressBar(settings.stop.rounds) as bar:
        try:
            run_with_progress(Job(settings, folder, f"{settings.algorithm} seed {settings.seed}"), bar, ray=ray)
        except KeyboardInterrupt:
            leave(folder)
    report_new_runs([folder], folder, settings.compare.target_accuracy, as_json)
