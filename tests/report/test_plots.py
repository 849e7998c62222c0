"""Figures of runs written by hand: what is on the axes, and that a notebook can show them."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.records import read_run
from autofl.report.plots import AXES, draw_energy, draw_learning_time, draw_rounds, plot
from reference.runs import written

CURVE = [0.1, 0.5, 0.8, 0.9]


@pytest.fixture
def runs(tmp_path):
    """Two algorithms, two seeds each; a round takes 1 and 2 s, and the second seed is better by
    0.1.
    """
    return [
        written(
            tmp_path / f"{name}{seed}",
            name,
            seed,
            [value + 0.1 * (seed - 1) for value in CURVE],
            pace,
        )
        for name, pace in (("autofl", 1.0), ("fedavg-1", 2.0))
        for seed in (1, 2)
    ]


def test_a_curve_is_the_mean_over_seeds_and_the_band_their_range(runs):
    axes = plot(runs, "sim_time", "adapted_accuracy").axes[0]
    assert axes.get_xlabel() == "simulated time [s]"
    assert axes.get_ylabel() == "test accuracy, adapted model [%]"
    assert [line.get_label() for line in axes.lines] == ["AutoFL", "FedAvg-1"]
    for line, band, pace in zip(axes.lines, axes.collections, (1.0, 2.0), strict=True):
        np.testing.assert_allclose(line.get_xdata(), pace * np.arange(4))
        np.testing.assert_allclose(line.get_ydata(), [15.0, 55.0, 85.0, 95.0])
        edge = band.get_paths()[0].vertices
        for time, low in zip(pace * np.arange(4), 100.0 * np.array(CURVE), strict=True):
            here = edge[np.isclose(edge[:, 0], time), 1]
            np.testing.assert_allclose([here.min(), here.max()], [low, low + 10.0])


def test_energy_is_what_was_spent_so_far(runs):
    line = plot(runs[:1], "energy", "train_loss").axes[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(), [0.0, 2e-3, 4e-3, 6e-3])  # two UEs of 1 mJ a round
    line = plot(runs[:1], "round", "energy").axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [0.0, 2e-3, 4e-3, 6e-3])


def test_seeds_that_got_less_far_end_the_common_curve(tmp_path):
    runs = [
        written(tmp_path / str(seed), "autofl", seed, CURVE[: 5 - seed], float(seed))
        for seed in (1, 2)
    ]
    line = plot(runs, "sim_time", "adapted_accuracy").axes[0].lines[0]
    np.testing.assert_allclose(
        line.get_xdata(), [0.0, 1.0, 2.0, 3.0]
    )  # of 3 and 4 s; 1 and 3 s lie between two
    np.testing.assert_allclose(line.get_ydata(), [10.0, 40.0, 65.0, 77.5])


def test_over_a_column_that_may_fall_a_curve_goes_from_round_to_round(tmp_path):
    falling = [0.5, 0.9, 0.3]
    runs = [written(tmp_path / str(seed), "autofl", seed, falling, 1.0) for seed in (1, 2)]
    line = plot(runs, "adapted_accuracy", "sim_time").axes[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(), [50.0, 90.0, 30.0])
    np.testing.assert_allclose(line.get_ydata(), [0.0, 1.0, 2.0])


def test_every_column_of_a_run_has_words_and_can_be_drawn_from_its_folder(runs):
    columns = set(read_run(runs[0].folder).rounds) - {
        "gradient_norm_sq"
    }  # not measured in these runs
    assert columns <= set(AXES)
    for column in columns:
        assert plot(str(runs[0].folder), "round", column).axes[0].get_ylabel() == AXES[column][0]


def test_a_column_that_is_not_there_or_was_not_measured_is_named(runs):
    with pytest.raises(AutoFLError, match=r"'acuracy'.*round, sim_time.*adapted_accuracy"):
        plot(runs, "round", "acuracy")
    with pytest.raises(AutoFLError, match="gradient_norm_sq"):
        plot(runs, "round", "gradient_norm_sq")
    with pytest.raises(AutoFLError, match="no runs"):
        plot([], "round", "train_loss")


def test_every_picture_is_a_figure_that_a_notebook_shows(runs):
    for figure in (
        draw_learning_time(runs, 0.85),
        draw_rounds(runs),
        draw_energy(runs),
        plot(runs, "round", "energy"),
    ):
        assert isinstance(figure, Figure)
        assert figure._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.filterwarnings("error")
def test_a_run_in_which_nobody_sent_can_be_drawn(tmp_path):
    run = written(tmp_path, "autofl", 1, CURVE, 1.0, "[cell]\nmax_energy = 0.003\n", heard=False)
    assert draw_energy([run])._repr_png_()


@pytest.mark.filterwarnings("error")
def test_panels_keep_their_room_with_many_arms_of_long_names(tmp_path):
    """Before, the legend took the whole figure and Matplotlib gave the layout up with a warning."""
    runs = [
        written(
            tmp_path / str(arm),
            "autofl",
            1,
            CURVE,
            1.0,
            f'[planner]\nname = "{"a-long-name-" * 4}{arm}"\n',
        )
        for arm in range(12)
    ]
    for figure in (
        draw_learning_time(runs, 0.85),
        draw_rounds(runs),
        draw_energy(runs),
        plot(runs, "round", "energy"),
    ):
        figure.savefig(tmp_path / "x.png", dpi=50)
        for axes in figure.axes:
            room = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
            assert room.width > 2.0  # inches; the widest figure has three panels in 11
            assert room.height > 2.0
        assert len(figure.legends[0].get_texts()) == 12
        inside = figure.legends[0].get_window_extent()
        assert inside.x0 >= 0
        assert inside.x1 <= figure.bbox.x1
    styles = {
        (line.get_color(), line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines
    }
    assert len(styles) == 12
