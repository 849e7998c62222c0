"""Picture of a partition: who owns how many samples of which label."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autofl.data import Partition, label_counts
from autofl.report.plots import figure_of, save
from autofl.report.table import drawn_text
from autofl.units import IntArray, PathLike


def plot_partition(
    partition: Partition, label: IntArray, num_classes: int, stem: PathLike, title: str
) -> list[Path]:
    """The picture as PNG and SVG; `stem` is the file without its ending."""
    return save(draw_partition(partition, label, num_classes, title), stem)


def draw_partition(partition: Partition, label: IntArray, num_classes: int, title: str) -> Figure:
    """Who owns how many samples of which label: one bar per UE."""
    counts = label_counts(partition, label, num_classes)
    with figure_of(max(6.0, min(0.3 * len(counts), 16.0)), 3.6) as figure:
        axes = figure.subplots()
        bottom = np.zeros(len(counts))
        colours = mpl.colormaps["tab10" if num_classes <= 10 else "viridis"]
        for c in range(num_classes):
            colour = colours(c) if num_classes <= 10 else colours(c / (num_classes - 1))
            axes.bar(
                np.arange(len(counts)),
                counts[:, c],
                bottom=bottom,
                color=colour,
                width=0.85,
                label=str(c),
            )
            bottom += counts[:, c]
        axes.set_xlabel("UE")
        axes.set_ylabel("samples, training and test")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="x", visible=False)
        if num_classes <= 10:
            axes.legend(
                title="label", ncols=2, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5)
            )
        axes.set_title(drawn_text(title), fontsize=10)
        return figure
