"""Who may use a deployment: one `deploy run` at a time, and a server app for as long as its command
lives.

The command holds a lock on a file of the deployment's folder, with the number of its attempt in it,
and one on such a file of its run folder, which another deployment may want too. The system releases
both when the command ends, however it ends. The server app, which Flower starts in a separate
process, checks before each step whether its own attempt still holds the lock; if not, it stops.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import lock_descriptor

from autofl.errors import AutoFLError
from autofl.files import open_own

FILE = "run.lock"


class LeftAloneError(AutoFLError):
    """The command of this run is gone; nobody else has taken over."""


class TakenOverError(AutoFLError):
    """Another attempt holds the devices: this one must not write any more."""


def is_held(folder: Path) -> bool:
    """Whether a run is on these devices: its command holds the lease."""
    try:
        descriptor = open_own(folder / FILE, os.O_RDONLY)
    except (OSError, AutoFLError):
        return False
    try:
        return not lock_descriptor(descriptor, blocking=False)
    finally:
        os.close(descriptor)


def held(folder: Path, attempt: str) -> contextlib.AbstractContextManager[Path]:
    """Hold the lease of a deployment; if somebody else holds it, that is a one-line error."""
    return _held(
        folder,
        attempt,
        "a run is on these devices already; wait for its end, or end it (Ctrl-C, kill)",
    )


def claimed(out: Path, attempt: str) -> contextlib.AbstractContextManager[Path]:
    """Hold a run folder against the `deploy run` of any other deployment; who holds it may overrule
    its server app.
    """
    out.mkdir(parents=True, exist_ok=True)
    return _held(
        out,
        attempt,
        "another deploy run writes there; wait for its end, or name another folder (--out)",
    )


@contextlib.contextmanager
def _held(folder: Path, attempt: str, otherwise: str) -> Iterator[Path]:
    path = folder / FILE
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked(descriptor):
            raise AutoFLError(f"{folder}: {otherwise}")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, attempt.encode(), 0)
        yield path
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether the lock was obtained; a server app that checks it also holds it for a moment."""
    for _ in range(10):
        if lock_descriptor(descriptor, blocking=False):
            return True
        time.sleep(0.1)
    return False


def watcher(path: Path, attempt: str) -> Callable[[], None]:
    """What a server app calls to know that it may continue."""

    def watch() -> None:
        try:
            descriptor = open_own(path, os.O_RDONLY)
        except OSError as error:
            raise LeftAloneError(f"{path}: {error.strerror}; the run ends") from None
        try:
            holder = os.pread(descriptor, 64, 0).decode(errors="replace")
            if holder != attempt:
                raise TakenOverError("another attempt has taken over; this one ends")
            if lock_descriptor(descriptor, blocking=False):
                raise LeftAloneError("the command that started this run is gone")
        finally:
            os.close(descriptor)

    return watch
