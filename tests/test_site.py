"""The documentation: its commands and code are run as they stand, the site builds, and no link of it is broken."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from autofl.cli.main import app
from autofl.cli.plan import name_picture

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WALKED = [DOCS / "first-run.md", *sorted(page for page in (DOCS / "guides").glob("*.md") if page.stem != "cluster")]
"""Pages a newcomer follows line by line."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """The lines of a block that call `autofl`, as words."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    called = [re.sub(r"^\$ ", "", line) for line in lines]
    return [shlex.split(line, comments=True)[1:] for line in called if line.startswith("autofl ")]


@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.stem)
def test_a_newcomer_can_follow_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    python = ""
    for language, text in blocks(page):
        if language == "toml":
            name = re.search(r"`(\w+\.toml)`", page.read_text(encoding="utf-8").split(text)[0].splitlines()[-3])
            assert name is not None, "the line before a TOML block names its file"
            Path(name[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            python += text
            done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        elif language == "console":
            for words in commands(text):
                done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, f"autofl {shlex.join(words)}: {done.output[-500:]}"


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem)
def test_every_command_of_a_page_is_understood(page):
    for _, text in blocks(page):
        for words in commands(text):
            command, rest = get_command(app), name_picture(words)
            while rest and hasattr(command, "commands") and rest[0] in command.commands:
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context(command.name, rest)  # raises where a word is not understood


class Links(HTMLParser):
    """What a page points at, what it loads, and what can be pointed at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.to: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.to.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "modulepreload"):
            self.loads.append(given["href"])


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra docs")
def test_the_site_builds_and_its_links_lead_somewhere(tmp_path):
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    site = tmp_path / "site"
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, links in pages.items():
        assert not [one for one in links.loads if "://" in one or one.startswith("//")], f"{path} loads from outside"
        for link in [*links.to, *links.loads]:
            if "://" in link or link.startswith(("mailto:", "data:", "javascript:")) or path.name == "404.html":
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name.split("?")[0]).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 15
    assert not broken, "\n".join(broken)
