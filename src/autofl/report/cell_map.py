"""A map of a planned round: where the UEs are, their SNR, what binds them, who takes no part, who
is slowest.

Of a choice also the front between learning time and energy.
"""

import copy
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
from autofl.forecast.choose import Choice
from autofl.network import Status
from autofl.report.plots import figure_of, write_figure
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
FRONT = "#0072B2"
BEATEN = "#BBBBBB"
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
    write_figure(draw_cell_map(made, position, title, choice), path, dpi=130)
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
    with figure_of(6.6 if choice is None else 11.4, 5.8) as figure:
        if choice is None:
            axes = figure.add_subplot()
        else:
            axes, beside = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
            _draw_front(beside, choice)
        reach = _rings(axes, float(np.hypot(*position).max()))
        axes.plot(0.0, 0.0, marker="*", color="black", markersize=15, linestyle="",
                  label="base station", zorder=3)  # fmt: skip
        points = _draw_ues(axes, made, position)
        _draw_slowest(axes, made, position)
        figure.colorbar(
            points, ax=axes, label="SNR at full power, in the UE's own band [dB]", shrink=0.85
        )
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axes.set(xlabel="x [m]", ylabel="y [m]")
        axes.set_title(drawn_text(title), fontsize=9)
        axes.grid(visible=False)
        handles, labels = _lightened(axes)
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_ues(axes: Axes, made: RoundPlan, position: Array) -> PathCollection:
    """The UEs, a marker for each status; the last of these groups, for the scale of colours."""
    cell = made.round.cell
    snr = cell.max_power * made.round.gain / cell.noise_power
    snr_db = 10.0 * np.log10(np.maximum(snr, 1e-30))
    low = np.floor(snr_db.min())
    high = max(np.ceil(snr_db.max()), low + 1.0)
    size = 62 if cell.num_ue <= FEW else 22
    for status, (marker, words) in MARKS.items():
        there = made.round.plan.status == status
        if not there.any():
            continue
        away = status in AWAY
        points = axes.scatter(
            position[0, there],
            position[1, there],
            c=snr_db[there],
            s=1.5 * size if away else size,
            marker=marker,
            cmap="viridis",
            vmin=low,
            vmax=high,
            edgecolors=MISSING if away else "black",
            linewidths=1.1 if away else 0.6,
            label=f"{words} ({_count(made, status)})",
            zorder=4,
        )
    if cell.num_ue <= FEW:
        for ue, xy in zip(made.round.ue, position.T, strict=True):
            axes.annotate(str(ue), xy, (8, 5), textcoords="offset points", fontsize=7,
                          color="#333333", zorder=6)  # fmt: skip
    return points


def _draw_slowest(axes: Axes, made: RoundPlan, position: Array) -> None:
    """A ring around the UE that ends the round."""
    feasible = made.round.plan.feasible
    if not feasible.any():
        return
    cost = made.round.cost
    time = np.where(feasible, cost.upload_time + cost.compute_time, -np.inf)
    slowest = int(time.argmax())
    axes.scatter(
        position[0, slowest],
        position[1, slowest],
        s=230,
        facecolors="none",
        edgecolors=SLOWEST,
        linewidths=1.6,
        label=f"slowest: UE {made.round.ue[slowest]}, {time[slowest]:.3g} s",
        zorder=5,
    )


def _draw_front(axes: Axes, choice: Choice) -> None:
    """Learning time against energy, a point for each candidate; a line through those that none
    beats in both.
    """
    times = [one.time for one in choice.front]
    axes.plot(times, [1e3 * one.energy for one in choice.front], color=FRONT, zorder=2)
    for one in choice.candidates:
        words = f"thrift {one.thrift:g}"
        if one.num_selected < choice.best.num_selected:
            words = f"{one.num_selected} UEs, {words}"
        where = (one.time, 1e3 * one.energy)
        if one is choice.best:
            words += ", chosen"
            axes.scatter(*where, s=110, marker="*", color=SLOWEST, zorder=4)
        else:
            colour = FRONT if one in choice.front else BEATEN
            axes.scatter(*where, s=45, marker="o", color=colour, zorder=3)
        axes.annotate(words, where, (8, 4), textcoords="offset points", fontsize=8)
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
