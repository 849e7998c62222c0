"""One run at a time, and a server app only for as long as its command lives, with real locks and processes."""

import hashlib
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="Flower is not installed (pip install 'autofl-edge[flower]')")

from flwr.app import Context, RecordDict

from autofl.config import parse_settings
from autofl.deploy.commands import check_fits
from autofl.deploy.lease import LeftAloneError, TakenOverError, held, watcher
from autofl.deploy.server import serve
from autofl.errors import AutoFLError
from autofl.records import read_run
from deploy.loopback import Loopback
from deploy.test_fleet import config_of, nodes, settings_of  # noqa: F401 - a fixture

HOLD = """
import sys
from pathlib import Path
from autofl.deploy.lease import held
with held(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "7"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_run_is_refused_and_the_lease_ends_with_its_process_however_it_ends(tmp_path, holder):
    watch = watcher(tmp_path / "run.lock", "7")
    watch()
    with pytest.raises(AutoFLError, match="a run is on these devices already"), held(tmp_path, "8"):
        pass
    watch()  # the refused one has taken nothing
    holder.kill()
    holder.wait()
    with pytest.raises(LeftAloneError, match="--resume"):
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
    assert "--resume" in run.manifest["problem"]
    assert run.manifest["rounds"] == 1


def written(folder):
    """Hashes of the files of a run, less the lock, which says who holds it."""
    files = [path for path in folder.iterdir() if path.name != ".lock"]
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
