"""A deployment on several machines, made by `deploy prepare`: nothing takes it for one that `deploy
up` made.
"""

import re
import socket

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from typer.testing import CliRunner

from autofl.cli.main import app
from autofl.config import dump_settings, load_settings, parse_settings
from autofl.data import write_device
from autofl.deploy import commands
from autofl.deploy.folder import Deployment, free_port
from autofl.deploy.lease import held
from autofl.deploy.several import prepare
from autofl.deploy.status import status
from autofl.errors import AutoFLError
from autofl.records import RunWriter, read_run

pytestmark = pytest.mark.slow


def settings_of(num_ue=3, **cell):
    return parse_settings({"cell": {"num_ue": num_ue, **cell}})


@pytest.fixture
def site(tmp_path):
    """Prepared, with nothing at the SuperLink's port."""
    prepare(settings_of(max_energy=0.01), tmp_path / "site", "localhost", free_port())
    return Deployment(tmp_path / "site")


def content_of(site):
    return {path: path.read_bytes() for path in site.folder.rglob("*") if path.is_file()}


def test_up_refuses_a_folder_that_prepare_made_and_leaves_it_as_it_is(site):
    """It wrote other settings, dealt out MNIST with the real devices' keys, and said that all was
    well.
    """
    before = content_of(site)
    with pytest.raises(
        AutoFLError, match=r"deploy prepare made it.*with the commands that prepare printed"
    ):
        commands.up(settings_of(), site.folder, print)
    assert content_of(site) == before


def test_prepare_refuses_a_folder_that_up_made(site, few_digits):
    write_device(site.node(0, ".npz"), few_digits, range(10), range(10, 20))  # what `up` deals out
    before = content_of(site)
    with pytest.raises(AutoFLError, match="deploy up made it"):
        prepare(settings_of(max_energy=0.01), site.folder, "localhost", 8000)
    assert content_of(site) == before


def test_prepare_replaces_settings_only_where_it_is_told_to(site):
    before = content_of(site)
    place = ["--host", "localhost", "--port", str(site.link()[1])]
    words = ["deploy", "prepare", *place, "--folder", str(site.folder), "--nodes", "4"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code != 0
    said = str(refused.exception)
    assert "cell.max_energy = 0.01 there, not set now; cell.num_ue = 3 there, 4 now" in said
    assert "--force" in said
    assert content_of(site) == before

    told = CliRunner().invoke(app, [*words, "--set", "cell.max_energy=0.01", "--force"])
    assert told.exit_code == 0
    there = load_settings(site.folder / "config.toml")
    assert (there.cell.num_ue, there.cell.max_energy.value) == (4, 0.01)
    assert site.node(3, ".pem").is_file()
    again = CliRunner().invoke(app, [*words, "--set", "cell.max_energy=0.01"])
    assert (again.exit_code, again.stdout) == (0, told.stdout)


def test_nothing_is_written_through_a_link_in_the_folder(site, tmp_path, few_digits):
    victim, elsewhere = tmp_path / "victim", tmp_path / "elsewhere"
    victim.write_text("precious")
    elsewhere.mkdir()
    for path in (
        "config.toml",
        "flower/config.toml",
        "state.json",
        "nodes/ue3.pub",
        "nodes/ue3.npz",
    ):
        (site.folder / path).unlink(missing_ok=True)
        (site.folder / path).symlink_to(victim if path != "nodes/ue3.pub" else elsewhere / "new")
    (site.folder / "logs").mkdir()
    (site.folder / "logs" / "true.log").symlink_to(victim)
    write_device(site.node(3, ".npz"), few_digits, range(10), range(10, 20))
    prepare(settings_of(4), site.folder, "localhost", 8000, force=True)
    site.note()
    with pytest.raises(AutoFLError, match=r"true\.log: not a regular file"):
        site.start("true", ["true"])
    for name in ("app", "flower", "logs", "nodes", "superlink.db"):
        if (site.folder / name).exists():
            (site.folder / name).rename(tmp_path / f"old-{name}")
        (site.folder / name).symlink_to(elsewhere)
        with pytest.raises(AutoFLError, match=f"{name}: a link"):
            prepare(settings_of(4), site.folder, "localhost", 8000, force=True)
        (site.folder / name).unlink()
    assert victim.read_text() == "precious"
    assert list(elsewhere.iterdir()) == []


def test_a_damaged_certificate_is_one_line(site):
    (site.folder / "server.pem").write_text("damaged")
    with pytest.raises(AutoFLError, match=r"server\.pem: not a certificate"):
        prepare(settings_of(max_energy=0.01), site.folder, "localhost", 8000)


def test_prepare_moves_the_servers_address_only_where_it_is_told_to(site):
    """Devices that were set up kept asking at the old one, and nobody had said a word."""
    before, port = content_of(site), site.link()[1]
    for other, why in (
        (("localhost", 8000), rf"\(--port = {port} there, 8000 now\).*--force"),
        (("127.0.0.1", port), r"\(--host = localhost there, 127\.0\.0\.1 now\).*--force"),
        (("other.example", port), r"certificate is not for other\.example; name another --folder"),
    ):
        with pytest.raises(AutoFLError, match=why):
            prepare(settings_of(max_energy=0.01), site.folder, *other)
        assert content_of(site) == before
    with pytest.raises(
        AutoFLError, match=r"certificate is not for other\.example"
    ):  # no --force helps there
        prepare(settings_of(max_energy=0.01), site.folder, "other.example", port, force=True)
    assert content_of(site) == before
    prepare(settings_of(max_energy=0.01), site.folder, "127.0.0.1", 8000, force=True)
    assert site.link() == ("127.0.0.1", 8000)


def test_devices_on_one_machine_get_ports_of_their_own(tmp_path):
    """All were told 9094, and two of three died with a traceback."""
    told = prepare(
        settings_of(max_energy=0.01), tmp_path / "site", "localhost", 9095
    )  # its streams have 9096
    ports = re.findall(r"flower-supernode .*--port (\d+)", told)
    assert ports == ["9094", "9097", "9098"]


def test_a_run_without_a_superlink_advises_what_fits_how_the_folder_was_made(
    site, few_digits, tmp_path
):
    """After the server had died it advised `deploy up`, which would have dealt out other data."""
    settings = load_settings(site.folder / "config.toml")
    with pytest.raises(
        AutoFLError,
        match=r"does not answer; restart it with the command that deploy prepare printed",
    ):
        commands.run(settings, site.folder, tmp_path / "run", print)
    assert not (tmp_path / "run").exists()
    with pytest.raises(AutoFLError, match="the devices have data of their own"):
        commands.run(
            parse_settings({"cell": {"num_ue": 3}, "data": {"labels": 3}}),
            site.folder,
            tmp_path,
            print,
        )
    advice = r"prepare --nodes 4 --force, with the other options that it was given at first \(--host, --port, --set\)"
    with pytest.raises(AutoFLError, match=advice):
        commands.run(settings_of(4), site.folder, tmp_path, print)

    write_device(site.node(0, ".npz"), few_digits, range(10), range(10, 20))  # what `up` deals out
    with pytest.raises(
        AutoFLError,
        match=f"does not answer; autofl deploy up --folder {site.folder} starts it again",
    ):
        commands.run(settings, site.folder, tmp_path / "run", print)
    site.note(testbed=True)
    with pytest.raises(
        AutoFLError,
        match=f"does not answer; autofl testbed up --folder {site.folder} starts it again",
    ):
        commands.run(settings, site.folder, tmp_path / "run", print)


def test_where_nothing_was_set_up_the_command_that_does_it_names_the_folder(tmp_path):
    """Without --folder it set up another one, and the same message came again."""
    folder = tmp_path / "my devices"
    with pytest.raises(AutoFLError, match=f"start one with: autofl deploy up --folder '{folder}'"):
        commands.run(settings_of(), folder, tmp_path / "run", print)


def test_status_asks_the_superlink_of_a_prepared_deployment_though_it_did_not_start_it(
    site, monkeypatch
):
    """It said that nothing was up, during a run."""
    told = CliRunner().invoke(app, ["deploy", "status", "--folder", str(site.folder)])
    assert "does not answer; restart it with the command that deploy prepare printed" in " ".join(
        told.output.split()
    )

    nodes, runs = (
        [{"status": "online"}, {"status": "online"}, {"status": "offline"}],
        [{"run-id": 5, "status": "running"}],
    )
    monkeypatch.setattr(Deployment, "call", lambda self, command: {"nodes": nodes, "runs": runs})
    with socket.create_server(("localhost", 0)) as link, held(site.folder, "1"):
        site.point_to(f"localhost:{link.getsockname()[1]}")
        state = status(site.folder)
        told = CliRunner().invoke(app, ["deploy", "status", "--folder", str(site.folder)])
    assert (state["up"], state["busy"], state["online"], state["processes"]) == (True, True, 2, {})
    assert "2 SuperNodes online; 1 runs so far; a run is under way" in " ".join(told.output.split())


def test_what_the_server_app_notes_is_said_once_on_the_terminal(site, tmp_path, monkeypatch):
    out = tmp_path / "run"
    about = {
        "algorithm": "autofl",
        "seed": 1,
        "deployed": True,
        "rounds": 0,
        "sim_time": 0.0,
        "host_time": 0.0,
    }
    writer = RunWriter(out, dump_settings(settings_of().resolved()), about)

    def run(settings, folder, place, on_round, resume, keep):
        for notes in (
            [],
            ["round 1: UE 2: away"],
            ["round 1: UE 2: away", "round 7: no update was used"],
        ):
            writer.finish("running", notes=notes)
            on_round(read_run(out))
            on_round(read_run(out))
        raise AutoFLError("the end")

    monkeypatch.setattr(commands, "run", run)
    told = CliRunner().invoke(
        app, ["deploy", "run", "--folder", str(site.folder), "--out", str(tmp_path / "other")]
    )
    writer.close()
    lines = told.output.splitlines()
    assert lines.count("round 1: UE 2: away") == lines.count("round 7: no update was used") == 1
