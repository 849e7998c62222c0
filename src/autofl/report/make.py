"""A report on runs: one table, what its numbers mean, pictures, and a page that shows all of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.records import Run
from autofl.report.about import decisions_table, provenance, settings_table, title_of
from autofl.report.devices import facts, lines, plot_devices
from autofl.report.plots import plot_runs
from autofl.report.runs import (
    diverged_words,
    guarded_words,
    has_diverged,
    newest_of_equal,
    read_runs,
    unheard_words,
)
from autofl.report.summary import as_json, note, summarise, table
from autofl.report.table import Table, markdown_text
from autofl.results import Results
from autofl.units import PathLike


@dataclass(frozen=True)
class Section:
    """A part of the page; each form of a report shows it in its own way.

    Fields:
        words: read before the table, notes after it.
    """

    heading: str
    words: Sequence[str] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    pictures: Sequence[Path] = ()

    @property
    def is_empty(self) -> bool:
        has_rows = self.table is not None and bool(self.table.rows)
        return not (self.words or self.pictures or has_rows)


@dataclass(frozen=True)
class Report:
    """What `make_report` found and where it put it; a notebook shows the table and the notes.

    Fields:
        target: accuracy for time to accuracy.
        results: what each run gave.
        warnings: what went wrong, to be read before the table.
        notes: what the numbers of the table are, and what devices measured.
        pictures: the files, PNG and SVG.
        path: report.md, with all of this on one page.
    """

    runs: tuple[Run, ...] = field(repr=False)
    target: float
    results: Results
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    pictures: tuple[Path, ...]
    path: Path

    @property
    def table(self) -> Table:
        return table(self.results)

    @property
    def all_diverged(self) -> bool:
        return all(has_diverged(run) for run in self.runs)

    @property
    def title(self) -> str:
        return f"AutoFL: {title_of(self.runs)}"

    def sections(self) -> list[Section]:
        """All that the page shows."""
        sections = [
            Section("Warnings", self.warnings),
            Section("Results", table=self.table, notes=self.notes),
            Section("Pictures", pictures=self.pictures),
            Section("Decisions", table=decisions_table(self.runs)),
            Section(
                "Settings",
                ["Those that differ from the defaults or between runs; config.toml has all."],
                settings_table(self.runs),
            ),
            Section(
                "Provenance",
                ["Where each run comes from. Checksums are the first 12 digits of SHA-256."],
                provenance(self.runs),
            ),
        ]
        return [section for section in sections if not section.is_empty]

    def json(self) -> dict[str, Any]:
        """The numbers for machines, SI units, with each seed's value."""
        said = as_json(self.results)
        if devices := [facts(run) for run in self.runs if run.devices]:
            said["devices"] = devices
        if self.warnings:
            said["warnings"] = list(self.warnings)
        return said | {"pictures": [str(path) for path in self.pictures]}

    def __str__(self) -> str:
        return "\n".join([*self.warnings, str(self.table), *self.notes])

    def _repr_html_(self) -> str:
        warnings = "".join(f"<p>{escape(line)}</p>" for line in self.warnings)
        notes = "".join(f"<p>{escape(line)}</p>" for line in self.notes)
        return f"{warnings}{self.table._repr_html_()}{notes}"

    def markdown(self) -> str:
        """The page in Markdown, with pictures beside it."""
        parts = [f"# {markdown_text(self.title)}"]
        for section in self.sections():
            parts += [f"## {section.heading}", *map(markdown_text, section.words)]
            if section.table is not None:
                parts.append(section.table.markdown())
            parts += map(markdown_text, section.notes)
            for path in section.pictures:
                if path.suffix == ".png":
                    parts.append(f"![{path.stem}]({path.name})")
        return "\n\n".join(parts) + "\n"


def make_report(
    runs: Run | PathLike | Sequence[Run | PathLike], out: PathLike, target: float = 0.85
) -> Report:
    """Draw runs and write report.md, from their folders alone.

    Args:
        runs: runs that were read, run folders, or folders of them.
        out: folder for pictures and page.
        target: accuracy for time to accuracy.
    """
    if not 0.0 < target <= 1.0:
        raise AutoFLError(f"target {target}: must lie between 0 and 1, for example 0.85")
    folder = Path(out)
    read, older = newest_of_equal(read_runs(runs))
    results = summarise(read, target)
    warnings = (unheard_words(read), diverged_words(read))

    # What the numbers are stands before what devices measured, whose lines may be many.
    notes = [older, guarded_words(read), note(results)]
    deployed = [run for run in read if run.devices]
    for run in deployed:
        notes += lines(run)

    report = Report(
        runs=tuple(read),
        target=target,
        results=results,
        warnings=tuple(words for words in warnings if words is not None),
        notes=tuple(words for words in notes if words is not None),
        pictures=(*plot_runs(read, folder, target), *plot_devices(deployed, folder)),
        path=folder / "report.md",
    )
    write_whole(report.path, report.markdown(), sync=False)
    return report
