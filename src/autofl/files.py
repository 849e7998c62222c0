"""One door for files: what is read is bounded and fails in one line, what is written is there whole
or not at all.

Sizes are looked at before memory is taken. The readers of every format end here, so that a damaged
or hostile file is an `AutoFLError` that names the file and the reason. A folder may come from a
stranger, so nothing is written through a
link that lies in it: a file is replaced (`write_whole`), or it must have one name and no other
    (`open_own`).
"""

import contextlib
import errno
import gzip
import hashlib
import io
import json
import math
import os
import re
import secrets
import shlex
import stat
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autofl.errors import AutoFLError
from autofl.units import PathLike

MOST_TEXT = 8 * 2**20
"""Bytes of a settings or JSON file: as Python objects they take up to 40 times the memory."""
MOST_DEPTH = 40
"""Most levels of nested tables or lists; what walks them recurses once for each."""
MOST_PARTS = 8
MOST_KEYS = 10_000
"""Most parts of a dotted key, and most keys of a TOML file; ours have 3 and some hundred."""
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
MANY_PARTS = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_PARTS}}}")
HEADINGS = re.compile(r"^[ \t]*+\[", re.MULTILINE)
SMALL_ARRAYS = 64 * 2**20
"""Bytes that the packed arrays of a file may take as they are used, however well they are packed.
"""
MOST_UNPACKED = 20
"""How many times its packed size a larger array may unpack to."""


def quoted(path: PathLike) -> str:
    """A path as a command line has it, so that a printed command can be pasted."""
    return shlex.quote(str(path))


@contextlib.contextmanager
def opening(path: PathLike, what: str, mend: str = "") -> Iterator[None]:
    """Whatever goes wrong in here as one line: `path: not WHAT (reason)MEND`."""
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


def read_bytes(path: PathLike, most: int = MOST_TEXT) -> bytes:
    """The content of a file of at most `most` bytes; of a pipe only if it has no name, like a
    shell's `<(...)`.
    """
    if Path(path).is_fifo() and os.path.exists(os.path.realpath(path)):
        raise AutoFLError(f"{path}: a pipe, which may never answer")
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise AutoFLError(f"{path}: longer than {most:,} bytes")
    return content


def read_toml(path: PathLike) -> dict[str, Any]:
    """A TOML file as a table."""
    with opening(path, "valid TOML"):
        try:
            text = read_bytes(path).decode("utf-8")
        except UnicodeDecodeError:
            raise AutoFLError(f"{path}: not a text file in UTF-8") from None
        return parse_toml(text)


def parse_toml(text: str) -> dict[str, Any]:
    """A table from TOML text, nested no deeper than settings are.

    Dotted keys are looked for before they are parsed: each costs the square of its parts, and a
    table costs a thousand times the bytes that name it.
    """
    if MANY_PARTS.search(text):
        raise ValueError(f"a key of more than {MOST_PARTS} parts")
    if max(text.count("="), len(HEADINGS.findall(text))) > MOST_KEYS:
        raise ValueError(f"more than {MOST_KEYS:,} keys")
    table = tomllib.loads(text)
    check_depth(table)
    _check_whole(table)
    return table


def _check_whole(value: object) -> None:
    """Refuse whole numbers of more than 64 bits, which TOML does not have: Python cannot even print
    the largest.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number of more than 64 bits")
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _check_whole(inner)


def read_json(path: PathLike, what: str = "valid JSON") -> Any:
    """What a JSON file holds."""
    with opening(path, what):
        return parse_json(read_bytes(path).decode("utf-8"))


def parse_json(text: str) -> Any:
    """What JSON text holds, nested no deeper than our own files are, its words such as a file or
    screen can show.
    """
    value = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a character is none
    check_depth(value)
    return value


def finite_or_null(value: Any) -> Any:
    """The same for JSON, which has neither NaN nor infinity: None in their place, in tables and
    lists too.
    """
    if isinstance(value, dict):
        return {key: finite_or_null(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_depth(value: object, most: int = MOST_DEPTH) -> None:
    """Refuse what is nested deeper, without recursion."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested more than {most} levels deep")


def read_arrays(
    path: PathLike,
    names: Mapping[str, int],
    what: str = "a readable .npz file",
    texts: Collection[str] = (),
) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that an .npz file holds, numbers or truth values. No pickle is
    read.

    Args:
        names: of each array the bytes that a number of it takes where it is used, which may be more
            than in the file.
        texts: the arrays that may hold words instead.
    """
    arrays = {}
    room = SMALL_ARRAYS
    if Path(path).is_fifo():
        raise AutoFLError(f"{path}: not {what} (a pipe)")
    with opening(path, what), zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name, item in names.items():
            if (info := members.get(f"{name}.npy")) is not None:
                array = _read_array(
                    archive, info, name, os.path.getsize(path), room // item, name in texts
                )
                arrays[name], room = array, max(0, room - item * array.size)
    return arrays


def _read_array(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, packed: int, few: int, text: bool
) -> NDArray[Any]:
    """One array; its header, the archive's directory and the bytes must agree.

    More than a few numbers must be worth their bytes: an array that is packed to almost nothing is
        none of ours.
    """
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, dtype = read_header(member)
        if dtype.hasobject or dtype.kind not in ("biufUS" if text else "biuf"):
            raise ValueError(f"array {name!r} holds {dtype}, neither numbers nor truth values")
        size = math.prod(shape) * dtype.itemsize
        if size != info.file_size - member.tell():
            raise ValueError(f"array {name!r} of shape {shape} does not have the bytes it claims")
        if math.prod(shape) > few and size > MOST_UNPACKED * min(info.compress_size, packed):
            raise ValueError(
                f"array {name!r} unpacks to {size:,} bytes; save it with numpy.savez, unpacked"
            )
        content = np.empty(size, dtype=np.uint8)
        _fill(member, content)
    if dtype.kind == "b" and content.max(initial=0) > 1:
        raise ValueError(f"array {name!r} holds bytes that are neither true nor false")
    return content.view(dtype).reshape(shape, order="F" if by_columns else "C")


def _fill(file: IO[bytes], content: NDArray[np.uint8]) -> None:
    """Read exactly as much as there is room for, and find the end after it."""
    room = content.data
    done = 0
    while done < len(room):
        num = file.readinto(room[done : done + 2**20])  # type: ignore[attr-defined]
        if not num:
            raise ValueError("the file is too short")
        done += num
    if file.read(1):
        raise ValueError("the file is too long")


def read_blocks(path: PathLike, num_bytes: int) -> tuple[bytes, IO[bytes]]:
    """The first bytes of a file, gzipped or plain, and the file, open after them."""
    file = Path(path).open("rb")  # noqa: SIM115 -- it is given back open
    try:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
        return content.read(num_bytes), content
    except BaseException:
        file.close()
        raise


def read_rest(file: IO[bytes], num_bytes: int) -> NDArray[np.uint8]:
    """The bytes that follow, which must be exactly `num_bytes`."""
    content = np.empty(num_bytes, dtype=np.uint8)
    with file:
        _fill(file, content)
    return content


def write_whole(path: PathLike, content: bytes | str, sync: bool = True) -> str:
    """Write a file so that a reader sees the old one or the new one, never half, also after a power
    cut; its SHA-256.

    Aside, fsync, rename, fsync of the folder. `sync=False` leaves out both where a later write
    makes up for it. A link at this place is replaced, not followed, and nobody can guess the name
    of the file aside.
    """
    path = Path(path)
    content = (
        content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    )  # odd file names
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
    no flag may empty
    the file: that is for whoever has it.
    """
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise
        raise AutoFLError(f"{path}: not a regular file; remove it") from None
    about = os.fstat(handle)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if stat.S_ISREG(about.st_mode) and not (writes and about.st_nlink > 1):
        return handle
    os.close(handle)
    what = (
        "a file with another name elsewhere (a hard link)"
        if stat.S_ISREG(about.st_mode)
        else "not a regular file"
    )
    raise AutoFLError(f"{path}: {what}; remove it")


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
