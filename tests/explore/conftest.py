"""Two small runs, made once, for the API and for the page; and what may become of a run."""

import json
import shutil

import pytest

from autofl.cli.main import run as run_cli
from autofl.records.checks import sealed

SMALL = ("--set", "cell.num_ue=6", "--set", "stop.rounds=6", "--set", "evaluation.every=1",
         "--set", "evaluation.test_samples=5", "--set", "simulation.num_selected=3")  # fmt: skip


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with a run of AutoFL and one of FedAvg-2."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("autofl", "fedavg-2"):
        assert run_cli(["simulate", "--algorithm", name, "--out", str(folder / name), *SMALL]) == 0
    return folder


@pytest.fixture
def unwell(runs):
    """Next to them a finished run whose table was cut, an interrupted one, and one with a table
    that is not one.
    """
    for name in ("cut", "interrupted", "garbled"):
        shutil.copytree(runs / "autofl", runs / name)
    for name, seed in (("interrupted", 2), ("garbled", 3)):
        manifest = runs / name / "manifest.json"
        said = {
            key: value
            for key, value in json.loads(manifest.read_text()).items()
            if key != "manifest_sha256"
        }
        manifest.write_text(json.dumps(sealed(said | {"status": "interrupted", "seed": seed})))
    table = runs / "cut" / "rounds.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:4]))
    with open(runs / "garbled" / "ues.csv", "a") as table:
        table.write("6,nonsense\n")
    yield runs
    for name in ("cut", "interrupted", "garbled"):
        shutil.rmtree(runs / name)
