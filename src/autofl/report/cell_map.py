"""A map of a planned round: where the UEs are, their SNR, what binds them, who takes no part, who
is slowest.

Of a choice also the front between learning time and energy.
"""

import copy
import io
from collections import Counter
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autofl.errors import AutoFLError
from autofl.experiments.cell import RoundPlan
from autofl.files import write_whole
from autofl.forecast.choose import Choice
from autofl.network import Status
from autofl.report.plots import figure_of, our_style
from autofl.report.table import drawn_text
from autofl.units import Array, PathLike

MARKS = {
    Status.POWER: ("o", "power binds"),
    Status.RATE: ("P", "highest rate"),
    Status.ENERGY: ("s", "energy binds"),
    Status.ACCURACY: ("^", "accuracy binds"),
    Status.DATA: ("D", "data bind"),
    Status.INFEASIBLE: ("X", "infeasible"),
    Status.LEFT_OUT: ("v", "left out"),
}
"""Marker and word of each status."""
AWAY = (Status.INFEASIBLE, Status.LEFT_OUT)
"""Who takes no part."""
ENDINGS = (".png", ".svg", ".pdf")
MISSING = "#CC79A7"
SLOWEST = "#D55E00"
FEW = 60
"""Up to this many UEs have their numbers next to them."""
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Distances between rings, times a power of 10."""


def save_cell_map(
    made: RoundPlan, position: Array, path: PathLike, title: str, choice: Choice | None = None
) -> Path:
    """Draw a planned round into a .png, .svg or .pdf file, and the front of a choice beside it."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise AutoFLError(f"--picture {path}: the name must end in {', '.join(ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = draw_cell_map(made, position, title, choice)
    with our_style():
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=130)
    write_whole(path, content.getvalue(), sync=False)
    return path


def draw_cell_map(
    made: RoundPlan, position: Array, title: str, choice: Choice | None = None
) -> Figure:
    """Map of a planned round; colour is the SNR that a UE has at P_max in its own band, also if it
    takes no part.

    Args:
        position: x and y [m] of the UEs, the base station being at (0, 0); shape (2, num_ue).
        choice: whose front is drawn beside the map.
    """
    this_round = made.round
    cell = this_round.cell
    plan = this_round.plan
    cost = this_round.cost
    snr_db = 10.0 * np.log10(np.maximum(cell.max_power * this_round.gain / cell.noise_power, 1e-30))
    x, y = position
    size = 62 if cell.num_ue <= FEW else 22
    with figure_of(6.6 if choice is None else 11.4, 5.8) as figure:
        if choice is None:
            axes = figure.add_subplot()
        else:
            axes, beside = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
            _draw_front(beside, choice)
        reach = _rings(axes, float(np.hypot(x, y).max()))
        low = np.floor(snr_db.min())
        high = max(np.ceil(snr_db.max()), np.floor(snr_db.min()) + 1.0)
        axes.plot(
            0.0,
            0.0,
            marker="*",
            color="black",
            markersize=15,
            linestyle="",
            label="base station",
            zorder=3,
        )
        points = None
        for status, (marker, words) in MARKS.items():
            there = plan.status == status
            if there.any():
                points = axes.scatter(
                    x[there],
                    y[there],
                    c=snr_db[there],
                    s=1.5 * size if status in AWAY else size,
                    marker=marker,
                    cmap="viridis",
                    vmin=low,
                    vmax=high,
                    edgecolors=MISSING if status in AWAY else "black",
                    linewidths=1.1 if status in AWAY else 0.6,
                    label=f"{words} ({_count(made, status)})",
                    zorder=4,
                )
        if plan.feasible.any():
            time = np.where(plan.feasible, cost.upload_time + cost.compute_time, -np.inf)
            slowest = int(time.argmax())
            axes.scatter(
                x[slowest],
                y[slowest],
                s=230,
                facecolors="none",
                edgecolors=SLOWEST,
                linewidths=1.6,
                label=f"slowest: UE {this_round.ue[slowest]}, {time[slowest]:.3g} s",
                zorder=5,
            )
        if cell.num_ue <= FEW:
            for ue, place in zip(this_round.ue, position.T, strict=True):
                axes.annotate(
                    str(ue),
                    place,
                    (8, 5),
                    textcoords="offset points",
                    fontsize=7,
                    color="#333333",
                    zorder=6,
                )
        if points is not None:
            figure.colorbar(
                points, ax=axes, label="SNR at full power, in the UE's own band [dB]", shrink=0.85
            )
        axes.set(
            xlim=(-reach, reach),
            ylim=(-reach, reach),
            aspect="equal",
            xlabel="x [m]",
            ylabel="y [m]",
        )
        axes.set_title(drawn_text(title), fontsize=9)
        axes.grid(visible=False)
        handles, labels = _lightened(axes)
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_front(axes: Axes, choice: Choice) -> None:
    """Learning time against energy, a point for each candidate; a line through those that none
    beats in both.
    """
    front = choice.front
    axes.plot(
        [one.time for one in front], [1e3 * one.energy for one in front], color="#0072B2", zorder=2
    )
    for one in choice.candidates:
        chosen = one is choice.best
        beaten = one not in front
        axes.scatter(
            one.time,
            1e3 * one.energy,
            s=110 if chosen else 45,
            marker="*" if chosen else "o",
            color=SLOWEST if chosen else "#BBBBBB" if beaten else "#0072B2",
            zorder=4 if chosen else 3,
        )
        fewer = f"{one.num_selected} UEs, " if one.num_selected < choice.best.num_selected else ""
        words = f"{fewer}thrift {one.thrift:g}" + (", chosen" if chosen else "")
        axes.annotate(
            words, (one.time, 1e3 * one.energy), (8, 4), textcoords="offset points", fontsize=8
        )
    axes.set(xlabel="learning time [s], median", ylabel="energy per UE in all [mJ], median")
    axes.margins(x=0.3, y=0.15)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    wanted = {f"{100 * one.forecast.target:g} %" for one in choice.candidates}
    axes.set_title(f"forecast to {' or '.join(sorted(wanted))}: time against energy", fontsize=9)


def _count(made: RoundPlan, status: Status) -> str:
    """How many UEs have a status; of the infeasible also why."""
    if status != Status.INFEASIBLE:
        return str(int((made.round.plan.status == status).sum()))
    return ", ".join(
        f"{number} {reason}" for reason, number in Counter(filter(None, made.reasons())).items()
    )


def _rings(axes: Axes, farthest: float) -> float:
    """Rings around the base station, two to four of them; half the width of the map [m]."""
    reach = 1.08 * max(farthest, 1.0)
    ideal = reach / 4.0
    power = 10.0 ** np.floor(np.log10(ideal))
    step = next(power * factor for factor in STEPS if power * factor >= ideal * (1.0 - 1e-9))
    angle = np.linspace(0.0, 2.0 * np.pi, 181)
    for radius in step * np.arange(1, int(reach / step) + 1):
        axes.plot(
            radius * np.cos(angle), radius * np.sin(angle), color="#BBBBBB", linewidth=0.7, zorder=1
        )
        axes.text(0.0, radius, f"{radius:g} m", color="#777777", fontsize=7, ha="center", va="center", zorder=2,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip
    return reach


def _lightened(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Handles and labels of the legend; colours there would stand for an SNR that nobody has."""
    handles, labels = axes.get_legend_handles_labels()
    plain: list[Artist] = []
    for handle in handles:
        shown = copy.copy(handle)
        if isinstance(shown, PathCollection) and shown.get_array() is not None:
            shown.set_array(None)
            shown.set_facecolor("#DDDDDD")
        plain.append(shown)
    return plain, labels
