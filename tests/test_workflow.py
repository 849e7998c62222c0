"""The hosted CI and `.ci/run` ask for what there is: targets of the Makefile, extras and versions
of pyproject.
"""

import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="needs the extra docs or flower")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))[
    "jobs"
]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
SCRIPTS = [step["run"] for step in STEPS if "run" in step] + [
    (ROOT / ".ci" / "run").read_text(encoding="utf-8")
]
NEEDED = {"browser", "demo", "dev", "docs", "flower", "ray"}
"""Extras without which tests are skipped, but for the large ones."""


def extras_of(text: str) -> set[str]:
    return {name for words in re.findall(r"EXTRAS=([\w,]+)", text) for name in words.split(",")}


def test_every_target_is_in_the_makefile():
    targets = set(
        re.findall(
            r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    )
    asked = {
        name
        for script in SCRIPTS
        for name in re.findall(r"^\s*make ([\w-]+)", script, flags=re.MULTILINE)
    }
    assert {"lint", "test", "coverage"} <= asked <= targets


def test_every_extra_is_in_pyproject_and_all_are_tested_somewhere():
    known = PROJECT["optional-dependencies"].keys()
    hosted = [set(job.get("env", {}).get("EXTRAS", "").split(",")) - {""} for job in JOBS.values()]
    told = extras_of((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    for extras in (*hosted, *map(extras_of, SCRIPTS), told):
        assert extras <= known
    assert NEEDED in hosted
    assert extras_of(SCRIPTS[-1]) == NEEDED


def test_the_test_command_runs_first_as_a_user_has_it_and_then_with_all_extras_in_another_environment():
    lines = [
        line
        for line in SCRIPTS[-1].splitlines()
        if re.search(r"make (setup|test)|EXTRAS=|mktemp", line)
    ]
    assert lines == [
        "fresh=$(mktemp -d)",
        'env -u EXTRAS make test VENV="$fresh"',
        f"export EXTRAS={','.join(('demo', 'dev', 'docs', 'flower', 'ray', 'browser'))}",
        "make setup",
        "make test",
    ]


def test_every_python_version_is_tested():
    claimed = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert JOBS["test"]["strategy"]["matrix"]["python"] == claimed


def test_chromium_is_there_before_the_tests_that_want_it():
    steps = [step.get("run", "") for step in JOBS["everything"]["steps"]]
    (chromium,) = (index for index, run in enumerate(steps) if "playwright install" in run)
    assert chromium < steps.index("make coverage")


def test_every_action_is_the_code_that_was_looked_at():
    """A tag may be moved to other code; a commit may not."""
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert not [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)]


def test_every_container_has_limits_and_its_base_image_a_digest():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert not [
        name
        for name, one in services.items()
        if not {"mem_limit", "pids_limit", "cpus"} <= one.keys()
    ]
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8").split("FROM ")[1].split()[0]
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", image)
