"""The study radio: times never reached, verdicts, claims on results made up, and the page that is
committed.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from autofl.cli.main import run as run_cli
from autofl_paper.page import fill
from autofl_paper.radio import CELLS, SCALES, arms, shares_that_can_send
from autofl_paper.radio_claims import (
    CellView,
    claims_of,
    log_ratio,
    mean_over_targets,
)
from autofl_paper.radio_page import page_of
from autofl_paper.results import Results, Row, read_results
from autofl_paper.verdicts import Interval, judge, verdict_of

NAN = math.nan
DOCS = Path(__file__).parents[2] / "docs"


def test_times_that_were_not_reached_give_bounds_or_nothing():
    slow, fast = np.array([6.0, NAN, NAN, 4.0, 9.0, NAN]), np.array([3.0, 2.0, 8.0, NAN, NAN, NAN])
    ratios = np.exp(log_ratio(slow, fast, np.full(6, 7.0), np.full(6, 8.0)))
    np.testing.assert_allclose(
        ratios, [2.0, 3.5, NAN, 0.5, NAN, NAN]
    )  # 7 / 2 at least; 4 / 8 at most
    np.testing.assert_allclose(
        mean_over_targets(np.array([[1.0, NAN, NAN], [3.0, 5.0, NAN]])), [2.0, 5.0, NAN]
    )


@pytest.mark.parametrize(
    ("effect", "low", "high", "verdict"),
    [
        (0.3, 0.1, 0.5, "supported"),
        (0.03, 0.01, 0.05, "inconclusive"),
        (0.01, -0.03, 0.04, "tie"),
        (-0.3, -0.5, -0.1, "refuted"),
        (0.3, -0.1, 0.7, "inconclusive"),
        (0.3, NAN, NAN, "inconclusive"),
    ],
)
def test_verdicts(effect, low, high, verdict):
    assert verdict_of(Interval(effect, low, high), 0.04) == verdict


def made_up(values):
    """A study of the UMi cell in which every arm has these values, by arm where one is named, and
    seed 2 is slower.
    """
    base = {
        "time_75": 10.0,
        "time_85": 20.0,
        "last": 100.0,
        "best": 0.9,
        "rounds": 40.0,
        "unrest": 0.01,
    }
    rows = [
        Row("umi", "radio", arm.name, 0, seed, {**base, **values.get(arm.name, {})})
        for arm in arms(SCALES["quick"])
        if arm.reading == "umi"
        for seed in (1, 2)
    ]
    for row in rows:
        if row.seed == 2:
            row.values["time_85"] *= 1.5
    return Results("radio", {"targets": [0.75, 0.85], "sizes": [5, 10, 20, 30, 40, 60]}, rows)


def found(claim, results):
    return judge(claim, CellView(results, "umi"))


def effects(results):
    claims = claims_of(results.about["sizes"])
    return {claim.name: found(claim, results).interval.value for claim in claims}


def test_where_all_are_alike_no_claim_has_an_effect():
    same = effects(made_up({}))
    assert len(same) == 26
    halves = {name: value for name, value in same.items() if name.startswith("twice")}
    assert {round(math.exp(value), 9) for value in halves.values()} == {0.5}
    assert all(abs(value) < 1e-12 for name, value in same.items() if name not in halves)


def test_effects_point_the_way_of_the_claim():
    far, outer, few = "AutoFL, R = 345 m", "Per-FedAvg, R = 345 m", "AutoFL, l = 1"
    there = effects(
        made_up(
            {
                "Per-FedAvg": {"time_75": 30.0, "time_85": 60.0},
                "Per-FedAvg, d = 60": {"time_75": 12.0, "time_85": 24.0},
                far: {"rounds": 80.0, "best": 0.86},
                outer: {"best": 0.8},
                few: {"best": 0.95},
            }
        )
    )
    assert math.exp(there["plan-maml-non-i.i.d."]) == pytest.approx(
        3.0 / 1.0 * (60.0 * 1.5 / 30.0 / 3.0)
    )
    assert math.exp(there["twice-non-i.i.d."]) == pytest.approx(1.5)
    assert math.exp(there["size-60"]) == pytest.approx(1.2)
    assert math.exp(there["radius-rounds"]) == pytest.approx(50.0 / 40.0)
    assert there["radius-accuracy"] == pytest.approx((4.0 + 10.0) / 4.0)
    assert there["radius-accuracy-faster"] == pytest.approx((4.0 + 10.0) / 4.0)
    assert there["radius-planning"] == pytest.approx(6.0 / 2.0)
    assert there["labels-lead"] == pytest.approx(5.0)
    assert there["labels-accuracy"] == pytest.approx(-5.0 / 4.0)


def test_twice_is_not_refuted_by_a_run_that_ends_before_its_target():
    """AutoFL needs 30 s, Per-FedAvg ends at 40 s without having got there: it may need 60 or more."""
    claim = next(one for one in claims_of([5]) if one.name == "twice-non-i.i.d.")
    cut = {
        "Per-FedAvg": {"time_75": 15.0, "time_85": NAN, "last": 40.0},
        "AutoFL": {"time_75": 10.0, "time_85": 30.0},
    }
    assert found(claim, made_up(cut)).telling == 0
    cut["Per-FedAvg"]["last"] = 100.0  # 100 / 45 at least in seed 2
    late = found(claim, made_up(cut))
    assert late.telling == 2
    assert late.interval.value == pytest.approx(
        np.mean([math.log(1.5 * 100 / 30 / 4), math.log(1.5 * 100 / 45 / 4)]) / 2
    )


def test_of_several_comparisons_all_must_hold_and_one_refutes_if_it_is_sure_enough():
    claim = next(one for one in claims_of([5]) if one.name == "least-non-i.i.d.")
    rows = made_up({"AutoFL": {"time_75": 5.0, "time_85": 10.0}})
    assert (found(claim, rows).verdict, found(claim, rows).worst) == (
        "supported",
        "Per-FedAvg",
    )
    one = made_up({"FedAvg-2": {"time_75": 7.0, "time_85": 14.0}})
    assert (found(claim, one).verdict, found(claim, one).worst) == (
        "refuted",
        "FedAvg-2",
    )
    spread = made_up({"FedAvg-2": {"time_75": 8.0, "time_85": 16.4}})
    for row in spread.rows:  # 0.81 and 0.83 of AutoFL's time: sure at 95 %, not at 98.3 %
        if row.arm == "FedAvg-2" and row.seed == 2:
            row.values["time_75"] = 8.32
    unsure = found(claim, spread)
    assert unsure.interval.high < 0.0
    assert unsure.verdict == "inconclusive"


def test_the_papers_budget_serves_nobody_on_real_radio():
    assert shares_that_can_send(CELLS["paper"], 1)["0.003"] == 1.0
    shares = shares_that_can_send(CELLS["umi"], 1)
    assert shares["0.003"] == 0.0
    assert list(shares.values()) == sorted(shares.values())


def test_the_page_is_that_of_the_results():
    page = (DOCS / "radio-claims.md").read_text(encoding="utf-8")
    blocks = page_of(DOCS / "results" / "radio").blocks
    assert all(f"<!-- {name} -->" in page for name in blocks)
    assert fill(page, blocks, "results/radio/") == page


@pytest.mark.slow
def test_a_small_study_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AUTOFL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    words = [
        "reproduce",
        "radio",
        "--scale",
        "smoke",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert run_cli([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["claims"]), {claim["cell"] for claim in told["claims"]}) == (26, {"umi"})
    results = read_results(tmp_path / "radio", ["radio"])["radio"]
    row = results.rows_of("AutoFL", "umi")[0].values
    assert row["computing"] + row["sending"] + row["receiving"] == pytest.approx(1.0, abs=0.02)
    assert (tmp_path / "radio" / "radio.png").stat().st_size > 15_000
    assert run_cli(["reproduce", "radio", "fig2b"]) == 2
