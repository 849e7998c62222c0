"""A report as Python gets it, from runs written by hand."""

import json

import pytest

from autofl.errors import AutoFLError
from autofl.report.make import make_report
from autofl.report.summary import as_json, summarise
from reference.runs import written

CURVE = [0.1, 0.5, 0.8, 0.9, 0.9, 0.9, 0.9]
LEARNING = "[learning]\nouter_lr = 0.5\n"


def test_a_report_has_rows_notes_pictures_and_a_page_that_shows_them(tmp_path):
    runs = [written(tmp_path / "runs" / str(seed), "autofl", seed, CURVE, 1.0) for seed in (1, 2)]
    report = make_report(runs, tmp_path / "out", 0.85)
    assert [arm.label for arm in report.results.by_arm()] == ["AutoFL"]
    assert [path.name for path in report.pictures if path.is_file()] == [
        f"{name}.{ending}"
        for name in ("learning_time", "rounds", "energy")
        for ending in ("png", "svg")
    ]
    page = report.path.read_text(encoding="utf-8")
    assert page.startswith("# AutoFL: MNIST-5k")
    assert report.table.markdown() in page
    for words in (*report.notes, "![energy](energy.png)"):
        assert words in page
    assert report.warnings == ()
    assert report.json() == {
        **as_json(summarise(runs, 0.85)),
        "pictures": [str(path) for path in report.pictures],
    }
    json.dumps(report.json(), allow_nan=False)
    assert str(report.table) in str(report)
    assert report.table._repr_html_() in report._repr_html_()


def test_runs_may_be_given_as_folders_of_them(tmp_path):
    runs = [written(tmp_path / "runs" / str(seed), "autofl", seed, CURVE, 1.0) for seed in (1, 2)]
    whole, one_by_one = (
        make_report(str(tmp_path / "runs"), tmp_path / "a"),
        make_report(runs, tmp_path / "b"),
    )
    assert whole.path.read_bytes() == one_by_one.path.read_bytes()


def test_rows_come_in_the_order_in_which_the_runs_are_given(tmp_path):
    for name in ("autofl", "fedavg-2", "per-fedavg"):
        written(tmp_path / name, name, 1, CURVE, 1.0)
    given = ["per-fedavg", "autofl", "fedavg-2"]
    report = make_report([tmp_path / name for name in given], tmp_path / "out")
    assert [arm.label for arm in report.results.by_arm()] == ["Per-FedAvg", "AutoFL", "FedAvg-2"]


def test_a_target_beyond_all_accuracies_is_refused_before_anything_is_written(tmp_path):
    run = written(tmp_path / "run", "autofl", 1, CURVE, 1.0)
    with pytest.raises(AutoFLError, match="between 0 and 1"):
        make_report([run], tmp_path / "out", 85.0)
    assert not (tmp_path / "out").exists()


def test_which_runs_diverged_is_said_before_the_table_with_their_rounds(tmp_path):
    runs = [
        written(tmp_path / "a", "autofl", 1, CURVE, 1.0, LEARNING),
        written(tmp_path / "b", "fedavg-1", 1, CURVE[:3], 1.0, LEARNING, stop="diverged"),
    ]
    report = make_report(runs, tmp_path / "out")
    assert not report.all_diverged
    (diverged,) = report.warnings
    assert "1 of 2 runs diverged: FedAvg-1 seed 1 in round 2;" in diverged
    assert "learning.outer_lr (0.5 here)" in diverged
    assert "inner_lr" not in diverged  # FedAvg has none
    assert report.json()["warnings"] == [diverged]
    page = report.path.read_text(encoding="utf-8")
    assert page.index("## Warnings") < page.index(diverged) < page.index("| AutoFL |")
    assert make_report(runs[1:], tmp_path / "out").all_diverged


def test_that_nobody_was_ever_heard_is_said_before_the_table(tmp_path):
    run = written(tmp_path / "run", "autofl", 1, CURVE, 1.0, heard=False)
    report = make_report([run], tmp_path / "out")
    (unheard,) = report.warnings
    assert "12 of the 12 UEs selected could not take part" in unheard  # two UEs in six rounds
    page = report.path.read_text(encoding="utf-8")
    assert page.index("## Warnings") < page.index(unheard) < page.index("| AutoFL |")
    assert str(report).startswith(unheard)
    # Stopped before its first round.
    alone = written(tmp_path / "before", "autofl", 1, CURVE[:1], 1.0)
    assert make_report([alone], tmp_path / "out").warnings == ()
