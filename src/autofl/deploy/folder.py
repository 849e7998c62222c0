"""A deployment's folder, and the programs of Flower that run from it.

ca.pem server.pem server.key    TLS
devices.pem devices.key         who signs the certificates of devices, with which they open streams
nodes/ue0 ue0.pub ue0.pem ...   key and certificate of each device and, on one machine, ue0.npz, its
data
app/                            the Flower app: settings and the names of its two halves
flower/                         Flower's own home: which SuperLink to talk to
superlink.db logs/ state.json   what is remembered, said, and was started
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
PROGRAM = "AUTOFL_DEPLOY_PROGRAM"
"""Environment variables by which everything started from a folder is found again: the folder, and
the program that was started or has started it.
"""
USUAL = {"deploy": Path("runs/deployment"), "testbed": Path("runs/testbed")}
"""The folder that a command takes by default."""
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
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


class Noted(BaseModel):
    """What is remembered of a deployment between two commands."""

    model_config = ConfigDict(strict=True)
    programs: list[str] = []  # that were started from here
    port: int = Field(0, ge=0, le=MOST_PORT)  # of the SuperLink that `up` has started; 0: none
    slow: float = Field(1.0, gt=0.0, le=1e6)  # times slower than modelled, on a testbed
    testbed: bool = False
    form: str = ""  # of the samples that were dealt out, as in `RunConfig`
    run: str = ""  # Flower's number of the last run
    out: str = ""  # its folder


def processes_of(folder: Path, name: str = "", word: str = "") -> list[psutil.Process]:
    """What was started from a deployment's folder, except this process: by the program of this
    name, with this word in its command.
    """
    mark = str(folder.resolve())
    ours = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        environ = process.info["environ"] or {}
        if environ.get(MARK) != mark or process.pid == os.getpid():
            continue
        is_named = not name or environ.get(PROGRAM) == name
        if is_named and word in " ".join(process.info["cmdline"] or ()):
            ours.append(process)
    return ours


@dataclass(frozen=True)
class Deployment:
    """A deployment's folder."""

    folder: Path

    def node(self, ue: int, ending: str = "") -> Path:
        return self.folder / "nodes" / f"ue{ue}{ending}"

    @property
    def state(self) -> Noted:
        """What the last commands have noted; nothing where that cannot be read."""
        try:
            return Noted.model_validate(read_json(self.folder / "state.json"))
        except (AutoFLError, ValidationError):
            return Noted()

    def note(self, **changes: Any) -> None:
        """Remember this too."""
        state = self.state.model_copy(update=changes)
        write_whole(self.folder / "state.json", state.model_dump_json(indent=2))

    @property
    def is_prepared(self) -> bool:
        """Whether `deploy prepare` made this folder, for devices with their own data; `up` would
        deal data out here.
        """
        return (self.folder / "config.toml").is_file() and not self.node(0, ".npz").is_file()

    # How people are told of it.

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
    def unanswered(self) -> str:
        """That its SuperLink does not answer, and what to do about it."""
        host, port = self.link()
        return f"the SuperLink at {host}:{port} does not answer; {self.mending}"

    @property
    def running(self) -> str:
        """The command that runs on these devices."""
        return self._command("run")

    def _command(self, verb: str) -> str:
        """A command on this deployment; the folder is named where it is not the usual one."""
        command = "testbed" if self.state.testbed else "deploy"
        where = "" if self.folder == USUAL[command] else f" {self.named}"
        return f"autofl {command} {verb}{where}"

    @property
    def logs(self) -> str:
        """Where the words of a SuperLink are."""
        return "the SuperLink's log" if self.is_prepared else str(self.folder / "logs")

    # What lies in it.

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

    def link(self) -> tuple[str, int]:
        """Name and port of the SuperLink; an address of IPv6 without its brackets."""
        path = self.folder / "flower" / "config.toml"
        with opening(path, "the place of a SuperLink"):
            address = read_toml(path)["superlink"][LINK]["address"]
            host, _, port = str(address).rpartition(":")
            return host.strip("[]"), int(port)

    # Flower's programs.

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
            **QUIET,
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

    def supernode(
        self, ue: int, address: str, port: int, data: str | None = None, more: str = ""
    ) -> list[str]:
        folder = self.folder if data else self.folder.resolve()
        node_config = f'ue={ue} data="{data or self.node(ue, ".npz")}" folder="{folder}"{more}'
        return [
            *("flower-supernode", "--superlink", address),
            *("--root-certificates", str(self.folder / "ca.pem")),
            *("--auth-supernode-private-key", str(self.node(ue)), "--port", str(port)),
            *("--node-config", node_config),
        ]

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, its words in logs/NAME.log, and note it."""
        logs = inside(self.folder, "logs")
        logs.mkdir(exist_ok=True)
        own = open_own(logs / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with os.fdopen(own, "ab") as log:
            process = subprocess.Popen(
                program(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment() | {PROGRAM: name},
                start_new_session=True,
                umask=PRIVATE,
            )
        self.note(programs=sorted({*self.state.programs, name}))
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
        what = " ".join(command[:3])
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = " ".join((done.stderr or done.stdout).split())[-300:]
            raise AutoFLError(f"{what}: {said or 'no answer'}") from None
        if not answer.get("success", False):
            said = " ".join(str(answer.get("error-message", answer)).split())
            raise AutoFLError(f"{what}: {said}")
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

    def online(self) -> int:
        """How many SuperNodes the SuperLink sees."""
        nodes = self.ask(["flwr", "supernode", "list", LINK])["nodes"]
        return sum(node["status"] == "online" for node in nodes)

    # Their processes.

    def alive(self) -> dict[str, bool]:
        """Of each program we started: whether it still runs. Its helpers may outlive it."""
        running = {
            process.info["environ"].get(PROGRAM)
            for word in ("flower-superlink", "flower-supernode")
            for process in processes_of(self.folder, word=word)
        }
        return {name: name in running for name in self.state.programs}

    def servers(self) -> list[psutil.Process]:
        """Server apps that were started from this folder."""
        return processes_of(self.folder, word="flwr-serverapp")

    def can_start_servers(self) -> bool:
        """Whether the SuperLink has the helper that starts server apps; it dies if the database is
        locked too long. Of a SuperLink that was not started from here this cannot be known.
        """
        is_ours = "superlink" in self.state.programs
        return not is_ours or bool(processes_of(self.folder, "superlink", "flower-superexec"))

    def end_servers(self) -> None:
        """End server apps that outlived their SuperLink or their run: they would write into the
        folder once more.
        """
        end_all(self.servers())

    def end(self, name: str) -> None:
        """End a program that was started from this folder, and what it started."""
        end_all(processes_of(self.folder, name))

    def stop(self) -> list[str]:
        """End everything that was started from this folder and return the names; having nothing to
        end is no error.
        """
        running = [name for name, lives in self.alive().items() if lives]
        end_all(processes_of(self.folder), gently=15.0)
        end_all(processes_of(self.folder))  # what they started meanwhile
        if left := processes_of(self.folder):
            pids = [process.pid for process in left]
            raise AutoFLError(f"{self.folder}: processes {pids} could not be ended")
        (self.folder / "state.json").unlink(missing_ok=True)
        return running


def end_all(processes: Sequence[psutil.Process], gently: float = 0.0) -> None:
    """End processes and wait until they are gone; they get some seconds to do it themselves."""
    left = list(processes)
    if gently:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = psutil.wait_procs(left, gently)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, 10.0)


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


def address_of(host: str, port: int) -> str:
    """As addresses are written: one of IPv6 has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def answers(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def program(command: Sequence[str]) -> list[str]:
    """Flower's programs lie beside this Python; one that is named by its place is taken as it is."""
    # An absolute name is the place itself.
    place = Path(sys.executable).parent / command[0]
    if not place.is_file():
        raise lacks(f"{command[0]}, which is not here,", "flower")
    return [str(place), *command[1:]]
