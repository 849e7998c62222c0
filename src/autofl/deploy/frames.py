"""What travels on a stream: a head that says what comes and how long it is, then the bytes in
pieces.

The head alone tells the receiver whether it wants the rest, so nobody can make it hold more than it
asked for.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flwr.app import RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictBytes

from autofl.deploy.schema import RefusedError

METHOD = "/autofl.Deployment/Session"
PIECE = 2**18
"""Bytes of a frame, its few bytes of framing apart."""
MOST_FRAME = PIECE + 2**10
ERROR = "error"
REPLY = "reply"
_HEAD = struct.Struct(">IQ")


class Parcel(NamedTuple):
    """A message on a stream, its content still as bytes."""

    number: int  # of the order; a reply repeats it
    kind: str  # Flower's type of a message; of replies REPLY or ERROR
    body: bytes
    wait: float = 0.0  # seconds between its head and the rest, on a testbed


def frames_of(parcel: Parcel) -> Iterator[bytes]:
    yield _HEAD.pack(parcel.number, len(parcel.body)) + parcel.kind.encode()
    view = memoryview(parcel.body)
    for start in range(0, len(view), PIECE):
        yield bytes(view[start : start + PIECE])


class Assembly:
    """Joins the frames of one side into messages; memory grows only with the bytes that have come."""

    def __init__(self) -> None:
        self._head: tuple[int, int, str] | None = None
        self._body = bytearray()
        self._size = 0  # bytes that have come
        self._is_kept = True

    @property
    def number(self) -> int | None:
        """Of the message that has begun, if one has."""
        return None if self._head is None else self._head[0]

    @property
    def held(self) -> int:
        """Bytes of the unfinished message."""
        return len(self._body)

    def let_go(self) -> None:
        """Discard what has come of a message, and what is still to come."""
        if self._head is not None:
            self._body = bytearray()
            self._is_kept = False

    def add(self, frame: bytes, most: float) -> Parcel | None:
        """The message that this frame ends, if it ends one; a message of more than `most` bytes is
        refused.
        """
        if self._head is None:
            number, length = head_of(frame)
            if length > most:
                raise RefusedError(f"{length} bytes; it can have {most:.0f}")
            self._head = number, length, frame[_HEAD.size :].decode("ascii", errors="replace")
        elif not frame:
            raise RefusedError("a frame without a byte")
        else:
            self._size += len(frame)
        number, length, kind = self._head
        if self._size > length:
            raise RefusedError(f"more than the {length} bytes that were announced")
        if self._size and self._is_kept:
            self._body += frame
        if self._size < length:
            return None
        parcel = Parcel(number, kind, bytes(self._body))
        self._head = None
        self._body = bytearray()
        self._size = 0
        self._is_kept = True
        return parcel


def head_of(frame: bytes) -> tuple[int, int]:
    """Number and length of the message that begins with this frame."""
    if not _HEAD.size < len(frame) <= _HEAD.size + 64:
        raise RefusedError("a stream that does not begin with a head")
    number, length = _HEAD.unpack(frame[: _HEAD.size])
    return number, length


def packed(content: RecordDict) -> bytes:
    """A message's records as Flower writes them."""
    return bytes(recorddict_to_proto(content).SerializeToString())


def all_packed(contents: Mapping[int, RecordDict]) -> dict[int, bytes]:
    """Several messages; a record that all of them hold, such as the model, is written once.

    The bytes of records one after another are those of a message that holds them all: so Protocol
        Buffers merge.
    """
    if not contents:
        return {}
    first, *others = contents.values()
    shared = {
        name for name, record in first.items() if all(other.get(name) is record for other in others)
    }
    same = packed(RecordDict({name: first[name] for name in shared}))
    return {
        node: same
        + packed(
            RecordDict({name: record for name, record in content.items() if name not in shared})
        )
        for node, content in contents.items()
    }


_BULK = ((1, 2, 1, 2, 4), (1, 4, 1, 2, 6))
"""Fields of Flower's RecordDict that hold the bytes of an array and of a packed update, from the
outside in.
"""
_INSIDE = {path[:depth] for path in _BULK for depth in range(len(path))}


def _check_rest(
    view: memoryview, most: float, rest: float = 0.0, path: tuple[int, ...] = ()
) -> float:
    """Refuse a message in which all but the values of arrays and packed updates is longer than
    `most` bytes.

    Two bytes can make an object of several hundred, so this looks at lengths alone, before anything
    is made. Returns the bytes of `rest` and of this part.
    """
    place = 0
    while place < len(view):
        begin = place
        tag, place = _varint(view, place)
        inner = (*path, tag >> 3)
        length = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 2:
            length, place = _varint(view, place)
        elif tag & 7 == 0:
            _, place = _varint(view, place)
        elif not length:
            raise RefusedError("a message that cannot be read (groups)")
        if place + length > len(view):
            raise RefusedError("a message that cannot be read (it ends too early)")
        rest += place - begin
        if tag & 7 == 2 and inner in _INSIDE:
            rest = _check_rest(view[place : place + length], most, rest, inner)
        elif inner not in _BULK:
            rest += length
        if rest > most:
            raise RefusedError(f"more than {most:.0f} bytes besides the values of arrays")
        place += length
    return rest


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    """A number of Protocol Buffers, seven bits to a byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(view):
            break
        value |= (view[place] & 127) << shift
        place += 1
        if view[place - 1] < 128:
            return value, place
    raise RefusedError("a message that cannot be read (a number without an end)")


def unpacked(body: bytes, most_rest: float = math.inf) -> RecordDict:
    """The records of a message; `most_rest` are the bytes it may have besides the values of arrays."""
    if most_rest < math.inf:
        _check_rest(memoryview(body), most_rest)
    try:
        return recorddict_from_proto(RecordDictBytes.FromString(body))
    except Exception as error:  # bytes from outside
        raise RefusedError(f"a message that cannot be read ({type(error).__name__})") from None
