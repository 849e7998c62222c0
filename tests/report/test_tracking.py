"""Runs in MLflow: what was put in is what the run folder holds, once."""

import pytest

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.jobs.run import run
from autofl.report.tracking import EXPERIMENT, track

pytestmark = pytest.mark.slow


def test_a_run_is_tracked_once_with_its_settings_rounds_and_files(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking", reason="needs the extra mlflow")
    monkeypatch.chdir(tmp_path)
    made = run(
        load_settings(overrides=["stop.rounds=3", "seed=5", "evaluation.every=1"]), tmp_path / "run"
    )
    uri = f"sqlite:///{tmp_path}/runs.db"
    assert [track([made], uri), track([made], uri)] == [1, 0]
    client = tracking.MlflowClient(uri)
    (kept,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert kept.data.params["seed"] == "5"
    history = client.get_metric_history(kept.info.run_id, "adapted_accuracy")
    assert [(one.step, one.value) for one in history] == list(
        enumerate(made.rounds["adapted_accuracy"].tolist())
    )
    names = {one.path for one in client.list_artifacts(kept.info.run_id)}
    assert names == {"config.toml", "manifest.json", "rounds.csv", "ues.csv", "weights.safetensors"}


def test_a_run_that_is_not_finished_is_not_tracked(tmp_path):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    made = run(load_settings(overrides=["stop.rounds=1"]), tmp_path / "run")
    made.manifest.pop("sha256")
    with pytest.raises(AutoFLError, match="not finished"):
        track([made], f"sqlite:///{tmp_path}/runs.db")
