"""Runs on disk, and what can be read off them. The standard library and NumPy."""

from autofl.records.checkpoints import Kept, has_checkpoint
from autofl.records.metrics import (
    convergence_round,
    mean_interval,
    reaches,
    smoothed,
    time_to_accuracy,
)
from autofl.records.round import DeviceRecord, Evaluation, RoundRecord
from autofl.records.run import (
    OWN_DATA,
    Run,
    RunWriter,
    check_begun,
    check_no_run,
    checkpoints,
    find_runs,
    has_begun,
    is_run,
    mark_run,
    newest_checkpoint,
    read_checkpoint,
    read_manifest,
    read_run,
    read_weights,
)

__all__ = [
    "OWN_DATA",
    "DeviceRecord",
    "Evaluation",
    "Kept",
    "RoundRecord",
    "Run",
    "RunWriter",
    "check_begun",
    "check_no_run",
    "checkpoints",
    "convergence_round",
    "find_runs",
    "has_begun",
    "has_checkpoint",
    "is_run",
    "mark_run",
    "mean_interval",
    "newest_checkpoint",
    "reaches",
    "read_checkpoint",
    "read_manifest",
    "read_run",
    "read_weights",
    "smoothed",
    "time_to_accuracy",
]
