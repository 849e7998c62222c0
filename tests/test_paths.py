"""A path may be a string or anything with __fspath__, and gives what a Path gives."""

import os
from pathlib import Path

import numpy as np
import pytest

from autofl.config import load_settings
from autofl.core.round import Round
from autofl.data import CATALOG, Iid, catalog, fetch, find, load, read_device, read_npz
from autofl.data.dataset import write_device
from autofl.forecast.pilot_files import Pilot, write_pilots
from autofl.forecast.pilot_fit import SHIPPED, Pilots
from autofl.forecast.predict import forecast
from autofl.jobs.run import run
from autofl.records import (
    RunWriter,
    find_runs,
    is_run,
    mark_run,
    read_checkpoint,
    read_manifest,
    read_run,
    read_weights,
)
from autofl.report.devices import plot_devices
from autofl.report.make import make_report
from autofl.report.partition import plot_partition
from autofl.report.plots import plot, plot_runs, save
from autofl_paper.theory import page as theory
from reference.runs import written

pytestmark = pytest.mark.slow


class Place:
    """A path of a user's own kind."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


@pytest.fixture(params=[str, Place, Path], ids=["str", "PathLike", "Path"])
def form(request):
    return request.param


def test_settings(form, tmp_path):
    (tmp_path / "own.toml").write_text("seed = 7\n")
    assert load_settings(form(tmp_path / "own.toml")).seed == 7


def test_run_folders(form, tmp_path):
    folder = tmp_path / "run"
    writer = RunWriter(form(folder), "seed = 1\n", {"algorithm": "autofl", "seed": 1})
    writer.write_weights({"w": np.ones(2)})
    writer.write(Round(0))
    writer.write_checkpoint({"w": np.zeros(3)}, {"round": 0})
    writer.close()
    RunWriter.go_on(form(folder), after=0).close()
    mark_run(form(folder), "interrupted")
    assert is_run(form(folder))
    assert find_runs([form(tmp_path)]) == find_runs(form(tmp_path)) == [folder]
    assert read_manifest(form(folder))["status"] == "interrupted"
    assert read_run(form(folder)).folder == folder
    assert read_weights(form(folder))["w"].tolist() == [1.0, 1.0]
    arrays, facts = read_checkpoint(form(folder))
    assert (arrays["w"].tolist(), facts) == ([0.0, 0.0, 0.0], {"round": 0})


def test_pilots(form, tmp_path):
    pilot = Pilot({"data": "mnist"}, 5, 1, 40, 5, 1, 0.1, 0.2, (0, 5), (0.1, 0.9))
    write_pilots(form(tmp_path / "more" / "pilots.json"), [pilot], "autofl pilot")
    for path in (tmp_path / "more" / "pilots.json", tmp_path / "more"):
        pilots, command = Pilots.read(form(path)).files[0]
        assert (pilots[0].labels, command) == (5, "autofl pilot")
    assert forecast(load_settings(), 0.85, form(SHIPPED)).num_pilots > 0


def test_own_arrays(form, tmp_path, few_digits):
    np.savez(tmp_path / "own.npz", x=few_digits.x, y=few_digits.y)
    assert read_npz(form(tmp_path / "own.npz"))[0].name == "own"


def test_the_data_of_a_device(form, tmp_path, few_digits):
    write_device(form(tmp_path / "device.npz"), few_digits, np.arange(8), np.arange(8, 10))
    dataset, train = read_device(form(tmp_path / "device.npz"))
    assert (len(dataset.y), int(train.sum())) == (10, 8)


def test_a_device(form, tmp_path, few_digits):
    pytest.importorskip("flwr", reason="needs the extra flower")
    from autofl.deploy.device import open_device

    write_device(form(tmp_path / "device.npz"), few_digits, np.arange(8), np.arange(8, 10))
    assert open_device(form(tmp_path / "device.npz"), ue=0, seed=1).data_size == 8


def test_data_sets(form, tmp_path, monkeypatch):
    def download(url, sha256, path, progress):
        path.write_bytes(b"")

    batches = CATALOG["cifar10"].files
    monkeypatch.setattr(catalog, "_download", download)
    monkeypatch.setattr(catalog, "_unpack", lambda archive, target, files: None)
    folder = fetch("cifar10", form(tmp_path))
    assert folder == tmp_path / CATALOG["cifar10"].folder
    assert find("cifar10", form(tmp_path)) is None
    for name in batches:
        (folder / name).write_bytes(bytes(3073))  # one black image of class 0
    assert find("cifar10", form(tmp_path)) == folder
    assert load("cifar10", form(tmp_path)).x.shape == (6, 3, 32, 32)


def test_reports_and_pictures(form, tmp_path, few_digits, monkeypatch):
    written(tmp_path / "run", "autofl", 1, [0.1, 0.5, 0.9], 1.0)
    folder, out = form(tmp_path / "run"), form(tmp_path / "out")
    report = make_report([folder], out)
    assert report.path == tmp_path / "out" / "report.md"
    assert plot_runs([folder], out, 0.85) == list(report.pictures)
    assert plot_devices([], out) == []
    assert (
        save(plot(folder, "round", "train_loss"), form(tmp_path / "loss"))[0]
        == tmp_path / "loss.png"
    )
    monkeypatch.setattr(theory, "draw_theory", lambda result: plot(folder, "round", "energy"))
    assert theory.plot_theory({}, form(tmp_path / "theory"))[1] == tmp_path / "theory.svg"
    partition = few_digits.partition(Iid(), 4, seed=1)
    pictures = plot_partition(
        partition, few_digits.y, few_digits.num_classes, form(tmp_path / "who"), "who owns what"
    )
    assert [path.name for path in pictures if path.is_file()] == ["who.png", "who.svg"]


def test_a_run_can_be_written_and_drawn_with_strings_alone(tmp_path):
    settings = load_settings(
        overrides=[
            "stop.rounds=1",
            "evaluation.test_samples=5",
            "evaluation.train_samples=20",
            "cell.num_ue=5",
        ]
    )
    place = os.path.join(str(tmp_path), "run")
    run(settings, place)
    assert make_report(place, place).json()["rows"][0]["label"] == "AutoFL"
