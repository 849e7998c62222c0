"""A sample of `benchmarks/fault_messages.py`, and that the containers run what `deploy up` runs."""

import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed (pip install 'autofl-edge[flower]')")
pytest.importorskip("yaml")

import yaml
from flwr.app import ConfigRecord, RecordDict

from autofl.deploy.folder import Site
from autofl.deploy.schema import RefusedError, check_parts

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from fault_messages import fuzz  # noqa: E402
from hashes import hashed  # noqa: E402


def test_broken_messages_are_used_or_refused_and_nothing_else():
    for row in fuzz(200, random.Random(7)):
        assert row.held == row.injected, row


def test_an_empty_list_in_a_record_is_refused():
    """Flower's own count of its bytes raises an IndexError."""
    content = RecordDict({"measured": ConfigRecord({"train-time": []})})
    with pytest.raises(RefusedError, match="a record that cannot be counted"):
        check_parts(content, ("measured",), 1e6)


def test_containers_run_the_commands_of_a_deployment():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    site = Site(Path("/site"))

    def words(command):
        return {word for part in command for word in (part.split("=", 1) if part.startswith("--") else [part])}

    assert words(services["server"]["command"]) == set(site.superlink("0.0.0.0", 8000))
    for ue in (0, 1):
        ours = set(site.supernode(ue, "server:8000", 1, data="/data/own.npz")) - {"--port", "1"}
        assert words(services[f"ue{ue}"]["command"]) == ours
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY"):
            assert all((ROOT / name).exists() for name in line.split()[1:-1])


def test_a_requirement_with_its_hash():
    archive = {"archive_info": {"hashes": {"sha256": "ab"}}}
    entries = [
        {"metadata": {"name": "b", "version": "2"}, "download_info": archive},
        {"metadata": {"name": "A", "version": "1"}, "download_info": archive},
        {"metadata": {"name": "ours", "version": "0"}, "download_info": {"dir_info": {}}},
    ]
    assert hashed({"install": entries}) == ["A==1 --hash=sha256:ab", "b==2 --hash=sha256:ab"]
