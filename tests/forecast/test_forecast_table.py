"""The committed table of forecasts against runs: its score follows from its rows, and the page
tells it.
"""

import importlib.util
import json
import math
import statistics
from pathlib import Path

import pytest

from autofl.forecast.pilot_files import read_pilots

DOCS = Path(__file__).parents[2] / "docs"
TABLE = json.loads((DOCS / "results" / "forecast.json").read_text())


def test_the_score_of_the_table_follows_from_its_rows():
    told = [row for row in TABLE["rows"] if "refused" not in row]
    inside = errors = runs = 0
    for row in told:
        low, high = (math.inf if value is None else value for value in row["interval"])
        for time in row["times"]:
            runs += 1
            inside += low <= (math.inf if time is None else time) <= high
        error = (
            row["forecast_time"] / statistics.median(time or math.inf for time in row["times"]) - 1
        )
        assert row["error"] == pytest.approx(error)
        errors += abs(error) <= 0.25
    score = TABLE["score"]
    assert (score["runs"], score["settings"]) == (runs, len(TABLE["rows"]))
    assert score["coverage"] == pytest.approx(inside / runs)
    assert score["within_25_percent"] == pytest.approx(errors / len(told))
    assert score["median_error"] == pytest.approx(
        statistics.median(abs(row["error"]) for row in told)
    )


def test_the_forecast_is_as_good_as_was_asked_for():
    score = TABLE["score"]
    assert score["settings"] >= 60
    assert score["refused"] == 0
    assert score["median_error"] <= 0.10
    assert score["within_25_percent"] >= 0.9
    assert score["within_25_percent"] > score["best_constant"]["within_25_percent"]
    assert all(row["flagged"] for row in TABLE["beyond"])


def test_the_page_tells_the_score():
    page, score = " ".join((DOCS / "theory-results.md").read_text().split()), TABLE["score"]
    assert f"over {score['settings']} settings and {score['runs']} runs" in page
    assert f"{100 * score['coverage']:.1f} % of runs lie in the 95 % interval" in page
    assert f"the median error is {100 * score['median_error']:.0f} %" in page


def test_the_page_has_the_table_of_the_results():
    spec = importlib.util.spec_from_file_location(
        "forecast", DOCS.parent / "benchmarks" / "forecast.py"
    )
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    table = benchmark.table_of(TABLE)
    assert table in (DOCS / "theory-results.md").read_text(encoding="utf-8")
    *groups, total = [
        [cell.strip() for cell in line.split("|")[2:5]] for line in table.splitlines()[2:]
    ]
    assert sum(int(number) for number, *_ in groups) == int(total[0]) == TABLE["score"]["settings"]
    assert sum(int(runs) for _, runs, _ in groups) == int(total[1]) == TABLE["score"]["runs"]
    assert total[2] == f"{100 * TABLE['score']['coverage']:.0f} %"


def test_every_pilot_of_the_table_is_there():
    for file in (DOCS / "results" / "forecast-pilots").glob("*.json"):
        assert len(read_pilots(file)[0]) == 18
