"""A deployment on one machine: up, run, down. On several machines `several` prepares it, and `run`
is the same.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tomli_w

from autofl.config import Settings, dump_said, dump_settings, load_settings
from autofl.config.load import check_asked, resume_words
from autofl.data import write_device
from autofl.deploy.folder import (
    LINK,
    PATIENCE,
    TRIES,
    Deployment,
    answers,
    free_port,
    program,
    stream_port,
    wait_for,
)
from autofl.deploy.lease import claimed, held
from autofl.deploy.run_config import RunConfig
from autofl.deploy.testbed import Testbed
from autofl.errors import AutoFLError
from autofl.experiments.data import build_partition, load_data
from autofl.files import inside, quoted, read_json, read_toml, write_whole
from autofl.jobs.job import Progress
from autofl.jobs.run import origins_of
from autofl.lock import FolderLock, overrule
from autofl.records import (
    Run,
    check_no_run,
    has_checkpoint,
    is_run,
    mark_run,
    read_checkpoint,
    read_manifest,
    read_run,
)
from autofl.records.run import KILLED
from autofl.version import __version__

Tell = Callable[[str], None]
NODES = "nodes/registered.json"
"""Which node is which UE: Flower's numbers of the keys that were registered."""
LOOK = 0.5
"""Seconds between looks at a run folder."""
ASK = 5.0
"""Seconds between two times Flower is asked about a run; each takes a second of CPU time."""
ENDING = 10.0
"""Seconds that a stopped run may take to end."""


class CutOffError(AutoFLError):
    """A run that ended before its time; `why` says so without what to do about it, for the
    manifest.
    """

    def __init__(self, site: Deployment, out: Path, settings: Settings, why: str) -> None:
        first = ""
        if not answers(*site.link()):
            first = f"the SuperLink does not answer; {site.mending}, then "
        again = f"{site.running} {resume_words(out, settings.table())}"
        super().__init__(f"{out}: {why}; {first}{again} continues it")
        self.why = why


def can_resume(out: Path) -> bool:
    """Whether a run that did not finish can go on from a checkpoint."""
    said = read_manifest(out)
    has_ended = said["status"] in ("interrupted", "failed")
    return has_ended and said.get("stop") is None and has_checkpoint(out)


def up(settings: Settings, folder: Path, tell: Tell, testbed: Testbed | None = None) -> None:
    """A SuperLink and a SuperNode for each UE, on this machine, over TLS with authentication.

    With a testbed each SuperNode has a network of its own.

    Only what is not running is started: after a crash `up` repairs the deployment, and a second
    `up` does nothing.
    """
    text = dump_said(settings)  # a run may be of another arm, with its own defaults
    settings = settings.resolved()
    num_ue = settings.cell.count
    site = Deployment(folder)
    alive = site.alive()
    slow = 1.0 if testbed is None else testbed.slow
    _check_same(site, text, slow, is_up=any(alive.values()))

    # Data before settings: without data the folder would pass for a prepared one.
    host = "127.0.0.1" if testbed is None else testbed.server
    site.prepare([host, "localhost", "127.0.0.1", "::1"], num_ue)
    write_data(settings, site)
    write_whole(folder / "config.toml", text)
    site.note(slow=slow, testbed=testbed is not None)

    # A SuperLink that cannot start server apps is of no use either.
    if not alive.get("superlink", False) or not site.can_start_servers():
        _start_link(site, host)
    address = f"{host}:{site.state.port}"
    tell(f"SuperLink at {address}")
    gone = [ue for ue in range(num_ue) if not alive.get(f"ue{ue}", False)]
    start_nodes(site, gone, address, testbed)
    end = time.monotonic() + PATIENCE
    while (online := site.online()) < num_ue:
        if time.monotonic() > end:
            raise AutoFLError(f"{online} of {num_ue} SuperNodes connected; see {folder / 'logs'}")
        time.sleep(0.5)
    tell(f"{num_ue} SuperNodes online")


def _check_same(site: Deployment, text: str, slow: float, is_up: bool) -> None:
    """Refuse a folder that `prepare` made, and one of which other devices are up."""
    folder = site.folder
    if site.is_prepared:
        raise AutoFLError(
            f"{folder}: deploy prepare made it, for devices with data of their own; start its SuperLink and its devices"
            " with the commands that prepare printed, or name another --folder"
        )
    if is_up and (folder / "config.toml").read_text(encoding="utf-8") != text:
        raise AutoFLError(
            f"{folder}: a deployment of other settings is up; end it with: autofl deploy down {site.named}"
        )
    if is_up and site.state.slow != slow:
        raise AutoFLError(
            f"{folder}: devices {site.state.slow:g} times slower than modelled are up;"
            f" end them with: autofl testbed down {site.named}"
        )


def write_data(settings: Settings, site: Deployment) -> None:
    """The data of every UE as a file of its own, cut as the simulator cuts it; the form of samples
    is noted.
    """
    dataset, owner = load_data(settings)
    partition = build_partition(settings, dataset, owner)
    for ue in range(partition.num_ue):
        write_device(site.node(ue, ".npz"), dataset, partition.train_of(ue), partition.test_of(ue))
    site.note(form=" ".join(map(str, (*dataset.sample_shape, dataset.num_classes))))


def _start_link(site: Deployment, host: str) -> None:
    """Start the SuperLink, at the port that it had before: devices go on asking there."""
    site.end("superlink")
    site.end_servers()
    port = site.state.port or free_port()
    site.note(port=port)
    process = site.start("superlink", site.superlink(host, port))
    log = site.folder / "logs" / "superlink.log"
    wait_for("the SuperLink", lambda: answers(host, port), process, log)
    site.point_to(f"{host}:{port}")


def start_nodes(
    site: Deployment, ues: list[int], address: str, testbed: Testbed | None = None
) -> None:
    """Start the SuperNodes of these UEs, and wait until the SuperLink has let each of them in.

    For a minute after a node died, the SuperLink takes it for alive and refuses its successor,
    which then ends; it is started again until it is let in.
    """
    processes: dict[int, subprocess.Popen[bytes]] = {}
    logs = {ue: site.folder / "logs" / f"ue{ue}.log" for ue in ues}
    old = {ue: log.stat().st_size if log.is_file() else 0 for ue, log in logs.items()}
    for ue in ues:
        register(site, ue)
    waiting = list(ues)
    end = time.monotonic() + PATIENCE
    while waiting:
        if time.monotonic() > end:
            raise AutoFLError(f"UEs {waiting} were not let in; see {site.folder / 'logs'}")
        for ue in waiting:
            if ue not in processes or processes[ue].poll() is not None:
                more = "" if testbed is None else testbed.node_config
                command = program(site.supernode(ue, address, free_port(), more=more))
                inside_of = [] if testbed is None else testbed.inside(ue)
                processes[ue] = site.start(f"ue{ue}", [*inside_of, *command])
        time.sleep(1.0)
        # Which a node is told once it is let in; what its predecessors were told does not count.
        waiting = [ue for ue in waiting if b"SuperNode ID" not in logs[ue].read_bytes()[old[ue] :]]


def register(site: Deployment, ue: int) -> None:
    """Tell the SuperLink the public key of a node, and note its number; a key it knows already is
    fine.
    """
    try:
        number = site.call(site.register(ue))["node-id"]
    except AutoFLError as error:
        if "already in use" not in str(error):
            raise
    else:
        write_whole(site.folder / NODES, json.dumps({**nodes_of(site), str(ue): str(number)}))


def nodes_of(site: Deployment) -> dict[str, str]:
    """The SuperLink's node of each UE whose key was registered from this folder."""
    try:
        return {str(ue): str(node) for ue, node in dict(read_json(site.folder / NODES)).items()}
    except (AutoFLError, TypeError, ValueError):
        return {}


def config_of(
    settings: Settings, site: Deployment, out: Path, attempt: str, lease: Path
) -> RunConfig:
    """What the server app of a run into `out` is told."""
    host, port = site.link()
    is_alone = site.state.port != 0  # all on one machine: any port will do
    stream = 0 if is_alone and not settings.deploy.port else stream_port(settings.deploy.port, port)
    nodes = nodes_of(site)
    ues = range(settings.cell.count)
    is_registered = all(str(ue) in nodes for ue in ues)
    return RunConfig(
        settings=dump_settings(settings),
        folder=str(out.resolve()),
        attempt=attempt,
        lease=str(lease.resolve()),
        site=str(site.folder.resolve()),
        stream=f"{host} {stream}",
        nodes=" ".join(f"{ue}={nodes[str(ue)]}" for ue in ues) if is_registered else "",
        form=site.state.form,
        slow=site.state.slow,
    )


def write_app(site: Deployment, config: RunConfig) -> Path:
    """The Flower app of a run: what its server and its devices are told, and the names of the two."""
    app = inside(site.folder, "app")
    app.mkdir(parents=True, exist_ok=True)
    components = {
        "serverapp": "autofl.deploy.app:server_app",
        "clientapp": "autofl.deploy.app:client_app",
    }
    told = config.model_dump(exclude_none=True)
    about = {"publisher": "autofl", "components": components, "config": told}
    project = {
        "name": "autofl",
        "version": __version__,
        "license": "Apache-2.0",
        "dependencies": [],
    }
    text = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": about}}})
    write_whole(app / "pyproject.toml", text)
    return app


def run(
    settings: Settings,
    folder: Path,
    out: Path,
    on_round: Callable[[Run], None],
    resume: bool = False,
    keep: bool = False,
) -> Run:
    """Run on the devices that are up, into a run folder; `resume` continues the run that is there.

    With `keep`, a run that is there already is not overwritten but an error. The server app, which
    writes the folder, decides that once it holds its lock; here it is asked before, so that no
    device starts in vain.
    """
    site = Deployment(folder)
    settings = settings.resolved()
    if not (folder / "flower" / "config.toml").is_file():
        raise AutoFLError(_nothing_there(site))
    if resume:
        _check_is_ours(out)
        if read_manifest(out)["status"] == "finished":
            return read_run(out)
    _check_can_run(site, settings, out)
    attempt = str(time.time_ns())
    with held(folder, attempt) as lease, claimed(out, attempt):
        if resume and read_manifest(out)["status"] == "finished":
            return read_run(out)  # by another command, while this one began

        # The server app of an attempt that was cut off may still live.
        _end_orphan(site)
        if resume:
            overrule(out)
        if resume and has_checkpoint(out):
            read_checkpoint(out)  # or it is said here why not: the server app has no one to tell
        check_free(out, keep)

        config = config_of(settings, site, out, attempt, lease)
        app = write_app(site, config.model_copy(update={"resume": resume, "keep": keep}))
        number = str(site.call(["flwr", "run", str(app), LINK])["run-id"])
        site.note(run=number, out=str(out.resolve()))
        try:
            _follow(site, number, out, settings, attempt, keep, on_round)
        except KeyboardInterrupt as error:
            _end(site, number)
            _mark(out, attempt, "interrupted", str(error) or None)
            raise
        except AutoFLError as error:
            why = error.why if isinstance(error, CutOffError) else str(error)
            _mark(out, attempt, "failed", why)
            site.end_servers()  # a server app may wait for its SuperLink for ever
            raise
    return read_run(out)


def _check_is_ours(out: Path) -> None:
    """Refuse to resume what is no run on devices."""
    if not is_run(out):
        raise AutoFLError(f"{out}: no run to resume; begin one with --out {out}")
    if not read_manifest(out).get("deployed"):
        raise AutoFLError(
            f"{out}: a simulation, not a run on devices; autofl simulate --resume {quoted(out)} continues it"
        )


def _check_can_run(site: Deployment, settings: Settings, out: Path) -> None:
    """Refuse what cannot be, before anything is started."""
    if out.resolve() == site.folder.resolve():
        raise AutoFLError(
            f"{out}: the folder of the deployment itself; name another one for the run (--out)"
        )
    check_fits(settings, settings_of(site.folder), site.is_prepared)
    # Code of one's own that is not here: the server app would have no one to tell.
    origins_of(settings)
    if not answers(*site.link()):
        raise AutoFLError(site.unanswered)


def check_free(out: Path, keep: bool) -> None:
    """Refuse a folder that another process writes into, and with `keep` one in which a run is."""
    lock = FolderLock(out)
    try:
        if keep:
            check_no_run(out)
    finally:
        lock.release()


def check_fits(settings: Settings, there: Settings, is_prepared: bool = False) -> None:
    """Refuse settings that do not fit the devices: `up` fixes their number and their data,
    `prepare` their number.
    """
    count = settings.cell.count
    if count != there.cell.count:
        more = f"autofl deploy up --nodes {count}"
        if is_prepared:
            more = (
                f"autofl deploy prepare --nodes {count} --force, with the other options that it was"
                " given at first (--host, --port, --set),"
            )
        raise AutoFLError(
            f"cell.num_ue: {count}, but {there.cell.count} devices were set up; {more} makes others"
        )
    for name in type(there.data).model_fields:
        if name != "standardise" and getattr(settings.data, name) != getattr(there.data, name):
            theirs = "the data they were set up with; give it to deploy up"
            if is_prepared:
                theirs = "data of their own"
            raise AutoFLError(f"data.{name}: the devices have {theirs}")


def _end_orphan(site: Deployment) -> None:
    """End what an earlier `deploy run` left on the devices; refuse to share them with anybody
    else's run.
    """
    for entry in site.ask(["flwr", "list", LINK])["runs"]:
        number = str(entry["run-id"])
        if str(entry["status"]).startswith("finished"):
            continue
        if number != site.state.run:
            raise AutoFLError(
                f"{site.folder}: run {number}, which this folder did not start, is on these devices;"
                f" wait for its end, or: flwr stop {number} {LINK}"
            )
        _end(site, number)


def _end(site: Deployment, number: str) -> None:
    """Stop a run, and wait until its server app is gone, which could write once more."""
    with contextlib.suppress(AutoFLError):  # it may have ended by itself meanwhile
        site.call(["flwr", "stop", number, LINK])
    end = time.monotonic() + ENDING
    while site.servers() and time.monotonic() < end:
        time.sleep(0.2)
    site.end_servers()


def _said(out: Path, attempt: str) -> dict[str, Any]:
    """The manifest of our run; nothing while its server app has not begun, or where others have
    made the run that is there.
    """
    if is_run(out) and (said := read_manifest(out)).get("attempt") == attempt:
        return said
    return {}


def _mark(out: Path, attempt: str, status: str, problem: str | None = None) -> None:
    """Say how our run ended and why; why it failed is better known to its server app.

    The server app may live on for a while, cut off from the devices; it writes no more.
    """
    if said := _said(out, attempt):
        overrule(out)
        told = said.get("problem")
        ours = status == "interrupted" or told in (None, KILLED)  # which a reader may have written
        mark_run(out, status, problem if ours else told)


def _follow(
    site: Deployment,
    number: str,
    out: Path,
    settings: Settings,
    attempt: str,
    keep: bool,
    on_round: Callable[[Run], None],
) -> None:
    """Wait for the end of a run, telling of each round; what an earlier attempt left in the folder
    does not count.
    """
    last = -1
    asked = time.monotonic()
    unanswered = 0
    while True:
        time.sleep(LOOK)

        # The folder says most, and at once: a lock that is free is noticed before Flower misses a
        # server app.
        said = _said(out, attempt)
        status = said.get("status")
        if said.get("rounds", -1) != last:
            last = said.get("rounds", -1)
            on_round(read_run(out))
        if status == "finished":
            return
        if status in ("failed", "interrupted"):
            why = str(said.get("problem") or "the run failed")
            if status == "failed" and not can_resume(out):
                raise AutoFLError(f"{out}: {why}")
            raise CutOffError(site, out, settings, why)
        if time.monotonic() - asked <= ASK:
            continue
        asked = time.monotonic()

        # A server app that lives may outlive its SuperLink.
        if status == "running":
            unanswered = 0 if answers(*site.link()) else unanswered + 1
            if unanswered == TRIES:
                raise CutOffError(site, out, settings, "the SuperLink does not answer")
            continue

        # Of one that has not begun only Flower knows.
        try:
            status = _how_is(site, number)
        except AutoFLError as error:
            raise AutoFLError(f"{error}; {site.mending}, then give the command again") from None
        if not site.can_start_servers():
            raise AutoFLError(f"{out}: the SuperLink no longer starts runs; {site.mending}")
        if status.startswith("finished") and "completed" not in status:
            time.sleep(2 * LOOK)  # its last words may still be on their way to the folder
            said = _said(out, attempt)
            if not said:
                check_free(out, keep)  # another program may have been faster
            why = said.get("problem") or site.last_words(number)
            raise AutoFLError(f"{out}: {why or f'Flower says {status}; see {site.logs}'}")


def progress_of(run: Run) -> Progress:
    """The progress of a run on devices, from its folder."""
    said = run.manifest
    accuracy = run.evaluated("adapted_accuracy")[2]
    # The manifest may be older than the tables.
    rounds = said["rounds"]
    sim_time = said["sim_time"]
    if len(run.rounds["round"]):
        rounds = int(run.rounds["round"][-1])
        sim_time = float(run.rounds["sim_time"][-1])
    return Progress(
        f"{said['algorithm']} seed {said['seed']}",
        rounds,
        run.config["stop"]["rounds"],
        sim_time,
        float(accuracy[-1]) if len(accuracy) else float("nan"),
        said["host_time"],
        said.get("stop") is not None,
    )


def _how_is(site: Deployment, number: str) -> str:
    try:
        runs = site.ask(["flwr", "list", LINK, "--run-id", number])["runs"]
    except AutoFLError as error:
        raise AutoFLError(f"the SuperLink does not say how the run is ({error})") from None
    return str(runs[0]["status"])


def down(folder: Path) -> list[str]:
    """End everything that was started from the folder, and return the names."""
    return Deployment(folder).stop() if folder.is_dir() else []


def settings_of(folder: Path, said: Iterable[str] | None = None) -> Settings:
    """The settings a deployment was prepared with; code that they name must be `said` too, if that
    is given.
    """
    path = folder / "config.toml"
    if not path.is_file():
        raise AutoFLError(_nothing_there(Deployment(folder)))
    if said is not None:
        check_asked(path, read_toml(path), said)
    return load_settings(path)


def _nothing_there(site: Deployment) -> str:
    return f"{site.folder}: no deployment there; start one with: autofl deploy up {site.named}"
