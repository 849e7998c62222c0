"""Networks of their own with shaped uplinks: their commands everywhere, the networks where they can
be made.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from ipaddress import ip_network
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from autofl.config import dump_settings, load_settings
from autofl.deploy.folder import _marked
from autofl.deploy.messages import Order
from autofl.deploy.testbed import Testbed, first_packet_time, routes, shaping
from autofl.errors import AutoFLError
from autofl.records import Run, RunWriter, read_run
from autofl_paper.testbed import SCALES, Row, _is_done, overhead_of, rounds_of, row_of, table_of
from deploy.test_deployment import autofl, manifest, sets, wait_for
from reference.waiting import PATIENCE

Testbed.__test__ = False  # no class of tests
ROOT = Path(__file__).parents[2]

SENDER = "import socket,sys; s=socket.create_connection((sys.argv[1],int(sys.argv[2]))); s.sendall(bytes(318040)); s.recv(1)"


def can_make_networks():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    made = subprocess.run(["ip", "netns", "add", "afl-probe"], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", "afl-probe"], capture_output=True)
    return made


def made_by_hand(round_time, planned_with):
    """Six rounds of 20 ms as modelled, an overhead of `planned_with` [s] among them; round 3 asked
    nobody.
    """
    rounds = {
        "round": np.arange(7),
        "round_time": np.array([0.0, 0.02, 0.02, 0.0, 0.02, 0.02, 0.02]),
        "sim_time": np.zeros(7),
        "adapted_accuracy": np.array([0.1, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9]),
    }
    asked = np.array([1, 1, 2, 4, 5, 6])
    devices = {
        "round": asked,
        "ue": np.array([0, 1, 0, 0, 0, 0]),
        "outcome": np.array(["ok"] * 6),
        "reply_time": np.full(6, 0.15),
        "train_time": np.full(6, 0.05),
        "send_time": np.array([0.1, 0.05, 0.1, 0.1, 0.1, 0.1]),
        "round_time": np.array([round_time[0], *round_time]),
        "bytes_up": np.full(6, 1000.0),
    }
    ues = {
        "round": asked[::-1],
        "ue": devices["ue"][::-1],
        "upload_time": np.full(6, 0.008),
        "compute_time": np.full(6, 0.005),
        "energy": np.full(6, 0.5),
    }
    config, manifest = (
        {"cell": {"overhead": planned_with}},
        {"algorithm": "autofl", "seed": 1, "host_time": 9.0},
    )
    return Run(Path("."), config, manifest, rounds, ues, devices)


def test_the_overhead_is_what_rounds_took_beside_the_model_the_first_ones_apart():
    # Computing and sending take 0.15 s as measured; the model says 0.13 s, which does not matter.
    made = made_by_hand([3.0, 0.21, 0.21, 0.22, 0.26], 0.005)
    assert overhead_of(made) == pytest.approx(np.median([0.06, 0.06, 0.07, 0.11]))
    assert overhead_of(made_by_hand([0.1] * 5, 0.0)) == 0.0


def test_a_model_that_is_wrong_by_two_is_seen_in_the_error():
    made = made_by_hand([0.2] * 5, 0.0)
    assert row_of(made, 10.0, 0.05, 0.85).round_error == pytest.approx(0.0)
    assert row_of(made, 5.0, 0.05, 0.85).round_error == pytest.approx(
        0.5
    )  # all that is modelled at half


def test_errors_and_the_time_to_the_target_by_hand():
    row = row_of(made_by_hand([0.25, 0.2, 0.2, 0.1, 0.25], 0.0), 10.0, 0.01, 0.85)
    assert row.round_error == pytest.approx(0.2)  # of 0.2, 0, 0, 1 and 0.2
    assert row.total_error == pytest.approx(0.0)
    assert (row.predicted, row.measured) == (pytest.approx(1.0), pytest.approx(1.0))
    assert row.to_target == pytest.approx(
        0.25 + 0.2 + 0.2
    )  # a mean of 0.867 over rounds 2, 3 and 4
    assert (row.rounds, row.energy, row.bytes_up, row.host_time) == (5, 3.0, 1000.0, 9.0)
    assert row.constant_error == pytest.approx(
        0.2
    )  # a mean of 0.2 against 0.25, 0.2, 0.2, 0.1 and 0.25: 0.2, 0, 0, 1
    assert (row.sending, row.computing) == (
        pytest.approx(1.25),
        pytest.approx(1.0),
    )  # 0.1 for 0.08, 0.05 for 0.05


def test_a_reply_waits_as_long_as_the_packet_that_passes_at_once():
    order = Order(1, 0, 5, 1, 0.1, 32.0, compute_time=0.01, upload_rate=1e6)
    assert first_packet_time(order, 100.0, 1000) == pytest.approx(0.8)  # 8,000 bit at 10 kbit/s
    assert first_packet_time(order, 100.0, 10**6) == pytest.approx(1.28)  # a bucket of 1,600 bytes


def test_runs_of_another_scale_or_slowness_are_not_taken(tmp_path):
    words = [*SCALES["quick"]]
    writer = RunWriter(
        tmp_path / "run",
        dump_settings(load_settings(None, words).resolved()),
        {"algorithm": "autofl", "label": "AutoFL", "seed": 1, "slow": 10.0},
    )
    writer.finish("finished")
    writer.close()
    assert _is_done(tmp_path / "run", words, 10.0)
    for others, slow in ((words, 100.0), ([*SCALES["full"]], 10.0)):
        with pytest.raises(AutoFLError, match="another --out"):
            _is_done(tmp_path / "run", others, slow)


def test_the_tables_of_the_page_are_those_of_the_results():
    docs = ROOT / "docs"
    page = (docs / "deployment.md").read_text(encoding="utf-8")
    results = sorted((docs / "results" / "testbed").glob("**/testbed.json"))
    assert results
    for place in results:
        rows = json.loads(place.read_text(encoding="utf-8"))
        assert len(rows) >= 5
        assert table_of([Row(**row) for row in rows]) in page


def test_the_overheads_of_the_page_are_those_that_were_measured():
    spec = importlib.util.spec_from_file_location("rounds", ROOT / "benchmarks" / "rounds.py")
    rounds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rounds)
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    results = sorted((ROOT / "docs" / "results" / "rounds").glob("*.json"))
    assert results
    assert rounds.HEAD in page
    for place in results:
        assert rounds.line_of(json.loads(place.read_text(encoding="utf-8"))) in page, place.name


def test_every_round_is_a_line_of_predicted_and_measured_seconds():
    lines = rounds_of([made_by_hand([0.25, 0.2, 0.2, 0.1, 0.25], 0.0)], 10.0).splitlines()
    assert lines[:3] == [
        "algorithm,seed,round,predicted,measured",
        "autofl,1,1,0.2,0.25",
        "autofl,1,2,0.2,0.2",
    ]
    assert len(lines) == 6


def test_a_target_that_was_not_reached_is_said_so():
    rows = json.loads((ROOT / "docs/results/testbed/testbed.json").read_text(encoding="utf-8"))
    table = table_of([Row(**{**rows[0], "target": 0.9, "to_target": None, "rounds": 7})])
    assert "| to 90 % |" in table
    assert "| not in 7 rounds |" in table


def test_names_and_addresses_are_the_folders_own_and_fit(tmp_path):
    one, other = Testbed(tmp_path / "a", 300), Testbed(tmp_path / "b", 300)
    assert one.prefix != other.prefix
    assert one.server == one._address(0, 1)
    links = [
        command[3]
        for ue in (0, 299)
        for command in one.building(ue)
        if command[:3] == ["ip", "link", "add"]
    ]
    assert all(name.startswith(one.prefix) and len(name) <= 15 for name in links)
    assert len({one._address(ue, end) for ue in range(300) for end in (1, 2)}) == 600
    assert "rate 1900000bit burst 1600" in " ".join(shaping(1.9e6))
    with pytest.raises(AutoFLError, match="slow"):
        Testbed(tmp_path, 3, 0.0)


def kernel_table(*routes):
    """The kernel's table; it writes addresses as whole numbers of the machine's own byte order."""
    lines = ["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"]
    for link, network in routes:
        parts = network.network_address, network.netmask
        target, mask = (f"{int.from_bytes(part.packed, sys.byteorder):08X}" for part in parts)
        lines.append(f"{link}\t{target}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0")
    return "\n".join(lines) + "\n"


def test_addresses_that_another_link_leads_to_are_refused(tmp_path):
    testbed = Testbed(tmp_path, 3)
    own = ip_network(f"{testbed.server}/30", strict=False)
    harmless = [
        ("eth0", "0.0.0.0/0"),
        ("tun0", "0.0.0.0/1"),
        ("eth0", "192.168.1.0/24"),
        ("eth0", "10.0.0.0/16"),
    ]
    table = kernel_table(
        *((link, ip_network(network)) for link, network in harmless), (f"{testbed.prefix}h0", own)
    )
    assert routes(table)[2] == ("eth0", ip_network("192.168.1.0/24"))
    assert routes(table)[-1] == (f"{testbed.prefix}h0", own)
    testbed.check_routes(table)
    for network in (own, own.supernet(new_prefix=16), ip_network("10.0.0.0/8")):
        with pytest.raises(
            AutoFLError,
            match=f"reaches {network} by wg0, which a testbed would hide; another --folder",
        ):
            testbed.check_routes(kernel_table(("wg0", network)))


@pytest.mark.skipif(not can_make_networks(), reason="network namespaces cannot be made here")
def test_an_update_takes_what_its_rate_says_and_nothing_is_left(tmp_path):
    testbed, rate = Testbed(tmp_path, 2), 4e6
    try:
        for command in testbed.building(0)[:2]:  # somebody was killed while making the first
            subprocess.run(command, check=True)
        testbed.build()
        testbed.build()  # a second time there is nothing to do
        assert len(testbed.spaces()) == 2
        subprocess.run([*testbed.inside(1), "tc", *shaping(rate)], check=True)
        with socket.create_server((testbed.server, 0)) as listener:
            words = [
                *testbed.inside(1),
                sys.executable,
                "-S",
                "-c",
                SENDER,
                testbed.server,
                str(listener.getsockname()[1]),
            ]
            sender = subprocess.Popen(words)
            peer = listener.accept()[0]
            peer.recv(1)
            begin, received = time.monotonic(), 1
            while received < 318_040:
                received += len(peer.recv(65_536))
            seconds = time.monotonic() - begin
            peer.close()
            sender.wait(timeout=PATIENCE)
        modelled = 8 * 318_040 / rate
        assert 0.98 * modelled <= seconds <= 1.10 * modelled
    finally:
        removed = testbed.remove()
    assert len(removed) == 2
    assert testbed.spaces() == testbed.remove() == []
    assert (
        testbed.prefix
        not in subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    )


@pytest.mark.deploy
@pytest.mark.skipif(not can_make_networks(), reason="network namespaces cannot be made here")
def test_a_testbed_runs_goes_on_and_is_removed_though_everything_of_it_was_killed_and_nothing_else_is(
    tmp_path,
):
    folder, out = tmp_path / "bed", tmp_path / "run"
    testbed = Testbed(folder, 2)
    foreign, link = (
        f"{testbed.prefix}-x",
        f"{testbed.prefix}x0",
    )  # of somebody else, if with names much like ours
    words = [sys.executable, "-m", "autofl", "testbed", "run", "--folder", str(folder)]
    ip("netns", "add", foreign)
    ip("link", "add", link, "type", "veth", "peer", "name", "peer0", "netns", foreign)
    try:
        settings = sets(
            "stop.rounds=2000", "evaluation.every=2000", "preset=paper", "simulation.num_selected=2"
        )
        autofl("testbed", "up", "--nodes", 2, "--folder", folder, *settings)
        assert len(testbed.spaces()) == 2
        for more in (["--out", str(out)], ["--resume", str(out)]):
            before = manifest(out).get("rounds", 0)
            running = subprocess.Popen([*words, *more])
            wait_for(
                lambda before=before: manifest(out).get("rounds", 0) >= before + 3, "three rounds"
            )
            running.kill()  # the command alone; the next one goes on
            running.wait()
        devices = read_run(out).devices
        assert set(devices["outcome"].tolist()) == {"ok"}
        assert len(devices["round"]) == len(
            set(zip(devices["round"].tolist(), devices["ue"].tolist(), strict=True))
        )
        while pids := _marked(
            folder
        ):  # SuperLink, SuperNodes in their networks, sessions, server app
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        assert len(testbed.spaces()) == 2  # networks do not die
        assert "removed 2 networks" in autofl("testbed", "down", "--folder", folder).stderr
        assert not _marked(folder)
        assert testbed.spaces() == []
        assert f"{testbed.prefix}h" not in ip("-o", "link")
        assert foreign in ip("netns", "list").split()
        assert f"{link}@" in ip("-o", "link")
    finally:
        for pid in _marked(folder):
            os.kill(pid, signal.SIGKILL)
        testbed.remove()
        ip("netns", "del", foreign)


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
