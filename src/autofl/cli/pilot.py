"""autofl pilot: short trainings from which `autofl plan --target` forecasts."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.planned import coarse_words
from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import (
    Config,
    Json,
    Scenario,
    Set,
    Workers,
    leave,
    num_workers,
    print_json,
    words_of,
)
from autofl.errors import AutoFLError
from autofl.files import inside, quoted

EXAMPLE = "Example: autofl pilot --labels 2,5,10 --out pilots.json"


LONGEST = 1500
STALLED = 300
"""Rounds after which a pilot that has not reached its target ends all the same, and without
progress.
"""


def command(
    config: Config = None,
    scenario: Scenario = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels per UE, such as 2,5,10; default: as in the settings.")
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Run each pilot until it reaches this accuracy.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each pilot.")] = 2,
    out: Annotated[Path, typer.Option(help="File for the pilots; their runs go beside it.")] = Path(
        "pilots.json"
    ),
    workers: Workers = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace pilots of other settings.")
    ] = False,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Run short trainings from which `autofl plan --target` forecasts.

    After an interruption, the same command continues."""
    from autofl.config import load_settings

    end = (
        []
        if target is None
        else [f"stop.target_accuracy={target}", f"stop.rounds={LONGEST}", f"stop.stalled={STALLED}"]
    )
    settings = load_settings(config, [*end, *(overrides or ())], scenario)
    try:
        label_counts = (
            [int(text) for text in labels.split(",")]
            if labels is not None
            else [settings.data.labels]
        )
    except ValueError:
        raise AutoFLError(
            f"--labels {labels}: write whole numbers with commas, for example 2,5,10"
        ) from None
    if seeds < 1 or min(label_counts) < 1:
        raise AutoFLError(f"--seeds {seeds}, --labels {labels}: all must be at least 1")
    count = num_workers(workers, settings.simulation.threads)
    folder = inside(inside(out.parent, out.stem), "runs")
    from autofl.forecast.pilot import check_replaceable, design_of, run_pilots
    from autofl.forecast.pilot_files import write_pilots

    given = words_of(config, scenario, overrides)
    until = [] if target is None else [f"--target {target:g}"]
    labelled = f"--labels {','.join(map(str, label_counts))}"
    made_by = " ".join(["autofl pilot", *given, *until, labelled, f"--seeds {seeds}"])
    if not force:
        check_replaceable(out, made_by, settings, folder, label_counts, seeds)
    with ProgressBar(
        len(design_of(settings)) * len(label_counts) * seeds * settings.stop.rounds, each_run=False
    ) as bar:
        try:
            pilots = run_pilots(settings, folder, label_counts, seeds, count, bar)
        except KeyboardInterrupt as error:
            leave(folder, "the same command", error)
    write_pilots(out, pilots, made_by)
    reached = len(pilots) if target is None else sum(pilot.reaches(target) for pilot in pilots)
    if reached < len(pilots):
        highest = max(max(pilot.accuracy) for pilot in pilots)
        say(
            f"careful: {reached} of {len(pilots)} pilots reach {target:g} (the best comes to {highest:.3f}); each"
            f" other one has {settings.stop.rounds} rounds, or {settings.stop.stalled} without progress; a forecast"
            " needs more than half of them, so ask for less"
        )
    coarse = 0 if target is None else sum(pilot.is_coarse(target) for pilot in pilots)
    if target is not None and coarse:
        say(coarse_words(coarse, len(pilots), target))
    if as_json:
        return print_json({"file": str(out), "pilots": len(pilots)})
    use = " ".join(
        ["autofl plan", *given, *(until or ["--target 0.85"]), f"--pilots {quoted(out)}"]
    )
    say(f"{len(pilots)} pilots in {out}; use them with {use}", whole=True)
    return None
