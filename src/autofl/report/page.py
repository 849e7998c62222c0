"""A report as one HTML file that needs no other: no script, no request, light and dark, printable."""

from base64 import b64encode
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from autofl.files import write_whole
from autofl.report.about import conclusion, decisions_table, provenance, settings_table, title_of
from autofl.report.table import Table
from autofl.version import __version__, commit_of_source

if TYPE_CHECKING:
    from autofl.report.make import Report

CAPTIONS = {
    "learning_time": "Simulated time to each accuracy, for the adapted and the global model; dotted: the target.",
    "rounds": "Accuracy and training loss over rounds.",
    "energy": "Energy of a UE in a round, and accuracy against the energy spent; dotted: E_max.",
    "devices": "Measured and modelled values of the devices.",
}
"""What is on each picture, by the name of its file."""


def html_page(report: "Report") -> str:
    """The whole report: conclusion, table, pictures, settings, and where each run came from."""
    runs = report.runs
    warnings = "".join(f'<p class="warning">{escape(line)}</p>' for line in report.warnings)
    notes = "".join(f'<p class="soft">{escape(line)}</p>' for line in report.notes)
    decided = decisions_table(runs)
    pictures = "".join(_figure(path) for path in report.pictures if path.suffix == ".svg")
    sections = {
        "Conclusion": warnings + _paragraphs(conclusion(report.rows, report.target)),
        "Results": _wide(report.table) + notes,
        "Pictures": pictures,
        **({"Decisions": _wide(decided)} if decided.rows else {}),
        "Settings": "<p>Settings that differ from the defaults or between runs.</p>"
        + _wide(settings_table(runs), "settings"),
        "Provenance": "<p>Checksums are the first 12 digits of SHA-256.</p>"
        + _wide(provenance(runs), "origin"),
        "All settings": _wide(settings_table(runs, all_of_them=True), "settings"),
    }
    body = "\n".join(
        f"<section><h2>{name}</h2>\n{content}\n</section>" for name, content in sections.items()
    )
    commit = commit_of_source()
    made = f"{len(runs)} run{'s' if len(runs) > 1 else ''}; written by autofl {__version__}" + (
        f", commit {commit[:12]}" if commit else ""
    )
    template = Template(files("autofl.report").joinpath("page.html").read_text(encoding="utf-8"))
    title = escape(f"AutoFL: {title_of(runs)}")
    return template.substitute(title=title, version=__version__, made=escape(made), body=body)


def write_html(report: "Report") -> Path:
    """report.html next to report.md."""
    path = report.path.with_suffix(".html")
    write_whole(path, html_page(report))
    return path


def _paragraphs(sentences: list[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _wide(table: Table, kind: str = "") -> str:
    """A table that scrolls on its own if it is wider than the page, by keyboard too."""
    return f'<div class="wide {kind}" role="region" aria-label="table" tabindex="0">{table._repr_html_()}</div>'


def _figure(path: Path) -> str:
    words = CAPTIONS.get(path.stem, path.stem.replace("_", " "))
    picture = b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure><img alt="{escape(words)}" src="data:image/svg+xml;base64,{picture}">'
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )
