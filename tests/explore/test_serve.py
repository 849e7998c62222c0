"""The server itself: what strangers to the page, who have no token, can do to it."""

import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra explore")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A real server: its process, its address with the token, and its port."""
    words = [
        sys.executable,
        "-m",
        "autofl",
        "explore",
        str(tmp_path_factory.mktemp("runs")),
        "--port",
        "0",
    ]
    process = subprocess.Popen([*words, "--no-browser"], stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", process.stdout.readline())[0]
    yield process, address, int(re.search(r":(\d+)/", address)[1])
    process.terminate()
    process.wait(10)


def most_memory(process):
    """The most memory a process has used so far, in bytes."""
    return 1024 * int(
        re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_endless_headers_take_no_memory(server):
    process, address, port = server
    urllib.request.urlopen(address).read()
    before = most_memory(process)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        lines = b"".join(b"x-%06d: %s\r\n" % (number, b"a" * 48) for number in range(16_000))
        try:
            for _ in range(20):
                connection.sendall(lines)
        except ConnectionError:
            pass  # refused, as it should be
    assert urllib.request.urlopen(address).status == 200
    assert most_memory(process) - before < 20 * 2**20
