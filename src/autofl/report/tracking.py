"""Run folders in MLflow: parameters, metrics of each round, and the folder's files. Needs the extra
`mlflow`.
"""

import math
from collections.abc import Sequence
from typing import Any

from autofl.config import flat_settings
from autofl.errors import AutoFLError, lacks
from autofl.records import Run
from autofl.report.runs import label_of_run

EXPERIMENT = "autofl"
KEY = "autofl.rounds_sha256"
"""The tag by which a run that is already there is recognised: the checksum of its rounds.csv."""
MOST_METRICS = 1000
"""Metrics that MLflow takes in one call."""
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
        experiment = client.get_experiment_by_name(EXPERIMENT)
        place = (
            experiment.experiment_id
            if experiment is not None
            else client.create_experiment(EXPERIMENT)
        )
        new = 0
        for run in runs:
            digest = (run.manifest.get("sha256") or {}).get("rounds.csv")
            if digest is None:
                raise AutoFLError(
                    f"{run.folder}: not finished, so it is not tracked; finish it first (--resume)"
                )
            if client.search_runs([place], f"tags.`{KEY}` = '{digest}'", max_results=1):
                continue
            name = f"{label_of_run(run)} seed {run.manifest['seed']}"
            made = client.create_run(place, run_name=name, tags={KEY: digest}).info.run_id
            settings = {key: str(value)[:500] for key, value in flat_settings(run.config).items()}
            client.log_batch(
                made,
                params=[Param(key, value) for key, value in settings.items()],
                tags=[
                    RunTag(key, str(run.manifest[key]))
                    for key in ABOUT
                    if run.manifest.get(key) is not None
                ],
            )
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
    rounds: list[int] = run.rounds["round"].tolist()
    columns: dict[str, Any] = {
        name: values.tolist() for name, values in run.rounds.items() if name != "round"
    }
    return [
        (name, float(value), stamp, int(k))
        for name, values in columns.items()
        for value, stamp, k in zip(values, stamps, rounds, strict=True)
        if not math.isnan(float(value))
    ]
