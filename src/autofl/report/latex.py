"""A report for a paper: tables with booktabs, pictures as PDF, and a document that shows how to
include them.
"""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from autofl.files import inside, write_whole
from autofl.report.about import conclusion, provenance, settings_table, title_of
from autofl.report.page import CAPTIONS
from autofl.report.plots import plot_runs
from autofl.report.table import Table
from autofl.version import __version__, commit_of_source

if TYPE_CHECKING:
    from autofl.report.make import Report

SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "²": "$^2$",
    "‖": r"$\|$",
    "×": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "µ": r"$\mu$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}
HEADING_WIDTH = 14
"""Letters in a line of a heading."""


def escaped(text: str) -> str:
    """Text as LaTeX prints it; what it has no letter for becomes a question mark."""
    return "".join(
        SPECIAL.get(letter, letter if letter.isascii() else "?")
        for letter in " ".join(text.split())
    )


def latex_table(table: Table, caption: str, label: str) -> str:
    """A floating table with the rules of booktabs, headings in short lines, scaled down only where
    it is too wide.
    """
    columns = "".join("r" if right else "l" for right in table.numeric)
    headings = [
        rf"\begin{{tabular}}[b]{{@{{}}{side}@{{}}}}" + r"\\{}".join(map(escaped, wrap(text, HEADING_WIDTH)))
        + r"\end{tabular}"
        for text, side in zip(table.headings, columns, strict=True)
    ]  # fmt: skip
    lines = [
        r"\begin{table}[htbp]",
        rf"\centering\caption{{{escaped(caption)}}}\label{{{label}}}",
        r"\small\setlength{\tabcolsep}{4pt}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        " & ".join(headings) + r" \\",
        r"\midrule",
        *(" & ".join(map(escaped, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def write_latex(report: "Report") -> Path:
    """results.tex, settings.tex, provenance.tex, a PDF of each picture, and report.tex, which
    includes them all.
    """
    folder = inside(report.path.parent, "latex")
    pictures = plot_runs(report.runs, folder, report.target, endings=(".pdf",))
    said = f"% autofl {__version__}, commit {commit_of_source() or 'unknown'}; {escaped(title_of(report.runs))}\n"
    tables = {
        "results": (report.table, f"Results; {report.notes[-1] if report.notes else ''}"),
        "settings": (
            settings_table(report.runs),
            "Settings that differ from the defaults or between runs",
        ),
        "provenance": (
            provenance(report.runs),
            "Where each run comes from; first 12 digits of SHA-256",
        ),
    }
    for name, (table, caption) in tables.items():
        write_whole(folder / f"{name}.tex", said + latex_table(table, caption, f"tab:{name}"))
    path = folder / "report.tex"
    write_whole(path, said + _document(report, [*tables], pictures))
    return path


def _document(report: "Report", tables: Sequence[str], pictures: Sequence[Path]) -> str:
    figures = [
        "\\begin{figure}[htbp]\n\\centering\\includegraphics[width=\\linewidth]{"
        + path.name
        + "}\n"
        f"\\caption{{{escaped(CAPTIONS.get(path.stem, path.stem))}}}\\label{{fig:{path.stem}}}\n\\end{{figure}}"
        for path in pictures
    ]
    words = [*report.warnings, *conclusion(report.rows, report.target)]
    lines = [
        r"\documentclass{article}",
        r"\usepackage[margin=2.5cm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        rf"\title{{{escaped(f'AutoFL: {title_of(report.runs)}')}}}",
        r"\author{}\date{}",
        r"\begin{document}",
        r"\maketitle",
        *(escaped(sentence) for sentence in words),
        *(rf"\input{{{name}}}" for name in tables),
        *figures,
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"
