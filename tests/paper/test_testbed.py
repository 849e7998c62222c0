"""The study of the testbed: predicted against measured seconds, by hand and on the committed page."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from autofl.config import dump_settings, load_settings
from autofl.errors import AutoFLError
from autofl.records import Run, RunWriter
from autofl_paper.testbed import SCALES, _is_done, overhead_of, rounds_of, row_of, table_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def made_by_hand(round_time, planned_with):
    """Six rounds of 20 ms as modelled, an overhead of `planned_with` [s] among them; round 3 asked
    nobody.
    """
    rounds = {
        "round": np.arange(7),
        "round_time": np.array([0.0, 0.02, 0.02, 0.0, 0.02, 0.02, 0.02]),
        "sim_time": np.zeros(7),
        "adapted_accuracy": np.array([0.1, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9]),
    }
    asked = np.array([1, 1, 2, 4, 5, 6])
    devices = {
        "round": asked,
        "ue": np.array([0, 1, 0, 0, 0, 0]),
        "outcome": np.array(["ok"] * 6),
        "reply_time": np.full(6, 0.15),
        "train_time": np.full(6, 0.05),
        "send_time": np.array([0.1, 0.05, 0.1, 0.1, 0.1, 0.1]),
        "round_time": np.array([round_time[0], *round_time]),
        "bytes_up": np.full(6, 1000.0),
    }
    ues = {
        "round": asked[::-1],
        "ue": devices["ue"][::-1],
        "upload_time": np.full(6, 0.008),
        "compute_time": np.full(6, 0.005),
        "energy": np.full(6, 0.5),
    }
    config, manifest = (
        {"cell": {"overhead": planned_with}},
        {"algorithm": "autofl", "seed": 1, "host_time": 9.0},
    )
    return Run(Path("."), config, manifest, rounds, ues, devices)


def test_the_overhead_is_what_rounds_took_beside_the_model_the_first_ones_apart():
    # Computing and sending take 0.15 s as measured; the model says 0.13 s, which does not matter.
    made = made_by_hand([3.0, 0.21, 0.21, 0.22, 0.26], 0.005)
    assert overhead_of(made) == pytest.approx(np.median([0.06, 0.06, 0.07, 0.11]))
    assert overhead_of(made_by_hand([0.1] * 5, 0.0)) == 0.0


def test_a_model_that_is_wrong_by_two_is_seen_in_the_error():
    made = made_by_hand([0.2] * 5, 0.0)
    assert row_of(made, 10.0, 0.05, 0.85)["round_error"] == pytest.approx(0.0)
    assert row_of(made, 5.0, 0.05, 0.85)["round_error"] == pytest.approx(
        0.5
    )  # all that is modelled at half


def test_errors_and_the_time_to_the_target_by_hand():
    row = row_of(made_by_hand([0.25, 0.2, 0.2, 0.1, 0.25], 0.0), 10.0, 0.01, 0.85)
    assert row["round_error"] == pytest.approx(0.2)  # of 0.2, 0, 0, 1 and 0.2
    assert row["total_error"] == pytest.approx(0.0)
    assert (row["predicted"], row["measured"]) == (pytest.approx(1.0), pytest.approx(1.0))
    assert row["to_target"] == pytest.approx(
        0.25 + 0.2 + 0.2
    )  # a mean of 0.867 over rounds 2, 3 and 4
    assert (row["rounds"], row["energy"], row["bytes_up"], row["host_time"]) == (
        5,
        3.0,
        1000.0,
        9.0,
    )
    assert row["constant_error"] == pytest.approx(
        0.2
    )  # a mean of 0.2 against 0.25, 0.2, 0.2, 0.1 and 0.25: 0.2, 0, 0, 1
    assert (row["sending"], row["computing"]) == (
        pytest.approx(1.25),
        pytest.approx(1.0),
    )  # 0.1 for 0.08, 0.05 for 0.05


def test_runs_of_another_scale_or_slowness_are_not_taken(tmp_path):
    words = [*SCALES["quick"]]
    writer = RunWriter(
        tmp_path / "run",
        dump_settings(load_settings(None, words).resolved()),
        {"algorithm": "autofl", "label": "AutoFL", "seed": 1, "slow": 10.0},
    )
    writer.finish("finished")
    writer.close()
    assert _is_done(tmp_path / "run", words, 10.0)
    for others, slow in ((words, 100.0), ([*SCALES["full"]], 10.0)):
        with pytest.raises(AutoFLError, match="another --out"):
            _is_done(tmp_path / "run", others, slow)


def test_the_tables_of_the_page_are_those_of_the_results():
    docs = ROOT / "docs"
    page = (docs / "testbed.md").read_text(encoding="utf-8")
    results = sorted((docs / "results" / "testbed").glob("**/testbed.json"))
    assert results
    for place in results:
        rows = json.loads(place.read_text(encoding="utf-8"))
        assert len(rows) >= 5
        assert table_of(rows).markdown() in page


def test_every_round_is_a_line_of_predicted_and_measured_seconds():
    lines = rounds_of([made_by_hand([0.25, 0.2, 0.2, 0.1, 0.25], 0.0)], 10.0).splitlines()
    assert lines[:3] == [
        "algorithm,seed,round,predicted,measured",
        "autofl,1,1,0.2,0.25",
        "autofl,1,2,0.2,0.2",
    ]
    assert len(lines) == 6


def test_a_target_that_was_not_reached_is_said_so():
    rows = json.loads((ROOT / "docs/results/testbed/testbed.json").read_text(encoding="utf-8"))
    table = table_of([{**rows[0], "target": 0.9, "to_target": None, "rounds": 7}]).markdown()
    assert "| to 90 % |" in table
    assert "| not in 7 rounds |" in table
