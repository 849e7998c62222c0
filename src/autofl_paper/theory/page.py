"""Theory against a run: one picture, one table, and plain words on how loose the theory is; from
its result alone.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
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
    measured = result["measured"]
    mean = np.array(measured["running_mean"])
    rounds = np.arange(1, len(mean) + 1)
    with figure_of(9.0, 4.6) as figure:
        left, right = figure.subplots(1, 2)
        square = np.array(measured["gradient_norm_sq"])
        left.semilogy(
            measured["round"], square, color=COLOURS[0], label="measured, at round k", linewidth=1.0
        )
        left.semilogy(
            rounds, mean, color=COLOURS[0], linestyle="--", label="measured, mean of the first K"
        )
        for place, (name, bound) in enumerate(result["bounds"].items(), start=1):
            void = "" if bound["holds"] else " (its condition fails)"
            curve = (
                np.full(len(rounds), np.nan)
                if bound["start"] is None
                else bound["start"] / rounds + bound["floor"]
            )
            left.semilogy(rounds, curve, color=COLOURS[place], label=NAMES[name] + void)
        left.set_xlabel("round")
        left.set_ylabel("||grad F||²")
        left.legend(
            fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15)
        )  # below: curves fill the panel
        levels = result["rounds_to"]
        for place, (key, label) in enumerate(
            (
                ("measured_mean", "needed: mean of all rounds"),
                ("measured_last", "needed: first round at epsilon"),
                ("printed", "K* of (30)"),
                ("corrected", "promised by the corrected theorem"),
            )
        ):
            shown = [(row["epsilon"], row[key]) for row in levels if row[key]]
            if shown:
                right.loglog(
                    *zip(*shown, strict=True),
                    marker="o",
                    markersize=3,
                    color=COLOURS[place],
                    label=label,
                )
        right.invert_xaxis()
        right.set_xlabel("epsilon")
        right.set_ylabel("rounds")
        right.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15))
        data = result["settings"]["data"]
        cell = result["settings"]["cell"]
        figure.suptitle(
            drawn_text(
                f"Theory and measurement: {data['name']}, partition {data['partition']}, l = {data['labels']},"
                f" {cell['num_ue']} UEs, seed {result['settings']['seed']}"
            ),
            fontsize=10,
        )
        return figure


def theory_table(result: dict[str, Any]) -> Table:
    """Constants with intervals, what the lemmas make of them, conditions, bounds."""
    rows = [
        [SYMBOLS[name], *_interval_cells(interval)]
        for name, interval in result["constants"].items()
    ]
    meta = result["meta"]
    law = result["participation"]
    rows += [
        ["L_F, Lemma 1", _short(meta["smoothness"]), ""],
        ["sigma_F^2, Lemma 2", _short(meta["variance"]), ""],
        ["b^2, squared bias, Lemma 2", _short(meta["bias"] ** 2), f"{result['batches']} batches"],
        ["gamma_F^2, Lemma 3", _short(meta["spread"]), ""],
        ["P(heard), omega, chi^2, psi", _short(law["heard"]), _law(law)],
        [
            "planned: samples, power, UEs heard",
            _short(result["mean_samples"]),
            f"{1e3 * result['mean_power']:.3g} mW, {result['mean_heard']:.3g} a round",
        ],
    ]
    rows += [
        [condition["name"], *_condition_cells(condition)] for condition in result["conditions"]
    ]
    end = len(result["measured"]["running_mean"])
    rows.append(
        [
            f"mean of ||grad F||^2 over {end} rounds",
            _short(result["measured"]["running_mean"][-1]),
            f"at the end {_short(result['measured']['gradient_norm_sq'][-1])}",
        ]
    )
    rows += [
        [
            f"bound, {NAMES[name]}",
            _short(_value(bound, end)),
            f"start {_short(bound['start'] / end)}, bias {_short(bound['bias'])}, noise {_short(bound['noise'])}"
            if bound["holds"]
            else "a condition fails: nothing is promised",
        ]
        for name, bound in result["bounds"].items()
    ]
    rows += [
        [
            f"rounds to epsilon = {level['epsilon']:g}",
            _short(level["measured_mean"]) if level["measured_mean"] else f"> {end}",
            f"K* {_short(level['printed'])}, corrected {_short(level['corrected']) if level['corrected'] else 'never'}",
        ]
        for level in result["rounds_to"]
    ]
    return Table(["quantity", "value", "interval, detail"], rows)


def _interval_cells(interval: dict[str, float | None]) -> list[str]:
    """The value of a constant and its interval."""
    low = _short(interval["low"])
    high = _short(interval["high"])
    return [_short(interval["value"]), f"{low} to {high}".replace("–", "?")]


def _condition_cells(condition: dict[str, Any]) -> list[str]:
    """Whether a condition is met, and its two sides."""
    sides = f"{_short(condition['left'])} against {_short(condition['right'])}"
    return ["met" if condition["met"] else "FAILS", sides]


def theory_words(result: dict[str, Any]) -> str:
    """How loose the theory is here, in plain words."""
    measured = result["measured"]
    bounds = result["bounds"]
    mean = measured["running_mean"][-1]
    end = len(measured["running_mean"])
    value = _value(bounds["corrected"], end)
    failing = [condition["name"] for condition in result["conditions"] if not condition["met"]]
    parts = [f"The measured mean of ||grad F||^2 over {end} rounds is {_short(mean)}."]
    if value is not None:
        parts.append(
            f"The corrected bound is {_short(value)}, {_short(value / mean)} times as much."
        )
    else:
        parts.append("Here the corrected Theorem 1 promises nothing.")
    if (safe := _value(bounds["safe"], end)) is not None:
        step = _short(result["safe_outer_lr"])
        parts.append(
            f"At beta = 1/(tau L_F) = {step} it would be {_short(safe)} after as many rounds."
        )
    if reasons := result["memory"]["reasons"]:
        zeta = _short(result["memory"]["zeta"])
        parts.append(
            f"Who is heard may depend on earlier rounds ({'; '.join(reasons)}). With such a memory only Theorem 2"
            f" holds; zeta, a rough estimate from the rounds, is {zeta}"
            + (
                "."
                if result["memory"]["zeta"]
                else ": none was found, and a weak one would be missed."
            )
        )
    parts += [
        f"{len(failing)} of {len(result['conditions'])} conditions fail: {'; '.join(failing)}."
        if failing
        else "All conditions are met.",
    ]
    choice = result["choice"]
    epsilon = result["settings"]["planner"]["epsilon"]
    if choice["num_rounds"] is None:
        parts.append(
            f"No choice of beta, d and K makes the bound {epsilon:g}: the bias of unequal chances to be heard"
            f" (chi^2 gamma_F^2 = {_short(result['participation']['skew'] * result['meta']['spread'])}) and the bias of"
            f" {result['batches']} batches (b^2 = {_short(result['meta']['bias'] ** 2)} here) do not fall with them."
        )
    else:
        parts.append(
            f"To be sure of {epsilon:g} the theorem asks for beta = {_short(choice['outer_lr'])},"
            f" d = {_short(3 * choice['batch'])} and {_short(choice['num_rounds'])} rounds."
        )
    parts.append(
        "The constants are the largest values at points along this run, so they are lower estimates of the suprema that"
        " the theory asks for. A ReLU network has no Lipschitz Hessian, so rho is only what was met along the way."
        " This is one run, not a mean."
    )
    return " ".join(parts)


def _value(bound: dict[str, Any], num_rounds: int) -> float | None:
    """A bound after `num_rounds` rounds; None where it is infinite."""
    return None if bound["start"] is None else float(bound["start"] / num_rounds + bound["floor"])


def _law(law: dict[str, Any]) -> str:
    return f"{_short(law['inverse_size'])}, {_short(law['skew'])}, {_short(law['draw_variance'])}"


def _short(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        "inf"
        if math.isinf(value)
        else f"{value:,.0f}"
        if abs(value) >= 1e4 and abs(value) < 1e7
        else f"{value:.3g}"
    )
