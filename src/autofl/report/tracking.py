"""Run folders in MLflow: parameters, metrics of each round, and the folder's files. Needs the extra
`mlflow`.
"""

import math
from collections.abc import Sequence

from autofl.config import flat_settings
from autofl.errors import AutoFLError, lacks
from autofl.records import Run
from autofl.report.runs import label_of_run

EXPERIMENT = "autofl"
KEY = "autofl.rounds_sha256"
"""The tag by which a run that is already there is recognised: the checksum of its rounds.csv."""
MOST_METRICS = 1000
"""Metrics that MLflow takes in one call."""
MOST_LETTERS = 500
"""Letters of a parameter that MLflow keeps."""
ABOUT = ("version", "commit", "data", "engine", "device", "machine", "status", "stop")


def track(runs: Sequence[Run], uri: str) -> int:
    """Put finished runs into the MLflow at this address, a server or sqlite:///FILE; how many were
    new.
    """
    try:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise lacks("--mlflow", "mlflow") from None
    try:
        client = MlflowClient(tracking_uri=uri)
        existing = client.get_experiment_by_name(EXPERIMENT)
        experiment = (
            client.create_experiment(EXPERIMENT) if existing is None else existing.experiment_id
        )
        new = 0
        for run in runs:
            digest = (run.manifest.get("sha256") or {}).get("rounds.csv")
            if digest is None:
                raise AutoFLError(
                    f"{run.folder}: not finished, so it is not tracked; finish it first (--resume)"
                )
            if client.search_runs([experiment], f"tags.`{KEY}` = '{digest}'", max_results=1):
                continue

            # What it is: settings, and where and how it was made.
            name = f"{label_of_run(run)} seed {run.manifest['seed']}"
            made = client.create_run(experiment, run_name=name, tags={KEY: digest}).info.run_id
            settings = flat_settings(run.config).items()
            params = [Param(key, str(value)[:MOST_LETTERS]) for key, value in settings]
            about = {key: run.manifest.get(key) for key in ABOUT}
            tags = [RunTag(key, str(value)) for key, value in about.items() if value is not None]
            client.log_batch(made, params=params, tags=tags)

            # What came of it: every value of every round, and the files.
            metrics = [Metric(*entry) for entry in metrics_of(run)]
            for begin in range(0, len(metrics), MOST_METRICS):
                client.log_batch(made, metrics=metrics[begin : begin + MOST_METRICS])
            for path in sorted(run.folder.iterdir()):
                if path.is_file() and not path.name.startswith("."):
                    client.log_artifact(made, str(path))
            client.set_terminated(made)
            new += 1
        return new
    except MlflowException as error:
        raise AutoFLError(f"--mlflow {uri}: {' '.join(str(error).split())[:200]}") from None


def metrics_of(run: Run) -> list[tuple[str, float, int, int]]:
    """Name, value, time stamp and round of everything measured; the stamp is the simulated time in
    ms.
    """
    stamps = [int(1e3 * time) for time in run.rounds["sim_time"].tolist()]
    rounds = run.rounds["round"].astype(int).tolist()
    metrics = []
    for name, values in run.rounds.items():
        for value, stamp, k in zip(values.astype(float).tolist(), stamps, rounds, strict=True):
            if name != "round" and not math.isnan(value):
                metrics.append((name, value, stamp, k))
    return metrics
