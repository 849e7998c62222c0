"""The committed results: every figure is redrawn from them, and every verdict on the page follows from them."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from autofl.cli.main import run as run_cli
from autofl.errors import AutoFLError
from autofl.reproduction.figures import data_name, heading
from autofl.reproduction.page import blocks, fill, judge_all, report
from autofl.reproduction.paper import FIGURES
from autofl.reproduction.recipes import CURVES, SENSITIVITY
from autofl.reproduction.results import busy_time, measure, read_results, write_study

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
    for study in studies.values():
        assert data_name(study.about) in heading(study)
        assert study.about["scale"] in heading(study)


def test_report_fills_the_marked_blocks_of_a_page_and_leaves_the_words(redrawn, studies):
    filled = (redrawn / "page.md").read_text()
    verdicts = [each.verdict for each in judge_all(studies)]
    assert f"{verdicts.count('holds')} holds" in filled
    assert "Not measured yet." in filled
    assert filled.startswith("Words.\n")
    assert filled.endswith("More words.\n")


def test_what_is_read_off_the_runs_follows_from_the_committed_curves(studies):
    for name in CURVES:
        study = studies[name]
        assert len(study.curves) == len(study.rows)
        for row in study.rows:
            found = measure(study.curves[row.arm, row.seed], study.about["target_accuracy"])
            for quantity, value in found.items():
                np.testing.assert_allclose(row.values[quantity], value, rtol=1e-5, err_msg=f"{name} {row} {quantity}")


def test_the_page_is_what_the_committed_results_give(studies):
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, blocks(studies, "results/reproduction/")) == page
    assert "Not measured yet." not in page


def numbers(text):
    return [float(word.replace("∞", "inf")) for word in re.findall(r"-?(?:\d+(?:\.\d+)?|∞)", text)]


def test_each_verdict_on_the_page_follows_by_its_stated_rule():
    """From the text of the table alone; where rounding hides on which side a number lies, it may be either."""
    block = re.search(r"<!-- claims -->\n(.*?)<!-- end claims -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.group(1).splitlines()[2:]]
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
