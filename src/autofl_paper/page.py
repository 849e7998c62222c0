"""Results as people read them: pictures, blocks of Markdown, tables on a screen, plain values."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from autofl.errors import AutoFLError
from autofl.files import write_whole
from autofl.report.about import DATA_NAMES
from autofl.report.plots import save
from autofl.report.table import Table
from autofl_paper.results import Results

PICTURES = "pictures://"
"""Stands in a block for the way from its page to the pictures."""
BLOCK = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- end \1 -->", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """All that is shown of some results."""

    title: str
    how: str  # in words, how the tables are to be read
    pictures: Mapping[str, Callable[[], Figure]]
    blocks: Mapping[str, str]  # Markdown by name; links to pictures begin with PICTURES
    tables: Sequence[Table]  # on a screen
    plain: Mapping[str, Any]  # as JSON


def publish(page: Page, out: Path, template: Path | None = None) -> list[Path]:
    """Draw the pictures, write report.md and tables.json, fill the marked blocks of a template.

    Returns the files.
    """
    if template is not None and not template.is_file():
        raise AutoFLError(f"{template}: no such page")
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in page.pictures.items():
        files += save(draw(), out / name)

    parts = [f"# {page.title}", page.how]
    parts += [f"## {name}\n\n{text}" for name, text in page.blocks.items()]
    text = "\n\n".join(parts).replace(PICTURES, "")
    write_whole(out / "report.md", text + "\n", sync=False)
    tables = json.dumps(page.plain, indent=1, ensure_ascii=False)
    write_whole(out / "tables.json", tables + "\n", sync=False)

    if template is not None:
        way = Path(os.path.relpath(out.resolve(), template.parent.resolve())).as_posix()
        filled = fill(template.read_text(encoding="utf-8"), page.blocks, f"{way}/")
        write_whole(template.resolve(), filled)
    return [*files, out / "report.md", out / "tables.json"]


def fill(template: str, blocks: Mapping[str, str], way: str) -> str:
    """A page with its marked blocks replaced, `way` leading to the pictures; a block without
    results says so.
    """

    def filled(match: re.Match[str]) -> str:
        name = match.group(1)
        text = blocks.get(name, "Not measured yet.").replace(PICTURES, way)
        return f"<!-- {name} -->\n{text}\n<!-- end {name} -->"

    return BLOCK.sub(filled, template)


def records(table: Table) -> list[dict[str, str]]:
    """A table for JSON."""
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def data_name(about: Mapping[str, Any]) -> str:
    """The data set as people call it."""
    return DATA_NAMES.get(str(about["data"]), str(about["data"]))


def made_where(results: Results) -> str:
    """How many runs took how long, on which machine and at which commit."""
    about = results.about
    seconds = about["seconds"]
    duration = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    commit = str(about["commit"] or "unknown")[:10]
    return (
        f"{about['runs']} runs in {duration} ({about['device']}, {about['cores']} cores, PyTorch {about['torch']}),"
        f" commit {commit}."
    )
