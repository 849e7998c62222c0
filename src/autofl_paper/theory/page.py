"""Theory against a run, from its result alone: one picture and one table."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autofl.report.plots import COLOURS, figure_of, save
from autofl.report.table import Table, drawn_text
from autofl.units import PathLike

SYMBOLS = {
    "smoothness": "L",
    "hessian_lipschitz": "rho (along the run)",
    "gradient_bound": "B, bound on ||grad f_i||",
    "gradient_variance": "sigma_G^2",
    "hessian_variance": "sigma_H^2",
    "gradient_spread": "gamma_G^2",
    "hessian_spread": "gamma_H^2",
    "hessian_deviation": "Lambda^2 (only disjoint batches)",
}
NAMES = {
    "corrected": "Theorem 1, corrected",
    "memory": "Theorem 2, participation with memory",
    "safe": "Theorem 1 at beta = 1/(tau L_F)",
    "printed": "as printed",
    "appendix": "as printed, factors of its appendix",
}


def plot_theory(result: dict[str, Any], stem: PathLike) -> list[Path]:
    """The picture as PNG and SVG; `stem` is the file without its ending."""
    return save(draw_theory(result), stem)


def draw_theory(result: dict[str, Any]) -> Figure:
    """Left: measured ||grad F||^2 and the bounds over rounds. Right: rounds needed, K* and
    promised, over epsilon.
    """
    with figure_of(9.0, 4.6) as figure:
        left, right = figure.subplots(1, 2)
        _draw_rounds(left, result)
        _draw_levels(right, result["rounds_to"])
        for axes in (left, right):  # below: curves fill the panel
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15))
        data = result["settings"]["data"]
        num_ue = result["settings"]["cell"]["num_ue"]
        title = (
            f"Theory and measurement: {data['name']}, partition {data['partition']}, l = {data['labels']},"
            f" {num_ue} UEs, seed {result['settings']['seed']}"
        )
        figure.suptitle(drawn_text(title), fontsize=10)
        return figure


def _draw_rounds(axes: Axes, result: dict[str, Any]) -> None:
    """||grad F||^2 over rounds, and the bounds on its mean."""
    measured = result["measured"]
    mean = np.array(measured["running_mean"])
    square = np.array(measured["gradient_norm_sq"])
    rounds = np.arange(1, len(mean) + 1)
    blue = COLOURS[0]
    axes.semilogy(
        measured["round"], square, color=blue, label="measured, at round k", linewidth=1.0
    )
    axes.semilogy(rounds, mean, color=blue, linestyle="--", label="measured, mean of the first K")
    for place, (name, bound) in enumerate(result["bounds"].items(), start=1):
        void = "" if bound["holds"] else " (its condition fails)"
        curve = np.full(len(rounds), np.nan)
        if bound["start"] is not None:
            curve = bound["start"] / rounds + bound["floor"]
        axes.semilogy(rounds, curve, color=COLOURS[place], label=NAMES[name] + void)
    axes.set_xlabel("round")
    axes.set_ylabel("||grad F||²")


NEEDED = {
    "measured_mean": "needed: mean of all rounds",
    "measured_last": "needed: first round at epsilon",
    "printed": "K* of (30)",
    "corrected": "promised by the corrected theorem",
}


def _draw_levels(axes: Axes, levels: list[dict[str, Any]]) -> None:
    """Rounds over epsilon."""
    for place, (key, label) in enumerate(NEEDED.items()):
        shown = [row for row in levels if row[key]]
        if shown:
            epsilon = [row["epsilon"] for row in shown]
            rounds = [row[key] for row in shown]
            colour = COLOURS[place]
            axes.loglog(epsilon, rounds, marker="o", markersize=3, color=colour, label=label)
    axes.invert_xaxis()
    axes.set_xlabel("epsilon")
    axes.set_ylabel("rounds")


def theory_table(result: dict[str, Any]) -> Table:
    """Constants with intervals, what the lemmas make of them, conditions, bounds."""
    meta = result["meta"]
    law = result["participation"]
    measured = result["measured"]
    end = len(measured["running_mean"])
    rows = []

    # The constants, what the lemmas make of them, and who is heard.
    for name, interval in result["constants"].items():
        ends = f"{_short(interval['low'])} to {_short(interval['high'])}".replace("–", "?")
        rows.append([SYMBOLS[name], _short(interval["value"]), ends])
    heard = ", ".join(_short(law[name]) for name in ("inverse_size", "skew", "draw_variance"))
    planned = f"{1e3 * result['mean_power']:.3g} mW, {result['mean_heard']:.3g} a round"
    rows += [
        ["L_F, Lemma 1", _short(meta["smoothness"]), ""],
        ["sigma_F^2, Lemma 2", _short(meta["variance"]), ""],
        ["b^2, squared bias, Lemma 2", _short(meta["bias"] ** 2), f"{result['batches']} batches"],
        ["gamma_F^2, Lemma 3", _short(meta["spread"]), ""],
        ["P(heard), omega, chi^2, psi", _short(law["heard"]), heard],
        ["planned: samples, power, UEs heard", _short(result["mean_samples"]), planned],
    ]
    reasons = "; ".join(result["memory"]["reasons"]) or "who is heard has no memory"
    rows.append(
        ["zeta, a rough estimate from the rounds", _short(result["memory"]["zeta"]), reasons]
    )

    for condition in result["conditions"]:
        sides = f"{_short(condition['left'])} against {_short(condition['right'])}"
        rows.append([condition["name"], "met" if condition["met"] else "FAILS", sides])

    # What happened, and what the bounds promise of it.
    mean = _short(measured["running_mean"][-1])
    last = f"at the end {_short(measured['gradient_norm_sq'][-1])}"
    rows.append([f"mean of ||grad F||^2 over {end} rounds", mean, last])
    for name, bound in result["bounds"].items():
        parts = "a condition fails: nothing is promised"
        if bound["holds"]:
            start = _short(bound["start"] / end)
            parts = f"start {start}, bias {_short(bound['bias'])}, noise {_short(bound['noise'])}"
        rows.append([f"bound, {NAMES[name]}", _short(_value(bound, end)), parts])

    for level in result["rounds_to"]:
        needed = _short(level["measured_mean"]) if level["measured_mean"] else f"> {end}"
        promised = _short(level["corrected"]) if level["corrected"] else "never"
        rounds = f"K* {_short(level['printed'])}, corrected {promised}"
        rows.append([f"rounds to epsilon = {level['epsilon']:g}", needed, rounds])

    choice = result["choice"]
    words = "never: the bias falls neither with beta nor with d nor with K"
    if choice["num_rounds"] is not None:
        words = f"at beta = {_short(choice['outer_lr'])}, d = {_short(3 * choice['batch'])}"
    epsilon = result["settings"]["planner"]["epsilon"]
    rows.append([f"rounds to be sure of {epsilon:g}", _short(choice["num_rounds"]), words])
    return Table(["quantity", "value", "interval, detail"], rows)


def _value(bound: dict[str, Any], num_rounds: int) -> float | None:
    """A bound after `num_rounds` rounds; None where it is infinite."""
    return None if bound["start"] is None else float(bound["start"] / num_rounds + bound["floor"])


def _short(value: float | None) -> str:
    if value is None:
        return "–"
    if math.isinf(value):
        return "inf"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.3g}"
