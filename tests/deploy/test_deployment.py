"""Real processes on this machine: a SuperLink and three SuperNodes over TLS with node
authentication.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from autofl.config import load_settings
from autofl.deploy.certificates import make_certificates, make_node_key
from autofl.deploy.folder import Deployment, end_all, free_port, processes_of
from autofl.jobs.run import run as simulate
from autofl.network import LIMITS
from autofl.records import read_run, read_weights
from autofl.records.run import UE_TABLE
from reference.waiting import PATIENCE

pytestmark = [pytest.mark.deploy, pytest.mark.slow]

PLAN = [name for name in UE_TABLE if name not in (*LIMITS, "decoded")]
SETTINGS = [
    "stop.rounds=3",
    "evaluation.every=100",
    "deploy.deadline=60",
    "preset=physical",
    "deploy.transport=messages",
]
ROUNDS = 2000
"""Over streams, enough for longer than it takes to notice that the SuperLink is gone: a round takes
10 ms.
"""
STREAM = ["deploy.transport=stream", f"stop.rounds={ROUNDS}", "deploy.join=120"]


def autofl(*words, check=True):
    done = subprocess.run(
        [sys.executable, "-m", "autofl", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def wait_for(is_so, what):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def log_of(site, name):
    path = site.folder / "logs" / f"{name}.log"
    return path.read_text(errors="replace") if path.is_file() else ""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A deployment that is up; whatever is left of it at the end is a failure, and ended."""
    folder = tmp_path_factory.mktemp("deployment")
    try:
        autofl("deploy", "up", "--folder", folder, *sets(*SETTINGS))
        yield Deployment(folder)
        autofl("deploy", "down", "--folder", folder)
        assert not processes_of(folder)
        assert "nothing was up" in autofl("deploy", "down", "--folder", folder).stderr
    finally:
        for process in processes_of(folder):
            process.kill()


@pytest.fixture(scope="module")
def whole(site, tmp_path_factory):
    """A run of three rounds, with three strangers at the door."""
    folder = tmp_path_factory.mktemp("strangers")
    address = f"127.0.0.1:{site.state.port}"
    make_certificates(folder, ["127.0.0.1"])  # another authority
    make_node_key(folder / "unknown")
    right_ca, own_ca, known = site.folder / "ca.pem", folder / "ca.pem", site.node(0)
    strangers = {
        "unregistered": [
            "--root-certificates",
            right_ca,
            "--auth-supernode-private-key",
            folder / "unknown",
        ],
        "without-key": ["--root-certificates", right_ca],
        "wrong-ca": ["--root-certificates", own_ca, "--auth-supernode-private-key", known],
    }
    for name, words in strangers.items():
        config = ["--node-config", f'ue=0 data="{site.node(0, ".npz")}"', "--max-retries", "1"]
        words = [
            "flower-supernode",
            "--superlink",
            address,
            "--port",
            str(free_port()),
            *map(str, words),
            *config,
        ]
        site.start(name, words)
    out = folder / "run"
    autofl("deploy", "run", "--folder", site.folder, "--out", out)
    return read_run(out)


def test_three_rounds_on_devices_are_those_of_the_simulator(whole, tmp_path):
    simulated = simulate(load_settings(whole.folder / "config.toml"), tmp_path / "simulated")
    for column in PLAN:  # the same functions on the same numbers: equal to the bit
        np.testing.assert_array_equal(whole.ues[column], simulated.ues[column], err_msg=column)
    for column in (*LIMITS, "decoded"):
        assert (whole.ues[column] == simulated.ues[column]).all()
    assert 0 < whole.ues["decoded"].sum() <= 9
    # float32 sums of three updates in another grouping: a few units in the last place of weights
    # below 1
    weights, expected = read_weights(whole.folder), read_weights(simulated.folder)
    assert set(weights) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(weights[name], array, rtol=1e-5, atol=5e-7, err_msg=name)
    assert whole.rounds["sim_time"].tolist() == simulated.rounds["sim_time"].tolist()


def test_what_the_devices_measured_is_beside_what_was_modelled(whole):
    asked = whole.ues["ue"][whole.ues["decoded"] == 1]
    assert whole.devices["ue"].tolist() == asked.tolist()
    assert set(whole.devices["outcome"].tolist()) == {"ok"}
    assert (whole.devices["train_time"] > 0).all()
    assert (whole.devices["reply_time"] > whole.devices["train_time"]).all()
    assert (whole.devices["bytes_up"] >= 4 * whole.manifest["num_weights"]).all()
    assert whole.manifest["status"] == "finished"


def test_the_joint_planner_on_devices_is_the_simulators_to_the_bit_and_packed_bytes_travel(
    whole, site, tmp_path
):
    words = ("deploy", "run", "--folder", site.folder, "--out", tmp_path / "run")
    # The site was set up for another algorithm: what this one brings along and decides is its own
    # all the same.
    autofl(*words, *sets("arm=autofl-j", "stop.rounds=5"))
    run = read_run(tmp_path / "run")
    assert (run.config["simulation"]["num_selected"], run.config["cell"]["total_bandwidth"]) == (
        3,
        3e6,
    )
    assert (run.config["compressor"]["name"], run.config["learning"]["outer_lr"]) == (
        "entropy",
        "auto",
    )
    assert not any("set by you" in why for _, _, why in run.manifest["decisions"])
    simulated = simulate(load_settings(run.folder / "config.toml"), tmp_path / "simulated")
    assert (run.folder / "ues.csv").read_bytes() == (simulated.folder / "ues.csv").read_bytes()
    for column in ("sim_time", "inner_lr", "outer_lr", "step_length"):
        np.testing.assert_array_equal(run.rounds[column], simulated.rounds[column], err_msg=column)
    last = run.rounds["adapt_lr"][-1]  # the median of three UEs, one of the steps they try
    assert np.isclose(last / 0.0125, 2.0 ** np.arange(8)).any()
    for name, array in read_weights(simulated.folder).items():
        np.testing.assert_array_equal(read_weights(run.folder)[name], array, err_msg=name)
    heard = run.ues["decoded"] == 1
    sent, planned = run.ues["bytes_up"][heard], run.ues["bits_per_weight"][heard] * 79_510 / 8
    assert len(sent) >= 10
    assert (sent <= planned).all()
    assert (sent >= 0.985 * planned - 1).all()
    assert (run.ues["local_steps"][heard] >= 2).all()
    assert len(set(run.ues["bandwidth"][heard].tolist())) > 3
    assert (run.devices["bytes_up"] < sent + 500).all()


def test_strangers_are_refused(whole, site):
    wait_for(
        lambda: not any(site.alive()[name] for name in ("unregistered", "without-key", "wrong-ca")),
        "strangers",
    )
    assert "SuperNode ID" in log_of(site, "ue0")
    for name in ("unregistered", "without-key", "wrong-ca"):
        assert "SuperNode ID" not in log_of(site, name), (
            name
        )  # which a node is told once it is let in
    assert "certificate verify failed" in log_of(site, "wrong-ca").lower()
    assert site.online() == 3


def test_a_killed_node_and_one_that_sends_nan_are_left_out_and_named(whole, site, tmp_path):
    sick = site.node(1, ".npz")
    healthy = sick.read_bytes()
    with np.load(sick) as arrays:
        kept = dict(arrays)
    try:
        # A broken sensor: finite numbers so large that the update overflows.
        np.savez(sick, **{**kept, "x": np.full(kept["x"].shape, 3e38, dtype=np.float32)})
        words = ["deploy", "run", "--folder", site.folder, "--out", tmp_path / "run"]
        changes = sets("stop.rounds=1", "deploy.deadline=25", "preset=paper")
        before = log_of(site, "ue2").count("Receiving: train")
        running = subprocess.Popen([sys.executable, "-m", "autofl", *map(str, words), *changes])
        wait_for(lambda: log_of(site, "ue2").count("Receiving: train") > before, "a round")
        kill(site, "ue2")
        assert running.wait(timeout=PATIENCE) == 0
    finally:
        sick.write_bytes(healthy)
    run = read_run(tmp_path / "run")
    told = list(zip(run.devices["ue"].tolist(), run.devices["outcome"].tolist(), strict=True))
    besides = (
        "evaluation: ",
        "introduction: no reply",
    )  # on a busy machine a device may be slow to say who it is
    updates = [(ue, outcome) for ue, outcome in told if not outcome.startswith(besides)]
    assert updates == [(0, "ok"), (1, "0.weight: not finite"), (2, "no reply within 25 s")]
    assert {ue for ue, outcome in told if outcome.startswith("evaluation: ")} == {1, 2}
    assert run.ues["decoded"].tolist() == [1, 0, 0]
    assert run.manifest["stop"] == "rounds"
    assert all(np.isfinite(array).all() for array in read_weights(run.folder).values())


def test_after_the_superlink_is_killed_the_run_goes_on_from_its_folder_to_the_bit(
    whole, site, tmp_path
):
    out = tmp_path / "run"
    autofl(
        "deploy", "up", "--folder", site.folder, *sets(*SETTINGS)
    )  # mends what the last test broke
    assert all(
        site.alive()[f"ue{ue}"] for ue in range(3)
    )  # though the SuperLink refuses UE 2 for a minute
    words = [sys.executable, "-m", "autofl", "deploy", "run", "--folder", site.folder, "--out", out]
    running = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: manifest(out).get("rounds", -1) >= 1, "the first round")
    helper_of(
        site
    ).suspend()  # it would end the server app, which now waits for its SuperLink for ever
    kill(site, "superlink")
    _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    assert "--resume" in said.splitlines()[-1]
    assert manifest(out)["rounds"] < 3
    assert manifest(out)["status"] == "failed"
    assert "the SuperLink does not answer" in manifest(out)["problem"]
    wait_for(lambda: not site.servers(), "the server app to end")
    assert autofl("deploy", "status", "--folder", site.folder, "--json").stdout.count("false") >= 1
    autofl("deploy", "up", "--folder", site.folder, *sets(*SETTINGS))
    autofl("deploy", "run", "--folder", site.folder, "--resume", out)
    assert_same_bytes(out, whole.folder)
    assert read_run(out).manifest["status"] == "finished"


@pytest.fixture(scope="module")
def streamed(site, tmp_path_factory):
    """200 rounds over streams, from the first to the last."""
    out = tmp_path_factory.mktemp("streamed") / "run"
    autofl("deploy", "run", "--folder", site.folder, "--out", out, *sets(*STREAM))
    return read_run(out)


def test_over_streams_plans_are_the_simulators_and_a_killed_superlink_changes_no_byte(
    streamed, site, tmp_path
):
    simulated = simulate(load_settings(streamed.folder / "config.toml"), tmp_path / "simulated")
    for column in PLAN:
        np.testing.assert_array_equal(streamed.ues[column], simulated.ues[column], err_msg=column)
    ways = json.loads(autofl("deploy", "status", "--folder", site.folder, "--json").stdout)[
        "newest"
    ]["asked"]
    assert [one["transport"] for one in ways.values()] == ["stream"] * 3
    assert max(one["overhead"] for one in ways.values()) < 2.0  # where messages take ten
    cut = tmp_path / "cut"
    running = begun(site, cut, *STREAM)
    kill(site, "superlink")
    assert running.wait(timeout=PATIENCE) == 2
    autofl("deploy", "up", "--folder", site.folder, *sets(*SETTINGS))
    autofl("deploy", "run", "--folder", site.folder, "--resume", cut)
    assert_same_bytes(cut, streamed.folder)


def test_over_streams_a_killed_command_leaves_no_second_writer_and_its_run_goes_on_to_the_bit(
    streamed, site, tmp_path
):
    running = begun(site, tmp_path / "run", *STREAM)
    running.kill()  # which tells nobody
    running.wait()
    assert manifest(tmp_path / "run")["rounds"] < ROUNDS
    autofl("deploy", "run", "--folder", site.folder, "--resume", tmp_path / "run")
    assert_same_bytes(tmp_path / "run", streamed.folder)
    run = read_run(tmp_path / "run")
    asked = list(zip(run.devices["round"].tolist(), run.devices["ue"].tolist(), strict=True))
    assert len(asked) == len(set(asked))  # no round was trained twice
    assert {one["transport"] for one in run.manifest["devices"].values()} == {"stream"}
    wait_for(lambda: not site.servers(), "the server apps to end")


def test_over_streams_one_that_sends_nan_is_left_out_and_one_that_is_killed_comes_back(
    site, tmp_path
):
    out, sick = tmp_path / "run", site.node(1, ".npz")
    healthy = sick.read_bytes()
    with np.load(sick) as arrays:
        kept = dict(arrays)
    try:
        np.savez(sick, **{**kept, "x": np.full(kept["x"].shape, 3e38, dtype=np.float32)})
        running = begun(site, out, *STREAM, "stop.rounds=20000", "preset=paper")
        sessions = processes_of(site.folder, "ue2", "flwr-clientapp")
        assert sessions
        end_all(sessions)
        wait_for(
            lambda: "2,the stream broke" in (out / "devices.csv").read_text(), "a broken stream"
        )
        so_far = manifest(out)["rounds"]
        wait_for(lambda: manifest(out)["rounds"] > so_far + 5, "rounds without it")
        # Flower takes the process for alive for up to a minute; an invitation waits meanwhile, and
        # must stay valid.
        wait_for(
            lambda: outcomes(out, 2)[-1] == "ok", "the device, which comes back in a new process"
        )
        running.terminate()
        assert running.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    finally:
        sick.write_bytes(healthy)
    assert set(outcomes(out, 0)) == {"ok"}
    assert set(outcomes(out, 1)) == {"0.weight: not finite"}
    assert set(outcomes(out, 2)) == {"ok", "the stream broke", "not connected"}
    assert all(np.isfinite(array).all() for array in read_weights(out).values())


def test_where_the_superlinks_helper_died_the_run_says_so_and_up_mends_it(site, tmp_path):
    autofl("deploy", "up", "--folder", site.folder, *sets(*SETTINGS))
    helper_of(site).kill()
    words = [
        "deploy",
        "run",
        "--folder",
        site.folder,
        "--out",
        tmp_path / "run",
        *sets(*STREAM, "stop.rounds=2"),
    ]
    said = autofl(*words, check=False)
    assert (
        said.returncode,
        said.stderr.count(f"autofl deploy up --folder {site.folder} starts it again"),
    ) == (2, 1)
    autofl("deploy", "up", "--folder", site.folder, *sets(*SETTINGS))
    assert site.can_start_servers()
    autofl(*words, "--force")
    assert read_run(tmp_path / "run").manifest["status"] == "finished"


def helper_of(site):
    """The process with which the SuperLink starts server apps."""
    (helper,) = processes_of(site.folder, "superlink", "flower-superexec")
    return helper


def begun(site, out, *settings):
    """A run of which five rounds are over."""
    words = ["deploy", "run", "--folder", site.folder, "--out", out, *sets(*settings)]
    running = subprocess.Popen([sys.executable, "-m", "autofl", *map(str, words)])
    wait_for(lambda: manifest(out).get("rounds", -1) >= 5, "five rounds")
    return running


def outcomes(folder, ue):
    """What became of the updates that this device was asked for, while the run goes on."""
    names, *lines = (folder / "devices.csv").read_text().splitlines()
    place = names.split(",").index
    rows = [line.split(",") for line in lines if line.count(",") == names.count(",")]
    told = [row[place("outcome")] for row in rows if row[place("ue")] == str(ue)]
    return [
        outcome for outcome in told if not outcome.startswith(("evaluation: ", "introduction: "))
    ]


def assert_same_bytes(folder, other):
    for name in ("config.toml", "rounds.csv", "ues.csv", "weights.safetensors"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def test_one_run_at_a_time_and_a_killed_command_leaves_no_second_writer(whole, site, tmp_path):
    out = tmp_path / "run"
    words = [sys.executable, "-m", "autofl", "deploy", "run", "--folder", str(site.folder)]
    seven = autofl("deploy", "run", "--folder", site.folder, *sets("cell.num_ue=7"), check=False)
    assert (seven.returncode, seven.stderr.count("3 devices were set up")) == (2, 1)
    running = subprocess.Popen([*words, "--out", str(out)])
    wait_for(lambda: manifest(out).get("rounds", -1) >= 1, "the first round")
    second = autofl(
        "deploy", "run", "--folder", site.folder, "--out", tmp_path / "second", check=False
    )
    assert second.returncode == 2
    assert "a run is on these devices already" in second.stderr
    assert not (tmp_path / "second").exists()
    running.kill()  # which tells nobody
    running.wait()
    autofl("deploy", "run", "--folder", site.folder, "--resume", out)
    assert_same_bytes(out, whole.folder)
    run = read_run(out)
    asked = list(zip(run.devices["round"].tolist(), run.devices["ue"].tolist(), strict=True))
    assert len(asked) == len(set(asked))  # no round was trained twice
    assert run.manifest["status"] == "finished"
    wait_for(lambda: not site.servers(), "the server apps to end")


def test_of_two_deployments_and_a_simulation_into_one_folder_one_makes_its_run(site, tmp_path):
    """Each asked whether a run was there before any of them wrote one."""
    other, out = tmp_path / "other", tmp_path / "run"
    try:
        autofl("deploy", "up", "--folder", other, "--nodes", 1, *sets(*SETTINGS))
        settings = sets("stop.rounds=3", "deploy.transport=stream")
        words = [
            ["deploy", "run", "--folder", site.folder, "--out", out, *settings],
            ["deploy", "run", "--folder", other, "--out", out, *settings],
            ["simulate", "--out", out, *settings],
        ]
        commands = [
            subprocess.Popen(
                [sys.executable, "-m", "autofl", *map(str, one)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for one in words
        ]
        said = [command.communicate(timeout=PATIENCE)[1].decode() for command in commands]
        assert sorted(command.returncode for command in commands) == [0, 2, 2], said
        for command, text in zip(commands, said, strict=True):
            if command.returncode == 2:
                assert (
                    "a run is there" in text or "writes into it" in text or "writes there" in text
                ), text
                assert "Traceback" not in text
        run = read_run(out)
        assert (run.manifest["status"], run.manifest["rounds"]) == ("finished", 3)
        assert (
            run.manifest["num_ue"]
            == (3, 1, 20)[[command.returncode for command in commands].index(0)]
        )
    finally:
        autofl("deploy", "down", "--folder", other)


def test_a_device_that_lies_is_named_and_sigterm_ends_the_training(whole, site, tmp_path):
    out, liar = tmp_path / "run", site.node(1, ".npz")
    honest = liar.read_bytes()
    with np.load(liar) as arrays:
        kept = dict(arrays)
    words = [
        sys.executable,
        "-m",
        "autofl",
        "deploy",
        "run",
        "--folder",
        str(site.folder),
        "--out",
        str(out),
    ]
    try:
        np.savez(liar, **{**kept, "num_classes": 9_999})
        running = subprocess.Popen(
            [*words, *sets("stop.rounds=50", "deploy.join=0", "preset=paper")]
        )
        wait_for(lambda: manifest(out).get("rounds", -1) >= 1, "the first round")
        running.terminate()
        assert running.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    finally:
        liar.write_bytes(honest)
    run = read_run(out)
    assert (run.manifest["status"], run.manifest["problem"]) == ("interrupted", "ended by SIGTERM")
    assert not site.servers()
    many = "9999 classes, not 10; to begin a run for all of them, set deploy.sample_shape=[784] and"
    many = f"introduction: {many} deploy.num_classes=9999"
    said = {
        (ue, why)
        for ue, why in zip(run.devices["ue"].tolist(), run.devices["outcome"].tolist(), strict=True)
    }
    assert said == {(0, "ok"), (2, "ok"), (1, many)}
    assert run.manifest["num_weights"] == 79_510
    listed = autofl("deploy", "status", "--folder", site.folder, "--json").stdout
    assert all(entry["status"].startswith("finished") for entry in json.loads(listed)["runs"])


def manifest(folder: Path):
    path = folder / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def kill(site, name):
    """kill -9 of a program and of its group. A SuperLink's helper and its server apps have groups of
    their own.
    """
    word = "flower-superlink" if name == "superlink" else "flower-supernode"
    program = min(processes_of(site.folder, name, word), key=lambda process: process.create_time())
    os.killpg(program.pid, signal.SIGKILL)
