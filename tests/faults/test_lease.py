"""One run at a time, and a server app only for as long as its command lives, with real locks and
processes.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import Context, RecordDict

from autofl.config import dump_settings, parse_settings
from autofl.config.parts import ModelSettings
from autofl.deploy import commands, lease
from autofl.deploy.commands import check_fits
from autofl.deploy.folder import Deployment
from autofl.deploy.lease import LeftAloneError, TakenOverError, held, watcher
from autofl.deploy.server import serve
from autofl.errors import AutoFLError
from autofl.jobs.run import run as simulate
from autofl.lock import FolderLock
from autofl.records import RunWriter, read_manifest, read_run
from autofl.records.run import KILLED
from deploy.loopback import Loopback
from deploy.test_fleet import config_of, nodes, settings_of  # noqa: F401 - a fixture
from reference.waiting import PATIENCE

pytestmark = pytest.mark.slow

HOLD = """
import sys
from pathlib import Path
from autofl.deploy.lease import {take}
from autofl.lock import FolderLock
with {take}(Path(sys.argv[1]), sys.argv[2]) as path:
    lock = FolderLock(path.parent)
    print("held", flush=True)
    sys.stdin.read()
"""
WRITE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from autofl.config import parse_settings
from autofl.errors import AutoFLError
from flwr.app import Context, RecordDict
from autofl.deploy.server import serve
from autofl.jobs.run import run
from deploy.loopback import Loopback
nodes, config, table, who = json.loads(sys.stdin.readline())
nodes = {int(node): about for node, about in nodes.items()}
print("ready", flush=True)
sys.stdin.readline()
try:
    if who == "simulation":
        run(parse_settings(table), config["folder"], keep=True)
    else:
        serve(Loopback(nodes, config), Context(1, 1, {}, RecordDict(), config))
except AutoFLError as error:
    print(error, flush=True)
    sys.exit(2)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(take="held"), str(tmp_path), "7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_run_is_refused_and_the_lease_ends_with_its_process_however_it_ends(
    tmp_path, holder
):
    watch = watcher(tmp_path / "run.lock", "7")
    watch()
    with pytest.raises(AutoFLError, match="a run is on these devices already"), held(tmp_path, "8"):
        pass
    watch()  # the refused one has taken nothing
    holder.kill()
    holder.wait()
    with pytest.raises(LeftAloneError, match="is gone"):
        watch()
    with held(tmp_path, "9"), pytest.raises(TakenOverError):
        watch()


def served(nodes, folder, lease, when, do):  # noqa: F811
    """A server app in this process, with something done when so many devices have trained."""
    config = config_of(settings_of(), folder) | {"lease": str(lease), "attempt": "7"}
    trained = []

    def spoil(node, message, reply):
        if message.metadata.message_type == "train":
            trained.append(node)
            if len(trained) == when:
                do()
        return reply

    serve(Loopback(nodes, config, spoil=spoil), Context(1, 1, {}, RecordDict(), config))


def test_a_server_whose_command_is_gone_stops_itself_and_says_so(nodes, tmp_path, holder):  # noqa: F811
    def kill():
        holder.kill()
        holder.wait()

    with pytest.raises(LeftAloneError):
        served(nodes, tmp_path / "run", tmp_path / "run.lock", 4, kill)
    run = read_run(tmp_path / "run")
    assert run.manifest["status"] == "interrupted"
    assert run.manifest["problem"] == "the command that started this run is gone"
    assert run.manifest["rounds"] == 1


def interrupted(nodes, folder):  # noqa: F811
    """A run of a deployment that ends in its second round."""

    def stop(node, message, reply):
        if message.metadata.message_type == "train" and len(trained) > 3:
            raise KeyboardInterrupt
        trained.append(node)
        return reply

    trained, config = [], config_of(settings_of(), folder)
    serve(Loopback(nodes, config, spoil=stop), Context(1, 1, {}, RecordDict(), config))


def written(folder):
    """Hashes of the files of a run, less the lock, which says who holds it, and less what is not
    yet whole.
    """
    files = [path for path in folder.iterdir() if path.name != ".lock" and path.suffix != ".part"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def settled(folder):
    """The files once the round before this one is written, which happens while the next one begins."""
    files = None
    while files != (files := written(folder)):
        time.sleep(0.5)
    return files


def test_a_server_that_another_attempt_has_replaced_writes_nothing_more(nodes, tmp_path, holder):  # noqa: F811
    import contextlib

    with contextlib.ExitStack() as stack:

        def replaced():
            holder.kill()
            holder.wait()
            stack.enter_context(held(tmp_path, "8"))
            before.update(settled(tmp_path / "run"))

        before = {}
        with pytest.raises(TakenOverError):
            served(nodes, tmp_path / "run", tmp_path / "run.lock", 4, replaced)
        assert len(before) >= 5
        assert written(tmp_path / "run") == before


@pytest.mark.parametrize("force", [False, True])
def test_of_two_deployments_and_a_simulation_that_want_one_folder_one_makes_its_run(
    nodes,  # noqa: F811
    tmp_path,
    force,
):
    """All three found no run there, and each would have begun one."""
    config = {**config_of(settings_of(), tmp_path / "run"), "keep": not force}
    table = {
        "simulation": {"num_selected": 3, "device": "cpu"},
        "stop": {"rounds": 3},
        "cell": {"num_ue": 4},
    }
    programs = {}
    for who in ("1", "2", "simulation"):
        programs[who] = subprocess.Popen(
            [sys.executable, "-c", WRITE, str(Path(__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        programs[who].stdin.write(
            json.dumps([nodes, {**config, "attempt": who}, table, who]) + "\n"
        )
        programs[who].stdin.flush()
    for program in programs.values():
        assert program.stdout.readline() == "ready\n"
    for program in programs.values():
        program.stdin.write("go\n")
        program.stdin.flush()
    said = {who: program.communicate(timeout=PATIENCE)[0] for who, program in programs.items()}
    made = [who for who, program in programs.items() if program.returncode == 0]
    if not force:
        assert len(made) == 1, said
    for who, program in programs.items():
        if who not in made:
            assert program.returncode == 2
            assert said[who].count("\n") == 1
            assert (
                "a run is there already" in said[who]
                or "another process writes into it" in said[who]
            )
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], run.manifest["rounds"]) == ("finished", 3)
    assert run.manifest.get("attempt", "simulation") in made


class FakeFlower(Deployment):
    """A SuperLink whose run fails, after somebody else has done something."""

    def call(self, command):
        if command[1] == "run":
            self.meanwhile()
            return {"run-id": 5}
        return {"runs": [{"run-id": 5, "status": "finished:failed"}]}

    def last_words(self, number):
        return ""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A deployment as its files show it."""
    site = FakeFlower(tmp_path / "site")
    site.prepare(["127.0.0.1"], 4)
    site.point_to("127.0.0.1:8000")
    (site.folder / "config.toml").write_text(dump_settings(settings_of().resolved()))
    monkeypatch.setattr(commands, "Deployment", FakeFlower)
    monkeypatch.setattr(commands, "answers", lambda host, port: True)
    monkeypatch.setattr(commands, "ASK", 0.0)
    return site


@pytest.mark.parametrize(
    ("keep", "why"), [(True, "a run is there already"), (False, "Flower says finished:failed")]
)
def test_a_run_that_somebody_else_made_meanwhile_stays_theirs(
    site, tmp_path, monkeypatch, keep, why
):
    """The command overruled it and called it failed, since its own server app had failed."""
    out, table = (
        tmp_path / "run",
        {"cell": {"num_ue": 4}, "simulation": {"device": "cpu", "num_selected": 3}},
    )
    before = {}

    def meanwhile(self):
        simulate(parse_settings({**table, "stop": {"rounds": 1}}), out)
        before.update(written(out))

    monkeypatch.setattr(FakeFlower, "meanwhile", meanwhile, raising=False)
    with pytest.raises(AutoFLError, match=why):
        commands.run(settings_of(), site.folder, out, lambda run: None, keep=keep)
    assert written(out) == before
    assert read_run(out).manifest["status"] == "finished"


def test_code_of_ones_own_that_is_missing_is_named_before_the_start_and_flowers_reason_after_it(
    site, tmp_path, monkeypatch
):
    """It said `finished:failed` and named a log in which there was nothing."""
    monkeypatch.setattr(
        FakeFlower, "meanwhile", lambda self: pytest.fail("it began"), raising=False
    )
    for kind, own in (
        ("model", {"model": ModelSettings(name="nix:nix")}),
        ("algorithm", {"arm": "nix:nix"}),
    ):
        with pytest.raises(AutoFLError, match=f"{kind} nix:nix: no module 'nix' in"):
            commands.run(
                settings_of().model_copy(update=own),
                site.folder,
                tmp_path / "run",
                print,
            )
    monkeypatch.setattr(FakeFlower, "meanwhile", lambda self: None, raising=False)
    monkeypatch.setattr(
        FakeFlower, "last_words", lambda self, number: "model mine:cnn: no module 'mine' in /srv"
    )
    with pytest.raises(AutoFLError, match=r"run: model mine:cnn: no module 'mine' in /srv$"):
        commands.run(settings_of(), site.folder, tmp_path / "run", print)


def test_a_server_app_that_was_killed_is_noticed_by_its_lock_and_not_by_flower(
    site, tmp_path, monkeypatch
):
    """The command waited a minute, until Flower missed the heartbeats of the server app."""
    out = tmp_path / "run"

    class NotYet(FakeFlower):
        def call(self, command):
            if "--run-id" in command:
                pytest.fail("it asked Flower, which takes the server app for alive")
            return {"run-id": 5} if command[1] == "run" else {"runs": []}

    def call(self, command):
        if command[1] == "run":  # its server app begins, and is gone
            attempt = (self.folder / "run.lock").read_text()
            about = {"algorithm": "autofl", "seed": 1, "deployed": True, "attempt": attempt}
            RunWriter(out, dump_settings(settings_of().resolved()), about).close()
        return self.answer(command)

    monkeypatch.setattr(NotYet, "answer", NotYet.call, raising=False)
    monkeypatch.setattr(NotYet, "call", call)
    monkeypatch.setattr(commands, "Deployment", NotYet)
    advice = r"; autofl deploy run --folder .* --resume \S* --set model.name=own_models:wide continues it$"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_models.py").write_text(
        "def wide(sample_shape, num_classes):\n    raise NotImplementedError\n"
    )
    own = settings_of().model_copy(update={"model": ModelSettings(name="own_models:wide")})
    with pytest.raises(AutoFLError, match="its process ended without a word.*went down" + advice):
        commands.run(own, site.folder, out, lambda run: None)
    assert (read_manifest(out)["status"], read_manifest(out)["problem"]) == ("failed", KILLED)
    answering = iter((True, False))  # the SuperLink was there when the run began
    monkeypatch.setattr(commands, "answers", lambda *link: next(answering))
    with pytest.raises(
        AutoFLError, match=r"the SuperLink does not answer; restart it .*, then autofl deploy run"
    ):
        commands.run(own, site.folder, out, lambda run: None)


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_folder_of_another_deployment_is_not_taken_from_it(
    site,
    nodes,  # noqa: F811
    tmp_path,
    monkeypatch,
    resume,
):
    out = tmp_path / "run"
    if resume:
        with pytest.raises(KeyboardInterrupt):
            interrupted(nodes, out)
    monkeypatch.setattr(
        FakeFlower, "meanwhile", lambda self: pytest.fail("it asked Flower"), raising=False
    )
    out.mkdir(exist_ok=True)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(take="claimed"), str(out), "7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout.readline() == "held\n"
        lock = (out / ".lock").stat().st_ino
        with pytest.raises(AutoFLError, match="another deploy run writes there"):
            commands.run(
                settings_of(), site.folder, out, lambda run: None, resume=resume, keep=not resume
            )
        assert (out / ".lock").stat().st_ino == lock
    finally:
        other.kill()
        other.wait()


def test_a_folder_that_a_simulation_writes_is_refused_before_any_device_starts(
    site, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        FakeFlower, "meanwhile", lambda self: pytest.fail("it asked Flower"), raising=False
    )
    lock = FolderLock(tmp_path / "run")
    with pytest.raises(AutoFLError, match="another process writes into it"):
        commands.run(settings_of(), site.folder, tmp_path / "run", lambda run: None)
    lock.check()
    lock.release()
    with pytest.raises(AutoFLError, match="the folder of the deployment itself"):
        commands.run(settings_of(), site.folder, site.folder, lambda run: None)


def test_a_run_that_was_finished_meanwhile_is_not_begun_anew(nodes, tmp_path):  # noqa: F811
    """It has no checkpoint any more, and without one a run that goes on starts over."""
    config = config_of(settings_of(), tmp_path / "run")
    serve(Loopback(nodes, config), Context(1, 1, {}, RecordDict(), config))
    before = written(tmp_path / "run")
    config = config_of(settings_of(), tmp_path / "run", resume=True)
    with pytest.raises(AutoFLError, match="finished meanwhile"):
        serve(Loopback(nodes, config), Context(1, 1, {}, RecordDict(), config))
    assert written(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cell": {"num_ue": 7}}, "cell.num_ue: 7, but 3 devices were set up"),
        ({"data": {"name": "mnist"}}, "data.name: the devices have the data they were set up with"),
        ({"data": {"labels": 2}}, "data.labels"),
    ],
)
def test_settings_for_other_devices_than_those_that_are_up_are_refused(change, why):
    up = parse_settings({"cell": {"num_ue": 3}}).resolved()
    with pytest.raises(AutoFLError, match=why):
        check_fits(parse_settings({"cell": {"num_ue": 3}, **change}).resolved(), up)
    check_fits(parse_settings({"cell": {"num_ue": 3}, "stop": {"rounds": 9}}).resolved(), up)


@pytest.mark.parametrize("hold", [lease.held, lease.claimed])
def test_a_link_or_a_pipe_as_lease_is_refused_and_nothing_is_overwritten(tmp_path, hold):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / lease.FILE).symlink_to(thesis)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / lease.FILE)
    for name in ("link", "pipe"):
        assert not lease.is_held(tmp_path / name)
        with (
            pytest.raises(AutoFLError, match=r"run\.lock: not a regular file; remove it$"),
            hold(tmp_path / name, "1"),
        ):
            pass
    assert thesis.read_text() == "years of work"
