"""A hostile device in a real deployment: real processes, TLS, tokens and frames. The run goes on,
the liar is named.
"""

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from autofl.deploy.folder import Deployment, processes_of
from autofl.records import read_run
from deploy.test_deployment import autofl, begun, kill, manifest, sets, wait_for
from reference.waiting import PATIENCE

pytestmark = [pytest.mark.deploy, pytest.mark.slow]

LIAR = 1
BASIC = [
    "cell.num_ue=3",
    "simulation.num_selected=3",
    "preset=paper",
    "evaluation.every=1000",
    "deploy.join=60",
]
STREAM = ["stop.rounds=100", "deploy.deadline=5"]
REASONS = {
    "no head": "a stream that does not begin with a head",
    "a head of 1 GB": "1073741824 bytes; it can have ",
    "more than told": "more than the 3 bytes that were announced",
    "a frame of 64 MB": "the stream broke",
    "no protobuf": "a message that cannot be read (DecodeError)",
    "wrong shape": "0.weight: shape (78400,), not (100, 784)",
    "NaN": "0.weight: not finite",
    "1e30": "too long: |w_i - w| = 2.82e+32",
    "old stamp": "a reply to another message: its stamp is old",
    "extra part": "an unknown part of a message: junk",
    "byte by byte": "no reply within 5 s",
}
"""What devices.csv says of each lie, in the order in which they are told
(hostile/sitecustomize.py).
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Three devices that are up, of which UE 1 lies."""
    folder = tmp_path_factory.mktemp("hostile")
    paths = [
        str(Path(__file__).with_name("hostile")),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("HOSTILE_LOG", str(folder / "hostile.log"))
        try:
            autofl("deploy", "up", "--folder", folder, *sets(*BASIC))
            yield Deployment(folder)
            autofl("deploy", "down", "--folder", folder)
            assert not processes_of(folder)
        finally:
            for process in processes_of(folder):
                process.kill()


def outcomes(run, ue):
    return run.devices["outcome"][run.devices["ue"].astype(int) == ue].tolist()


def test_every_lie_on_the_stream_is_refused_and_named_and_the_run_goes_on(site, tmp_path):
    autofl("deploy", "run", "--folder", site.folder, "--out", tmp_path / "run", *sets(*STREAM))
    run = read_run(tmp_path / "run")
    assert (run.manifest["status"], run.manifest["stop"], run.manifest["rounds"]) == (
        "finished",
        "rounds",
        100,
    )
    for ue in (0, 2):
        assert set(outcomes(run, ue)) == {"ok"}, ue
    introduced, *rest = outcomes(run, LIAR)
    assert introduced == "introduction: it calls itself UE 0; its key is that of UE 1"
    told = [why for why in rest if why not in ("ok", "not connected")]
    for lie, why in zip(REASONS.values(), told, strict=False):
        assert why.startswith(lie), told
    assert set(told[len(REASONS) :]) <= {
        "the stream broke"
    }  # the order it got while it sent byte by byte
    assert rest[-1] == "ok"  # it lies no more, and is used again
    newest = json.loads(autofl("deploy", "status", "--folder", site.folder, "--json").stdout)[
        "newest"
    ]
    assert newest["devices"][str(LIAR)]["left_out"] == len(outcomes(run, LIAR)) - outcomes(
        run, LIAR
    ).count("ok")
    assert newest["devices"]["0"]["left_out"] == 0
    at_the_door = (site.folder / "hostile.log").read_text().splitlines()[:2]
    assert at_the_door == [
        "with the certificate of UE 0: PERMISSION_DENIED: the certificate of UE 0 from the node of UE 1",
        "with a token of nobody: PERMISSION_DENIED: no such session",
    ]


def test_a_node_that_is_killed_with_all_it_started_is_away_at_once_and_the_others_go_on(
    site, tmp_path
):
    """The last test here: the SuperLink would refuse its successor for a minute."""
    running = begun(site, tmp_path, *STREAM, "stop.rounds=5000", "deploy.deadline=60")
    kill(site, "ue2")
    so_far = manifest(tmp_path)["rounds"]
    wait_for(lambda: manifest(tmp_path)["rounds"] > so_far + 20, "rounds without it")
    running.terminate()
    assert running.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    run = read_run(tmp_path)
    assert set(outcomes(run, 0)) == {"ok"}
    assert outcomes(run, 2)[-1] == "not connected"
    assert set(outcomes(run, 2)) <= {"ok", "the stream broke", "not connected"}
