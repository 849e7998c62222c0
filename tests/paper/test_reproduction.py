"""The committed results: every figure is redrawn from them, and every verdict on the page follows
from them.
"""

import csv
import gzip
import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from autofl.cli.main import run as run_cli
from autofl.errors import AutoFLError
from autofl_paper.claims import CLAIMS, PAIRS
from autofl_paper.curves import measure
from autofl_paper.few_shot import read_adaptation
from autofl_paper.figures import DRAWN, draw, heading
from autofl_paper.page import fill, publish
from autofl_paper.paper import FIGURES
from autofl_paper.recipes import ADAPTED, CURVES, SENSITIVITY
from autofl_paper.reproduction import data_of, judge_all, page_of, read_figures, view_of
from autofl_paper.results import (
    Curve,
    busy_time,
    is_collected,
    made_of,
    read_results,
    write_results,
)
from autofl_paper.verdicts import About

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE = DOCS / "results" / "reproduction", DOCS / "reproduction.md"
STUDIES = (
    "mnist-iid",
    "mnist",
    "cifar10",
    "samples-mnist",
    "samples-cifar10",
    "radius",
    "labels",
    *SENSITIVITY,
)


@pytest.fixture(scope="module")
def studies():
    return read_figures(RESULTS)


def test_the_committed_results_cover_the_figures(studies):
    assert set(studies) == set(STUDIES)
    assert {one.study.partition(".")[0] for one in read_adaptation(RESULTS)} == set(ADAPTED)


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """Everything drawn anew by the command a user would type, and a page of which two blocks are
    filled.
    """
    folder = tmp_path_factory.mktemp("redrawn")
    page = folder / "page.md"
    page.write_text(
        "Words.\n<!-- count -->\nold\n<!-- end count -->\n<!-- fig9z -->\n<!-- end fig9z -->\nMore words.\n"
    )
    words = ["reproduce", "--from", str(RESULTS), "--out", str(folder), "--page", str(page)]
    assert run_cli(words) == 0
    return folder


@pytest.mark.parametrize("name", ["reproduction", "joint", "radio"])
def test_report_says_what_shows_the_results_of_a_study(name, capsys):
    assert run_cli(["report", str(DOCS / "results" / name)]) == 2
    assert f"autofl reproduce --from {DOCS / 'results' / name}" in capsys.readouterr().err


def test_a_page_without_results_is_one_line(capsys):
    assert run_cli(["reproduce", "fig2b", "--page", str(PAGE)]) == 2
    assert "--from" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [*FIGURES, "targets", *(f"{study}-{meaning}" for study in SENSITIVITY for meaning in DRAWN)],
)
def test_every_figure_is_redrawn_from_the_committed_results(redrawn, name):
    assert (redrawn / f"{name}.png").stat().st_size > 15_000
    assert (redrawn / f"{name}.svg").read_text().count("<path") > 50
    assert (RESULTS / f"{name}.png").is_file()
    assert (RESULTS / f"{name}.svg").is_file()


def test_every_picture_says_which_data_and_scale_it_shows(studies):
    paper = "20 UEs, 5 a round"
    assert {name: heading(study) for name, study in studies.items()} == {
        "mnist-iid": f"MNIST, i.i.d., {paper}, 20 seeds, full scale",
        "mnist": f"MNIST, l = 5, {paper}, 20 seeds, full scale",
        "cifar10": f"CIFAR-10, l = 5, {paper}, 16 seeds, full scale",
        "samples-mnist": f"MNIST, l = 5, {paper}, 20 seeds, full scale",
        "samples-cifar10": f"CIFAR-10, l = 5, {paper}, 16 seeds, full scale",
        "radius": f"MNIST, l = 5, R varies, {paper}, 12 seeds, full scale",
        "labels": f"MNIST, l varies, {paper}, 12 seeds, full scale",
        "sensitivity": "MNIST, 6 seeds, full scale",
        "sensitivity-cifar10": "CIFAR-10, 6 seeds, full scale",
    }


def claim_rows():
    """The table of claims on the committed page, cell by cell."""
    block = re.search(
        r"<!-- claims -->\n(.*?)<!-- end claims -->", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in block.group(1).splitlines()[2:]
    ]


def test_a_figure_is_drawn_though_no_algorithm_gets_anywhere(studies):
    study = studies["mnist"]
    flat = []
    for row in study.rows:
        columns = {
            name: np.full(3, 0.1) if "accuracy" in name else column[:3]
            for name, column in row.curve.columns.items()
        }
        flat.append(replace(row, curve=Curve(columns)))
    figure = draw("fig2b", replace(study, rows=flat))
    assert len(figure.axes) == 1
    assert "reaches 30 %" in figure.axes[0].texts[0].get_text()


def test_report_fills_the_marked_blocks_of_a_page_and_leaves_the_words(redrawn):
    verdicts = [row[5] for row in claim_rows()]
    known = ("supported", "tie", "refuted", "inconclusive")
    assert set(verdicts) <= set(known)
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in known if verdict in verdicts
    )
    assert (redrawn / "page.md").read_text() == (
        f"Words.\n<!-- count -->\n{counts}\n<!-- end count -->\n"
        "<!-- fig9z -->\nNot measured yet.\n<!-- end fig9z -->\nMore words.\n"
    )


def curve_of(adapted, known, every=10.0):
    rounds = np.arange(0.0, every * len(adapted), every)
    columns = {
        "round": rounds,
        "sim_time": 2.0 * rounds,
        "adapted_accuracy": adapted,
        "global_accuracy": known,
    }
    losses = {
        "adapted_train_loss": np.linspace(2.0, 0.25, len(adapted)),
        "train_loss": np.linspace(3.0, 99.0, len(adapted)),
    }
    return Curve({name: np.asarray(values) for name, values in (columns | losses).items()})


def test_what_is_read_off_a_curve_worked_by_hand():
    """Evaluations every 10 rounds, 2 s a round, so accuracy is averaged over one evaluation on
    either side.
    """
    adapted = [
        0.1,
        0.4,
        0.7,
        0.7,
        0.7,
        0.7,
        0.7,
        0.7,
        0.7,
        0.7,
        0.7,
    ]  # averaged: 0.25, 0.4, 0.6, 0.7, 0.7, ...
    known = [
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.5,
        0.5,
        0.5,
        0.5,
        0.5,
        0.6,
    ]  # ... 0.5, 0.5, 0.533, 0.55 at the end
    read = measure(curve_of(adapted, known), (0.25, 0.3, 0.5, 0.65, 0.9), planned=100)
    expected = {
        "time1_adapted": 0.0,
        "time2_adapted": 20 / 3,  # a third of the way from 0.25 to 0.4
        "time3_adapted": 30.0,  # halfway from 0.4 to 0.6, between 20 and 40 s
        "time4_adapted": 50.0,
        "time5_adapted": math.nan,
        "plateau_adapted": 29.0,  # nine tenths of the way from 0.6 to 0.7 is within a point of it
        "quiet_adapted": 20.0,
        "best_adapted": 0.7,
        "last_adapted": 0.7,
        "unrest_adapted": 0.0,
        "loss_adapted": 0.25,
        "first_loss_adapted": 2.0,
        "diverged_adapted": 0.0,
        # the mean of the last three is 0.533, left and entered at the very end
        "plateau_global": math.nan,
        "best_global": 0.6,
        "diverged_global": 1.0,  # a loss 33 times the first
    }
    for quantity, value in expected.items():
        np.testing.assert_allclose(read[quantity], value, rtol=1e-9, atol=1e-12, err_msg=quantity)
    early = measure(curve_of(adapted, known), (0.25, 0.3, 0.5, 0.65, 0.9), planned=200)
    assert math.isnan(early["plateau_adapted"])  # it ended before its time
    assert early["diverged_adapted"] == 1.0


def by_fractions(lines, metric, targets, planned):
    """What is read off the printed lines of a curve, in exact arithmetic."""
    rounds = [int(line["round"]) for line in lines]
    times = [Fraction(line["sim_time"]) for line in lines]
    accuracy = [Fraction(line[f"{metric}_accuracy"]) for line in lines]
    reach = max(5, rounds[1] - rounds[0])
    smooth = []
    for k in rounds:
        near = [a for r, a in zip(rounds, accuracy, strict=True) if abs(r - k) <= reach]
        smooth.append(sum(near) / len(near))
    result = {"best": max(accuracy), "last": accuracy[-1]}
    for place, target in enumerate(targets, 1):
        k = next((k for k, a in enumerate(smooth) if a >= target), None)
        if k is None:
            result[f"time{place}"] = math.nan
        else:
            part = 0 if k == 0 else (target - smooth[k - 1]) / (smooth[k] - smooth[k - 1])
            result[f"time{place}"] = (
                times[k] if k == 0 else times[k - 1] + part * (times[k] - times[k - 1])
            )
    tail = accuracy[-max(3, round(0.1 * len(accuracy))) :]
    end, point = sum(tail) / len(tail), Fraction(1, 100)
    outside = [k for k, a in enumerate(smooth) if abs(a - end) > point]
    result["plateau"] = math.nan
    if rounds[-1] >= planned and (not outside or outside[-1] + 1 < len(rounds)):
        entry = Fraction(0)
        if outside:
            k = outside[-1]
            edge = end + point if smooth[k] > end else end - point
            entry = rounds[k] + (edge - smooth[k]) / (smooth[k + 1] - smooth[k]) * (
                rounds[k + 1] - rounds[k]
            )
        result["plateau"] = entry if entry <= Fraction(3, 4) * planned else math.nan
    half = accuracy[len(accuracy) // 2 :]
    result["unrest"] = math.sqrt(statistics.pvariance([b - a for a, b in pairwise(half)]))
    return result


@pytest.mark.parametrize("name", CURVES)
def test_what_the_tables_say_of_the_committed_curves_is_what_exact_arithmetic_gives(name):
    """Of one seed in five, at random but always the same."""
    about = json.loads((RESULTS / f"{name}.json").read_text())
    targets = [Fraction(str(target)) for target in about["targets"]]
    curves = defaultdict(list)
    with gzip.open(RESULTS / f"{name}.curves.csv.gz", "rt", newline="") as file:
        for line in csv.DictReader(file):
            curves[line["arm"], line["seed"]].append(line)
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["arm"], row["seed"]) for row in rows} == set(curves)
    for row in rows:
        if int(row["seed"]) % 5 != 3:
            continue
        lines = curves[row["arm"], row["seed"]]
        for metric, loss in (("adapted", "adapted_train_loss"), ("global", "train_loss")):
            expected = by_fractions(lines, metric, targets, about["rounds"])
            expected |= {"loss": float(lines[-1][loss]), "first_loss": float(lines[0][loss])}
            for quantity, value in expected.items():
                kept = float(row[f"{quantity}_{metric}"] or "nan")  # six digits
                np.testing.assert_allclose(
                    kept, float(value), rtol=1e-5, atol=1e-6, err_msg=f"{name} {row} {quantity}"
                )


def test_the_page_is_what_the_committed_results_give():
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, page_of(RESULTS, None).blocks, "results/reproduction/") == page
    assert "Not measured yet." not in page
    assert not re.search(
        r"\d{12}", page.partition("## Claims")[2]
    )  # a run that diverged has no number


def p_values(rule, comparisons):
    """That a claim holds, fails, is a tie, by SciPy."""

    def above(values, bound):
        return (
            binomtest(int((values > bound).sum()), len(values), 0.5, "greater").pvalue
            if len(values)
            else 1.0
        )

    def below(values, bound):
        return above(-values, -bound)

    if isinstance(rule, About):
        (values,), low, high = comparisons, rule.bound / rule.factor, rule.bound * rule.factor
        return (
            max(above(values, low), below(values, high)),
            min(above(values, high), below(values, low)),
            1.0,
        )
    num = 1 if rule.rows else len(comparisons)
    tie = [
        max(above(values, rule.bound / 1.05) for values in comparisons),
        num * min(below(values, rule.bound * 1.05) for values in comparisons),
    ]
    holds = max(above(values, rule.bound) for values in comparisons)
    return holds, num * min(below(values, rule.bound) for values in comparisons), max(tie)


@pytest.mark.parametrize(("meaning", "column"), [("adapted", 5), ("global", 8)])
def test_every_verdict_on_the_page_follows_from_the_committed_results_by_its_rule(
    studies, meaning, column
):
    adapted, limit, verdicts = read_adaptation(RESULTS), 0.05 / (2 * len(CLAIMS)), []
    views = [view_of(studies, adapted, meaning, shift=shift) for shift in (0, -1, 1)]
    for claim in CLAIMS:
        said = []
        for view in views:
            try:
                values = claim.values(view, None)
            except KeyError:  # K* at a level that no table has
                continue
            telling = []
            for seeds in values.values() if isinstance(values, dict) else [values]:
                there = seeds[~np.isnan(seeds)]
                telling.append(there if 2 * len(there) > len(seeds) else there[:0])
            if not any(len(there) for there in telling):  # nobody gets there
                said += ["inconclusive"] * (view is views[0])
                continue
            holds, fails, tie = (p < limit for p in p_values(claim.rule, telling))
            said.append(
                "tie" if tie else "supported" if holds else "refuted" if fails else "inconclusive"
            )
        verdicts.append(said[0] if len(set(said)) == 1 else "inconclusive")
    rows = claim_rows()
    assert verdicts == [row[column] for row in rows]
    assert [row[0] for row in rows] == [claim.words for claim in CLAIMS]
    assert all("MNIST" in row[1] or "CIFAR-10" in row[1] for row in rows)


@pytest.mark.parametrize("study", ["mnist-iid", "mnist", "cifar10"])
def test_the_ratios_of_pairs_are_those_of_the_printed_tables(studies, study):
    with (RESULTS / f"{study}.csv").open(newline="") as file:
        cells = {(line["arm"], line["seed"]): line for line in csv.DictReader(file)}
    measured = {
        one.claim.name: one.interval for one in judge_all(studies, read_adaptation(RESULTS))
    }
    for name, (_, slow, fast) in PAIRS.items():
        medians = []
        for seed in sorted({seed for _, seed in cells}, key=int):
            pairs = [
                [cells[arm, seed][f"time{k}_adapted"] for arm in (slow, fast)] for k in range(1, 6)
            ]
            both = [(float(a or "inf"), float(b or "inf")) for a, b in pairs if a or b]
            ratios = sorted(
                a / b if b else math.inf for a, b in both if a or b
            )  # 0: reached before training
            if ratios:
                middle = ratios[(len(ratios) - 1) // 2], ratios[len(ratios) // 2]
                medians.append(
                    middle[0] if middle[0] == middle[1] else math.sqrt(middle[0] * middle[1])
                )
        medians = [value for value in medians if not math.isnan(value)]
        shown = measured[f"{name}-{study}"]
        np.testing.assert_allclose(shown.value, np.median(medians), rtol=1e-9, err_msg=name)


def test_without_mnist_every_row_says_mnist_5k_and_at_smoke_scale_there_is_no_verdict(studies):
    small = {"mnist": studies["mnist"]}
    about = {**small["mnist"].about, "data": "mnist5k", "scale": "smoke"}
    judged = judge_all({"mnist": replace(small["mnist"], about=about)})
    there = [one for one in judged if one.interval is not None]
    assert len(there) >= 15
    assert {one.verdict for one in there} == {"smoke scale"}
    assert {one.verdict for one in judged} <= {"smoke scale", "not run yet"}
    named = {data_of(one.claim, {"mnist": replace(small["mnist"], about=about)}) for one in there}
    assert named == {"MNIST-5k, l = 5"}


def test_a_study_is_known_by_the_names_of_its_runs(tmp_path, studies):
    write_results(studies["radius"], tmp_path)
    places = [Path("runs/autofl-seed1-0123"), Path("runs/autofl-seed2-4567")]
    assert not is_collected(tmp_path, "radius", places)
    assert not is_collected(tmp_path, "labels", places)
    about = {**studies["radius"].about, "made_of": made_of(places)}
    (tmp_path / "radius.json").write_text(json.dumps(about))
    assert is_collected(tmp_path, "radius", [places[1], places[0], places[0]])


def test_results_are_written_and_read_back_to_the_same(tmp_path):
    names = ("mnist", "radius")
    studies = read_results(RESULTS, names)
    for study in studies.values():
        write_results(study, tmp_path)
    assert repr(read_results(tmp_path, names)) == repr(studies)
    for file in ("mnist.csv", "mnist.curves.csv.gz", "radius.csv", "radius.json"):
        assert (tmp_path / file).read_bytes() == (RESULTS / file).read_bytes()


def test_damaged_results_and_pages_are_one_clear_line(tmp_path):
    with pytest.raises(AutoFLError, match="no results"):
        page_of(tmp_path, None)
    (tmp_path / "mnist.json").write_text("{}")
    (tmp_path / "mnist.csv").write_text("a,b\n1,2\n")
    with pytest.raises(AutoFLError, match=r"mnist\.csv: not readable results"):
        page_of(tmp_path, None)
    with pytest.raises(AutoFLError, match="no such page"):
        publish(page_of(RESULTS, None), tmp_path / "out", tmp_path / "nowhere.md")


def test_time_spent_is_counted_once_however_many_runs_went_on_at_a_time():
    def made(begin, end):
        return {"ended_at": end, "host_time": end - begin}

    assert busy_time([made(0, 10), made(2, 5), made(8, 12), made(100, 101)]) == pytest.approx(13)
    assert math.isclose(busy_time([]), 0.0)
