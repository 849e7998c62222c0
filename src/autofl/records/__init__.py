"""Runs on disk. The standard library and NumPy."""

from autofl.records.checkpoints import Kept, checkpoints, has_checkpoint
from autofl.records.devices import DeviceRecord
from autofl.records.run import (
    OWN_DATA,
    Run,
    check_begun,
    check_no_run,
    find_runs,
    has_begun,
    is_run,
    mark_run,
    read_checkpoint,
    read_manifest,
    read_run,
    read_weights,
)
from autofl.records.writer import RunWriter

__all__ = [
    "OWN_DATA",
    "DeviceRecord",
    "Kept",
    "Run",
    "RunWriter",
    "check_begun",
    "check_no_run",
    "checkpoints",
    "find_runs",
    "has_begun",
    "has_checkpoint",
    "is_run",
    "mark_run",
    "read_checkpoint",
    "read_manifest",
    "read_run",
    "read_weights",
]
