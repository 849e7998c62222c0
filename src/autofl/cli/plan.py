"""autofl plan: one round of a cell, and a forecast of the whole training. Loads no PyTorch."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofl.cli.planned import (
    nobody,
    say_choice,
    say_forecast,
    show_bounds,
    show_decisions,
    show_explained,
    show_round,
)
from autofl.cli.screen import Stages, say
from autofl.cli.shared import (
    ArmName,
    Config,
    Json,
    PlannerName,
    Scenario,
    Set,
    load_planned,
    options,
    print_json,
    say_foregone,
    words_of,
)
from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from autofl.config import Settings
    from autofl.experiments.cell import RoundPlan
    from autofl.forecast.choose import Choice

EXAMPLE = (
    "Example: autofl plan examples/cell.toml --planner exact --json; autofl plan --target 0.85;"
    " autofl plan --planner joint --within 500ms --explain"
)
PICTURE = "plan.png"
"""Where --picture draws, if no file is named."""
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
UNITS = {
    "--within": {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "--budget": {"uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3},
    "--total-band": {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
}


def command(
    config: Config = None,
    scenario: Scenario = None,
    planner: PlannerName = None,
    arm: ArmName = None,
    target: Annotated[
        float | None,
        typer.Option(help="Forecast rounds, learning time and energy to this adapted accuracy."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Find the best accuracy within 60s, 500ms or 2min; planner joint."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="ENERGY",
            help="Find the best accuracy for 0.5J or 20mJ per UE over all rounds; planner joint.",
        ),
    ] = None,
    total_band: Annotated[
        str | None,
        typer.Option(
            metavar="BAND", help="Band, such as 5MHz, that all UEs share; cell.total_bandwidth."
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say what binds each UE and what each decision gains; planner joint."
        ),
    ] = False,
    pilots: Annotated[
        Path | None,
        typer.Option(help="Pilots for the forecast, from autofl pilot; default: the package's."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="[FILE]",
            help="Draw a map of the cell, and time against energy: .png, .svg or .pdf; default plan.png.",
        ),
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Plan one round: samples and power of each UE, the time of the round, and what binds.

    With --target, also forecast rounds, time and energy; the joint planner then shows what less
    energy costs in time.
    """
    from autofl.experiments.cell import plan, plan_table

    goals = [goal for goal in (target, within, budget) if goal is not None]
    if len(goals) > 1:
        raise AutoFLError("--target, --within and --budget: give one of them")
    if pilots is not None and not goals:
        raise AutoFLError("--pilots is for a forecast; add its accuracy, for example --target 0.85")
    settings = load_planned(config, scenario, [*(overrides or ()), *options({"arm": arm})], planner)
    name = settings.planner.name
    asked = {
        "--within": within,
        "--budget": budget,
        "--total-band": total_band,
        "--explain": explain,
    }
    if name != "joint" and any(asked.values()):
        option = next(option for option, value in asked.items() if value)
        raise AutoFLError(f"{option} needs the joint planner; add --planner joint")
    if total_band is not None and not goals:
        raise AutoFLError(
            "--total-band is for a choice; add --target, --within or --budget, or set cell.total_bandwidth"
        )

    # One plan: with a choice the round in the table is the first one of the run that is chosen.
    choice = explained = None
    if name == "joint" and goals:
        limits = {
            "target": target,
            "within": _quantity("--within", within),
            "budget": _quantity("--budget", budget),
            "total_band": _quantity("--total-band", total_band),
        }
        choice, explained = _choose(settings, limits, pilots, explain)
        settings = choice.best.settings
    say_foregone(settings)
    made = plan(settings)
    table = plan_table(settings, made)

    # What is asked beyond the round stands in the same JSON.
    coming = bounds = None
    if choice is not None:
        table["choice"] = choice.table()
    elif target is not None:
        from autofl.forecast.predict import forecast

        coming = forecast(settings, target, pilots)
        table["forecast"] = coming.table()
    if explained is not None:
        table["explained"] = explained.table()
    if explain:
        from autofl.experiments.decisions import decisions_of
        from autofl.forecast.explain import bounds_of

        whole = settings.resolved()
        table["decisions"] = [row._asdict() for row in decisions_of(whole, made)]
        bounds = bounds_of(whole, made)
        for row, bound in zip(table["ues"], bounds, strict=True):
            row["bound"] = bound._asdict()

    if not made.round.plan.feasible.any():
        say(nobody(made.reasons()))
    if picture is not None:
        _draw(settings, made, picture, scenario, name, choice)
    if as_json:
        return print_json(table)
    show_round(table)
    if bounds is not None:
        show_decisions(table["decisions"])
        show_bounds(bounds, table)
    if coming is not None:
        say_forecast(coming, settings)
    if choice is not None:
        say_choice(choice, words_of(config, scenario, overrides))
    if explained is not None and choice is not None:
        show_explained(explained, choice.best)
    return None


def name_picture(words: list[str]) -> list[str]:
    """The words of a command line, with a file after --picture: Typer has no options with an
    optional value.
    """
    named = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        named.append(word)
        if word == "--picture" and Path(following).suffix in ("", ".toml"):
            named.append(PICTURE)
    return named


def _draw(
    settings: "Settings",
    made: "RoundPlan",
    picture: Path,
    scenario: str | None,
    planner: str,
    choice: "Choice | None",
) -> None:
    """The map of the cell, and the front of a choice; Matplotlib is loaded here and nowhere else in
    a plan.
    """
    from autofl.experiments.cell import places
    from autofl.report.cell_map import save_cell_map

    this_round = made.round
    title = (
        f"planner {planner}: {int(this_round.plan.feasible.sum())} of {this_round.cell.num_ue} UEs take part,"
        f" round time {float(this_round.cost.time):.3g} s"
    )
    if scenario is not None:
        title = f"{scenario}, {title}"
    path = save_cell_map(made, places(settings), picture, title, choice)
    say(f"picture: {path}")


def _choose(
    settings: "Settings", limits: dict[str, float | None], pilots: Path | None, explain: bool
) -> tuple["Choice", Any]:
    """The choice, and with --explain what its decisions gain; a line on the screen shows the
    progress.
    """
    from autofl.forecast.choose import choose
    from autofl.forecast.explain import explain as explain_choice

    with Stages() as stages:
        choice = choose(
            settings,
            target=limits["target"],
            within=limits["within"],
            budget=limits["budget"],
            total_band=limits["total_band"],
            pilots=pilots,
            on_stage=stages,
        )
        if not explain:
            return choice, None
        return choice, explain_choice(choice.best, pilots, on_stage=stages)


def _quantity(option: str, text: str | None) -> float | None:
    """A number with a unit, such as 500ms, in SI; without a unit it is SI already."""
    if text is None:
        return None
    units = UNITS[option]
    si = next(unit for unit, factor in units.items() if factor == 1.0)
    match = re.fullmatch(rf"\s*({NUMBER})\s*({'|'.join(units)})?\s*", text)
    value = float(match[1]) * units[match[2] or si] if match else 0.0
    if not 0.0 < value < 1e15:
        raise AutoFLError(
            f"{option} {text}: write a number > 0 with a unit ({', '.join(units)}), for example 5{si}"
        )
    return value
