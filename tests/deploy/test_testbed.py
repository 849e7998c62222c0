"""Networks of their own with shaped uplinks: their commands everywhere, the networks where they can
be made.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from ipaddress import ip_network
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from autofl.deploy.folder import end_all, processes_of
from autofl.deploy.messages import Order
from autofl.deploy.testbed import Testbed, first_packet_time, shaping
from autofl.errors import AutoFLError
from autofl.records import read_run
from deploy.test_deployment import autofl, manifest, sets, wait_for
from reference.waiting import PATIENCE

pytestmark = pytest.mark.slow

Testbed.__test__ = False  # no class of tests
ROOT = Path(__file__).parents[2]

SENDER = "import socket,sys; s=socket.create_connection((sys.argv[1],int(sys.argv[2]))); s.sendall(bytes(318040)); s.recv(1)"


def can_make_networks():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    made = subprocess.run(["ip", "netns", "add", "afl-probe"], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", "afl-probe"], capture_output=True)
    return made


def test_a_reply_waits_as_long_as_the_packet_that_passes_at_once():
    order = Order.saying(compute_time=0.01, upload_rate=1e6)
    assert first_packet_time(order, 100.0, 1000) == pytest.approx(0.8)  # 8,000 bit at 10 kbit/s
    assert first_packet_time(order, 100.0, 10**6) == pytest.approx(1.28)  # a bucket of 1,600 bytes


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


def test_addresses_that_another_link_leads_to_are_refused(tmp_path):
    testbed = Testbed(tmp_path, 3)
    own = ip_network(f"{testbed.server}/30", strict=False)
    harmless = [
        {"dst": "default", "gateway": "192.168.1.1", "dev": "eth0"},
        {"dst": "0.0.0.0/1", "dev": "tun0"},
        {"dst": "192.168.1.0/24", "dev": "eth0"},
        {"dst": "10.0.0.0/16", "dev": "eth0"},
        {"dst": "192.168.1.7", "dev": "eth0"},
        {"dst": str(own), "dev": f"{testbed.prefix}h0"},
    ]
    testbed.check_routes(harmless)
    for network in (own, own.supernet(new_prefix=16), ip_network("10.0.0.0/8")):
        with pytest.raises(
            AutoFLError,
            match=f"reaches {network} by wg0, which a testbed would hide; another --folder",
        ):
            testbed.check_routes([*harmless, {"dst": str(network), "dev": "wg0"}])


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
        # SuperLink, SuperNodes in their networks, sessions, server app
        while processes := processes_of(folder):
            end_all(processes)
        assert len(testbed.spaces()) == 2  # networks do not die
        assert "removed 2 networks" in autofl("testbed", "down", "--folder", folder).stderr
        assert not processes_of(folder)
        assert testbed.spaces() == []
        assert f"{testbed.prefix}h" not in ip("-o", "link")
        assert foreign in ip("netns", "list").split()
        assert f"{link}@" in ip("-o", "link")
    finally:
        for process in processes_of(folder):
            process.kill()
        testbed.remove()
        ip("netns", "del", foreign)


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
