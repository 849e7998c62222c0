"""What `deploy status` says, and who can read what a deployment writes."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (pip install 'autofl-edge[flower]')")

from typer.testing import CliRunner

from autofl.cli.main import app
from autofl.data import ByLabels, write_device
from autofl.deploy.folder import Site
from autofl.deploy.lease import held
from autofl.deploy.status import status
from deploy.test_fleet import NUM_UE, at_training, changed, deployed, settings_of


def test_status_says_how_far_the_newest_run_is_and_who_is_left_out_and_why(few_digits, tmp_path):
    partition = few_digits.partition(ByLabels(5), NUM_UE, seed=1)
    for ue in range(NUM_UE):
        write_device(tmp_path / f"ue{ue}.npz", few_digits, partition.train_of(ue), partition.test_of(ue))
    nodes = {9000 - 7 * ue: {"ue": ue, "data": str(tmp_path / f"ue{ue}.npz")} for ue in range(NUM_UE)}
    site, out = Site(tmp_path / "site"), tmp_path / "run"
    site.folder.mkdir()
    broken = at_training(8993, lambda reply: changed(reply, **{"2.bias": np.full(10, np.nan, np.float32)}))
    deployed(nodes, out, settings_of(simulation={"num_selected": NUM_UE}, stop={"rounds": 2}), spoil=broken)
    site.keep({"out": str(out)})
    assert not status(site.folder)["busy"]
    with held(site.folder, "1"):
        state = status(site.folder)
    assert state["busy"]
    newest = state["newest"]
    assert (newest["status"], newest["rounds"], newest["of"]) == ("finished", 2, 2)
    assert newest["devices"][1] == {"used": 0, "left_out": 2, "last": "2.bias: not finite"}
    assert newest["devices"][0] == {"used": 2, "left_out": 0, "last": "ok"}
    shown = CliRunner().invoke(app, ["deploy", "status", "--folder", str(site.folder)])
    assert "2.bias: not finite" in shown.output
    assert "round 2 of 2" in shown.output


def test_what_a_deployments_programs_write_is_their_users_alone(tmp_path):
    made = tmp_path / "made"
    Site(tmp_path).start("one", ["python", "-c", f"open({str(made)!r}, 'w')"]).wait()
    assert made.stat().st_mode & 0o777 == 0o600
