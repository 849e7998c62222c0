"""A testbed in a box: each device in a network namespace of its own, its uplink as slow as the
modelled radio.

Linux, root or CAP_NET_ADMIN. All names begin with a prefix made of the deployment's folder, so that
everything can be removed whatever became of the processes, and nothing else is touched.
"""

import hashlib
import ipaddress
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofl.deploy.messages import Order
from autofl.errors import AutoFLError

UPLINK = "up0"
"""A device's end of its link."""
BURST = 1600
"""Bytes that pass at once: a packet. A larger bucket would let the beginning of each update through
for free.
"""
QUEUE = 4_000_000
"""Bytes that may wait on a link."""
OPEN = 1e9
"""bit/s of a link before the first order."""
MOST_UE = 4096
WIDEST = 8
"""Bits of the widest private network, 10.0.0.0/8; wider routes lead to the rest of the world."""


@dataclass(frozen=True)
class Testbed:
    """The networks of a deployment's devices. All links and processors are `slow` times slower than
    modelled.
    """

    folder: Path
    num_ue: int
    slow: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.num_ue <= MOST_UE:
            raise AutoFLError(f"cell.num_ue: {self.num_ue}; a testbed has 1 to {MOST_UE} devices")
        if not 0.0 < self.slow <= 1e6:
            raise AutoFLError(f"--slow: {self.slow} is not above 0 and at most 1e6")

    @property
    def _digest(self) -> bytes:
        return hashlib.sha256(str(self.folder.resolve()).encode()).digest()

    @property
    def prefix(self) -> str:
        return f"afl{self._digest[:3].hex()}"

    @property
    def server(self) -> str:
        """The server's address: this end of the first link, which all others reach too."""
        return self._address(0, 1)

    @property
    def node_config(self) -> str:
        return f" slow={float(self.slow)}"

    def _address(self, ue: int, end: int) -> str:
        return f"10.{64 + self._digest[3] % 128}.{ue // 64}.{4 * (ue % 64) + end}"

    def _space(self, ue: int) -> str:
        return f"{self.prefix}-{ue}"

    def inside(self, ue: int) -> list[str]:
        """What runs a program in a device's network."""
        return [_program("ip"), "netns", "exec", self._space(ue)]

    def building(self, ue: int) -> list[list[str]]:
        """The commands that make a device's network."""
        space = self._space(ue)
        here = f"{self.prefix}h{ue}"
        mine = self._address(ue, 1)
        its = self._address(ue, 2)
        return [
            ["ip", "netns", "add", space],
            ["ip", "link", "add", here, "type", "veth", "peer", "name", UPLINK, "netns", space],
            ["ip", "addr", "add", f"{mine}/30", "dev", here],
            ["ip", "link", "set", here, "up"],
            ["ip", "-n", space, "addr", "add", f"{its}/30", "dev", UPLINK],
            ["ip", "-n", space, "link", "set", "lo", "up"],
            ["ip", "-n", space, "link", "set", UPLINK, "up"],
            ["ip", "-n", space, "route", "add", "default", "via", mine],
            ["tc", "-n", space, *shaping(OPEN)],
        ]

    def build(self) -> None:
        """Make the networks that are missing or were only partly made."""
        if not sys.platform.startswith("linux"):
            raise AutoFLError("a testbed needs Linux: network namespaces and tc")
        self.check_routes(json.loads(_call(["ip", "-4", "-j", "route"]) or "[]"))
        there = set(self.spaces())
        for ue in range(self.num_ue):
            space = self._space(ue)
            if space in there and not _is_whole(space):
                _drop_link(f"{self.prefix}h{ue}")
                _call(["ip", "netns", "del", space])
                there.discard(space)
            if space not in there:
                for command in self.building(ue):
                    _call(command)

    def check_routes(self, routes: list[dict[str, Any]]) -> None:
        """Refuse addresses that this machine reaches by another link, since ours would hide a real
        network; routes as `ip` tells them.
        """
        ours = [ipaddress.IPv4Network(f"{self._address(ue, 0)}/30") for ue in range(self.num_ue)]
        for route in routes:
            link = route.get("dev", "another gateway")
            network = ipaddress.IPv4Network(route["dst"].replace("default", "0.0.0.0/0"))
            if network.prefixlen < WIDEST or link.startswith(f"{self.prefix}h"):
                continue
            hidden = [one for one in ours if one.overlaps(network)]
            if hidden:
                raise AutoFLError(
                    f"{hidden[0]}: this machine reaches {network} by {link}, which a testbed would hide;"
                    " another --folder gets other addresses"
                )

    def spaces(self) -> list[str]:
        """Namespaces with our prefix."""
        names = [
            line.split()[0] for line in _call(["ip", "netns", "list"]).splitlines() if line.strip()
        ]
        return [name for name in names if re.fullmatch(rf"{self.prefix}-\d+", name)]

    def remove(self) -> list[str]:
        """Remove all of our namespaces with their links, and return their names."""
        spaces = self.spaces()
        for space in spaces:
            _call(["ip", "netns", "del", space])
        shown = _call(["ip", "-o", "link", "show", "type", "veth"])
        left = re.findall(rf"^\d+: ({self.prefix}h\d+)@", shown, re.MULTILINE)
        for link in left:
            _drop_link(link)
        return spaces


def shaping(rate: float) -> list[str]:
    """tc's words for an uplink of this rate [bit/s]."""
    burst = max(BURST, round(rate / 8.0 * 1e-4)) if rate >= OPEN else BURST
    words = f"qdisc replace dev {UPLINK} root tbf rate {max(round(rate), 8)}bit burst {burst} limit {QUEUE}"
    return words.split()


def be_as_modelled(order: Order, slow: float, begin: float) -> None:
    """On the device: shape its uplink as ordered, and wait until computing has taken as long as
    modelled.
    """
    _call(["tc", *shaping(order.upload_rate / slow)])
    time.sleep(max(begin + slow * order.compute_time - time.perf_counter(), 0.0))


def first_packet_time(order: Order, slow: float, size: int) -> float:
    """Seconds for which a reply of `size` bytes has to wait, since the link lets its first packet
    pass at once.
    """
    return 8.0 * min(size, BURST) * slow / order.upload_rate if order.upload_rate > 0.0 else 0.0


def _drop_link(name: str) -> None:
    """The kernel takes a link down with its namespace, if a little later: it may be gone already."""
    subprocess.run([_program("ip"), "link", "del", name], capture_output=True)


def _is_whole(space: str) -> bool:
    """Whether the network was made completely."""
    command = [_program("tc"), "-n", space, "qdisc", "show", "dev", UPLINK]
    return " tbf " in subprocess.run(command, capture_output=True, text=True).stdout


def _program(name: str) -> str:
    there = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if there is None:
        raise AutoFLError(f"a testbed needs {name} (iproute2)")
    return there


def _call(command: list[str]) -> str:
    done = subprocess.run([_program(command[0]), *command[1:]], capture_output=True, text=True)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        hint = (
            "; a testbed needs root or CAP_NET_ADMIN"
            if "permitted" in said or "ermission" in said
            else ""
        )
        raise AutoFLError(f"{' '.join(command[:4])}: {said}{hint}")
    return done.stdout
