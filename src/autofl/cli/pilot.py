"""autofl pilot: short trainings from which `autofl plan --target` forecasts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofl.cli.planned import coarse_words
from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import (
    Config,
    Json,
    Scenario,
    Set,
    Workers,
    interruptible,
    num_workers,
    option_values,
    print_json,
    words_of,
)
from autofl.errors import AutoFLError
from autofl.files import inside, quoted

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.forecast.pilot_files import Pilot

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

    until: list[str] = []
    end: list[str] = []
    if target is not None:
        until = [f"--target {target:g}"]
        end = [
            f"stop.target_accuracy={target}",
            f"stop.rounds={LONGEST}",
            f"stop.stalled={STALLED}",
        ]
    settings = load_settings(config, [*end, *(overrides or ())], scenario)
    label_counts = option_values("--labels", labels, int) or [settings.data.labels]
    if seeds < 1 or min(label_counts) < 1:
        raise AutoFLError(f"--seeds {seeds}, --labels {labels}: all must be at least 1")
    count = num_workers(workers, settings.simulation.threads)
    folder = inside(inside(out.parent, out.stem), "runs")
    from autofl.forecast.pilot import check_replaceable, design_of, run_pilots
    from autofl.forecast.pilot_files import write_pilots

    given = words_of(config, scenario, overrides)
    labelled = f"--labels {','.join(map(str, label_counts))}"
    made_by = " ".join(["autofl pilot", *given, *until, labelled, f"--seeds {seeds}"])
    if not force:
        check_replaceable(out, made_by, settings, folder, label_counts, seeds)
    num_pilots = len(design_of(settings)) * len(label_counts) * seeds
    bar = ProgressBar(num_pilots * settings.stop.rounds, each_run=False)
    with bar, interruptible(folder, "the same command"):
        pilots = run_pilots(settings, folder, label_counts, seeds, count, bar)
    write_pilots(out, pilots, made_by)
    if target is not None:
        _warn(pilots, target, settings)
    if as_json:
        return print_json({"file": str(out), "pilots": len(pilots)})
    wanted = until or ["--target 0.85"]
    use = " ".join(["autofl plan", *given, *wanted, f"--pilots {quoted(out)}"])
    say(f"{len(pilots)} pilots in {out}; use them with {use}", whole=True)
    return None


def _warn(pilots: "Sequence[Pilot]", target: float, settings: "Settings") -> None:
    """What a forecast to this target will lack."""
    reached = sum(pilot.reaches(target) for pilot in pilots)
    if reached < len(pilots):
        highest = max(max(pilot.accuracy) for pilot in pilots)
        say(
            f"careful: {reached} of {len(pilots)} pilots reach {target:g} (the best comes to {highest:.3f}); each"
            f" other one has {settings.stop.rounds} rounds, or {settings.stop.stalled} without progress; a forecast"
            " needs more than half of them, so ask for less"
        )
    if coarse := sum(pilot.is_coarse(target) for pilot in pilots):
        say(coarse_words(coarse, len(pilots), target))
