"""Two small runs, made once, for the API and for the page."""

import pytest

from autofl.cli.main import run as run_cli

SMALL = ("--set", "cell.num_ue=6", "--set", "stop.rounds=6", "--set", "evaluation.every=1",
         "--set", "evaluation.test_samples=5", "--set", "simulation.num_selected=3")  # fmt: skip


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with a run of AutoFL and one of FedAvg-2."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("autofl", "fedavg-2"):
        assert run_cli(["simulate", "--algorithm", name, "--out", str(folder / name), *SMALL]) == 0
    return folder
