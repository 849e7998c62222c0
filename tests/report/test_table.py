"""The three forms of a table, each worked by hand."""

import re

from autofl.report import summary
from autofl.report.table import Table, percent
from reference.runs import written

TABLE = Table(
    ["algorithm", "time [s]", "remark"],
    [["AutoFL", "9.5", "a | b"], ["FedAvg <1>", "–", ""]],
    "Runs & more",
)


def test_plain_text_is_aligned_with_numbers_on_the_right():
    assert str(TABLE).splitlines() == [
        "Runs & more",
        "algorithm   time [s]  remark",
        "────────────────────────────",
        "AutoFL           9.5  a | b",
        "FedAvg <1>         –",
    ]


def test_the_table_of_runs_fits_80_columns_and_shows_every_cell(tmp_path):
    labels = {"autofl": "AutoFL", "per-fedavg": "Per-FedAvg", "autofl-j": "AutoFL-J"}
    curve = [0.1, 0.5, 0.8, 0.9, 0.9, 0.9, 0.9]
    runs = [
        written(tmp_path / f"{name}{seed}", name, seed, curve, 123.4 * seed)
        for name in labels
        for seed in (1, 2, 3)
    ]
    made = summary.table(summary.summarise(runs, 0.85))
    assert [row[0] for row in made.rows] == list(labels.values())
    lines = str(made).splitlines()
    assert max(map(len, lines)) <= 80
    for row in made.rows:
        mine = [line for line in lines if line.startswith(f"{row[0]} ")]
        assert [text for line in mine for text in re.split("  +", line)[1:]] == list(row[1:])


def test_html_for_a_notebook_is_escaped_and_well_formed():
    from xml.etree import ElementTree

    html = TABLE._repr_html_()
    assert "<1>" not in html
    root = ElementTree.fromstring(html)
    assert root.findtext("caption") == "Runs & more"
    assert [cell.text for cell in root.iter("th")] == list(TABLE.headings)
    assert [cell.text or "" for cell in root.iter("td")] == [
        text for row in TABLE.rows for text in row
    ]
    assert [cell.get("style") for cell in root.iter("th")] == [
        f"text-align: {x}" for x in ("left", "right", "left")
    ]


def test_markdown_keeps_a_bar_inside_its_cell():
    assert TABLE.markdown().splitlines() == [
        "| algorithm | time [s] | remark |",
        "| --- | --- | --- |",
        "| AutoFL | 9.5 | a \\| b |",
        "| FedAvg <1> | – |  |",
    ]


def test_percent_stands_apart_from_its_number():
    assert (percent(0.85), percent(0.9246, 1)) == ("85 %", "92.5 %")


def test_a_table_without_rows_is_its_headings():
    assert str(Table(["a", "b"], [])) == "a  b\n────"


def test_the_terminal_shows_the_same_cells_at_most_fifty_rows(capsys):
    from autofl.cli.screen import show_table

    show_table(Table(["UE", "power"], [[str(k), f"{k}.5"] for k in range(60)], "One round"))
    out = capsys.readouterr().out
    assert "One round" in out
    assert "49.5" in out
    assert "50.5" not in out
    assert "10 more rows" in out
