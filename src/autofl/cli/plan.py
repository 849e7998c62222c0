"""autofl plan: one round of a cell, and a forecast of the whole training. Loads no PyTorch."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofl.cli.screen import say, show_table
from autofl.cli.shared import Config, Json, PlannerName, Set, options, print_json
from autofl.errors import AutoFLError
from autofl.report.table import Table

if TYPE_CHECKING:
    from autofl.analysis.forecast import Forecast

EXAMPLE = "Example: autofl plan examples/cell.toml --planner exact --json; autofl plan --target 0.85"


def command(
    config: Config = None,
    planner: PlannerName = None,
    target: Annotated[
        float | None, typer.Option(help="Forecast rounds, learning time and energy to this adapted accuracy.")
    ] = None,
    pilots: Annotated[
        Path | None, typer.Option(help="Pilots for the forecast, from autofl pilot; default those that come along.")
    ] = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Plan one round: who trains on how much, sends at what power, how long it takes, which constraint binds.

    With --target, also forecast the whole training.
    """
    from autofl.config import load_settings
    from autofl.experiments.cell import plan

    settings = load_settings(config, [*(overrides or ()), *options({"planner.name": planner})])
    made = plan(settings)
    table: dict[str, Any] = made.table()
    coming = None
    if target is not None:
        from autofl.analysis.forecast import forecast

        coming = forecast(settings, target, pilots)
        table = {**table, "forecast": coming.table()}
    elif pilots is not None:
        raise AutoFLError("--pilots serves a forecast; say to which accuracy with --target, for example 0.85")
    if not made.round.plan.feasible.any():
        say(_nobody(made.reasons()))
    if as_json:
        return print_json({"planner": settings.planner.name, **table})
    ues = table["ues"]
    headings = [
        "UE",
        "distance [m]",
        "samples",
        "power [mW]",
        "SNR [dB]",
        "compute [ms]",
        "upload [ms]",
        "energy [mJ]",
        "status",
    ]
    show_table(Table(headings, [_plan_row(ue) for ue in ues], f"One round, planner {settings.planner.name}"))
    counts = ", ".join(
        f"{sum(ue['status'] == name for ue in ues)} {name}" for name in dict.fromkeys(ue["status"] for ue in ues)
    )
    say(
        f"round time {table['round_time']:.4f} s; {table['num_feasible']} of {len(ues)} UEs take part; status: {counts}"
    )
    if coming is not None:
        _say_forecast(coming, settings.algorithm)
    return None


REASONS = {
    "power": "cannot be decoded even at P_max",
    "energy": "lack energy",
    "data": "own too few samples",
}
"""Why a UE takes no part, by the words of `RoundPlan.reasons`."""


def _nobody(reasons: Sequence[str]) -> str:
    counts = (f"{count} {REASONS.get(reason, reason)}" for reason, count in Counter(reasons).most_common())
    return f"nobody can take part in this round: {', '.join(counts)}"


def _say_forecast(coming: "Forecast", algorithm: str) -> None:
    """The forecast in words, where it comes from and how far it is to be trusted."""
    rows = [
        [name, f"{factor * median:.3g}", f"{factor * low:.3g} to {factor * high:.3g}"]
        for name, factor, (median, low, high) in (
            ("rounds", 1.0, coming.rounds),
            ("learning time [s]", 1.0, coming.sim_time),
            ("energy per UE [mJ]", 1e3, coming.energy),
        )
    ]
    show_table(Table([f"{algorithm} to {100 * coming.target:g} % adapted", "median", "95 % of runs"], rows))
    say(
        f"fitted from {coming.num_pilots} pilots ({coming.source}); single runs scatter by {100 * coming.scatter:.0f} %"
        " around the fit; valid for this data, partition, model, step sizes and number of UEs"
    )
    if coming.outside:
        say(f"careful: {', '.join(coming.outside)} lies outside the pilots, so this extrapolates")
    if coming.unheard:
        say(f"careful: {coming.unheard} UEs are hardly ever heard; the model will not be theirs")
    if coming.never:
        say(f"careful: {coming.never} of the drawn networks do not get there at all and are left out")


def _plan_row(ue: dict[str, Any]) -> list[str]:
    because = f" ({ue['infeasible_because']})" if ue["infeasible_because"] else ""
    return [
        str(ue["id"]),
        f"{ue['distance']:.1f}",
        str(ue["num_samples"]),
        f"{1e3 * ue['tx_power']:.3f}",
        f"{10 * math.log10(ue['snr']):.1f}" if ue["snr"] > 0 else "–",
        f"{1e3 * ue['compute_time']:.2f}",
        f"{1e3 * ue['upload_time']:.1f}",
        f"{1e3 * ue['energy']:.3f}",
        ue["status"] + because,
    ]
