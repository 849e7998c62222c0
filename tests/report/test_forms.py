"""A report as HTML and as LaTeX: whole, self-contained, and safe whatever a run calls itself."""

import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from autofl.records.checks import sealed
from autofl.report.about import settings_table
from autofl.report.latex import escaped, latex_table, write_latex
from autofl.report.make import make_report
from autofl.report.page import html_page
from autofl.report.table import Table
from reference.runs import written

CURVE = [0.1, 0.5, 0.8, 0.9, 0.9, 0.9, 0.9]
HOSTILE = '<script>alert("x")</script> & 50 % \\input{x} _^~$#'


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        written(folder / f"a{seed}", "autofl", seed, CURVE, 1.0, "[stop]\nrounds = 6\n")
        written(folder / f"b{seed}", "fedavg-1", seed, CURVE, 3.0 + seed, "[stop]\nrounds = 6\n")
    manifest = folder / "b1" / "manifest.json"
    for seed in (1, 2):
        manifest = folder / f"b{seed}" / "manifest.json"
        manifest.write_text(
            json.dumps(sealed(json.loads(manifest.read_text()) | {"label": HOSTILE}))
        )
    return make_report(folder, folder / "out", 0.85)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_needs_nothing_beside_it_and_runs_nothing(report):
    page = Tags()
    page.feed(html_page(report))
    assert "script" not in {tag for tag, _ in page.tags}
    asked = [
        value
        for _, attributes in page.tags
        for key, value in attributes.items()
        if key in ("src", "href", "on")
    ]
    assert len(asked) == 3
    assert all(value.startswith("data:image/svg+xml;base64,") for value in asked)
    assert not re.search(r"url\(|@import", html_page(report))
    text = " ".join(page.words)
    assert HOSTILE in text  # as text
    for run in report.runs:
        for name in ("config.toml", "rounds.csv"):
            assert hashlib.sha256((run.folder / name).read_bytes()).hexdigest()[:12] in text
    for row in report.table.rows:
        assert all(cell in page.words for cell in row)


def test_the_same_runs_give_the_same_page(report):
    assert html_page(report) == html_page(make_report(list(report.runs), report.path.parent, 0.85))


def test_settings_show_what_was_changed_and_who_shares_it(tmp_path):
    configs = {"autofl": "[cell]\nmax_energy = 0.001\n", "fedavg-1": "[cell]\nmax_energy = 0.003\n"}
    runs = [written(tmp_path / name, name, 1, CURVE, 1.0, text) for name, text in configs.items()]
    rows = {row[0]: row[1:] for row in settings_table(runs).rows}
    assert (
        rows["cell.max_energy"][0].count(": 0.001")
        == rows["cell.max_energy"][0].count(": 0.003")
        == 1
    )
    assert rows["cell.max_energy"][1] == "0.003"
    assert list(settings_table(runs[1:]).rows) == [
        ["arm", "fedavg-1", "autofl"]
    ]  # 0.003 is the default


def test_latex_escapes_every_special_letter():
    assert escaped("a_b & 5 % ± – \\x{}") == r"a\_b \& 5 \% $\pm$ -- \textbackslash{}x\{\}"
    assert escaped(HOSTILE).isascii()
    text = latex_table(Table(["name", "a heading of [%]"], [["x & y", "1 ± 2"]]), "c", "tab:x")
    rows = text[text.index("midrule") :].splitlines()
    assert rows[1] == r"x \& y & 1 $\pm$ 2 \\"
    assert r"\\[" not in text  # would be read as a length


@pytest.mark.slow
def test_latex_has_tables_pictures_and_a_document(report):
    path = write_latex(report)
    assert {file.name for file in path.parent.iterdir()} >= {
        *("results.tex", "settings.tex", "provenance.tex", "report.tex"),
        *("learning_time.pdf", "rounds.pdf", "energy.pdf"),
    }
    for file in path.parent.glob("*.tex"):
        text = re.sub(r"\\[\\{}]", "", file.read_text())
        assert text.count("{") == text.count("}")
    if shutil.which("pdflatex") is None:
        pytest.skip("no LaTeX here to set it with")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:]
