"""docs/decisions.md says what is in docs/results/decisions, and every time asked for that is missed
is named.
"""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import decisions as study  # noqa: E402
import decisions_page as page  # noqa: E402

PAGE, RESULTS = ROOT / "docs" / "decisions.md", ROOT / "docs" / "results" / "decisions"


def test_the_page_is_what_the_results_give(tmp_path):
    drawn = tmp_path / "decisions.md"
    drawn.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    study.write(drawn, RESULTS)
    assert drawn.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_no_run_of_autofl_j_spends_more_than_a_limit_or_diverges():
    rows = json.loads((RESULTS / "defaults.json").read_text(encoding="utf-8"))
    ours = {key: row for key, row in rows.items() if f"|{page.NOW}|" in key}
    assert len(ours) >= 3 * (len(study.TASKS) - 1)
    assert all(row["over"] == 0 and row["stop"] != "diverged" for row in ours.values())


def test_a_median_counts_a_run_that_does_not_get_there_as_endless():
    rows = {seed: {"time": [time, None], "last": 3.0} for seed, time in enumerate((1.0, 2.0, None))}
    assert page.median(rows, "time", 0) == 2.0
    assert page.median(rows, "time", 1) == float("inf")


def test_a_ratio_is_taken_seed_by_seed():
    ours = {
        1: {"time": [1.0], "last": 9.0},
        2: {"time": [10.0], "last": 99.0},
        3: {"time": [1.0], "last": 9.0},
    }
    others = {1: {"time": [2.0], "last": 9.0}, 2: {"time": [20.0], "last": 99.0}}
    assert page.factor(ours, others, 0) == pytest.approx(2.0)


def test_the_same_number_draws_the_same_constants_of_the_search():
    assert study.drawn(7) == study.drawn(7)
    assert (
        len({json.dumps(study.drawn(number)) for number in range(study.NUM_DRAWN)})
        == study.NUM_DRAWN
    )
