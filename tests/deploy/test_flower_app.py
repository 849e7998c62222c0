"""The example app, started with `flwr run` in federations that AutoFL has not set up, and in
Flower's simulation.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import Context, RecordDict

from autofl.config import load_settings
from autofl.deploy.folder import Deployment, answers, free_port
from autofl.deploy.server import serve
from autofl.errors import AutoFLError
from autofl.jobs.run import run as simulate
from autofl.records import read_run, read_weights
from autofl.records.run import UE_TABLE
from deploy.loopback import Loopback
from reference.waiting import PATIENCE

pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "examples" / "flower_app"
NUM_UE = 2
SETTINGS = f"cell.num_ue = {NUM_UE}\nstop.rounds = 1\ndeploy.join = 300\ndeploy.deadline = 300\n"
"""Messages of Flower start a process each: one round is enough, however long a busy machine takes.
"""


def assert_is_the_simulation(folder, tmp_path):
    """The same functions on the same numbers: records to the bit, weights to the rounding of sums
    in another order.
    """
    run = read_run(folder)
    simulated = simulate(load_settings(folder / "config.toml"), tmp_path / "simulated")
    assert run.manifest["status"] == "finished"
    assert set(run.devices["outcome"].tolist()) == {"ok"}
    for column in UE_TABLE:
        np.testing.assert_array_equal(run.ues[column], simulated.ues[column], err_msg=column)
    for name, array in read_weights(simulated.folder).items():
        np.testing.assert_allclose(
            read_weights(folder)[name], array, rtol=1e-5, atol=5e-7, err_msg=name
        )


def served(nodes, config, run_id=7):
    serve(Loopback(nodes, config), Context(run_id, 1, {}, RecordDict(), config))


def test_the_example_needs_no_more_than_its_settings(tmp_path, monkeypatch):
    """Without attempt, resume and folder, which only autofl deploy run gives, the server app ended
    in a KeyError.
    """
    monkeypatch.chdir(tmp_path)
    config = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"][
        "app"
    ]["config"]
    nodes = {9000 - ue: {"partition-id": ue, "num-partitions": 3} for ue in range(3)}
    served(nodes, config)
    assert_is_the_simulation(Path("runs/flower-7"), tmp_path)
    served(nodes, {"settings": config["settings"]}, run_id=8)
    assert (Path("runs/flower-7") / "ues.csv").read_bytes() == (
        Path("runs/flower-8") / "ues.csv"
    ).read_bytes()


def test_a_run_of_flwr_run_is_not_overwritten_by_the_next_one(tmp_path):
    nodes = {9000 - ue: {"partition-id": ue} for ue in range(NUM_UE)}
    config = {"settings": SETTINGS, "folder": str(tmp_path / "run")}
    served(nodes, config)
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    with pytest.raises(AutoFLError, match="a run is there already; name another folder"):
        served(nodes, config, run_id=8)
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


def test_a_node_of_a_larger_federation_is_left_out_by_name(tmp_path):
    nodes = {9000 - ue: {"partition-id": ue} for ue in range(NUM_UE + 1)}
    served(
        {**nodes, 8000: {"ue": 0}, 8001: {}},
        {"settings": SETTINGS, "folder": str(tmp_path / "run")},
    )
    run = read_run(tmp_path / "run")
    notes = "\n".join(run.manifest["notes"])
    assert (
        f"UE {NUM_UE}: the settings deal out data to UEs 0 to {NUM_UE - 1} (cell.num_ue)" in notes
    )
    assert "node 8000, node 8001: takes no part" in notes
    assert "this node has no UE number or data" in notes


@contextlib.contextmanager
def federation(folder, *words):
    """Flower's own programs in its own way, without a certificate: a SuperLink, and how to start
    more beside it.
    """
    port = free_port()
    (folder / "home").mkdir(parents=True)
    (folder / "home" / "config.toml").write_text(
        f'[superlink.theirs]\naddress = "127.0.0.1:{port}"\ninsecure = true\n', encoding="utf-8"
    )
    environment = {**Deployment(folder).environment(), "FLWR_HOME": str(folder / "home")}
    processes = []

    def start(name, *command):
        with (folder / f"{name}.log").open("wb") as log:
            ours = {
                "cwd": folder,
                "env": environment,
                "stdout": log,
                "stderr": log,
                "start_new_session": True,
            }
            processes.append(subprocess.Popen([*map(str, command)], **ours))

    def flwr(*command):
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(
            ["flwr", *command], cwd=APP, env=environment, timeout=PATIENCE, **told
        )
        assert done.returncode == 0, done.stdout

    try:
        start(
            "superlink",
            "flower-superlink",
            "--insecure",
            "--host",
            "127.0.0.1",
            "--port",
            port,
            *words,
        )
        end = time.monotonic() + PATIENCE
        while not answers("127.0.0.1", port):
            assert time.monotonic() < end, (folder / "superlink.log").read_text()
            time.sleep(0.2)
        yield port, start, flwr
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def followed(flwr, folder, *words):
    """`flwr run` in the folder of the example, until the run has ended; the run folder that it
    left.
    """
    flwr(
        "run", ".", "theirs", "--stream", "--run-config", f"settings={json.dumps(SETTINGS)}", *words
    )
    [out] = (folder / "runs").iterdir()
    return out


@pytest.mark.deploy
def test_flwr_run_in_a_federation_that_autofl_did_not_start_is_the_simulation(tmp_path):
    with federation(tmp_path) as (port, start, flwr):
        for ue in range(NUM_UE):
            place = ("--superlink", f"127.0.0.1:{port}", "--port", free_port())
            start(
                f"node{ue}",
                "flower-supernode",
                "--insecure",
                *place,
                "--node-config",
                f"partition-id={ue}",
            )
        out = followed(flwr, tmp_path)
    assert_is_the_simulation(out, tmp_path)


@pytest.mark.deploy
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
def test_flwr_run_in_flowers_simulation_is_our_simulation(tmp_path):
    with federation(tmp_path, "--simulation") as (_, _, flwr):
        words = f"num-supernodes={NUM_UE} client-resources-num-cpus=1 init-args-num-cpus=1"
        out = followed(flwr, tmp_path, "--federation-config", words)
    assert_is_the_simulation(out, tmp_path)
