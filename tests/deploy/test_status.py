"""What `deploy status` says, and who can read what a deployment writes."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="needs the extra flower")

from typer.testing import CliRunner

from autofl.cli.main import app
from autofl.config import dump_settings
from autofl.data import ByLabels, write_device
from autofl.deploy import commands
from autofl.deploy.folder import Deployment, free_port
from autofl.deploy.lease import held
from autofl.deploy.notes import AWAY, HERE, Notes
from autofl.deploy.several import prepare
from autofl.deploy.status import progress, status
from autofl.errors import AutoFLError, Terminated
from autofl.experiments.data import build_data
from autofl.jobs.run import run as simulate
from autofl.records import RunWriter, has_checkpoint, read_manifest
from autofl.report.runs import diverged_words
from autofl.robust.aggregators import Mean
from autofl.version import __version__
from deploy.loopback import make_nodes, node_of
from deploy.test_fleet import NUM_UE, at_training, changed, deployed, settings_of

pytestmark = pytest.mark.slow


def test_status_says_how_far_the_newest_run_is_and_who_is_left_out_and_why(few_digits, tmp_path):
    partition = few_digits.partition(ByLabels(5), NUM_UE, seed=1)
    for ue in range(NUM_UE):
        write_device(
            tmp_path / f"ue{ue}.npz", few_digits, partition.train_of(ue), partition.test_of(ue)
        )
    nodes = {
        9000 - 7 * ue: {"ue": ue, "data": str(tmp_path / f"ue{ue}.npz")} for ue in range(NUM_UE)
    }
    site, out = Deployment(tmp_path / "site"), tmp_path / "run"
    site.folder.mkdir()
    broken = at_training(
        8993, lambda reply: changed(reply, **{"2.bias": np.full(10, np.nan, np.float32)})
    )
    deployed(
        nodes,
        out,
        settings_of(simulation={"num_selected": NUM_UE}, stop={"rounds": 2}),
        spoil=broken,
    )
    site.note(out=str(out))
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


def test_status_gives_the_whole_command_that_goes_on_with_a_run_that_was_cut_off(
    few_digits, tmp_path, monkeypatch
):
    """It left out what names code of one's own, so the command was refused, and the deployment's
    folder.
    """
    site, out = Deployment(tmp_path / "site"), tmp_path / "run"
    nodes = make_nodes(few_digits, site.folder, NUM_UE)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_linear.py").write_text(
        "from torch import nn\n\ndef linear(sample_shape, num_classes):\n"
        "    return nn.Linear(sample_shape[0], num_classes)\n"
    )
    with pytest.raises(KeyboardInterrupt):
        deployed(
            nodes,
            out,
            settings_of(model={"name": "own_linear:linear"}),
            spoil=at_training(node_of(1), stop),
        )
    site.note(out=str(out))
    shown = CliRunner().invoke(app, ["deploy", "status", "--folder", str(site.folder)])
    words = f"autofl deploy run --folder {site.folder} --resume {out} --set model.name=own_linear:linear"
    assert words in " ".join(shown.output.split())


def stop(reply):
    raise KeyboardInterrupt


def test_status_says_that_the_superlink_of_up_is_gone_and_how_it_comes_back(tmp_path):
    """It said that the deployment was free for a run."""
    site = Deployment(tmp_path / "site")
    prepare(settings_of(), site.folder, "localhost", free_port())
    site.node(0, ".npz").write_bytes(b"")  # what `up` deals out
    site.note(programs=["superlink"])
    again = f"autofl deploy up --folder {site.folder} starts it again"
    assert status(site.folder)["problem"].endswith(f"does not answer; {again}")


def test_the_round_of_a_run_is_that_of_its_table_where_its_manifest_is_older(few_digits, tmp_path):
    """The manifest is written twice a second, and not at all by a server app that was killed."""
    nodes = make_nodes(few_digits, tmp_path / "nodes", NUM_UE)
    run, _ = deployed(nodes, tmp_path / "run", settings_of())
    older = replace(run, manifest={**run.manifest, "rounds": 1})
    assert progress(older)["rounds"] == 3


def test_who_comes_back_is_said_to_be_here_and_who_comes_and_goes_is_left_in_peace():
    notes = Notes()
    for k in range(1, 13):
        notes.tell(k, [("UE 1", HERE), ("UE 2", HERE if k % 2 == 0 else AWAY)])
    said = [
        f"round 1: UE 2: {AWAY}",
        "round 2: UE 2: here now",
        f"round 3: UE 2: {AWAY}",
        "round 4: UE 2: here now",
    ]
    assert notes.lines == [
        *said,
        f"round 5: UE 2: {AWAY}; it comes and goes, so no more is said of that",
    ]


def test_a_refused_run_leaves_no_folder_that_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare(settings_of(), Path("site"), "localhost", free_port())
    for out in ([], ["--out", "mine"]):
        told = CliRunner().invoke(app, ["deploy", "run", "--folder", "site", *out])
        assert "does not answer" in str(told.exception)
    assert not list(Path("runs").iterdir())


class Fragile:
    """The mean, but not finite where it is large, as sums in low precision are."""

    def __call__(self, held, arrived):
        return {
            name: torch.where(p.abs() > 1.0, torch.inf, p)
            for name, p in Mean()(held, arrived).items()
        }


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_deployment_that_diverged_names_its_suspects(few_digits, tmp_path, monkeypatch, cut_off):
    """They were only in the log of the server app, which nobody reads."""
    nodes, out, site = (
        make_nodes(few_digits, tmp_path / "nodes", NUM_UE),
        tmp_path / "run",
        Deployment(tmp_path / "site"),
    )
    site.folder.mkdir()
    site.note(out=str(out))
    settings = settings_of(
        simulation={"num_selected": NUM_UE},
        aggregator={"name": "deploy.test_status:Fragile"},
        checks={"norm_bound": 0.0, "shorten": 0.0},
    )
    long = at_training(
        node_of(1), lambda reply: changed(reply, **{"2.bias": np.full(10, 8.0, np.float32)})
    )
    if cut_off:  # between its last round and its end
        with monkeypatch.context() as patch:
            finish = RunWriter.finish

            def cut(writer, status, **facts):
                if status == "finished":
                    raise KeyboardInterrupt
                finish(writer, status, **facts)

            patch.setattr(RunWriter, "finish", cut)
            with pytest.raises(KeyboardInterrupt):
                deployed(nodes, out, settings, spoil=long)
        assert has_checkpoint(out)
    run, _ = deployed(nodes, out, settings, resume=cut_off, spoil=long)
    said = run.manifest
    assert (said["status"], said["stop"], said["rounds"], said["suspects"]) == (
        "finished",
        "diverged",
        1,
        [1],
    )
    assert said["problem"].startswith(
        "diverged; suspects, by the length of their last updates: UE 1 ("
    )
    newest = status(site.folder)["newest"]
    assert (newest["stop"], newest["suspects"], newest["problem"]) == (
        "diverged",
        [1],
        said["problem"],
    )
    shown = CliRunner().invoke(app, ["deploy", "status", "--folder", str(site.folder)])
    assert said["problem"] in " ".join(shown.output.split())
    assert "in round 1 (suspects, by the length of their last updates: UE 1 (" in diverged_words(
        [run]
    )


def test_what_a_deployments_programs_write_is_their_users_alone(tmp_path):
    made = tmp_path / "made"
    Deployment(tmp_path).start("one", ["python", "-c", f"open({str(made)!r}, 'w')"]).wait()
    assert made.stat().st_mode & 0o777 == 0o600


def test_before_the_first_round_there_are_no_devices_to_list(tmp_path):
    site, out = Deployment(tmp_path / "site"), tmp_path / "run"
    site.folder.mkdir()
    site.note(out=str(out))
    writer = RunWriter(
        out,
        dump_settings(settings_of().resolved()),
        {"algorithm": "autofl", "seed": 1, "deployed": True},
    )
    newest = status(site.folder)["newest"]
    assert (newest["status"], newest["devices"]) == ("running", {})
    assert (
        CliRunner().invoke(app, ["deploy", "status", "--folder", str(site.folder)]).exit_code == 0
    )
    writer.close()


def test_a_simulation_is_not_resumed_on_devices_nor_a_deployment_by_a_simulation(
    few_digits, tmp_path
):
    """It went on with the other's rounds, and nobody could tell."""
    settings = settings_of(stop={"rounds": 3})
    for name, deployed_there in (("simulated", False), ("deployed", True)):
        about = {
            "algorithm": "autofl",
            "seed": 1,
            "version": __version__,
            "deployed": deployed_there,
        }
        RunWriter(tmp_path / name, dump_settings(settings.resolved()), about).close()
    (tmp_path / "site" / "flower").mkdir(parents=True)
    (tmp_path / "site" / "flower" / "config.toml").write_text("")
    with pytest.raises(
        AutoFLError, match=r"a simulation, not a run on devices; autofl simulate --resume"
    ):
        commands.run(
            settings, tmp_path / "site", tmp_path / "simulated", lambda _: None, resume=True
        )
    with pytest.raises(AutoFLError, match=r"a run on devices; autofl deploy run --resume"):
        simulate(
            settings,
            tmp_path / "deployed",
            data=build_data(settings.resolved(), few_digits),
            resume=True,
        )


def test_how_a_run_ended_is_told_by_its_command_and_not_taken_for_a_kill(tmp_path):
    """Whoever reads the manifest of a dead server app marks it as killed, this command too."""
    RunWriter(
        tmp_path / "run", "seed = 1\n", {"algorithm": "autofl", "seed": 1, "attempt": "7"}
    ).close()
    commands._mark(tmp_path / "run", "7", "interrupted", str(Terminated(signal.SIGTERM)))
    said = read_manifest(tmp_path / "run")
    assert (said["status"], said["problem"]) == ("interrupted", "ended by SIGTERM")
