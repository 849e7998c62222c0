"""What is published: a wheel and an sdist with all of both packages and nothing else, built without a
network.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="needs hatchling, which make setup installs")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = {
    str(path.relative_to(ROOT / "src"))
    for package in ("autofl", "autofl_paper")
    for path in (ROOT / "src" / package).rglob("*")
    if path.is_file()
}
PACKAGES = {name for name in PACKAGES if "__pycache__" not in name}
ONLY_IN_A_CLONE = {
    "Makefile",
    "tests",
    "docs",
    "benchmarks",
    "tools",
    "hashes.txt",
    "zensical.toml",
}
"""What works only with all the others: `make docs` and the tests want the benchmarks and the
results of 12 MB.
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    words = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "sdist",
        "-t",
        "wheel",
        "-d",
        str(folder),
    ]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_holds_both_packages_their_types_and_their_commands(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        (commands,) = (name for name in names if name.endswith("/entry_points.txt"))
        told = wheel.read(commands).decode()
    assert "autofl = autofl.cli:main" in told
    assert "[autofl.commands]\nanalyze = autofl_paper.cli.analyze" in told
    assert {"autofl/py.typed", "autofl_paper/py.typed"} <= names
    assert {name for name in names if ".dist-info/" not in name} == PACKAGES
    assert path.stat().st_size < 1.5e6


def test_the_sdist_is_small_and_holds_what_installing_needs(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in PACKAGES} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "PKG-INFO"} <= names
    assert not {name.partition("/")[0] for name in names} & ONLY_IN_A_CLONE
    assert path.stat().st_size < 1.5e6
