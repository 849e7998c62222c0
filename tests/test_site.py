"""The documentation: its commands and code are run, the site builds, and no link of it is broken."""

import importlib.util
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from autofl.cli.main import app
from autofl.cli.plan import name_picture
from autofl.network import Cell
from reference.joint_pilots import write as write_pilots
from reference.waiting import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

ONLY_PARSED = {
    "make ": "makes an environment from a package index",
    "PIP_EXTRA_INDEX_URL=": "makes one too",
    "pip install ": "needs a package index",
    "sudo autofl testbed ": "needs root",
    "rm server.pem ": "belongs into the folder of a deployment",
    "autofl deploy up": "opens ports; tests/deploy/test_deployment.py",
    "autofl deploy run": "needs `deploy up`; tests/deploy/test_deployment.py",
    "autofl deploy status": "needs `deploy up`; tests/deploy/test_deployment.py",
    "autofl deploy down": "needs `deploy up`; tests/deploy/test_deployment.py",
    "cd examples/flower_app ": "tests/deploy/test_flower_app.py runs what follows",
    "flwr run ": "needs Flower; tests/deploy/test_flower_app.py",
    "autofl explore ": "serves until it is stopped; tests/explore/test_page.py",
    "autofl compare --ray ": "needs a cluster; tests/jobs/test_cluster.py",
    "autofl reproduce all --scale full --ray ": "needs a cluster; tests/jobs/test_cluster.py",
    "autofl reproduce joint ": "hours; tests/paper/test_joint.py runs it in small",
    "autofl reproduce --from docs/results/joint ": "tests/paper/test_joint.py checks what it writes",
    "autofl reproduce --from docs/results/reproduction ": "tests/paper/test_reproduction.py runs it",
    "autofl report runs/labels --mlflow ": "needs a large extra; tests/report/test_tracking.py",
    "autofl analyze --set data.name=mnist ": "needs MNIST, takes minutes; tests/cli/test_commands.py runs it in small",
}
"""Beginnings of commands that no test of this file runs, and why. All others are run."""

SHORTER = {
    "rounds=200, seeds=5": "rounds=2, seeds=1",
    "num_ue=200_000": "num_ue=2_000",
    "num_ue=2000": "num_ue=200",
    "range(1, 201)": "range(1, 21)",
    "range(1, 101)": "range(1, 3)",
    'in ("mnist5k", "mnist")': 'in ("mnist5k",)',
    'overrides=["learning.engine=vmap"]': 'overrides=["learning.engine=vmap", "stop.rounds=2"]',
}
"""What is made smaller in Python blocks so that they take seconds."""

OWN_MODULES = {
    "my_rules.py": "import autofl as fl\n\n\nclass FedDyn(fl.PerFedAvg):\n    pass\n",
    "my_plans.py": "import autofl as fl\n\n\ndef Greedy() -> fl.ExactPlanner:\n    return fl.ExactPlanner(0.02)\n",
    "my_radio.py": """
from dataclasses import dataclass

import autofl as fl
import numpy as np
from autofl.network import path_gain


@dataclass(frozen=True)
class Waves(fl.Channel):
    period: float = 5.0

    def gain(self, cell, seed, k):
        return path_gain(cell) * (20 + 10 * np.sin(k / self.period))
""",
}
"""The parts that docs/parts.md assumes the reader to have."""

ALREADY_RUN: list[list[str]] = []


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page, language and text; indented commands count as blocks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^ *```([^\n]*)\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^ {4}((?:autofl|make|python|pip) .*\n)", text, flags=re.MULTILINE)
    return [*fenced, *(("", line) for line in indented)]


def commands(text: str) -> list[str]:
    """The commands of a console block, without prompts and comments."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [shlex.join(line) for line in words if line]


def console(page: Path) -> list[str]:
    return [
        command
        for language, text in blocks(page)
        if language in ("", "console")
        for command in commands(text)
    ]


def is_only_parsed(command: str) -> bool:
    return f"{command} ".startswith(tuple(ONLY_PARSED))


def small(command: str) -> list[str]:
    """The words of a command of `autofl`, with settings that take a second."""
    name, *words = shlex.split(command.removeprefix("autofl "))
    if name == "plan" and "joint" in words and {"--target", "--within", "--budget"} & set(words):
        words += [
            "--set",
            "cell.num_ue=2",
            "--pilots",
            str(write_pilots(Path("joint.json"), "cell.num_ue=2")),
        ]
    if name == "reproduce":
        words = [word for word in words if word not in ("--scale", "full")]
        words += ["--scale", "smoke", "--workers", "1", "--device", "cpu"]
    if name in ("simulate", "compare", "tune", "sweep") and "--plan" not in words:
        words += [] if "stop.rounds" in command else ["--set", "stop.rounds=2"]
        words += [] if name == "simulate" else ["--seeds", "1", "--workers", "1"]
    if name == "tune":
        words += ["--target", "0.05", "--set", "evaluation.every=1"]
    return name_picture([name, *words])


def run_command(command: str) -> None:
    """Run a command in this process. Plans and reproductions that several pages show are run once."""
    if command.startswith("autofl deploy") and importlib.util.find_spec("flwr") is None:
        return  # parsed below
    words = small(command)
    if words[0] in ("plan", "reproduce") and words in ALREADY_RUN:
        return
    ALREADY_RUN.append(words)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{command}: {done.output[-500:]} {done.exception}"
    assert "nobody can take part" not in done.output, (
        f"{command} shows a cell in which nobody takes part"
    )


def file_named_before(block: str, page: Path) -> str | None:
    """The TOML file that the last lines before a block name."""
    before = "".join(page.read_text(encoding="utf-8").split(block)[0].splitlines()[-3:])
    name = re.search(r"`(\w+\.toml)`", before)
    return name and name[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder like that of a reader: a clone with examples, only MNIST-5k, no screen."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, text in OWN_MODULES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("AUTOFL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


@pytest.fixture
def server(folder):
    """`autofl explore` on a free port: its address and its token."""
    pytest.importorskip("fastapi", reason="needs the extra explore")
    pytest.importorskip("httpx", reason="needs the extra browser")
    (folder / "runs").mkdir()
    words = [sys.executable, "-m", "autofl", "explore", "runs", "--port", "0", "--no-browser"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    yield re.fullmatch(r"(http://[^/]*)/.*token=(\S+)\s*", process.stdout.readline()).groups()
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem
)
def test_what_a_page_shows_can_be_run(page, folder, monkeypatch, request):
    names = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", names)  # dataclasses look their module up
    if page.stem == "architecture":
        run_command("autofl compare --out runs/demo")  # as `make demo`
    for language, text in blocks(page):
        if language in ("", "console"):
            for command in commands(text):
                if not is_only_parsed(command):
                    run_command(command)
        elif language == "python":
            for long, short in SHORTER.items():
                text = text.replace(long, short)
            if page.stem == "explore":
                address, token = request.getfixturevalue("server")
                text = text.replace("http://127.0.0.1:8117", address).replace('"..."', f'"{token}"')
            exec(compile(text, page.name, "exec"), vars(names))
        elif language == "toml":
            name = file_named_before(text, page)
            (folder / (name or "block.toml")).write_text(text, encoding="utf-8")
            if name is None:
                run_command("autofl plan block.toml")
        elif language == "ini":
            ConfigParser(strict=False, interpolation=None).read_string(text)
        else:
            assert language == "text", f"{page.name}: what is a block of {language}?"


def test_no_command_escapes_both_lists():
    shown = [command for page in PAGES for command in console(page)]
    strange = [
        command
        for command in shown
        if not is_only_parsed(command) and not command.startswith("autofl ")
    ]
    assert not strange, f"neither run nor listed: {strange}"
    unused = [
        start
        for start in ONLY_PARSED
        if not any(f"{command} ".startswith(start) for command in shown)
    ]
    assert not unused, f"listed, but on no page: {unused}"
    named = [
        name for reason in ONLY_PARSED.values() for name in re.findall(r"tests/[\w/]+\.py", reason)
    ]
    assert all((ROOT / name).is_file() for name in named)
    code = "".join(
        text for page in PAGES for language, text in blocks(page) if language == "python"
    )
    assert all(long in code for long in SHORTER)
    assert sum(not is_only_parsed(command) for command in shown) > sum(map(is_only_parsed, shown))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if console(page)], ids=lambda page: page.stem
)
def test_every_command_of_a_page_is_understood(page):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    targets = re.findall(
        r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    for command in console(page):
        words = shlex.split(command.removeprefix("sudo "))
        if words[0] == "make":
            assert words[1] in targets
        elif words[0] == "pip":
            assert set(re.search(r"\.\[(.*)\]", words[-1])[1].split(",")) <= extras.keys()
        elif words[0] == "autofl":
            known, rest = get_command(app), name_picture(words[1:])
            while rest and hasattr(known, "commands") and rest[0] in known.list_commands(None):
                known, rest = known.get_command(None, rest[0]), rest[1:]
            known.make_context(known.name, rest)  # raises where a word is not understood


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
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    site = tmp_path / "site"
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, links in pages.items():
        assert not [one for one in links.loads if "://" in one or one.startswith("//")], (
            f"{path} loads from outside"
        )
        for link in [*links.to, *links.loads]:
            if (
                "://" in link
                or link.startswith(("mailto:", "data:", "javascript:"))
                or path.name == "404.html"
            ):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name.split("?")[0]).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                anchor and target in pages and anchor not in pages[target].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 15
    assert not broken, "\n".join(broken)
    reference = (site / "api.html").read_text(encoding="utf-8")
    assert not [one.name for one in fields(Cell) if f"<code>{one.name}</code>" not in reference]
