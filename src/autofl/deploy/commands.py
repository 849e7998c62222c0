"""A first deployment on one machine: up, run, status, down; and the commands for several machines."""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import tomli_w

from autofl.config import Settings, dump_said, dump_settings, load_settings
from autofl.config.load import check_asked, resume_words
from autofl.data import write_device
from autofl.deploy.folder import (
    LINK,
    PATIENCE,
    TRIES,
    Site,
    answers,
    free_port,
    program,
    stream_port,
    wait_for,
)
from autofl.deploy.lease import claimed, held
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

    def __init__(self, site: Site, out: Path, settings: Settings, why: str) -> None:
        first = (
            "" if answers(*site.link()) else f"the SuperLink does not answer; {site.mending}, then "
        )
        super().__init__(
            f"{out}: {why}; {first}{site.running} {resume_words(out, settings.table())} continues it"
        )
        self.why = why


def can_resume(out: Path) -> bool:
    """Whether a run that did not finish can go on from a checkpoint."""
    said = read_manifest(out)
    return (
        said["status"] in ("interrupted", "failed")
        and said.get("stop") is None
        and has_checkpoint(out)
    )


def write_data(settings: Settings, site: Site) -> None:
    """The data of every UE as a file of its own, cut as the simulator cuts it; the form of samples
    is noted.
    """
    dataset, owner = load_data(settings)
    partition = build_partition(settings, dataset, owner)
    for ue in range(partition.num_ue):
        write_device(site.node(ue, ".npz"), dataset, partition.train_of(ue), partition.test_of(ue))
    site.keep(
        {**site.state, "form": " ".join(map(str, (*dataset.sample_shape, dataset.num_classes)))}
    )


def up(settings: Settings, folder: Path, tell: Tell, testbed: Testbed | None = None) -> None:
    """A SuperLink and a SuperNode for each UE, on this machine, over TLS with authentication.

    With a testbed each SuperNode has a network of its own.

    Only what is not running is started: after a crash `up` repairs the deployment, and a second
        `up` does nothing.
    """
    text = dump_said(settings)  # a run may be of another arm, with its own defaults
    settings = settings.resolved()
    site = Site(folder)
    if site.is_prepared:
        raise AutoFLError(
            f"{folder}: deploy prepare made it, for devices with data of their own; start its SuperLink and its devices"
            " with the commands that prepare printed, or name another --folder"
        )
    num_ue = settings.cell.count
    alive = site.alive()
    if any(alive.values()) and (folder / "config.toml").read_text(encoding="utf-8") != text:
        raise AutoFLError(
            f"{folder}: a deployment of other settings is up; end it with: autofl deploy down {site.named}"
        )
    slow = 1.0 if testbed is None else testbed.slow
    if any(alive.values()) and float(site.state.get("slow", 1.0)) != slow:
        raise AutoFLError(
            f"{folder}: devices {site.state.get('slow', 1.0):g} times slower than modelled are up;"
            f" end them with: autofl testbed down {site.named}"
        )
    host = "127.0.0.1" if testbed is None else testbed.server
    site.prepare([host, "localhost", "127.0.0.1", "::1"], num_ue)
    write_data(
        settings, site
    )  # before the settings: without data the folder would pass for a prepared one
    write_whole(folder / "config.toml", text)
    site.keep({**site.state, "slow": slow, "testbed": testbed is not None})
    if not alive.get("superlink", False) or not site.can_start_servers():
        site.end("superlink")
        site.end_servers()
        port = int(site.state.get("port", 0)) or free_port()
        site.keep({**site.state, "port": port})
        process = site.start("superlink", site.superlink(host, port))
        wait_for(
            "the SuperLink", lambda: answers(host, port), process, folder / "logs" / "superlink.log"
        )
        site.point_to(f"{host}:{port}")
    address = f"{host}:{site.state['port']}"
    tell(f"SuperLink at {address}")
    start_nodes(
        site, [ue for ue in range(num_ue) if not alive.get(f"ue{ue}", False)], address, testbed
    )
    end = time.monotonic() + PATIENCE
    while site.online() < num_ue:
        if time.monotonic() > end:
            raise AutoFLError(
                f"{site.online()} of {num_ue} SuperNodes connected; see {folder / 'logs'}"
            )
        time.sleep(0.5)
    tell(f"{num_ue} SuperNodes online")


def start_nodes(site: Site, ues: list[int], address: str, testbed: Testbed | None = None) -> None:
    """Start the SuperNodes of these UEs, and wait until the SuperLink has let each of them in.

    For a minute after a node died, the SuperLink takes it for alive and refuses its successor,
    which then ends; it is started again until it is let in.
    """
    processes: dict[int, subprocess.Popen[bytes]] = {}
    logs = {ue: site.folder / "logs" / f"ue{ue}.log" for ue in ues}
    told = {
        ue: log.stat().st_size if log.is_file() else 0 for ue, log in logs.items()
    }  # by its predecessors
    waiting = list(ues)
    for ue in ues:
        register(site, ue)
    end = time.monotonic() + PATIENCE
    while waiting:
        if time.monotonic() > end:
            raise AutoFLError(f"UEs {waiting} were not let in; see {site.folder / 'logs'}")
        for ue in waiting:
            if ue not in processes or processes[ue].poll() is not None:
                prefix, more = (
                    ([], "") if testbed is None else (testbed.inside(ue), testbed.node_config)
                )
                command = site.supernode(ue, address, free_port(), more=more)
                processes[ue] = site.start(f"ue{ue}", [*prefix, *program(command)])
        time.sleep(1.0)
        waiting = [ue for ue in waiting if b"SuperNode ID" not in logs[ue].read_bytes()[told[ue] :]]


def register(site: Site, ue: int) -> None:
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


def nodes_of(site: Site) -> dict[str, str]:
    """The SuperLink's node of each UE whose key was registered from this folder."""
    try:
        return {str(ue): str(node) for ue, node in dict(read_json(site.folder / NODES)).items()}
    except (AutoFLError, TypeError, ValueError):
        return {}


def write_app(
    settings: Settings,
    site: Site,
    out: Path,
    resume: bool,
    attempt: str,
    lease: Path,
    keep: bool = False,
) -> Path:
    """The Flower app of a run: settings, where the results go, who is who, and the names of server
    and client.
    """
    app = inside(site.folder, "app")
    app.mkdir(parents=True, exist_ok=True)
    place = {"folder": str(out.resolve()), "resume": resume, "keep": keep, "attempt": attempt}
    place["lease"] = str(lease.resolve())
    host, port = site.link()
    place["site"], place["slow"] = str(site.folder.resolve()), float(site.state.get("slow", 1.0))
    any_will_do = "port" in site.state and not settings.deploy.port  # on one machine
    place["stream"] = f"{host} {0 if any_will_do else stream_port(settings.deploy.port, port)}"
    nodes = nodes_of(site)
    if all(str(ue) in nodes for ue in range(settings.cell.count)):
        place["nodes"] = " ".join(f"{ue}={nodes[str(ue)]}" for ue in range(settings.cell.count))
    if "form" in site.state:
        place["form"] = str(site.state["form"])
    project = {
        "project": {
            "name": "autofl",
            "version": __version__,
            "license": "Apache-2.0",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "autofl",
                    "components": {
                        "serverapp": "autofl.deploy.app:server_app",
                        "clientapp": "autofl.deploy.app:client_app",
                    },
                    "config": {"settings": dump_settings(settings), **place},
                }
            }
        },
    }
    write_whole(app / "pyproject.toml", tomli_w.dumps(project))
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
    site = Site(folder)
    settings = settings.resolved()
    if not (folder / "flower" / "config.toml").is_file():
        raise AutoFLError(
            f"{folder}: no deployment there; start one with: autofl deploy up {site.named}"
        )
    if resume and not is_run(out):
        raise AutoFLError(f"{out}: no run to resume; begin one with --out {out}")
    if resume and not read_manifest(out).get("deployed"):
        raise AutoFLError(
            f"{out}: a simulation, not a run on devices; autofl simulate --resume {quoted(out)} continues it"
        )
    if resume and read_manifest(out)["status"] == "finished":
        return read_run(out)
    if out.resolve() == folder.resolve():
        raise AutoFLError(
            f"{out}: the folder of the deployment itself; name another one for the run (--out)"
        )
    check_fits(settings, settings_of(folder), site.is_prepared)
    origins_of(
        settings
    )  # code of one's own that is not here: the server app would have no one to tell
    if not answers(*site.link()):
        raise AutoFLError(
            f"the SuperLink at {':'.join(map(str, site.link()))} does not answer; {site.mending}"
        )
    attempt = str(time.time_ns())
    with held(folder, attempt) as lease, claimed(out, attempt):
        if (
            resume and read_manifest(out)["status"] == "finished"
        ):  # by another command, while this one began
            return read_run(out)
        _end_orphan(site)
        if resume:
            overrule(out)  # the server app of an attempt that was cut off, if it still lives
        if resume and has_checkpoint(out):
            read_checkpoint(
                out
            )  # where none can be used, that is said here: the server app has no one to tell
        check_free(out, keep)
        app = write_app(settings, site, out, resume, attempt, lease, keep)
        number = str(site.call(["flwr", "run", str(app), LINK])["run-id"])
        site.keep({**site.state, "run": number, "out": str(out.resolve())})
        try:
            _follow(site, number, out, settings, attempt, keep, on_round)
        except KeyboardInterrupt as error:
            _end(site, number)
            _mark(out, attempt, "interrupted", str(error) or None)
            raise
        except AutoFLError as error:
            _mark(
                out, attempt, "failed", error.why if isinstance(error, CutOffError) else str(error)
            )
            site.end_servers()  # a server app may wait for its SuperLink for ever
            raise
    return read_run(out)


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
    if settings.cell.count != there.cell.count:
        more = f"autofl deploy {'prepare' if is_prepared else 'up'} --nodes {settings.cell.count}"
        if is_prepared:
            more += " --force, with the other options that it was given at first (--host, --port, --set),"
        raise AutoFLError(
            f"cell.num_ue: {settings.cell.count}, but {there.cell.count} devices were set up; {more} makes others"
        )
    changed = [
        name
        for name in type(there.data).model_fields
        if name != "standardise" and getattr(settings.data, name) != getattr(there.data, name)
    ]
    if changed:
        theirs = (
            "data of their own"
            if is_prepared
            else "the data they were set up with; give it to deploy up"
        )
        raise AutoFLError(f"data.{changed[0]}: the devices have {theirs}")


def _end_orphan(site: Site) -> None:
    """End what an earlier `deploy run` left on the devices; refuse to share them with anybody
    else's run.
    """
    for number in _active(site):
        if number != site.state.get("run"):
            raise AutoFLError(
                f"{site.folder}: run {number}, which this folder did not start, is on these devices;"
                f" wait for its end, or: flwr stop {number} {LINK}"
            )
        _end(site, number)


def _active(site: Site) -> list[str]:
    """Flower's numbers of the runs that have not ended."""
    runs = site.ask(["flwr", "list", LINK])["runs"]
    return [
        str(entry["run-id"]) for entry in runs if not str(entry["status"]).startswith("finished")
    ]


def _end(site: Site, number: str) -> None:
    """Stop a run, and wait until its server app is gone, which could write once more."""
    with contextlib.suppress(AutoFLError):  # it may have ended by itself meanwhile
        site.call(["flwr", "stop", number, LINK])
    end = time.monotonic() + ENDING
    while site.servers() and time.monotonic() < end:
        time.sleep(0.2)
    site.end_servers()


def _mark(out: Path, attempt: str, status: str, problem: str | None = None) -> None:
    """Say how our run ended and why; why it failed is better known to its server app. What others
    made is theirs.

    The server app may live on for a while, cut off from the devices; it writes no more.
    """
    said = read_manifest(out) if is_run(out) else {}
    if said.get("attempt") == attempt:
        overrule(out)
        told = said.get("problem")
        ours = status == "interrupted" or told in (None, KILLED)  # which a reader may have written
        mark_run(out, status, problem if ours else told)


def _follow(
    site: Site,
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
        said = read_manifest(out) if is_run(out) else {}
        ours = said.get("attempt") == attempt
        if ours:
            if said.get("rounds", -1) != last:
                last = said.get("rounds", -1)
                on_round(read_run(out))
            if said["status"] == "finished":
                return
            why = str(said.get("problem") or "the run failed")
            if said["status"] == "failed" and not can_resume(out):
                raise AutoFLError(f"{out}: {why}")
            if said["status"] in (
                "failed",
                "interrupted",
            ):  # its lock is free, though Flower may take it for alive
                raise CutOffError(site, out, settings, why)
        if time.monotonic() - asked <= ASK:
            continue
        asked = time.monotonic()
        if (
            ours and said["status"] == "running"
        ):  # the server app lives, but it may outlive its SuperLink
            unanswered = 0 if answers(*site.link()) else unanswered + 1
            if unanswered == TRIES:
                raise CutOffError(site, out, settings, "the SuperLink does not answer")
        else:
            try:
                status = _how_is(site, number)
            except AutoFLError as error:
                if not ours:
                    raise AutoFLError(
                        f"{error}; {site.mending}, then give the command again"
                    ) from None
                raise CutOffError(site, out, settings, str(error)) from None
            if not ours and not site.can_start_servers():
                raise AutoFLError(f"{out}: the SuperLink no longer starts runs; {site.mending}")
            if status.startswith("finished") and "completed" not in status:
                time.sleep(2 * LOOK)  # its last words may still be on their way to the folder
                said = read_manifest(out) if is_run(out) else {}
                problem = said.get("problem") if said.get("attempt") == attempt else None
                if said.get("attempt") != attempt:
                    check_free(out, keep)  # another program may have been faster
                told = site.last_words(number) or f"Flower says {status}; see {site.logs}"
                raise AutoFLError(f"{out}: {problem or told}")


def progress_of(run: Run) -> Progress:
    """The progress of a run on devices, from its folder."""
    accuracy = run.evaluated("adapted_accuracy")[2]
    said = run.manifest
    rounds = run.rounds["round"]
    sim_time = run.rounds["sim_time"]
    last = float(accuracy[-1]) if len(accuracy) else float("nan")
    done = said.get("stop") is not None
    label = f"{said['algorithm']} seed {said['seed']}"
    most = run.config["stop"]["rounds"]
    so_far = (
        (int(rounds[-1]), float(sim_time[-1]))
        if len(rounds)
        else (said["rounds"], said["sim_time"])
    )
    return Progress(label, so_far[0], most, so_far[1], last, said["host_time"], done)


def _how_is(site: Site, number: str) -> str:
    try:
        runs = site.ask(["flwr", "list", LINK, "--run-id", number])["runs"]
    except AutoFLError as error:
        raise AutoFLError(f"the SuperLink does not say how the run is ({error})") from None
    return str(runs[0]["status"])


def down(folder: Path) -> list[str]:
    """End everything that was started from the folder, and return the names."""
    return Site(folder).stop() if folder.is_dir() else []


def settings_of(folder: Path, said: Iterable[str] | None = None) -> Settings:
    """The settings a deployment was prepared with; code that they name must be `said` too, if that
    is given.
    """
    if not (folder / "config.toml").is_file():
        raise AutoFLError(
            f"{folder}: no deployment there; start one with: autofl deploy up {Site(folder).named}"
        )
    if said is not None:
        check_asked(folder / "config.toml", read_toml(folder / "config.toml"), said)
    return load_settings(folder / "config.toml")
