"""What the README and the examples show is run as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autofl.config.describe import describe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["own_algorithm", "own_model", "own_channel"])
def test_an_example_runs(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py"), "4"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "%" in done.stdout


def test_the_python_of_the_readme_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        short = block.replace("stop.rounds=50", "stop.rounds=2")
        done = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_commands_of_the_readme_exist():
    from autofl.cli.main import app

    names = {command.name for command in app.registered_commands} | {"data", "deploy"}
    shown = set(re.findall(r"^(?:\$ )?autofl (\w+)", README, flags=re.MULTILINE))
    assert shown
    assert shown <= names


def test_the_readme_lists_every_setting_with_its_default():
    for key, default, meaning in describe():
        assert f"| `{key}` | `{default}` | {meaning} |" in README, key


def test_pictures_and_files_the_docs_point_to_are_there():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
