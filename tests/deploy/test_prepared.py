"""A deployment on several machines, made by `deploy prepare`: nothing takes it for one that `deploy up` made."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed (pip install 'autofl-edge[flower]')")

from typer.testing import CliRunner

from autofl.cli.main import app
from autofl.config import load_settings, parse_settings
from autofl.data import write_device
from autofl.deploy import commands
from autofl.deploy.folder import Site, free_port
from autofl.deploy.several import commands as prepare
from autofl.errors import AutoFLError


def settings_of(num_ue=3, **cell):
    return parse_settings({"cell": {"num_ue": num_ue, **cell}})


@pytest.fixture
def site(tmp_path):
    """Prepared, with nothing at the SuperLink's port."""
    prepare(settings_of(max_energy=0.01), tmp_path / "site", "localhost", free_port())
    return Site(tmp_path / "site")


def content_of(site):
    return {path: path.read_bytes() for path in site.folder.rglob("*") if path.is_file()}


def test_up_refuses_a_folder_that_prepare_made_and_leaves_it_as_it_is(site):
    """It wrote other settings, dealt out MNIST with the real devices' keys, and said that all was well."""
    before = content_of(site)
    with pytest.raises(AutoFLError, match=r"deploy prepare made it.*with the commands that prepare printed"):
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
    words = ["deploy", "prepare", "--host", "localhost", "--folder", str(site.folder), "--nodes", "4"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code != 0
    said = str(refused.exception)
    assert "cell.max_energy = 0.01 there, 0.003 now; cell.num_ue = 3 there, 4 now" in said
    assert "--force" in said
    assert content_of(site) == before

    told = CliRunner().invoke(app, [*words, "--set", "cell.max_energy=0.01", "--force"])
    assert told.exit_code == 0
    there = load_settings(site.folder / "config.toml")
    assert (there.cell.num_ue, there.cell.max_energy.value) == (4, 0.01)
    assert site.node(3, ".pem").is_file()
    again = CliRunner().invoke(app, [*words, "--set", "cell.max_energy=0.01"])
    assert (again.exit_code, again.stdout) == (0, told.stdout)


def test_a_run_without_a_superlink_advises_what_fits_how_the_folder_was_made(site, few_digits, tmp_path):
    """After the server had died it advised `deploy up`, which would have dealt out other data."""
    settings = load_settings(site.folder / "config.toml")
    with pytest.raises(AutoFLError, match=r"does not answer; restart it with the command that deploy prepare printed"):
        commands.run(settings, site.folder, tmp_path / "run", print)
    assert not (tmp_path / "run").exists()
    with pytest.raises(AutoFLError, match="the devices have data of their own"):
        commands.run(parse_settings({"cell": {"num_ue": 3}, "data": {"labels": 3}}), site.folder, tmp_path, print)
    with pytest.raises(AutoFLError, match="autofl deploy prepare --nodes 4 --force makes others"):
        commands.run(settings_of(4), site.folder, tmp_path, print)

    write_device(site.node(0, ".npz"), few_digits, range(10), range(10, 20))  # what `up` deals out
    with pytest.raises(AutoFLError, match=r"does not answer; autofl deploy up starts it again"):
        commands.run(settings, site.folder, tmp_path / "run", print)
    site.keep({"testbed": True})
    with pytest.raises(AutoFLError, match=r"does not answer; autofl testbed up starts it again"):
        commands.run(settings, site.folder, tmp_path / "run", print)
