"""Pictures of runs, as figures and as PNG and SVG files, in colours that colour-blind readers can
tell apart.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
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


UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""What keeps the time out of a file, so that the same figure gives the same bytes."""


def save(figure: Figure, stem: PathLike, endings: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """Write a figure as PNG and SVG, or PDF; `stem` is the file without its ending."""
    paths = [Path(stem).with_suffix(ending) for ending in endings]
    for path in paths:
        write_figure(figure, path, dpi=150)
    return paths


def write_figure(figure: Figure, path: Path, dpi: int) -> None:
    """The figure in the form that the file's ending says."""
    content = io.BytesIO()
    ending = path.suffix
    with our_style():
        figure.savefig(content, format=ending[1:], dpi=dpi, metadata=UNDATED.get(ending))
    write_whole(path, content.getvalue(), sync=False)


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
    x_name, x_factor = _axis(x)
    y_name, y_factor = _axis(y)
    with figure_of(6.0, 3.8) as figure:
        axes = figure.subplots()
        _draw_groups(axes, groups, partial(_pair, x=x, y=y), x_factor, y_factor)
        if not axes.lines:
            raise AutoFLError(
                f"{y!r} over {x!r}: these runs have no round in which both were measured"
            )
        axes.set(xlabel=x_name, ylabel=y_name)
        axes.set_title(drawn_text(title_of(runs)), fontsize=10)
        legend(axes)
        return figure


def _axis(column: str) -> tuple[str, float]:
    return AXES.get(column, (column.replace("_", " "), 1.0))


def _draw_groups(
    axes: Any,
    groups: Mapping[str, Sequence[Run]],
    curve_of: Callable[[Sequence[Run]], tuple[Array, Array]],
    x_factor: float,
    y_factor: float,
) -> None:
    """A curve with its band for each group of runs, in the units shown."""
    for index, (label, members) in enumerate(groups.items()):
        x, values = curve_of(members)
        band(axes, x_factor * x, y_factor * values, index, label)


def _pair(members: Sequence[Run], x: str, y: str) -> tuple[Array, Array]:
    """A common axis and the column y of each run on it, shape (num_runs, len(axis))."""
    rounds: list[Array] = []
    xs: list[Array] = []
    ys: list[Array] = []
    for run in members:
        along = _so_far(run, x)
        values = _so_far(run, y)
        there = ~np.isnan(along) & ~np.isnan(values)
        if there.any():
            rounds.append(_so_far(run, "round")[there])
            xs.append(along[there])
            ys.append(values[there])
    if x in GROWING:
        return _side_by_side(xs, ys)

    # A column that may fall is no axis of its own: both are means over seeds, round by round.
    _, over_seeds = _side_by_side(rounds, xs)
    _, values = _side_by_side(rounds, ys)
    return (over_seeds.mean(axis=0) if rounds else np.empty(0)), values


def _so_far(run: Run, column: str) -> Array:
    """A column of rounds.csv; of energy the sum up to each round."""
    values = run.rounds[column].astype(np.float64)
    return np.cumsum(values) if column == "energy" else values


def _side_by_side(xs: Sequence[Array], values: Sequence[Array]) -> tuple[Array, Array]:
    """Curves on one axis, all the places of them, which goes as far as all of them do."""
    if not xs:
        return np.empty(0), np.empty((0, 0))
    begin = max(float(x[0]) for x in xs)
    end = min(float(x[-1]) for x in xs)
    grid = np.unique(np.concatenate([x[(x >= begin) & (x <= end)] for x in xs]))
    return grid, _on(grid, xs, values)


def _on(grid: Array, xs: Sequence[Array], values: Sequence[Array]) -> Array:
    """Each curve at the places of the grid, on straight lines between its own; shape (num_runs,
    len(grid)).
    """
    return np.stack([np.interp(grid, *curve) for curve in zip(xs, values, strict=True)])


class Evaluated(Protocol):
    """Something with evaluations: a run, or the curve that is kept of one."""

    def evaluated(self, column: str) -> tuple[Array, Array, Array]:
        """Round, simulated time and this column at the evaluated rounds."""


def _evaluated(members: Sequence[Evaluated], column: str) -> list[tuple[Array, Array, Array]]:
    """Round, simulated time and this column of those that were evaluated."""
    curves = [run.evaluated(column) for run in members]
    return [curve for curve in curves if len(curve[0])]


def curves(members: Sequence[Evaluated], column: str, axis: str) -> tuple[Array, Array]:
    """A common axis and the column of each run on it, shape (num_runs, len(axis)); axis is round or
    sim_time.
    """
    there = _evaluated(members, column)
    xs = [rounds if axis == "round" else time for rounds, time, _ in there]
    return _side_by_side(xs, [values for _, _, values in there])


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
    # A colour that comes again comes with another dash and marker.
    again = place // len(COLOURS)
    colour = COLOURS[place % len(COLOURS)]
    mean = values.mean(axis=0)
    step = max(1, len(x) // 8)
    axes.plot(
        x,
        mean,
        color=colour,
        linestyle=DASHES[(place + again) % len(DASHES)],
        label=label,
        marker=MARKERS[(place + 2 * again) % len(MARKERS)],
        markevery=(place % step, step),
        markersize=4,
    )
    if len(values) == 1:
        return
    if interval and len(values) >= ENOUGH_SEEDS:
        half = np.array([mean_interval(column)[1] for column in values.T])
        low = mean - half
        high = mean + half
    else:
        low = values.min(axis=0)
        high = values.max(axis=0)
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
    # Numbers lead from the axis of another panel to these lines; a setting stays in one line.
    texts = []
    for number, label in enumerate(labels, start=1):
        unbroken = label.replace(" = ", "\u00a0=\u00a0")
        texts.append(fill(f"{number}: {unbroken}", LABEL_WIDTH, break_on_hyphens=False))

    # As many columns as fit, by the inches of a handle and of a letter.
    figure = axes.figure
    width, height = figure.get_size_inches()
    longest = max(len(line) for text in texts for line in text.splitlines())
    columns = max(1, min(len(texts), int(width / (0.55 + 0.06 * longest))))

    # The figure grows by the height of the legend, so that the panels keep theirs.
    num_rows = math.ceil(len(texts) / columns)
    num_lines = 0
    for row in range(num_rows):
        num_lines += max(text.count("\n") + 1 for text in texts[row::num_rows])
    figure.set_size_inches(width, height + 0.15 * num_lines + 0.1)
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, fontsize=8)


def draw_learning_time(runs: Sequence[Run], target: float) -> Figure:
    """Simulated time to pass each accuracy, adapted model on the left, global model on the right."""
    groups = labelled(runs)
    with figure_of(8.0, 3.6) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, metric in zip(panels, ("adapted", "global"), strict=True):
            curve_of = partial(time_to_each, column=f"{metric}_accuracy")
            _draw_groups(axes, groups, curve_of, 100.0, 1.0)
            axes.axvline(100.0 * target, color="grey", linewidth=0.8, linestyle=":")
            axes.set_xlabel(f"test accuracy, {metric} model [%]")
            spread_out(axes)
        panels[0].set_ylabel("learning time [simulated s]")
        legend(panels[0])
        title = f"Learning time against accuracy: {drawn_text(title_of(runs))}"
        figure.suptitle(title, fontsize=10)
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
    there = _evaluated(members, column)
    if not there:
        return np.empty(0), np.empty((0, 0))
    best = [np.maximum.accumulate(smoothed(values)) for _, _, values in there]
    levels = np.arange(0.30, min(float(reached[-1]) for reached in best), 0.005)
    return levels, _on(levels, best, [time for _, time, _ in there])


def draw_rounds(runs: Sequence[Run]) -> Figure:
    """Accuracies and training loss against rounds."""
    groups = labelled(runs)
    columns = ("adapted_accuracy", "global_accuracy", "train_loss")
    with figure_of(11.0, 3.4) as figure:
        panels = figure.subplots(1, 3)
        for axes, column in zip(panels, columns, strict=True):
            name, factor = _axis(column)
            _draw_groups(axes, groups, partial(curves, column=column, axis="round"), 1.0, factor)
            axes.set(xlabel="round", ylabel=name)
        legend(panels[-1])
        figure.suptitle(f"Convergence: {drawn_text(title_of(runs))}", fontsize=10)
        return figure


def draw_energy(runs: Sequence[Run]) -> Figure:
    """What a UE spends in a round, and accuracy against what was spent."""
    groups = labelled(runs)
    with figure_of(8.0, 3.6) as figure:
        left, right = figure.subplots(1, 2)
        _draw_spent(left, groups)
        _draw_groups(right, groups, _accuracy_for_energy, 1e3, 100.0)
        right.set_xlabel("energy spent so far, mean over UEs [mJ]")
        right.set_ylabel("test accuracy, adapted model [%]")
        legend(right)
        title = f"Energy (boxes: quartiles, whiskers: 5 to 95 %): {drawn_text(title_of(runs))}"
        figure.suptitle(title, fontsize=10)
        return figure


def _draw_spent(axes: Any, groups: Mapping[str, Sequence[Run]]) -> None:
    """A box for each group of runs: the energy of each UE in each round in which it sent, and
    E_max.
    """
    spent = []
    for members in groups.values():
        energy = np.concatenate([run.ues["energy"].astype(np.float64) for run in members])
        spent.append(1e3 * energy[energy > 0.0])
    boxes = axes.boxplot(
        spent, whis=(5, 95), showfliers=False, patch_artist=True, medianprops={"color": "black"}
    )
    for index, box in enumerate(boxes["boxes"]):
        box.set(facecolor=COLOURS[index % len(COLOURS)], alpha=0.6)

    # Labels without room stand in the legend, with the number that is here.
    ticks = range(1, len(groups) + 1)
    if crowded([*groups]):
        names = [str(tick) for tick in ticks]
    else:
        names = [label.replace(", ", "\n") for label in groups]
    axes.set_xticks(ticks, names, fontsize=8)
    axes.set_ylabel("energy of a UE in a round [mJ]")
    axes.set_ylim(bottom=0)

    first = next(iter(groups.values()))[0]
    limit = first.config.get("cell", {}).get("max_energy")
    if isinstance(limit, int | float):
        axes.axhline(1e3 * limit, color="grey", linewidth=0.8, linestyle=":")
        axes.annotate(
            "E_max",
            (0.99, 1e3 * limit),
            xycoords=("axes fraction", "data"),
            # far above what was spent it would squeeze the panel to nothing
            annotation_clip=True,
            ha="right",
            va="bottom",
            fontsize=8,
        )


def _accuracy_for_energy(members: Sequence[Run]) -> tuple[Array, Array]:
    """Adapted accuracy of each run on a common grid of the energy [J] a UE has spent on average."""
    spent: list[Array] = []
    accuracies: list[Array] = []
    for run in members:
        rounds, _, accuracy = run.evaluated("adapted_accuracy")
        if len(rounds):
            num_ue = float(run.manifest.get("num_ue") or math.nan)
            so_far = np.cumsum(run.rounds["energy"].astype(np.float64)) / num_ue
            spent.append(so_far[rounds.astype(np.int64)])
            accuracies.append(accuracy)
    if not spent:
        return np.empty(0), np.empty((0, 0))
    grid = np.linspace(0.0, min(float(energy[-1]) for energy in spent), 200)
    return grid, _on(grid, spent, accuracies)
