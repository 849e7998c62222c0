"""autofl analyze: what the convergence theory promises, beside what happens."""

import json
from typing import Annotated

import typer

from autofl.cli.screen import Stages, say, show_table
from autofl.cli.shared import (
    Config,
    Device,
    Json,
    Out,
    Scenario,
    Set,
    folder_for,
    options,
    print_json,
)
from autofl.errors import AutoFLError
from autofl.files import write_whole

EXAMPLE = "Example: autofl analyze --set data.name=mnist --set stop.rounds=100 --out runs/theory"


def command(
    config: Config = None,
    scenario: Scenario = None,
    points: Annotated[
        int, typer.Option(help="Points of the run at which the constants are estimated.")
    ] = 3,
    samples: Annotated[
        int, typer.Option(help="Samples of each UE for which single Hessians are used.")
    ] = 128,
    steps: Annotated[int, typer.Option(help="Lanczos steps for each largest eigenvalue.")] = 16,
    device: Device = None,
    out: Out = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Compare what the convergence theory promises for a run with what happens, and check its
    conditions.
    """
    from autofl.config import load_settings

    for name, value, least in (("points", points, 2), ("samples", samples, 4), ("steps", steps, 2)):
        if value < least:
            raise AutoFLError(f"--{name} {value}: at least {least} are needed")
    settings = load_settings(
        config, [*(overrides or ()), *options({"simulation.device": device})], scenario
    )
    folder = folder_for(out, "analyze")
    from autofl_paper.theory.analyze import analyze
    from autofl_paper.theory.page import plot_theory, theory_table

    with Stages() as stages:
        result = analyze(
            settings, num_points=points, num_samples=samples, num_steps=steps, on_stage=stages
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "theory.json", json.dumps(result, indent=1) + "\n")
    pictures = [str(path) for path in plot_theory(result, folder / "theory")]
    if as_json:
        return print_json({**result, "pictures": pictures})
    show_table(theory_table(result))
    say(
        "The constants are the largest met at points along this one run: lower estimates of what the theory asks for."
    )
    say(f"picture: {pictures[0]} (and .svg); all numbers: {folder / 'theory.json'}")
    return None
