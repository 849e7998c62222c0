"""A report on runs: one table, what its numbers mean, pictures, and a page that shows all of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.records import Run
from autofl.report.about import conclusion, decisions_table, provenance, settings_table, title_of
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
from autofl.report.summary import Row, as_json, note, summarise, table
from autofl.report.table import Table, markdown_text
from autofl.units import PathLike


@dataclass(frozen=True)
class Report:
    """What `make_report` found and where it put it; a notebook shows the table and the notes.

    Fields:
        target: accuracy for time to accuracy.
        rows: one for each group of runs that differ in their seed only.
        unheard: in which runs no update was ever decoded, to be read before the table; None where
            there is none.
        diverged: which runs diverged and what to try; None where none did.
        notes: what the numbers of the table are, and what devices measured.
        pictures: the files, PNG and SVG.
        path: report.md, with all of this on one page.
    """

    runs: tuple[Run, ...] = field(repr=False)
    target: float
    rows: tuple[Row, ...]
    unheard: str | None
    diverged: str | None
    notes: tuple[str, ...]
    pictures: tuple[Path, ...]
    path: Path

    @property
    def table(self) -> Table:
        return table(self.rows, self.target)

    @property
    def warnings(self) -> list[str]:
        """What went wrong, in words."""
        return [words for words in (self.unheard, self.diverged) if words is not None]

    @property
    def before(self) -> list[str]:
        """What to read before the table."""
        return [self.unheard] if self.unheard is not None else []

    @property
    def after(self) -> list[str]:
        """What to read after the table."""
        return [*([self.diverged] if self.diverged is not None else []), *self.notes]

    @property
    def all_diverged(self) -> bool:
        return all(has_diverged(run) for run in self.runs)

    def json(self) -> dict[str, Any]:
        """The numbers for machines, SI units, with each seed's value."""
        devices = [facts(run) for run in self.runs if run.devices]
        return {
            **as_json(self.rows, self.target),
            **({"devices": devices} if devices else {}),
            **({"warnings": self.warnings} if self.warnings else {}),
            "pictures": [str(path) for path in self.pictures],
        }

    def __str__(self) -> str:
        return "\n".join([*self.before, str(self.table), *self.after])

    def _repr_html_(self) -> str:
        before, after = (
            "".join(f"<p>{escape(line)}</p>" for line in part) for part in (self.before, self.after)
        )
        return f"{before}{self.table._repr_html_()}{after}"

    def markdown(self) -> str:
        """The page: conclusion, table, notes, pictures, settings, and where the runs came from."""
        decided = decisions_table(self.runs)
        pictures = [
            f"![{path.stem}]({path.name})" for path in self.pictures if path.suffix == ".png"
        ]
        sections = {
            "Conclusion": map(
                markdown_text, [*self.warnings, " ".join(conclusion(self.rows, self.target))]
            ),
            "Results": [self.table.markdown(), *map(markdown_text, self.notes)],
            "Pictures": pictures,
            **({"Decisions": [decided.markdown()]} if decided.rows else {}),
            "Settings": [
                "Settings that differ from the defaults or between runs; `config.toml` of a run has all of them.",
                settings_table(self.runs).markdown(),
            ],
            "Provenance": [
                "Checksums are the first 12 digits of SHA-256.",
                provenance(self.runs).markdown(),
            ],
        }
        parts = [part for name, content in sections.items() for part in (f"## {name}", *content)]
        return "\n\n".join([f"# AutoFL: {markdown_text(title_of(self.runs))}", *parts]) + "\n"


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
    (read, older), folder = newest_of_equal(read_runs(runs)), Path(out)
    rows = summarise(read, target)
    deployed = [run for run in read if run.devices]
    report = Report(
        runs=tuple(read),
        target=target,
        rows=tuple(rows),
        unheard=unheard_words(read),
        diverged=diverged_words(read),
        notes=(
            *(line for line in (older, guarded_words(read)) if line is not None),
            note(rows),
            *(line for run in deployed for line in lines(run)),
        ),
        pictures=(*plot_runs(read, folder, target), *plot_devices(deployed, folder)),
        path=folder / "report.md",
    )
    write_whole(report.path, report.markdown(), sync=False)
    return report
