"""Pictures of runs, as figures and as PNG and SVG files, in colours that colour-blind readers can
tell apart.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import Any, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.quality import mean_interval, smoothed
from autofl.records import Run
from autofl.report.about import title_of
from autofl.report.runs import group, read_runs
from autofl.report.table import drawn_text
from autofl.units import Array, PathLike

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)  # Okabe and Ito
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FAR_APART = 20.0
"""Ratio of times from which an axis is logarithmic."""
ENOUGH_SEEDS = 5
"""Fewest seeds for which an interval of the mean says more than the range."""
FEW_LABELS = 7
SHORT_LABEL = 36
LABEL_WIDTH = 56
"""Most labels, and most letters of each, in a legend inside a panel; letters in a line of other
legends.
"""
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,  # TrueType: what journals ask for
    "svg.hashsalt": "autofl",  # the same run gives the same file
}


@contextmanager
def our_style() -> Iterator[None]:
    """Matplotlib draws by our style and its own defaults, whatever a matplotlibrc says: it reads
    that of the working folder too, which may be a stranger's and ask for LaTeX.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


class Picture(Figure):
    """A figure that a notebook shows by itself; Matplotlib's own need pyplot for that, which keeps
    every figure.
    """

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with our_style():
            self.savefig(content, format="png", dpi=100)
        return content.getvalue()


@contextmanager
def figure_of(width: float, height: float) -> Iterator[Figure]:
    """An empty figure to draw on in our style."""
    with our_style():
        yield Picture(figsize=(width, height), layout="constrained")


def save(figure: Figure, stem: PathLike, endings: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """Write a figure as PNG and SVG, or PDF; `stem` is the file without its ending."""
    paths = [Path(stem).with_suffix(ending) for ending in endings]
    undated = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None},
    }  # the same figure gives the same bytes
    with our_style():
        for path in paths:
            content = io.BytesIO()
            figure.savefig(
                content, format=path.suffix[1:], dpi=150, metadata=undated.get(path.suffix)
            )
            write_whole(path, content.getvalue(), sync=False)
    return paths


def plot_runs(
    runs: Run | PathLike | Sequence[Run | PathLike],
    folder: PathLike,
    target: float,
    endings: Sequence[str] = (".png", ".svg"),
) -> list[Path]:
    """learning_time, rounds and energy, each as PNG and SVG, or as named."""
    folder = Path(folder)
    runs = read_runs(runs)
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *save(draw_learning_time(runs, target), folder / "learning_time", endings),
        *save(draw_rounds(runs), folder / "rounds", endings),
        *save(draw_energy(runs), folder / "energy", endings),
    ]


AXES = {
    "round": ("round", 1.0),
    "sim_time": ("simulated time [s]", 1.0),
    "round_time": ("time of a round [simulated s]", 1.0),
    "downlink_bits": ("bits per weight sent down", 1.0),
    "num_selected": ("UEs selected in a round", 1.0),
    "num_decoded": ("updates decoded in a round", 1.0),
    "num_samples": ("samples of a local step, sum over the UEs of a round", 1.0),
    "energy": ("energy spent so far, sum over UEs [J]", 1.0),
    "train_loss": ("training loss f(w), global model", 1.0),
    "adapted_train_loss": ("training loss F(w), adapted model", 1.0),
    "global_accuracy": ("test accuracy, global model [%]", 100.0),
    "adapted_accuracy": ("test accuracy, adapted model [%]", 100.0),
    "gradient_norm_sq": ("squared norm of the gradient of F(w)", 1.0),
    "inner_lr": ("step size alpha in an update", 1.0),
    "outer_lr": ("step size beta", 1.0),
    "step_length": ("longest local step, length of the change", 1.0),
    "adapt_lr": ("step size alpha of the adaptation, mean over UEs", 1.0),
    "downlink_time": ("time of sending the model down [s]", 1.0),
}
"""What a column of rounds.csv is on an axis, in words, and the factor to the unit shown."""
GROWING = ("round", "sim_time", "energy")
"""Columns that never fall within a run, so that runs can be compared over them."""


def plot(runs: Run | PathLike | Sequence[Run | PathLike], x: str, y: str) -> Figure:
    """One column of rounds.csv over another: for each group of runs the mean over seeds and their
    range.

    Energy is what was spent so far. Over `round`, `sim_time` and `energy` values between two
    measured rounds lie on a straight line; over any other column a curve goes from round to round
    through means of both over the seeds.
    """
    runs = read_runs(runs)
    groups = labelled(runs)
    for name in (x, y):
        if any(name not in run.rounds for run in runs):
            raise AutoFLError(
                f"{name!r}: no such column; rounds.csv has {', '.join(runs[0].rounds)}"
            )
    with figure_of(6.0, 3.8) as figure:
        axes = figure.subplots()
        for place, (label, members) in enumerate(groups.items()):
            along, values = _pair(members, x, y)
            band(axes, _axis(x)[1] * along, _axis(y)[1] * values, place, label)
        if not axes.lines:
            raise AutoFLError(
                f"{y!r} over {x!r}: these runs have no round in which both were measured"
            )
        axes.set_xlabel(_axis(x)[0])
        axes.set_ylabel(_axis(y)[0])
        axes.set_title(drawn_text(title_of(runs)), fontsize=10)
        legend(axes)
        return figure


def _axis(column: str) -> tuple[str, float]:
    return AXES.get(column, (column.replace("_", " "), 1.0))


def _pair(members: Sequence[Run], x: str, y: str) -> tuple[Array, Array]:
    """A common axis and the column y of each run on it, shape (num_runs, len(axis))."""
    tables = [{name: _so_far(run, name) for name in {"round", x, y}} for run in members]
    there = [~np.isnan(table[x]) & ~np.isnan(table[y]) for table in tables]
    measured = [
        {name: column[kept] for name, column in table.items()}
        for table, kept in zip(tables, there, strict=True)
        if kept.any()
    ]
    if x in GROWING:
        return _side_by_side([(table[x], table[y]) for table in measured])
    rounds, xs = _side_by_side([(table["round"], table[x]) for table in measured])
    _, ys = _side_by_side([(table["round"], table[y]) for table in measured])
    return (xs.mean(axis=0) if len(rounds) else rounds), ys


def _so_far(run: Run, column: str) -> Array:
    """A column of rounds.csv; of energy the sum up to each round."""
    values = run.rounds[column].astype(np.float64)
    return np.cumsum(values) if column == "energy" else values


def _side_by_side(series: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Curves (x, values) on one axis, which goes as far as all of them do."""
    if not series:
        return np.empty(0), np.empty((0, 0))
    begin = max(float(x[0]) for x, _ in series)
    end = min(float(x[-1]) for x, _ in series)
    grid = np.unique(np.concatenate([x[(x >= begin) & (x <= end)] for x, _ in series]))
    return grid, np.stack([np.interp(grid, x, values) for x, values in series])


class Evaluated(Protocol):
    """Something with evaluations: a run, or the curve that is kept of one."""

    def evaluated(self, column: str) -> tuple[Array, Array, Array]:
        """Round, simulated time and this column at the evaluated rounds."""


def curves(members: Sequence[Evaluated], column: str, axis: str) -> tuple[Array, Array]:
    """A common axis and the column of each run on it, shape (num_runs, len(axis)); axis is round or
    sim_time.
    """
    series = [curve for curve in (run.evaluated(column) for run in members) if len(curve[0])]
    return _side_by_side(
        [(rounds if axis == "round" else time, values) for rounds, time, values in series]
    )


def labelled(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The groups of runs by labels as they are drawn."""
    return {drawn_text(label): members for label, members in group(runs).items()}


def band(
    axes: Any, x: Array, values: Array, place: int, label: str, interval: bool = False
) -> None:
    """Mean over seeds as a line, their range as a band; or, from five seeds on, the 95 % interval
    of the mean.
    """
    if not len(x):
        return
    again = place // len(COLOURS)  # a colour that comes again comes with another dash and marker
    colour = COLOURS[place % len(COLOURS)]
    dash = DASHES[(place + again) % len(DASHES)]
    mean = values.mean(axis=0)
    step = max(1, len(x) // 8)
    marks = {
        "marker": MARKERS[(place + 2 * again) % len(MARKERS)],
        "markevery": (place % step, step),
        "markersize": 4,
    }
    axes.plot(x, mean, color=colour, linestyle=dash, label=label, **marks)
    if len(values) > 1:
        low = values.min(axis=0)
        high = values.max(axis=0)
        if interval and len(values) >= ENOUGH_SEEDS:
            half = np.array([mean_interval(column)[1] for column in values.T])
            low = mean - half
            high = mean + half
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def crowded(labels: Sequence[str]) -> bool:
    """Whether labels are too many or too long to stand inside a panel."""
    return len(labels) > FEW_LABELS or any(len(label) > SHORT_LABEL for label in labels)


def legend(axes: Any) -> None:
    """The legend inside its panel, or below the figure where it would cover the curves."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    if not crowded(labels):
        axes.legend()
        return
    figure = axes.figure
    width, height = figure.get_size_inches()
    unbroken = [
        label.replace(" = ", "\u00a0=\u00a0") for label in labels
    ]  # a setting stays in one line
    texts = [
        fill(f"{place}: {label}", LABEL_WIDTH, break_on_hyphens=False)
        for place, label in enumerate(unbroken, start=1)
    ]
    longest = max(len(line) for text in texts for line in text.splitlines())
    columns = max(
        1, min(len(texts), int(width / (0.55 + 0.06 * longest)))
    )  # inches of a handle and of a letter
    rows = math.ceil(len(texts) / columns)
    lines = sum(max(text.count("\n") + 1 for text in texts[row::rows]) for row in range(rows))
    figure.set_size_inches(width, height + 0.15 * lines + 0.1)
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, fontsize=8)


def draw_learning_time(runs: Sequence[Run], target: float) -> Figure:
    """Simulated time to pass each accuracy, adapted model on the left, global model on the right."""
    with figure_of(8.0, 3.6) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, metric in zip(panels, ("adapted", "global"), strict=True):
            for place, (label, members) in enumerate(labelled(runs).items()):
                accuracy, time = time_to_each(members, f"{metric}_accuracy")
                band(axes, 100.0 * accuracy, time, place, label)
            axes.axvline(100.0 * target, color="grey", linewidth=0.8, linestyle=":")
            axes.set_xlabel(f"test accuracy, {metric} model [%]")
            spread_out(axes)
        panels[0].set_ylabel("learning time [simulated s]")
        legend(panels[0])
        figure.suptitle(
            f"Learning time against accuracy: {drawn_text(title_of(runs))}", fontsize=10
        )
        return figure


def spread_out(axes: Any) -> None:
    """A logarithmic axis of time where one curve ends far below another and would otherwise lie on
    the axis.
    """
    ends = [float(line.get_ydata()[-1]) for line in axes.lines if len(line.get_ydata()) > 2]
    if ends and min(ends) > 0.0 and max(ends) > FAR_APART * min(ends):
        axes.set_yscale("log")


def time_to_each(members: Sequence[Evaluated], column: str) -> tuple[Array, Array]:
    """Time to pass each accuracy from 30 % on, as far as every seed got; shape (num_runs,
    num_levels).
    """
    series = [
        (time, np.maximum.accumulate(smoothed(values)))
        for _, time, values in (run.evaluated(column) for run in members)
    ]
    series = [(time, best) for time, best in series if len(best)]
    if not series:
        return np.empty(0), np.empty((0, 0))
    levels = np.arange(0.30, min(float(best[-1]) for _, best in series), 0.005)
    times = [
        np.interp(levels, best, time) for time, best in series
    ]  # between evaluations, a straight line
    return levels, np.stack(times)


def draw_rounds(runs: Sequence[Run]) -> Figure:
    """Accuracies and training loss against rounds."""
    columns = ("adapted_accuracy", "global_accuracy", "train_loss")
    with figure_of(11.0, 3.4) as figure:
        for axes, column in zip(figure.subplots(1, 3), columns, strict=True):
            name, factor = _axis(column)
            for place, (label, members) in enumerate(labelled(runs).items()):
                x, values = curves(members, column, "round")
                band(axes, x, factor * values, place, label)
            axes.set_xlabel("round")
            axes.set_ylabel(name)
            if column == "train_loss":
                legend(axes)
        figure.suptitle(f"Convergence: {drawn_text(title_of(runs))}", fontsize=10)
        return figure


def draw_energy(runs: Sequence[Run]) -> Figure:
    """What a UE spends in a round, and accuracy against what was spent."""
    groups = labelled(runs)
    with figure_of(8.0, 3.6) as figure:
        left, right = figure.subplots(1, 2)
        spent = [_sent(members) for members in groups.values()]
        boxes = left.boxplot(
            spent, whis=(5, 95), showfliers=False, patch_artist=True, medianprops={"color": "black"}
        )
        for place, box in enumerate(boxes["boxes"]):
            box.set(facecolor=COLOURS[place % len(COLOURS)], alpha=0.6)
        names = (
            [str(place) for place in range(1, len(groups) + 1)]
            if crowded([*groups])
            else map(_wrapped, groups)
        )
        left.set_xticks(range(1, len(groups) + 1), names, fontsize=8)
        left.set_ylabel("energy of a UE in a round [mJ]")
        left.set_ylim(bottom=0)
        limit = _limit(next(iter(groups.values()))[0])
        if limit is not None:
            left.axhline(1e3 * limit, color="grey", linewidth=0.8, linestyle=":")
            left.annotate(
                "E_max",
                (0.99, 1e3 * limit),
                xycoords=("axes fraction", "data"),
                # far above what was spent it would squeeze the panel to nothing
                annotation_clip=True,
                ha="right",
                va="bottom",
                fontsize=8,
            )
        for place, (label, members) in enumerate(groups.items()):
            x, values = _accuracy_for_energy(members)
            band(right, 1e3 * x, 100.0 * values, place, label)
        right.set_xlabel("energy spent so far, mean over UEs [mJ]")
        right.set_ylabel("test accuracy, adapted model [%]")
        legend(right)
        figure.suptitle(
            f"Energy (boxes: quartiles, whiskers: 5 to 95 %): {drawn_text(title_of(runs))}",
            fontsize=10,
        )
        return figure


def _wrapped(label: str) -> str:
    return label.replace(", ", "\n")


def _sent(members: Sequence[Run]) -> Array:
    """Energy [mJ] of each UE in each round in which it took part."""
    energy = np.concatenate([run.ues["energy"].astype(np.float64) for run in members])
    return 1e3 * energy[energy > 0.0]


def _limit(run: Run) -> float | None:
    limit = run.config.get("cell", {}).get("max_energy")
    return float(limit) if isinstance(limit, int | float) else None


def _accuracy_for_energy(members: Sequence[Run]) -> tuple[Array, Array]:
    """Adapted accuracy of each run on a common grid of the energy [J] a UE has spent on average."""
    series = []
    for run in members:
        rounds, _, accuracy = run.evaluated("adapted_accuracy")
        spent = np.cumsum(run.rounds["energy"].astype(np.float64)) / float(
            run.manifest.get("num_ue") or math.nan
        )
        if len(rounds):
            series.append((spent[rounds.astype(np.int64)], accuracy))
    if not series:
        return np.empty(0), np.empty((0, 0))
    grid = np.linspace(0.0, min(float(spent[-1]) for spent, _ in series), 200)
    return grid, np.stack([np.interp(grid, spent, accuracy) for spent, accuracy in series])
