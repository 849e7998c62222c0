"""`autofl reproduce` as real processes: killed at random and resumed, with one worker and with two."""

import json
import random
import subprocess
import sys
import time

import pytest

from autofl.cli.main import run as run_cli
from autofl.records import read_manifest

pytestmark = pytest.mark.slow

FIGURES = ["fig2b", "fig5a", "fig5c"]


@pytest.fixture(autouse=True)
def only_mnist_5k(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOFL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))


def command(out, workers):
    words = ["--scale", "smoke", "--device", "cpu", "--workers", str(workers), "--out", str(out)]
    return [sys.executable, "-m", "autofl", "reproduce", *FIGURES, *words]


def tables(out):
    return {path.name: path.read_bytes() for path in sorted((out / "results").glob("*.csv"))}


def test_a_killed_reproduction_goes_on_and_ends_with_the_same_bytes(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(whole, 1), check=True, capture_output=True)
    chance, made = random.Random(), 0
    for _ in range(3):
        process = subprocess.Popen(
            command(broken, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and len(store(broken)) <= made:
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 0.2))
        process.kill()  # SIGKILL; on a fast machine the last one may be done already
        process.communicate()
        time.sleep(0.3)
        made = len(store(broken))
        time.sleep(0.7)
        assert len(store(broken)) == made  # its workers are gone too
    kept = {path: read_manifest(path)["ended_at"] for path in store(broken)}
    assert all(read_manifest(path)["status"] == "finished" for path in kept)
    assert len(kept) >= 3
    done = subprocess.run(command(broken, 2), check=True, capture_output=True, text=True)
    assert (
        f"{len(store(whole))} runs, {len(store(whole)) - len(kept)} of them to be made"
        in done.stderr
    )
    assert {path: read_manifest(path)["ended_at"] for path in kept} == kept  # made once, not again
    assert tables(broken) == tables(whole)
    assert sorted(tables(whole)) == ["labels.csv", "mnist.adapted.csv", "mnist.csv", "radius.csv"]
    assert not list((broken / "runs").rglob("*.part"))


def store(out):
    """The runs that are finished."""
    return [
        path.parent
        for path in sorted((out / "runs").glob("*/manifest.json"))
        if '"finished"' in path.read_text()
    ]


def test_what_one_reads_at_the_end(tmp_path, capsys):
    words = [
        "--scale",
        "smoke",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    assert run_cli(["reproduce", "fig2b", *words]) == 0
    out, err = capsys.readouterr()
    assert "4 runs, 4 of them to be made" in err
    assert "MNIST-5k is used instead" in err
    for text in ("fig2b", "the paper says", "verdict", "fig2b.png", "MNIST-5k", "smoke"):
        assert text in out
    assert "fig4e" not in out
    assert run_cli(["reproduce", "fig4e", "--json", *words]) == 0
    out, err = capsys.readouterr()
    assert "mnist: its results are in" in err
    assert "runs" not in err.partition("mnist: its results")[2]
    assert json.loads(out)["figures"][0]["name"] == "fig4e"
    about = json.loads((tmp_path / "out" / "results" / "mnist.json").read_text())
    assert (about["data"], about["scale"], about["runs"]) == ("mnist5k", "smoke", 4)


@pytest.mark.parametrize(
    "words",
    [
        ["fig9"],
        ["fig2c"],  # CIFAR-10 is not here
        ["all", "--scale", "full"],  # nor is MNIST
        ["fig2b", "--scale", "huge"],
        ["fig2b", "--seeds", "0"],
        ["fig2b", "--workers", "0"],
        ["fig2b", "--device", "abacus"],
        [],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_clear_line_and_status_2(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert run_cli(["reproduce", *words]) == 2
    out, err = capsys.readouterr()
    assert err.strip().splitlines()[-1].startswith("autofl: ")
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "runs").exists()
