"""Tables from runs written by hand."""

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.report.plots import plot_runs
from autofl.report.runs import group
from autofl.report.summary import as_json, note, summarise, table
from reference.runs import written

CURVE = [0.1, 0.5, 0.8, 0.9, 0.9, 0.9, 0.9]


def test_time_energy_and_ratios_are_what_was_written(tmp_path):
    runs = [
        written(tmp_path / f"{name}{seed}", name, seed, CURVE, pace * seed)
        for name, pace in (("autofl", 1.0), ("per-fedavg", 3.0))
        for seed in (1, 2)
    ]
    rows = summarise(runs, target=0.85)
    first, second = rows.by_arm()
    assert [first.label, second.label] == ["AutoFL", "Per-FedAvg"]
    # Means of three: .1 .3 .467 .733 .867: the target is passed in round 4.
    np.testing.assert_allclose(first.values["time_adapted"], [4.0, 8.0])
    np.testing.assert_allclose(second.values["time_adapted"], [12.0, 24.0])
    np.testing.assert_allclose(first.values["energy"], [1e-3, 1e-3])
    np.testing.assert_allclose(first.values["energy_to_target"], [4 * 2e-3 / 4] * 2)
    text = table(rows).markdown()
    assert "6.0 ± 25.4" in text  # mean of 4 and 8; t(0.975, 1) = 12.706 times 2.828/sqrt 2
    assert text.splitlines()[3].endswith("| 3.00 |")
    assert as_json(rows)["rows"][0]["time_adapted"]["values"] == [4.0, 8.0]


def test_the_parts_of_an_average_round_add_up_to_it(tmp_path):
    runs = [
        written(tmp_path / "a", "autofl", 1, CURVE, 1.0),
        written(tmp_path / "b", "fedavg-1", 1, CURVE, 0.5),
    ]
    for run in runs:
        run.ues["compute_time"] = np.tile([0.1, 0.05], 6)  # the second UE of a round is the slowest
        run.ues["upload_time"] = np.tile([0.1, 0.2], 6)
        run.rounds["downlink_time"] = np.full(7, 0.15)
    rows = summarise(runs, 0.85)
    for name, expected in (
        ("round_time", 1.0),
        ("computing", 0.05),
        ("sending", 0.2),
        ("downlink", 0.15),
    ):
        np.testing.assert_allclose(rows.by_arm()[0].values[name], [expected], err_msg=name)
    made = table(rows)
    place = made.headings.index("its computing, sending, downlink, overhead [ms]")
    assert [row[place] for row in made.rows] == ["50 + 200 + 150 + 600", "50 + 200 + 150 + 100"]
    assert max(map(len, str(made).splitlines())) <= 80
    assert as_json(rows)["rows"][1]["overhead"]["values"] == pytest.approx([0.1])


def test_what_rounding_leaves_of_a_round_is_no_overhead(tmp_path):
    """It was shown as 8.67e-16 or 2.78e-14 ms."""
    run = written(tmp_path / "a", "autofl", 1, CURVE, 1.0)
    run.ues["compute_time"], run.ues["upload_time"] = np.full(12, 0.4), np.full(12, 0.09)
    run.rounds["downlink_time"] = np.full(7, 0.51)
    made = table(summarise([run], 0.85))
    assert (
        made.rows[0][made.headings.index("its computing, sending, downlink, overhead [ms]")]
        == "400 + 90 + 510 + 0"
    )


def test_a_target_not_reached_is_said_and_not_averaged_away(tmp_path):
    runs = [
        written(tmp_path / "a", "autofl", 1, CURVE, 1.0),
        written(tmp_path / "b", "autofl", 2, [0.1, 0.2, 0.3], 1.0),
    ]
    text = table(summarise(runs, 0.85)).markdown()
    assert "4.0 (1 of 2)" in text
    runs = [written(tmp_path / "c", "autofl", 1, [0.1, 0.2], 1.0)]
    assert "| – |" in table(summarise(runs, 0.85)).markdown()


def test_runs_that_differ_in_a_setting_are_told_apart_by_it(tmp_path):
    runs = [
        written(
            tmp_path / str(radius), "autofl", 1, CURVE, 1.0, f"[cell.distance]\ndisc = {radius}\n"
        )
        for radius in (200, 400)
    ]
    assert list(group(runs)) == [
        "AutoFL, cell.distance.disc = 200",
        "AutoFL, cell.distance.disc = 400",
    ]
    with pytest.raises(AutoFLError, match="twice"):
        group([runs[0], runs[0]])


def test_the_note_does_not_count_the_seeds_of_one_row_for_all(tmp_path):
    one, two, three = (
        written(tmp_path / f"{name}{seed}", name, seed, CURVE, 1.0)
        for name, seed in (("autofl", 1), ("fedavg-1", 1), ("fedavg-1", 2))
    )
    assert note(summarise([one, two], 0.85)).startswith("one seed, so no interval;")
    assert note(summarise([two, three], 0.85)).startswith(
        "mean ± half a 95 % interval over 2 seeds;"
    )
    assert "over the seeds of a row, where it has several;" in note(
        summarise([one, two, three], 0.85)
    )


def test_pictures_are_the_same_to_the_byte_when_redrawn(tmp_path):
    runs = [written(tmp_path / f"run{seed}", "autofl", seed, CURVE, 1.0) for seed in (1, 2)]
    first, second = (plot_runs(runs, tmp_path / name, 0.85) for name in ("one", "two"))
    assert len(first) == 6
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes()


def test_a_run_without_any_evaluation_or_round_can_still_be_drawn(tmp_path):
    runs = [written(tmp_path / "only0", "autofl", 1, [0.1], 1.0)]
    assert len(plot_runs(runs, tmp_path / "pictures", 0.85)) == 6
