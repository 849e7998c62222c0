"""A cell as the page asks for it: its plan by the code of `autofl plan --json`, what-if curves, a
forecast.
"""

import re
import time
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from pydantic import BaseModel

from autofl.config import PerUE, Settings, parse_settings
from autofl.config.layers import on_top
from autofl.config.scenarios import read_scenario
from autofl.core.horizon import Horizon, draw_horizon
from autofl.errors import AutoFLError
from autofl.experiments.cell import (
    RoundPlan,
    build_compressor,
    build_network,
    places,
    plan,
    planned_by,
)
from autofl.experiments.decisions import decisions_of
from autofl.files import opening
from autofl.forecast.choose import SELECTED
from autofl.forecast.pilot_fit import Pilots, PilotsMissing
from autofl.forecast.predict import DRAWS, FIRST, draw_networks, forecast_of
from autofl.jobs.sweep import planned
from autofl.network import compute_cost
from autofl.units import Array

SECTIONS = tuple(name for name, value in Settings() if isinstance(value, BaseModel))
VALUES = tuple(name for name, value in Settings() if name not in SECTIONS)
FILES = ("file", "folder", "trace", "path")
"""Keys that name files, which nobody may read through the page."""
MOST_UE = 10_000
"""Most UEs of a cell: every planner answers within about a second."""
SEARCHING = ("joint", "yang")
"""Planners that take ten times as long as the others: curves have fewer points."""
POINTS = 17
"""Points of a what-if curve."""
ROUGH = (2, 32)
"""Networks and rounds that a point of the curve over |A_k| is drawn from; a quarter where the
planner searches.
"""


def table_of(scenario: str, settings: dict[str, Any], file: str | None = None) -> dict[str, Any]:
    """The settings as a TOML file holds them, what lies below them written out.

    Args:
        scenario: lies below the settings.
        file: the text of a settings file, which lies there instead.
    """
    _check_allowed(settings)
    if file is None:
        return on_top(read_scenario(scenario), settings)
    with opening("the file", "valid TOML"):
        below = tomllib.loads(file)
    _check_allowed(below)
    return on_top(below, settings)


def _check_allowed(settings: dict[str, Any]) -> None:
    """Refuse what a page must not name, before anything is looked up by its name."""
    for key, section in settings.items():
        if key not in SECTIONS + VALUES:
            raise AutoFLError(
                f"{key!r:.60}: not a setting of this page; there are {', '.join(SECTIONS + VALUES)}"
            )
        if (key in SECTIONS) != isinstance(section, dict):
            raise AutoFLError(f"{key}: must be a {'section' if key in SECTIONS else 'value'}")
    for where, value in _leaves(settings):
        if value is None:
            raise AutoFLError(f"{where}: null is not a value; leave the key out")
        if where.rpartition(".")[2] in FILES or (
            isinstance(value, str) and not re.fullmatch("[A-Za-z0-9_-]+", value)
        ):
            raise AutoFLError(
                f"{where}: files and your own parts can be used on the command line only"
            )


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """All plain values and the keys they stand under."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{where}.{key}" if where else str(key)[:60])
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, where)
    else:
        yield where, value


def settings_of(table: dict[str, Any]) -> Settings:
    """Validated, for a number of UEs that can be planned while somebody waits."""
    settings = parse_settings(table)
    count = settings.cell.count
    if count > MOST_UE:
        raise AutoFLError(
            f"cell.num_ue: {count:,} UEs; the page takes up to {MOST_UE:,} (autofl plan takes more)"
        )
    if settings.data.name == "npz" or settings.channel.name == "trace":
        raise AutoFLError("files can be used on the command line only")
    return settings


def toml_of(table: dict[str, Any]) -> str:
    """The file that `autofl plan` and `autofl simulate` read to the same result."""
    settings_of(table)
    return tomli_w.dumps(table)


def toml_to_plan(table: dict[str, Any]) -> str:
    """The same file; settings that `autofl plan` would refuse are refused here, among them those of
    a planner.
    """
    plan(settings_of(table))
    return tomli_w.dumps(table)


def answer(table: dict[str, Any], digits: int | None = None) -> dict[str, Any]:
    """A planned round and what the page draws of it.

    Args:
        digits: significant ones of what is said of each UE, and places to the millimetre; None: as
            they are.
    """
    begin = time.perf_counter()
    settings = settings_of(table)
    made = plan(settings)
    this_round = made.round
    positions = places(settings).T
    columns = made.columns()
    columns["compute_energy"] = _computing(made)
    columns["max_power"] = this_round.cell.max_power
    if digits is not None:
        positions = positions.round(3)
        columns = {name: _rounded(column, digits) for name, column in columns.items()}
    ues = {name: column.tolist() for name, column in columns.items()}

    slowest = None
    if this_round.plan.feasible.any():
        busy = this_round.cost.upload_time + this_round.cost.compute_time
        slowest = int(np.where(this_round.plan.feasible, busy, -1.0).argmax())
    return {
        "compute_energy": ues.pop("compute_energy"),
        "max_power": ues.pop("max_power"),
        "plan": {**planned_by(settings), **made.summary(), **made.decided(), "ues": ues},
        "positions": positions.tolist(),
        "slowest": slowest,
        "values": _values(settings, made),
        "ranges": _ranges(settings),
        "most_ue": MOST_UE,
        "all_asked": settings.chooses_among_all,
        "decisions": [list(row) for row in decisions_of(settings.resolved(), made)],
        "decided": _decided(settings),
        "host_time": time.perf_counter() - begin,
    }


def _rounded(values: NDArray[Any], digits: int) -> NDArray[Any]:
    """Numbers that need no more than so many digits; whatever is not a float stays as it is."""
    if values.dtype != np.float64:
        return values
    with np.errstate(all="ignore"):
        places = digits - 1.0 - np.floor(np.log10(np.abs(values)))
        # whole powers, so no new error
        up = 10.0 ** np.maximum(places, 0.0)
        down = 10.0 ** np.maximum(-places, 0.0)
        rounded = np.rint(values * up / down) / up * down
    return np.where(np.isfinite(rounded), rounded, values)


def _computing(made: RoundPlan) -> Array:
    """How much of each UE's energy goes into computing [J]."""
    this_round = made.round
    cell = this_round.plan.applied(this_round.cell)
    return np.where(
        this_round.plan.feasible, compute_cost(cell, this_round.plan.num_samples).energy, 0.0
    )


def _values(settings: Settings, made: RoundPlan) -> dict[str, float | int | None]:
    """Where the sliders stand; the median where UEs differ."""
    settings = settings.resolved()
    cell = made.round.cell
    radius = float(cell.distance.max())
    if settings.cell.positions is None and settings.cell.distance.law == "disc":
        radius = settings.cell.distance.parameters[0]
    section = settings.planner
    return {
        "num_ue": cell.num_ue,
        "radius": radius,
        "max_energy": float(np.median(cell.max_energy)),
        "max_power": float(np.median(cell.max_power)),
        "bandwidth": float(np.median(settings.cell.own_bandwidth(settings.seed))),
        "epsilon": section.given.get("epsilon"),
        "num_samples": section.given.get("num_samples"),
        "bits": float(np.median(cell.update_bits)) / float(np.median(cell.num_weights)),
        "local_steps": int(settings.learning.local_steps),
        "num_selected": settings.simulation.num_selected,
    }


def _ranges(settings: Settings) -> dict[str, tuple[float | None, float | None]]:
    """How far the sliders of the planner's own settings may go, as it declares them."""
    known = settings.planner.part.settings
    allowed = {key: known[key].range for key in ("epsilon", "num_samples") if key in known}
    return {key: range_.ends for key, range_ in allowed.items() if range_ is not None}


def _decided(settings: Settings) -> list[str]:
    """Sliders that change nothing under this planner."""
    name = settings.planner.name
    section = settings.resolved().planner
    if name == "joint":
        searched = build_compressor(settings.resolved()) is not None
        return ["local_steps", "epsilon", *(["bits"] if searched else [])]
    return [] if "epsilon" in section.given else ["epsilon"]


def curve(table: dict[str, Any], over: str, target: float | None) -> dict[str, Any]:
    """One quantity changes, all else stays: round time, energy and who takes part."""
    settings = settings_of(table)
    if over == "selected":
        return _over_selected(settings, target)
    values = _values(settings, plan(settings))
    middle = values["max_energy" if over == "energy" else "radius"]
    assert middle is not None
    middle = float(middle)
    spread = 10.0 if over == "energy" else 4.0
    rows = []
    refused = None
    for value in middle * np.geomspace(1.0 / spread, spread, _points(settings)):
        try:
            made = planned(_changed(settings, over, float(value), middle))
        except AutoFLError as error:
            # A path loss holds up to some distance, and the nearer points are good.
            refused = refused or str(error)
            continue
        rows.append(
            {
                "x": float(value),
                "round_time": made["round_time"] if made["num_feasible"] else None,
                "energy": made["energy"],
                "feasible": float(made["num_feasible"]),
                "time_to_target": None,
            }
        )
    return _curve(over, rows, middle, refused)


def _changed(settings: Settings, over: str, value: float, middle: float) -> Settings:
    """The same settings with another budget of energy, or all UEs nearer or farther."""
    cell = settings.cell
    if over == "energy":
        return _with_cell(settings, max_energy=cell.max_energy.scaled(value / middle))
    if cell.positions is not None:
        factor = value / middle
        return _with_cell(settings, positions=[[factor * x, factor * y] for x, y in cell.positions])
    return _with_cell(settings, distance=cell.distance.scaled(value / middle))


def _with_cell(settings: Settings, **changed: PerUE | list[list[float]]) -> Settings:
    return settings.model_copy(update={"cell": settings.cell.model_copy(update=changed)})


def _over_selected(settings: Settings, target: float | None) -> dict[str, Any]:
    """Rounds as a run has them, |A_k| UEs of n drawn in each; with a target also the time that
    learning takes.
    """
    settings = settings.resolved()
    count = settings.cell.count
    given = settings.simulation.num_selected
    x = sorted({num for num in SELECTED if num <= count} | {given})
    share = 4 if _is_slow(settings) else 1
    networks, rounds = (max(1, num // share) for num in ROUGH)
    fitted = _fitted(settings, target)
    rows = []
    for num in x:
        simulation = settings.simulation.model_copy(update={"num_selected": num})
        chosen = settings.model_copy(update={"simulation": simulation})
        horizon = draw_horizon(build_network(chosen), rounds)
        rows.append(
            {
                "x": float(num),
                "round_time": float(horizon.round_time.mean()) if horizon.decoded.any() else None,
                "energy": float(horizon.energy.sum(axis=1).mean()),
                "feasible": float(horizon.decoded.sum(axis=1).mean()),
                "time_to_target": _learning_time(chosen, fitted, networks, rounds),
            }
        )
    return _curve("selected", rows, float(given), None)


def _fitted(settings: Settings, target: float | None) -> Any:
    """What the package's pilots say about this learning problem; None where they do not cover it."""
    if target is None:
        return None
    try:
        return Pilots.read(None).fitted(settings, target)
    except AutoFLError:
        return None


def _learning_time(settings: Settings, fitted: Any, networks: int, rounds: int) -> float | None:
    """Median time to the target [s]; None where it is not known or not reached."""
    if fitted is None:
        return None
    try:
        return forecast_of(
            settings, fitted, draw_networks(settings, networks, rounds), few=True
        ).sim_time[0]
    except AutoFLError:
        return None


def _is_slow(settings: Settings) -> bool:
    return settings.planner.name in SEARCHING


def _points(settings: Settings) -> int:
    """Fewer if a plan takes long."""
    halvings = int(_is_slow(settings)) + int(settings.cell.count > 1000)
    return (POINTS - 1) // 2**halvings + 1


UNITS = {"energy": "J", "radius": "m", "selected": "UEs"}
CURVES = ("x", "round_time", "energy", "feasible", "time_to_target")


def _curve(
    over: str, rows: Sequence[dict[str, float | None]], here: float, refused: str | None
) -> dict[str, Any]:
    """The rows as columns, and what is beside them."""
    columns = {name: [row[name] for row in rows] for name in CURVES}
    return {"over": over, "unit": UNITS[over], "here": here, "refused": refused, **columns}


class Coming:
    """What `autofl plan --target` forecasts: rounds, time and energy of the training; others may
    watch and end it.
    """

    def __init__(self, table: dict[str, Any], target: float) -> None:
        self.settings = settings_of(table).resolved()
        self.drawn = 0
        self.is_wanted = True
        if self.settings.cell.count > 1000:
            raise AutoFLError(
                "a forecast on the page takes up to 1,000 UEs; autofl plan --target takes more"
            )
        try:
            self.fitted = Pilots.read(None).fitted(self.settings, target)
        except PilotsMissing as error:
            raise AutoFLError(f"nothing to forecast from: {error.what}") from None

    def forecast(self) -> dict[str, Any]:
        return forecast_of(self.settings, self.fitted, self._networks()).table()

    def _networks(self) -> Iterator[Horizon]:
        """One network after another, as long as somebody waits for them."""
        for horizon in draw_networks(self.settings, DRAWS, FIRST):
            if not self.is_wanted:
                raise AutoFLError("the forecast was cancelled")
            yield horizon
            self.drawn += 1
