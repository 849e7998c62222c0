"""Who may write into a folder: one process at a time.

The lock is that of the operating system on FOLDER/.lock, which frees it when its holder ends, in
whatever container that ran.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from autofl.errors import AutoFLError
from autofl.files import clear_parts, inside, open_own
from autofl.units import PathLike

LOCK = ".lock"
PATIENCE = 2.0
"""Seconds to wait for somebody who only looks whether the lock is free."""
FOREVER = -1.0


class Locked(AutoFLError):
    """Another process writes into the folder."""


class FolderLock:
    """The right to write into a folder, held until `release`, the end of a `with`, or that of the
    process.
    """

    def __init__(self, folder: PathLike, wait: bool = False) -> None:
        """Take the lock, or raise `Locked`; with `wait`, wait for whoever has it."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = inside(self.folder, LOCK)
        self._lock = FileLock(self._path, thread_local=False)
        try:
            self._lock.acquire(timeout=FOREVER if wait else PATIENCE)
        except Timeout:
            raise Locked(
                f"{self.folder}: another process writes into it; wait for it, end it, or name"
                " another folder"
            ) from None
        self._file = os.stat(self._path).st_ino

    def check(self) -> None:
        """Raise where the folder is no longer ours; called before every write."""
        try:
            ours = os.stat(self._path).st_ino == self._file
        except OSError:
            ours = False
        if not ours:
            raise AutoFLError(
                f"{self.folder}: the folder is gone, or another process has taken it over; this"
                " one stops"
            )

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def locked(folder: PathLike) -> Iterator[None]:
    """The folder of several runs, for one command at a time."""
    with FolderLock(folder):
        clear_parts(folder)
        yield


def overrule(folder: PathLike) -> None:
    """Take the right to write into a folder from whoever holds it: it stops before its next write,
    by `check`.

    For a process that may still live but that nobody listens to any more.
    """
    (Path(folder) / LOCK).unlink(missing_ok=True)


def is_locked(folder: PathLike) -> bool:
    """Whether a living process writes into a folder, which need not be ours to write to."""
    try:
        handle = open_own(Path(folder) / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not lock_descriptor(handle, blocking=False)
    finally:
        os.close(handle)
