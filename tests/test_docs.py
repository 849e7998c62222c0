"""What the documents and docstrings call by name is there: files, folders, modules, links."""

import ast
import csv
import re
import statistics
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PACKAGES = (SRC / "autofl", SRC / "autofl_paper")
DOCUMENTS = ("CONTRIBUTING.md", "docs/architecture.md", "docs/notation.md")
OURS = ("autofl_paper", "benchmarks", "docs", "examples", "src", "tests")
PYTHON_FILES = {path.name for folder in OURS[1:] for path in (ROOT / folder).rglob("*.py")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MADE_BY_USE = set((ROOT / ".gitignore").read_text(encoding="utf-8").split())


def missing_names(text: str, beside: Path) -> list[str]:
    """Every name in a text that leads nowhere; links start from the folder `beside`."""
    paths = re.findall(r"`([\w.-]+/[\w./-]*|[\w-]+\.py)`", text)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    modules = {*re.findall(r"\bautofl(?:_paper)?(?:\.\w+)+", text)} - {*PROJECT["entry-points"]}
    return sorted(
        {path for path in paths if not _is_there(path)}
        | {link for link in links if not (beside / link).exists()}
        | {name for name in modules if not _is_module_or_its_name(name.split("."))}
    )


def _is_there(path: str) -> bool:
    """Whether a path leads somewhere from the root, from `src`, from the package `autofl`, or, as a
    bare file name, from anywhere.
    """
    if "/" not in path:
        return path in PYTHON_FILES
    first = path.split("/")[0]
    ours = path.endswith((".py", "/")) or first in OURS or (PACKAGES[0] / first).is_dir()
    return (
        f"{first}/" in MADE_BY_USE
        or not ours
        or any((start / path).exists() for start in (ROOT, SRC, PACKAGES[0]))
    )


def _is_module_or_its_name(parts: list[str]) -> bool:
    """Whether parts walk down to a module, or to a word in the last one that they reach."""
    place = SRC
    for part in parts:
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            return True
        else:
            return (
                re.search(rf"\b{part}\b", (place / "__init__.py").read_text(encoding="utf-8"))
                is not None
            )
    return True


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_names_only_what_is_there(document):
    path = ROOT / document
    missing = missing_names(path.read_text(encoding="utf-8"), path.parent)
    assert not missing, f"{document} names what is not there: {', '.join(missing)}"


def test_docstrings_name_only_what_is_there():
    missing = []
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        able = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        text = "\n".join(ast.get_docstring(node) or "" for node in nodes if isinstance(node, able))
        missing += [f"{path.relative_to(SRC)}: {name}" for name in missing_names(text, path.parent)]
    assert not missing, "\n".join(missing)


def rows_of_notation() -> list[tuple[str, list[str], list[str]]]:
    """Of each row of the tables: the letter, the Python names, the modules."""
    rows = []
    for line in (ROOT / "docs" / "notation.md").read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == 6 and "`" in cells[1] and "`" in cells[5]:
            rows.append(
                (
                    cells[0].strip(),
                    re.findall(r"`([^`]+)`", cells[1]),
                    re.findall(r"`([^`]+)`", cells[5]),
                )
            )
    return rows


def test_each_letter_is_in_the_modules_that_notation_names():
    """A row's first name is a word of one of its modules, or of a file of the package it names."""
    astray = []
    for letter, names, modules in rows_of_notation():
        places = [start / module for start in (SRC, PACKAGES[0]) for module in modules]
        files = [
            file
            for place in places
            for file in (place.rglob("*.py") if place.is_dir() else [place])
        ]
        words = re.findall(r"\w+", names[0].split("(")[0])
        texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
        if not any(all(re.search(rf"\b{word}\b", text) for word in words) for text in texts):
            astray.append(f"{letter}: {names[0]} is not in {', '.join(modules)}")
    assert len(rows_of_notation()) >= 80
    assert not astray, "\n".join(astray)


def test_the_page_of_parts_lists_every_part_with_its_settings():
    from autofl.config.describe import describe_parts

    expected: list[str] = []
    for part in describe_parts():
        expected.append(f"| `{part.name}` | | | | {part.what} |")
        expected += [
            f"| | `{key}` | `{default}` | {allowed} | {meaning} |"
            for key, default, allowed, meaning in part.settings
        ]
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    listed = page.partition("## The list")[2].splitlines()
    assert [line for line in listed if line.startswith(("| `", "| |"))] == expected


@pytest.mark.parametrize("document", ["parts", "settings", "architecture"])
def test_no_cell_of_a_table_is_longer_than_a_line(document):
    page = (ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > 80] == []


def time_to_85_percent(file: str, reading: str) -> float:
    """Of Per-FedAvg over AutoFL, median over paired seeds, from the committed results."""
    times: dict[str, dict[str, float]] = {"AutoFL": {}, "Per-FedAvg": {}}
    with (ROOT / "docs" / "results" / "reproduction" / f"{file}.csv").open(
        encoding="utf-8"
    ) as lines:
        for row in csv.DictReader(lines):
            if (
                row["reading"] == reading
                and row["study"] in ("mnist", file)
                and row["arm"] in times
            ):
                times[row["arm"]][row["seed"]] = float(row["time4_adapted"] or "inf")
    return statistics.median(
        times["Per-FedAvg"][seed] / time for seed, time in times["AutoFL"].items()
    )


def test_the_departures_tell_the_reproduced_ratio_of_times():
    page = (ROOT / "docs" / "departures.md").read_text(encoding="utf-8")
    five, alike = time_to_85_percent("mnist", ""), time_to_85_percent("mnist-iid", "")
    ten, twenty = (time_to_85_percent("sensitivity", f"|A_k| = {number}") for number in (10, 20))
    assert (
        f"{five:.2f} times with 5 (20 seeds; {alike:.2f} if i.i.d.), {ten:.2f} with 10, {twenty:.2f} with 20"
        in page
    )
