"""A sample of `benchmarks/fault_messages.py`, and that the containers run what `deploy up` runs."""

import random
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
pytest.importorskip("yaml", reason="needs the extra docs")

import typer
import yaml
from flwr.app import ConfigRecord, RecordDict

from autofl.cli.main import app
from autofl.deploy.folder import Deployment
from autofl.deploy.messages import RefusedError, check_parts

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from fault_messages import fuzz  # noqa: E402

pytestmark = pytest.mark.slow


def test_broken_messages_are_used_or_refused_and_nothing_else():
    for row in fuzz(200, random.Random(7)):
        assert row.held == row.injected, row


def test_an_empty_list_in_a_record_is_refused():
    """Flower's own count of its bytes raises an IndexError."""
    content = RecordDict({"measured": ConfigRecord({"train_time": []})})
    with pytest.raises(RefusedError, match="a record that cannot be counted"):
        check_parts(content, ("measured",), 1e6)


def test_containers_run_the_commands_of_a_deployment():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    site = Deployment(Path("/site"))

    def words(command):
        return {
            word
            for part in command
            for word in (part.split("=", 1) if part.startswith("--") else [part])
        }

    assert words(services["server"]["command"]) == set(site.superlink("0.0.0.0", 8000))
    for ue in (0, 1):
        ours = set(site.supernode(ue, "server:8000", 1, data="/data/own.npz")) - {"--port", "1"}
        assert words(services[f"ue{ue}"]["command"]) == ours
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY"):
            assert all((ROOT / name).exists() for name in line.split()[1:-1])


def test_our_own_commands_in_containers_have_the_options_of_the_program():
    text = (ROOT / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    ours = {
        name: service["command"]
        for name, service in services.items()
        if service["command"][0] == "autofl"
    }
    assert set(ours) == {"prepare", "run"}
    for _, deploy, name, *words in ours.values():
        command = typer.main.get_command(app).commands[deploy].commands[name]
        command.make_context(name, words)  # or it raises what a user would read
    register = Deployment(Path("/site")).register(0)
    assert " ".join(register).replace("ue0", "ue$$ue") in services["register"]["command"][-1]
    typed = re.findall(r"docker compose (?:run --rm|up -d) ([a-z0-9 ]+?)(?:  |\n)", text)
    assert {name for names in typed for name in names.split()} == set(services)


def test_containers_run_without_privileges_and_can_write_where_they_must():
    """A tmpfs over the home folder was root's: Flower's node could not write, and no device came."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    variables = dict(
        pair.split("=", 1) for line in lines if line.startswith("ENV") for pair in line.split()[1:]
    )
    assert "USER autofl" in lines
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (
            variables["HOME"] in service["tmpfs"] == ["/tmp"]
        )  # which is for everybody in every image
