"""The committed results: every figure is redrawn from them, and every verdict on the page follows from them."""

import csv
import json
import math
import re
import statistics
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from autofl.cli.main import run as run_cli
from autofl.errors import AutoFLError
from autofl.reproduction.figures import heading
from autofl.reproduction.page import blocks, fill, report
from autofl.reproduction.paper import FIGURES
from autofl.reproduction.recipes import CURVES, SENSITIVITY
from autofl.reproduction.results import Curve, busy_time, measure, read_results, write_study

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE = DOCS / "results" / "reproduction", DOCS / "reproduction.md"


@pytest.fixture(scope="module")
def studies():
    return read_results(RESULTS)


def test_the_committed_results_cover_the_figures(studies):
    assert {
        "mnist-iid",
        "mnist",
        "cifar10",
        "samples-mnist",
        "samples-cifar10",
        "radius",
        "labels",
        *SENSITIVITY,
    } == set(studies)


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """Everything drawn anew by the command a user would type, and a page of which two blocks are filled."""
    folder = tmp_path_factory.mktemp("redrawn")
    page = folder / "page.md"
    page.write_text(
        "Words.\n<!-- count -->\nold\n<!-- end count -->\n<!-- fig9z -->\n<!-- end fig9z -->\nMore words.\n"
    )
    assert run_cli(["report", str(RESULTS), "--out", str(folder), "--page", str(page)]) == 0
    return folder


@pytest.mark.parametrize("name", [*FIGURES, "sensitivity"])
def test_every_figure_is_redrawn_from_the_committed_results(redrawn, name):
    assert (redrawn / f"{name}.png").stat().st_size > 15_000
    assert (redrawn / f"{name}.svg").read_text().count("<path") > 50
    assert (RESULTS / f"{name}.png").is_file()
    assert (RESULTS / f"{name}.svg").is_file()


def test_every_picture_says_which_data_and_scale_it_shows(studies):
    paper = "20 UEs, 5 a round"
    assert {name: heading(study) for name, study in studies.items()} == {
        "mnist-iid": f"MNIST, i.i.d., {paper}, 10 seeds, full scale",
        "mnist": f"MNIST, l = 5, {paper}, 10 seeds, full scale",
        "cifar10": f"CIFAR-10, l = 5, {paper}, 5 seeds, full scale",
        "samples-mnist": f"MNIST, l = 5, {paper}, 10 seeds, full scale",
        "samples-cifar10": f"CIFAR-10, l = 5, {paper}, 5 seeds, full scale",
        "radius": f"MNIST, l = 5, {paper}, 5 seeds, full scale",
        "labels": f"MNIST, l varies, {paper}, 5 seeds, full scale",
        "sensitivity": "MNIST, 5 seeds, full scale",
        "sensitivity-cifar10": "CIFAR-10, 5 seeds, full scale",
    }


def claim_rows():
    """The table of claims on the committed page, cell by cell."""
    block = re.search(r"<!-- claims -->\n(.*?)<!-- end claims -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.group(1).splitlines()[2:]]


def test_report_fills_the_marked_blocks_of_a_page_and_leaves_the_words(redrawn):
    verdicts = [row[5] for row in claim_rows()]
    assert "not measured" not in verdicts
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in ("holds", "partly", "does not hold"))
    assert (redrawn / "page.md").read_text() == (
        f"Words.\n<!-- count -->\n{counts}\n<!-- end count -->\n"
        "<!-- fig9z -->\nNot measured yet.\n<!-- end fig9z -->\nMore words.\n"
    )


def test_what_is_read_off_a_curve_worked_by_hand():
    """Evaluations every 10 rounds, 2 s a round; the target is 0.6."""
    adapted = np.array([0.1, 0.5, 0.6, 0.7, 0.8, 0.81, 0.8, 0.81])
    curve = Curve(
        {
            "round": np.arange(0.0, 80.0, 10.0),
            "sim_time": np.arange(0.0, 160.0, 20.0),
            "adapted_accuracy": adapted,
            "global_accuracy": np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.7, 0.5]),
            "adapted_train_loss": np.linspace(2.0, 0.25, 8),
            "train_loss": np.linspace(3.0, 0.5, 8),
        }
    )
    expected = {
        "time_adapted": 60.0,  # (0.5 + 0.6 + 0.7) / 3 is 0.6, in round 30
        "rounds_adapted": 40.0,  # 0.8, 0.81, 0.8 deviate by 0.0047; 0.7, 0.8, 0.81 from round 30 by 0.05
        "best_adapted": 0.81,
        "last_adapted": 0.81,
        "unrest_adapted": math.sqrt(8 / 9) * 0.01,  # steps 0.01, -0.01, 0.01 around their mean 0.01 / 3
        "time_global": math.nan,  # (0.5 + 0.5 + 0.7) / 3 is the best of them
        "rounds_global": math.nan,
        "best_global": 0.7,
        "last_global": 0.5,
        "unrest_global": math.sqrt(0.08 / 3),  # steps 0, 0.2, -0.2
        "loss_adapted": 0.25,
        "loss_global": 0.5,
    }
    found = measure(curve, 0.6)
    assert set(found) == set(expected)
    for quantity, value in expected.items():
        np.testing.assert_allclose(found[quantity], value, rtol=1e-9, err_msg=quantity)


def by_fractions(lines, metric, target):
    """Time to the target, K*, best, last and unrest from the printed lines of a curve, in exact arithmetic."""
    rounds = [int(line["round"]) for line in lines]
    accuracy = [Fraction(line[f"{metric}_accuracy"]) for line in lines]
    time = converged = math.nan
    for k in reversed(range(len(lines))):
        mean_of = accuracy[max(k - 2, 0) : k + 1]
        if sum(mean_of) >= target * len(mean_of):
            time = float(lines[k]["sim_time"])
        window = [a for r, a in zip(rounds, accuracy, strict=True) if rounds[k] <= r <= rounds[k] + 20]
        whole = rounds[k] + 20 <= rounds[-1] and len(window) >= 3
        if whole and statistics.pvariance(window) <= Fraction(1, 10_000):
            converged = rounds[k]
    half = accuracy[len(accuracy) // 2 :]
    unrest = math.sqrt(statistics.pvariance([b - a for a, b in pairwise(half)]))
    return {"time": time, "rounds": converged, "best": max(accuracy), "last": accuracy[-1], "unrest": unrest}


def test_what_is_read_off_the_committed_curves_and_what_the_tables_say_is_what_exact_arithmetic_gives(studies):
    for name in CURVES:
        target = Fraction(str(json.loads((RESULTS / f"{name}.json").read_text())["target_accuracy"]))
        with (RESULTS / f"{name}.curves.csv").open(newline="") as file:
            curves = defaultdict(list)
            for line in csv.DictReader(file):
                curves[line["arm"], line["seed"]].append(line)
        with (RESULTS / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {(row["arm"], row["seed"]) for row in rows} == set(curves)
        for row in rows:
            lines = curves[row["arm"], row["seed"]]
            found = measure(studies[name].curves[row["arm"], int(row["seed"])], float(target))
            for metric, loss in (("adapted", "adapted_train_loss"), ("global", "train_loss")):
                expected = {**by_fractions(lines, metric, target), "loss": float(lines[-1][loss])}
                for quantity, value in expected.items():
                    about = f"{name} {row} {quantity}"
                    np.testing.assert_allclose(found[f"{quantity}_{metric}"], float(value), rtol=1e-9, err_msg=about)
                    kept = float(row[f"{quantity}_{metric}"] or "nan")  # six digits
                    np.testing.assert_allclose(kept, float(value), rtol=1e-5, err_msg=about)


def test_the_page_is_what_the_committed_results_give(studies):
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, blocks(studies, "results/reproduction/")) == page
    assert "Not measured yet." not in page


def numbers(text):
    return [float(word.replace("∞", "inf")) for word in re.findall(r"-?(?:\d+(?:\.\d+)?|∞)", text)]


def test_each_verdict_on_the_page_follows_by_its_stated_rule():
    """From the text of the table alone; where rounding hides on which side a number lies, it may be either."""
    rows = claim_rows()
    assert len(rows) >= 45
    for words, _, quantity, measured, rule, verdict, _, why_not in rows:
        assert bool(why_not) == (verdict in ("partly", "does not hold")), words
        if verdict == "not measured":
            assert measured == "–"
            continue
        median, low, high = numbers(measured)
        allowed = set()
        for nudge in (-1, 0, 1):
            step = nudge * 0.5 * 10.0 ** -len(measured.split()[0].partition(".")[2])
            allowed.add(by_rule(rule, median + step, low + step, high + step, 100.0 if "[points]" in quantity else 1.0))
        assert verdict in allowed, (words, measured, rule, verdict)


def by_rule(rule, median, low, high, factor):
    bounds = [factor * bound for bound in numbers(rule)]
    if "±" in rule:
        inside = [abs(x - bounds[0]) <= bounds[0] * bounds[1] / 100 for x in (median, low, high)]
        return "holds" if inside[1] and inside[2] else "partly" if inside[0] else "does not hold"
    if low > bounds[0]:
        return "holds"
    weak = len(bounds) > 1 and low > bounds[1]
    return "partly" if median > bounds[0] or weak else "does not hold"


def test_results_are_written_and_read_back_to_the_same(tmp_path, studies):
    for study in (studies["mnist"], studies["radius"]):
        write_study(study, tmp_path)
    again = read_results(tmp_path)
    for name in ("mnist", "radius"):
        assert repr(again[name]) == repr(studies[name])
    for file in ("mnist.csv", "mnist.curves.csv", "radius.csv", "radius.json"):
        assert (tmp_path / file).read_bytes() == (RESULTS / file).read_bytes()


def test_damaged_results_and_pages_are_one_clear_line(tmp_path):
    with pytest.raises(AutoFLError, match="no results"):
        report(tmp_path, tmp_path)
    (tmp_path / "mnist.json").write_text("{}")
    (tmp_path / "mnist.csv").write_text("a,b\n1,2\n")
    with pytest.raises(AutoFLError, match=r"mnist\.csv: not readable results"):
        read_results(tmp_path)
    with pytest.raises(AutoFLError, match="no such page"):
        report(RESULTS, tmp_path / "out", tmp_path / "nowhere.md")


def test_time_spent_is_counted_once_however_many_runs_went_on_at_a_time():
    def made(begin, end):
        return {"ended_at": end, "host_time": end - begin}

    assert busy_time([made(0, 10), made(2, 5), made(8, 12), made(100, 101)]) == pytest.approx(13)
    assert math.isclose(busy_time([]), 0.0)
