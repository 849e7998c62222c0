"""autofl list: what can be named in settings and on the command line."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofl.cli.screen import say, show_entry, show_table
from autofl.cli.shared import Json, print_json
from autofl.errors import AutoFLError
from autofl.report.table import Table

if TYPE_CHECKING:
    from autofl.config import PerUE, Settings

EXAMPLE = "Example: autofl list arms; autofl list parts planner; autofl list settings"


def command(
    what: Annotated[str, typer.Argument(help="arms, parts, scenarios or settings.")],
    kind: Annotated[
        str | None, typer.Argument(help="Of parts: algorithm, planner, channel, ...; default all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List arms, parts, scenarios or settings, each with what it means."""
    lists = {"arms": _arms, "parts": _parts, "scenarios": _scenarios, "settings": _settings}
    if what not in lists:
        raise AutoFLError(f"list {what}: there are {', '.join(lists)}")
    if what == "parts":
        return _parts(as_json, kind)
    if kind is not None:
        raise AutoFLError(f"list {what} {kind}: only parts have kinds")
    return lists[what](as_json)


def _arms(as_json: bool) -> None:
    """Arms: an algorithm, its planner, and what else they set."""
    from autofl.config.describe import describe_arms

    _show(["arm", "title", "algorithm", "planner", "sets"], describe_arms(), as_json)
    if not as_json:
        say(
            "an algorithm by its name is an arm too; your own is a file: --arm my.toml, docs/parts.md"
        )


def _parts(as_json: bool, kind: str | None = None) -> None:
    """Algorithms, planners, channels, compressors and so on, with the settings of each."""
    from autofl.config.describe import describe_parts
    from autofl.registry import PARTS

    if kind is not None and kind not in PARTS:
        raise AutoFLError(f"{kind}: no such kind of part; there are {', '.join(PARTS)}")
    parts = describe_parts([known for known in PARTS if kind in (None, known)])
    if as_json:
        print_json(
            [
                {**part._asdict(), "settings": [setting._asdict() for setting in part.settings]}
                for part in parts
            ]
        )
        return

    # A list reads better than a table: most parts have no setting, some have twenty.
    for part in parts:
        show_entry(f"{part.kind} {part.name}: {part.what}")
        for key, default, allowed, meaning in part.settings:
            bounds = "" if allowed == "–" else f" ({allowed})"
            show_entry(f"{key} = {default}{bounds}: {meaning}", indent=4)
    say("name your own as module:object, for example --planner my_plans:Greedy")


def _settings(as_json: bool) -> None:
    """Every setting with its default and meaning."""
    from autofl.config.describe import describe

    headings = ["key" if as_json else "setting", "default", "meaning"]
    _show(headings, describe(), as_json)


def _show(headings: list[str], rows: list[Any], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
    else:
        show_table(Table(headings, [list(row) for row in rows]))


def _scenarios(as_json: bool) -> None:
    """Cells and their radio, with sources for their numbers."""
    from autofl.config import load_settings
    from autofl.config.scenarios import FOLDER, scenario_line, scenario_names

    rows = [
        {"name": name, "what": scenario_line(name), **_key_numbers(load_settings(scenario=name))}
        for name in scenario_names()
    ]
    if as_json:
        print_json(rows)
        return
    headings = [
        "scenario",
        "channel",
        "carrier [GHz]",
        "radius [m]",
        "band [kHz]",
        "power [dBm]",
        "energy [J]",
        "link",
    ]
    show_table(Table(headings, [_shown(row) for row in rows]))
    for row in rows:
        say(f"{row['name']}: {row['what']}")
    say(f"--scenario NAME starts from one; all numbers and their sources: {FOLDER}")


def _key_numbers(settings: "Settings") -> dict[str, Any]:
    """What distinguishes a cell from others, in SI units."""
    cell = settings.cell
    channel = settings.channel.resolved().given
    return {
        "channel": channel.get("scenario", settings.channel.name),
        "carrier": channel.get("carrier"),
        "radius": cell.distance.parameters[0] if cell.distance.law == "disc" else None,
        "bandwidth": _one(cell.bandwidth),
        "max_power": _one(cell.max_power),
        "max_energy": _one(cell.max_energy),
        "link": settings.link.name,
    }


def _one(quantity: "PerUE") -> float | None:
    """The value that all UEs share, if they do."""
    return quantity.value if isinstance(quantity.value, float) else None


def _shown(row: dict[str, Any]) -> list[str]:
    power = row["max_power"]
    return [
        row["name"],
        row["channel"],
        _number(row["carrier"], 1e-9),
        _number(row["radius"]),
        _number(row["bandwidth"], 1e-3),
        "–" if power is None else f"{10.0 * math.log10(power) + 30.0:.0f}",
        _number(row["max_energy"]),
        row["link"],
    ]


def _number(value: float | None, factor: float = 1.0) -> str:
    return "–" if value is None else f"{factor * value:.4g}"
