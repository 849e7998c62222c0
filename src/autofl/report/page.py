"""A report as one HTML file that needs no other: no script, no request, light and dark, printable."""

from base64 import b64encode
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from autofl.files import write_whole
from autofl.report.about import settings_table
from autofl.report.table import counted
from autofl.version import __version__, commit_of_source

if TYPE_CHECKING:
    from autofl.report.make import Report, Section

CAPTIONS = {
    "learning_time": "Simulated time to each accuracy, for the adapted and the global model; dotted: the target.",
    "rounds": "Accuracy and training loss over rounds.",
    "energy": "Energy of a UE in a round, and accuracy against the energy spent; dotted: E_max.",
    "devices": "Measured and modelled values of the devices.",
}
"""What is on each picture, by the name of its file."""


def write_html(report: "Report") -> Path:
    """report.html next to report.md."""
    path = report.path.with_suffix(".html")
    write_whole(path, html_page(report))
    return path


def html_page(report: "Report") -> str:
    """The whole report: what report.md says, its pictures inside, and at the end all settings."""
    from autofl.report.make import Section

    all_settings = settings_table(report.runs, all_of_them=True)
    sections = [*report.sections(), Section("All settings", table=all_settings)]
    made = f"{counted(len(report.runs), 'run')}; written by autofl {__version__}"
    if commit := commit_of_source():
        made += f", commit {commit[:12]}"
    template = Template(files("autofl.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(report.title),
        version=__version__,
        made=escape(made),
        body="\n".join(map(_section, sections)),
    )


def _section(section: "Section") -> str:
    kind = section.heading.lower()
    parts = [f'<section class="{kind}"><h2>{section.heading}</h2>']
    parts += [f"<p>{escape(line)}</p>" for line in section.words]
    if section.table is not None:
        # A table that is wider than the page scrolls on its own, by keyboard too.
        parts.append('<div class="wide" role="region" aria-label="table" tabindex="0">')
        parts.append(f"{section.table._repr_html_()}</div>")
    parts += [f'<p class="soft">{escape(line)}</p>' for line in section.notes]
    parts += [_figure(path) for path in section.pictures if path.suffix == ".svg"]
    parts.append("</section>")
    return "\n".join(parts)


def _figure(path: Path) -> str:
    words = escape(CAPTIONS.get(path.stem, path.stem.replace("_", " ")))
    picture = b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{picture}">'
        f"<figcaption>{words}</figcaption></figure>"
    )
