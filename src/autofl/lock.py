"""Who may write into a folder: one process at a time, by a lock that the system drops when the
process is gone.

The lock is `flock` on FOLDER/.lock. It holds between containers, where process numbers mean
nothing, and over NFS. The file notes who holds it (machine, boot, process) and how often it was
handed on. Where locks are not shared, a note of another boot counts until its holder has been
silent for long, and a holder that was overruled stops at its next write.
"""

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from autofl.errors import AutoFLError
from autofl.files import clear_parts, naming, open_own
from autofl.units import PathLike

fcntl: Any
try:
    import fcntl
except ImportError:  # no POSIX system: the note alone counts
    fcntl = None

LOCK = ".lock"
SILENCE = 600.0
"""Seconds without a sign after which a holder on another machine counts as gone, where locks are
not shared.
"""
SIGN = 20.0
"""Seconds between two signs."""
PATIENCE = 2.0
"""Seconds to wait for somebody who only looks whether the lock is free."""
MOST = 4096
NOTE = 512
"""Bytes of the note: of one that is read, and of one that is written."""
MOST_ATTEMPTS = 2**53


class Locked(AutoFLError):
    """Another process writes into the folder."""


def boot_id() -> str:
    """What all processes under one kernel share until it restarts, in all containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


class FolderLock:
    """The right to write into a folder, held until `release` or the end of the process."""

    def __init__(self, folder: PathLike, wait: bool = False) -> None:
        """Take the lock, or raise `Locked`; with `wait`, wait for whoever has it."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / LOCK
        end = time.monotonic() + PATIENCE
        while (handle := _try(self._path)) is None:
            if not wait and time.monotonic() > end:
                raise Locked(_words(self.folder, _note(self._path)))
            time.sleep(0.1)
        self._handle: int | None = handle
        self.attempt = (int(_note(self._path).get("attempt", 0)) + 1) % MOST_ATTEMPTS
        self._said = 0.0
        try:
            self._write("held")
        except BaseException:
            self._handle = None
            os.close(handle)
            raise

    def check(self) -> None:
        """Raise where the folder is no longer ours; called before every write."""
        assert self._handle is not None
        try:
            same = os.stat(self._path).st_ino == os.fstat(self._handle).st_ino
        except OSError:
            raise AutoFLError(
                f"{self.folder}: the folder is gone; this process stops writing into it"
            ) from None
        if not same or _note(self._path).get("attempt") != self.attempt:
            raise AutoFLError(
                f"{self.folder}: another process has taken this folder over; this one stops"
            )
        if time.monotonic() - self._said > SIGN:
            self._said = time.monotonic()
            os.utime(self._handle)

    def release(self) -> None:
        if self._handle is None:
            return
        handle = self._handle
        self._handle = None
        with contextlib.suppress(OSError, AutoFLError):
            if _note(self._path).get("attempt") == self.attempt:
                self._handle = handle
                self._write("free")
                self._handle = None
        os.close(handle)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            os.close(handle)

    def _write(self, state: Literal["held", "free"]) -> None:
        """The note has always the same length, so it never needs more room on the disk."""
        assert self._handle is not None
        note = {
            "attempt": self.attempt,
            "state": state,
            "machine": socket.gethostname(),
            "boot": boot_id(),
        }
        text = json.dumps({**note, "process": os.getpid(), "since": round(time.time(), 3)})
        try:
            os.pwrite(self._handle, text.ljust(NOTE).encode(), 0)
            os.ftruncate(
                self._handle, max(NOTE, len(text))
            )  # of a longer one that somebody left, nothing stays
        except OSError as error:
            raise naming(self._path, error) from None
        self._said = time.monotonic()


@contextlib.contextmanager
def locked(folder: PathLike) -> Iterator[None]:
    """The folder of several runs, for one command at a time."""
    lock = FolderLock(folder)
    try:
        clear_parts(folder)
        yield
    finally:
        lock.release()


def overrule(folder: PathLike) -> None:
    """Take the right to write into a folder from whoever holds it: it stops before its next write,
    by `check`.

    For a process that may still live but that nobody listens to any more.
    """
    (Path(folder) / LOCK).unlink(missing_ok=True)


def is_locked(folder: PathLike) -> bool:
    """Whether a living process writes into a folder."""
    path = Path(folder) / LOCK
    try:
        handle = open_own(path, os.O_RDONLY)
    except (OSError, AutoFLError):
        return False
    try:
        return _is_theirs(path, _flock(handle, shared=True))
    finally:
        os.close(handle)


def _try(path: Path) -> int | None:
    """The lock file, open and locked; None where somebody else has it."""
    handle = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        if not _is_theirs(path, _flock(handle)) and os.stat(path).st_ino == os.fstat(handle).st_ino:
            return handle
    except FileNotFoundError:  # the folder was removed meanwhile
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _flock(handle: int, shared: bool = False) -> bool | None:
    """Whether the system gives us the lock; None where it knows none."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (
            errno.ENOLCK,
            errno.ENOSYS,
            errno.EOPNOTSUPP,
            errno.EINVAL,
            errno.EBADF,
        ):
            raise
        return None
    return True


def _is_theirs(path: Path, given: bool | None) -> bool:
    """Whether somebody else holds the lock, by what the system says, and by the note where it may
    not know.
    """
    if given is False:
        return True
    note = _note(path)
    here = note.get("boot") == boot_id() or note.get("machine") == socket.gethostname()
    if note.get("state") != "held" or (given and here):  # under one kernel the system knows better
        return False
    try:
        return abs(time.time() - path.stat().st_mtime) < SILENCE  # a time to come is no sign either
    except OSError:
        return False


def _note(path: Path) -> dict[str, Any]:
    try:
        note = json.loads(_read(path))
    except (OSError, AutoFLError, ValueError, RecursionError):
        return {}
    valid = (
        isinstance(note, dict)
        and type(note.get("attempt")) is int
        and 0 <= note["attempt"] < MOST_ATTEMPTS
    )
    return note if valid else {}


def _read(path: Path) -> bytes:
    handle = open_own(path, os.O_RDONLY)
    try:
        return os.read(handle, MOST)
    finally:
        os.close(handle)


def _words(folder: Path, note: dict[str, Any]) -> str:
    who = f"process {note.get('process', '?')} on {note.get('machine', '?')}"
    return f"{folder}: another process writes into it ({who}); wait for it, end it, or name another folder"
