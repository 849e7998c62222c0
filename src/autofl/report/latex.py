"""A report for a paper: tables with booktabs, pictures as PDF, and a document that shows how to
include them.
"""

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from autofl.files import inside, write_whole
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
    letters = []
    for letter in " ".join(text.split()):
        letters.append(SPECIAL.get(letter, letter if letter.isascii() else "?"))
    return "".join(letters)


def latex_table(table: Table, caption: str, label: str) -> str:
    """A floating table with the rules of booktabs, headings in short lines, scaled down only where
    it is too wide.
    """
    sides = ["r" if right else "l" for right in table.numeric]
    headings = []
    for text, side in zip(table.headings, sides, strict=True):
        short_lines = r"\\{}".join(map(escaped, wrap(text, HEADING_WIDTH)))
        headings.append(rf"\begin{{tabular}}[b]{{@{{}}{side}@{{}}}}{short_lines}\end{{tabular}}")
    lines = [
        r"\begin{table}[htbp]",
        rf"\centering\caption{{{escaped(caption)}}}\label{{{label}}}",
        r"\small\setlength{\tabcolsep}{4pt}",
        r"\sbox0{%",
        rf"\begin{{tabular}}{{@{{}}{''.join(sides)}@{{}}}}",
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
    """A table for each section, such as results.tex, a PDF of each picture, and report.tex, which
    includes them all.
    """
    folder = inside(report.path.parent, "latex")
    pictures = plot_runs(report.runs, folder, report.target, endings=(".pdf",))
    commit = commit_of_source() or "unknown"
    first_line = f"% autofl {__version__}, commit {commit}; {escaped(report.title)}\n"
    body: list[str] = []
    for section in report.sections():
        name = section.heading.lower()
        if section.table is None:
            body += map(escaped, section.words)
        else:
            caption = " ".join([*section.words, *section.notes]) or section.heading
            text = latex_table(section.table, caption, f"tab:{name}")
            write_whole(folder / f"{name}.tex", first_line + text)
            body.append(rf"\input{{{name}}}")
    body += map(_figure, pictures)

    document = [
        r"\documentclass{article}",
        r"\usepackage[margin=2.5cm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        rf"\title{{{escaped(report.title)}}}",
        r"\author{}\date{}",
        r"\begin{document}",
        r"\maketitle",
        *body,
        r"\end{document}",
    ]
    path = folder / "report.tex"
    write_whole(path, first_line + "\n".join(document) + "\n")
    return path


def _figure(path: Path) -> str:
    caption = escaped(CAPTIONS.get(path.stem, path.stem))
    return (
        f"\\begin{{figure}}[htbp]\n\\centering\\includegraphics[width=\\linewidth]{{{path.name}}}\n"
        f"\\caption{{{caption}}}\\label{{fig:{path.stem}}}\n\\end{{figure}}"
    )
