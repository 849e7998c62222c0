"""A deployment's folder, and the programs of Flower that run from it.

ca.pem server.pem server.key    TLS
devices.pem devices.key         who signs the certificates of devices, with which they open streams
nodes/ue0 ue0.pub ue0.pem ...   key and certificate of each device and, on one machine, ue0.npz, its
data
app/                            the Flower app: settings and the names of its two halves
flower/                         Flower's own home: which SuperLink to talk to
superlink.db logs/ state.json   what is remembered, said, and running
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofl.deploy.certificates import (
    certified_hosts,
    certify_node,
    make_certificates,
    make_node_key,
)
from autofl.errors import AutoFLError, lacks
from autofl.files import inside, open_own, opening, quoted, read_json, read_toml, write_whole

LINK = "autofl"
"""The name of the SuperLink in Flower's configuration."""
MARK = "AUTOFL_DEPLOY"
"""Environment variable by which everything started from a folder is found again."""
PRIVATE = 0o077
"""The umask of everything a deployment writes: keys, data, logs and runs are private to their user.
"""
PATIENCE = 120.0
"""Seconds a program may take to start, and a SuperNode to be let in: after its predecessor died
that takes up to 60.
"""
MOST_PORT = 65_535
TRIES = 3
"""How often a SuperLink that does not answer is asked."""


@dataclass(frozen=True)
class Site:
    """A deployment's folder."""

    folder: Path

    def node(self, ue: int, ending: str = "") -> Path:
        return self.folder / "nodes" / f"ue{ue}{ending}"

    @property
    def state(self) -> dict[str, Any]:
        """What runs according to our records: {"address", "processes": {name: {"pid", "began"}}};
        empty if none.
        """
        try:
            state = read_json(self.folder / "state.json")
        except AutoFLError:
            return {}
        return state if _is_state(state) else {}

    @property
    def is_prepared(self) -> bool:
        """Whether `deploy prepare` made this folder, for devices with their own data; `up` would
        deal data out here.
        """
        return (self.folder / "config.toml").is_file() and not self.node(0, ".npz").is_file()

    @property
    def named(self) -> str:
        """The folder, as a command is given it."""
        return f"--folder {quoted(self.folder)}"

    @property
    def mending(self) -> str:
        """What to do about a SuperLink that has ended."""
        if self.is_prepared:
            return "restart it with the command that deploy prepare printed"
        return f"{self._command('up')} starts it again"

    @property
    def running(self) -> str:
        """The command that runs on these devices."""
        return self._command("run")

    def _command(self, verb: str) -> str:
        """A command on this deployment; the folder is named where it is not the usual one."""
        command, usual = (
            ("testbed", "testbed") if self.state.get("testbed", False) else ("deploy", "deployment")
        )
        where = "" if self.folder == Path("runs", usual) else f" {self.named}"
        return f"autofl {command} {verb}{where}"

    @property
    def logs(self) -> str:
        """Where the words of a SuperLink are."""
        return "the SuperLink's log" if self.is_prepared else str(self.folder / "logs")

    def keep(self, state: Mapping[str, Any]) -> None:
        write_whole(self.folder / "state.json", json.dumps(state, indent=2))

    def prepare(self, hosts: Sequence[str], num_nodes: int) -> None:
        """Certificates and node keys; existing ones stay, since devices hold the other half."""
        self.check_host(hosts[0])
        for name in ("app", "flower", "logs", "nodes", "superlink.db"):
            inside(self.folder, name)
        if (self.folder / "superlink.db").exists():
            os.close(open_own(self.folder / "superlink.db", os.O_RDWR))
        if not (self.folder / "server.pem").is_file():
            make_certificates(self.folder, hosts)
        for ue in range(num_nodes):
            if not self.node(ue, ".pub").is_file():  # the private half may have gone to its device
                make_node_key(self.node(ue))
            if not self.node(ue, ".pem").is_file():
                certify_node(self.folder, self.node(ue), ue)

    def check_host(self, host: str) -> None:
        """Refuse a name of the server that the certificate which is there does not have."""
        if (self.folder / "server.pem").is_file() and host not in certified_hosts(self.folder):
            raise AutoFLError(
                f"{self.folder}: its certificate is not for {host}; name another --folder"
            )

    def point_to(self, address: str) -> None:
        """Flower's configuration: which SuperLink, and whose certificates it must show."""
        home = self.folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        text = (
            f"[superlink]\ndefault = {json.dumps(LINK)}\n\n[superlink.{LINK}]\naddress = {json.dumps(address)}\n"
            f"root-certificates = {json.dumps(str(self.folder.resolve() / 'ca.pem'))}\n"
        )
        write_whole(home / "config.toml", text)

    def environment(self) -> dict[str, str]:
        """No telemetry, no update check, Flower's home in the folder, and its programs where this
        Python's are.
        """
        programs = str(Path(sys.executable).parent)
        return {
            **os.environ,
            MARK: str(self.folder.resolve()),
            "PYTHONSAFEPATH": "1",  # as `starting_pythons`: some are started with `python -m`
            "FLWR_HOME": str(self.folder.resolve() / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
        }

    def superlink(self, host: str, port: int) -> list[str]:
        return [
            *("flower-superlink", "--host", host, "--port", str(port)),
            *("--ssl-ca-certfile", str(self.folder / "ca.pem")),
            *("--ssl-certfile", str(self.folder / "server.pem")),
            *("--ssl-keyfile", str(self.folder / "server.key")),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--database", str(self.folder / "superlink.db")),
        ]

    def register(self, ue: int) -> list[str]:
        return ["flwr", "supernode", "register", str(self.node(ue, ".pub")), LINK]

    def link(self) -> tuple[str, int]:
        """Name and port of the SuperLink; an address of IPv6 without its brackets."""
        path = self.folder / "flower" / "config.toml"
        with opening(path, "the place of a SuperLink"):
            address = read_toml(path)["superlink"][LINK]["address"]
            host, _, port = str(address).rpartition(":")
            return host.strip("[]"), int(port)

    def supernode(
        self, ue: int, address: str, port: int, data: str | None = None, more: str = ""
    ) -> list[str]:
        folder = self.folder if data else self.folder.resolve()
        node_config = f'ue={ue} data="{data or self.node(ue, ".npz")}" folder="{folder}"{more}'
        return [
            *(
                "flower-supernode",
                "--superlink",
                address,
                "--root-certificates",
                str(self.folder / "ca.pem"),
            ),
            *("--auth-supernode-private-key", str(self.node(ue)), "--port", str(port)),
            *("--node-config", node_config),
        ]

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program in a process group of its own, its words in logs/NAME.log, and note it."""
        logs = inside(self.folder, "logs")
        logs.mkdir(exist_ok=True)
        with os.fdopen(
            open_own(logs / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab"
        ) as log:
            process = subprocess.Popen(
                program(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
                umask=PRIVATE,
            )
        state = self.state
        state.setdefault("processes", {})[name] = {"pid": process.pid, "began": _began(process.pid)}
        self.keep(state)
        return process

    def ask(self, command: Sequence[str]) -> dict[str, Any]:
        """Ask Flower, repeatedly if a busy SuperLink fails to answer."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(AutoFLError):
                return self.call(command)
            time.sleep(1.0)
        return self.call(command)

    def call(self, command: Sequence[str]) -> dict[str, Any]:
        """One of Flower's own commands, answered in JSON."""
        done = subprocess.run(
            [*program(command), "--format", "json"],
            env=self.environment(),
            capture_output=True,
            text=True,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = " ".join((done.stderr or done.stdout).split())[-300:]
            raise AutoFLError(f"{' '.join(command[:3])}: {said or 'no answer'}") from None
        if not answer.get("success", False):
            raise AutoFLError(
                f"{' '.join(command[:3])}: {' '.join(str(answer.get('error-message', answer)).split())}"
            )
        return answer

    def last_words(self, number: str) -> str:
        """The error with which the server app of a run ended, by Flower's log of it; empty where it
        has none.
        """
        command = [*program(["flwr", "log", number, LINK]), "--show"]
        try:
            done = subprocess.run(
                command, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return ""
        errors = re.findall(r"^\S*(?:Error|Exception): (.+)$", done.stdout, re.MULTILINE)
        return str(errors[-1]) if errors else ""

    def alive(self) -> dict[str, bool]:
        """Of each program we started: whether it still runs."""
        noted = self.state.get("processes", {})
        return {
            name: _began(process["pid"]) == process["began"] and _is_flower(process["pid"])
            for name, process in noted.items()
        }

    def online(self) -> int:
        """How many SuperNodes the SuperLink sees."""
        nodes = self.ask(["flwr", "supernode", "list", LINK])["nodes"]
        return sum(node["status"] == "online" for node in nodes)

    def servers(self) -> list[int]:
        """Processes of server apps that were started from this folder."""
        return [
            pid
            for pid, words in self._marked_commands()
            if any(b"flwr-serverapp" in word for word in words)
        ]

    def can_start_servers(self) -> bool:
        """Whether the SuperLink has the helper that starts server apps; it dies if the database is
        locked too long.

        On another machine, or without /proc, this cannot be known, and the helper is taken for
        alive.
        """
        link = self.state.get("processes", {}).get("superlink")
        if link is None or not Path("/proc/self").exists():
            return True
        helpers = (
            words
            for _, words in self._marked_commands()
            if any(b"flower-superexec" in word for word in words)
        )
        return any(str(link["pid"]).encode() in words for words in helpers)

    def _marked_commands(self) -> Iterator[tuple[int, list[bytes]]]:
        for pid in _marked(self.folder):
            with contextlib.suppress(OSError):
                yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")

    def end_servers(self) -> None:
        """End server apps that outlived their SuperLink or their run: they would write into the
        folder once more.
        """
        for pid in self.servers():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self, name: str) -> None:
        """End a program that was started from this folder, and what it started."""
        if self.alive().get(name, False):
            with contextlib.suppress(OSError):
                os.killpg(
                    self.state["processes"][name]["pid"], signal.SIGKILL
                )  # start() gave it a group of its own
            _wait_until(lambda: not self.alive().get(name, False), 10.0)

    def stop(self) -> list[str]:
        """End everything that was started from this folder and return the names; having nothing to
        end is no error.
        """
        noted = self.state.get("processes", {})
        running = [name for name, lives in self.alive().items() if lives]
        ours = _marked(self.folder) | {noted[name]["pid"] for name in running}
        began = {pid: _began(pid) for pid in ours}

        def left() -> set[int]:
            """A process that is ending has lost its mark before it is gone."""
            return _marked(self.folder) | {
                pid for pid, when in began.items() if when and _began(pid) == when
            }

        for number, seconds in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
            for pid in left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if _wait_until(lambda: not left(), seconds):
                break
        else:
            raise AutoFLError(f"{self.folder}: processes {sorted(left())} could not be ended")
        (self.folder / "state.json").unlink(missing_ok=True)
        return running


def _is_state(state: object) -> bool:
    """Whether it is what `keep` writes, as far as anything relies on it."""
    if not isinstance(state, dict) or not isinstance(noted := state.get("processes", {}), dict):
        return False
    port = state.get("port", 0)
    slow = state.get("slow", 1.0)
    known = (
        type(port) is int
        and 0 <= port <= MOST_PORT
        and isinstance(slow, int | float)
        and 0.0 < slow <= 1e6
    )
    return known and all(_is_noted(entry) for entry in noted.values())


def _is_noted(entry: object) -> bool:
    """Whether it says when a process of this number began."""
    if not isinstance(entry, dict) or type(entry.get("pid")) is not int:
        return False
    return 0 < entry["pid"] < 2**31 and isinstance(entry.get("began"), str)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def stream_port(chosen: int, link_port: int) -> int:
    """The port of streams beside the SuperLink's: the chosen one, or the next if that is 0."""
    if not 1 <= link_port <= MOST_PORT:
        raise AutoFLError(f"--port: {link_port} is not from 1 to {MOST_PORT}")
    if chosen == link_port:
        raise AutoFLError(f"deploy.port: {chosen} is the SuperLink's own port; choose another one")
    if not chosen and link_port == MOST_PORT:
        raise AutoFLError(
            f"--port: {link_port} is the last one, and streams need another: set deploy.port"
        )
    return chosen or link_port + 1


def wait_for(
    what: str, is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait until something is there; if it never comes, raise the end of its log."""
    begin = time.monotonic()
    while not is_there():
        if process.poll() is not None or time.monotonic() - begin > PATIENCE:
            said = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-300:]
            raise AutoFLError(f"{what} did not start; {log} ends: {said}")
        time.sleep(0.2)


def answers(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def program(command: Sequence[str]) -> list[str]:
    """Flower's programs lie beside this Python; one that is named by its place is taken as it is."""
    place = (
        Path(sys.executable).parent / command[0]
    )  # which is the place itself if that is absolute
    if not place.is_file():
        raise lacks(f"{command[0]}, which is not here,", "flower")
    return [str(place), *command[1:]]


def _wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (so := is_so()) and time.monotonic() < end:
        time.sleep(0.1)
    return so


def _began(pid: int) -> str | None:
    """When a process began, as the system records it; None if it is gone. A process number may be
    reused.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (
        FileNotFoundError,
        ProcessLookupError,
    ):  # the second if it ends between opening and reading
        if Path("/proc/self").exists():
            return None
        shown = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True
        )
        return shown.stdout.strip() or None
    rest = stat.rpartition(")")[2].split()
    return None if rest[0] == "Z" else rest[19]  # a zombie only waits for its parent


def _is_flower(pid: int) -> bool:
    """Whether a process is one of those that `start` starts, by its command line: a note may name
    anybody's.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self").exists():
            return False
        words = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True).stdout
    return b"flower-super" in words


def _marked(folder: Path) -> set[int]:
    """Processes that carry the mark of this folder, except this one; without /proc, none are found."""
    mark = f"{MARK}={folder.resolve()}".encode()
    pids = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (place / "environ").read_bytes().split(b"\0")
                and _began(int(place.name)) is not None
            ):
                pids.add(int(place.name))
        except OSError:
            continue
    return pids - {os.getpid()}
