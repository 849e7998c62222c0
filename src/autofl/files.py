"""One door for files: what is read fails in one line, what is written is there whole or not at all.

A folder may come from a stranger, so nothing is written through a link that lies in it: a file is
replaced (`write_whole`), or it must have one name and no other (`open_own`).
"""

import contextlib
import errno
import gzip
import hashlib
import io
import json
import math
import os
import secrets
import shlex
import stat
import tomllib
from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.units import PathLike


def quoted(path: PathLike) -> str:
    """A path as a command line has it, so that a printed command can be pasted."""
    return shlex.quote(str(path))


@contextlib.contextmanager
def opening(path: PathLike, what: str, mend: str = "") -> Iterator[None]:
    """Whatever goes wrong in here as one line: `path: not WHAT (reason)MEND`.

    A pipe with a name may never answer; one without, such as the shell's <(command), is read.
    """
    if Path(path).is_fifo() and os.path.exists(os.path.realpath(path)):
        raise AutoFLError(f"{path}: not {what} (a pipe){mend}")
    try:
        yield
    except AutoFLError:
        raise
    except MemoryError:
        raise AutoFLError(f"{path}: not enough memory to read it") from None
    except RecursionError:
        raise AutoFLError(f"{path}: not {what} (nested too deep){mend}") from None
    except gzip.BadGzipFile as error:
        raise AutoFLError(f"{path}: not {what} ({error}){mend}") from None
    except OSError as error:
        raise AutoFLError(f"{path}: cannot be read ({error.strerror or error}){mend}") from None
    except Exception as error:  # each format has errors of its own, and some have none
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise AutoFLError(f"{path}: not {what} ({reason}){mend}") from None


def read_toml(path: PathLike) -> dict[str, Any]:
    """A TOML file as a table."""
    with opening(path, "valid TOML"):
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))


def read_json(path: PathLike, what: str = "valid JSON") -> Any:
    """What a JSON file holds."""
    with opening(path, what):
        return json.loads(Path(path).read_text(encoding="utf-8"))


def finite_or_null(value: Any) -> Any:
    """The same for JSON, which has neither NaN nor infinity: None in their place, in tables and
    lists too.
    """
    if isinstance(value, dict):
        return {key: finite_or_null(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_arrays(
    path: PathLike,
    names: Collection[str],
    what: str = "a readable .npz file",
    texts: Collection[str] = (),
) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that an .npz file holds: numbers or truth values, or words where they
    are among `texts`. No pickle is read.
    """
    arrays = {}
    with opening(path, what), np.load(path, allow_pickle=False) as file:
        for name in names:
            if name not in file:
                continue
            arrays[name] = file[name]
            kind = arrays[name].dtype
            if kind.kind not in ("biufUS" if name in texts else "biuf"):
                raise ValueError(f"array {name!r} holds {kind}, neither numbers nor truth values")
    return arrays


def open_packed(path: PathLike) -> IO[bytes]:
    """A file to read, gzipped or plain."""
    with open(path, "rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_packed else open(path, "rb")  # type: ignore[return-value]


def read_rest(file: IO[bytes], num_bytes: int) -> NDArray[np.uint8]:
    """The bytes that follow, which must be exactly `num_bytes`."""
    content = bytearray(file.read(num_bytes + 1))
    if len(content) != num_bytes:
        raise ValueError(f"the file is too {'short' if len(content) < num_bytes else 'long'}")
    return np.frombuffer(content, dtype=np.uint8)


def write_whole(path: PathLike, content: bytes | str, sync: bool = True) -> str:
    """Write a file so that a reader sees the old one or the new one, never half, also after a power
    cut; its SHA-256.

    Aside, fsync, rename, fsync of the folder. `sync=False` leaves out both where a later write
    makes up for it. A link at this place is replaced, not followed, and nobody can guess the name
    of the file aside.
    """
    path = Path(path)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")  # of odd file names
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PART}")
    try:
        with open(part, "xb", buffering=0) as file:
            write_all(file, content)
            if sync:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise naming(path, error) from None
    if sync:
        sync_folder(path.parent)
    return hashlib.sha256(content).hexdigest()


def open_own(path: PathLike, flags: int, mode: int = 0o644) -> int:
    """A file that is kept open or locked. It must be a regular file, and for writing one that has
    no other name.

    The target of a link and the other names of a file may lie anywhere; a pipe may never answer. So
    no flag may empty the file: that is for whoever has it.
    """
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise
        raise AutoFLError(f"{path}: not a regular file; remove it") from None
    about = os.fstat(handle)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    what = ""
    if not stat.S_ISREG(about.st_mode):
        what = "not a regular file"
    elif writes and about.st_nlink > 1:
        what = "a file with another name elsewhere (a hard link)"
    if what:
        os.close(handle)
        raise AutoFLError(f"{path}: {what}; remove it")
    return handle


def inside(folder: PathLike, name: str) -> Path:
    """A folder in a folder, there or not, but no link out of it."""
    path = Path(folder) / name
    if path.is_symlink():
        raise AutoFLError(f"{path}: a link, which may lead anywhere; remove it")
    return path


def naming(path: PathLike, error: BaseException) -> BaseException:
    """The error, with the name of the file where the system left it out or names the one aside."""
    if not isinstance(error, OSError) or error.errno is None:
        return error
    other = error.filename is not None and not str(error.filename).endswith(PART)
    return error if other else OSError(error.errno, error.strerror, str(path))


PART = ".part"
"""Ending of the name of a file that is not whole yet."""


def clear_parts(folder: PathLike) -> None:
    """Remove what a process that was killed left half written; for whoever holds the folder's lock."""
    for part in Path(folder).glob(f".*{PART}"):
        part.unlink(missing_ok=True)


def write_all(file: io.RawIOBase | IO[bytes], content: bytes) -> None:
    """Write all of it to an unbuffered file, which may take less at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def sync_folder(folder: PathLike) -> None:
    """Make the names in a folder last; a system that cannot do so is left alone."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(stem: PathLike) -> Path:
    """STEM-N with the first N that is free, made at once, so that no two callers get the same."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = stem.with_name(f"{stem.name}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError
