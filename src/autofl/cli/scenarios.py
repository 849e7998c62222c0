"""autofl scenarios: the cells that come with the package."""

import math
from typing import TYPE_CHECKING, Any

from autofl.cli.screen import say, show_table
from autofl.cli.shared import Json, print_json
from autofl.report.table import Table

if TYPE_CHECKING:
    from autofl.config import PerUE, Settings

EXAMPLE = "Example: autofl scenarios; autofl plan --scenario umi-phones"


def command(as_json: Json = False) -> None:
    """List the scenarios of the package: cells and their radio, with sources for their numbers."""
    from autofl.config import load_settings
    from autofl.config.scenarios import FOLDER, scenario_line, scenario_names

    rows = [
        {"name": name, "what": scenario_line(name), **_key_numbers(load_settings(scenario=name))}
        for name in scenario_names()
    ]
    if as_json:
        return print_json(rows)
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
    return None


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
