"""The map of a planned round shows every UE where it is, with its SNR and its status."""

import numpy as np
import pytest

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import places, plan
from autofl.network import Status
from autofl.report.cell_map import draw_cell_map, save_cell_map


def test_every_ue_is_where_it_is_in_the_colour_of_its_snr():
    settings = load_settings(scenario="rural-macro")
    made = plan(settings)
    cell, position = made.round.cell, places(settings)
    axes = draw_cell_map(made, position, "title").axes[0]
    coloured = [points for points in axes.collections if points.get_array() is not None]
    drawn = {
        tuple(place): snr
        for points in coloured
        for place, snr in zip(
            points.get_offsets().tolist(), points.get_array().tolist(), strict=True
        )
    }
    noise = 1e-3 * 10 ** ((-174 + 5 + 1) / 10) * 7.2e5  # thermal, noise figure, noise rise, band
    expected = 10 * np.log10(0.2 * made.round.gain / noise)
    assert len(drawn) == cell.num_ue
    for ue in range(cell.num_ue):
        assert drawn[tuple(position[:, ue].tolist())] == pytest.approx(expected[ue], abs=1e-9)
    labels = axes.get_legend_handles_labels()[1]
    away = int((made.round.plan.status == Status.INFEASIBLE).sum())
    assert away > 0
    assert sum(label.startswith("infeasible (") for label in labels) == 1
    time = made.round.cost.upload_time + made.round.cost.compute_time
    assert any(label.startswith(f"slowest: UE {time.argmax()}, ") for label in labels)


def test_ues_on_a_track_are_drawn_where_it_begins(tmp_path):
    (tmp_path / "track.csv").write_text("time,x0,y0,x1,y1\n0,30,40,-50,0\n9,60,80,-90,0\n")
    overrides = [
        "cell.num_ue=2",
        "channel.name=radio",
        "channel.mobility=track",
        f"channel.track={tmp_path}/track.csv",
    ]
    position = places(load_settings(overrides=overrides))
    assert position == pytest.approx(np.array([[30.0, -50.0], [40.0, 0.0]]))


def test_a_cell_in_which_nobody_takes_part_can_be_drawn(tmp_path):
    settings = load_settings(overrides=["cell.max_energy=0"])
    path = save_cell_map(plan(settings), places(settings), tmp_path / "new" / "map.svg", "nobody")
    assert "<svg" in path.read_text()[:1000]
    with pytest.raises(AutoFLError, match=r"must end in \.png"):
        save_cell_map(plan(settings), places(settings), tmp_path / "map.txt", "nobody")
