"""What travels on a stream: a head that says what comes and how long it is, then the bytes in
pieces.

The head tells the receiver when sending began and whether it wants the rest; gRPC bounds a piece.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flwr.app import RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictBytes

from autofl.deploy.messages import RefusedError

SERVICE = "autofl.Deployment"
METHOD = "Session"
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
    """The head of a message, then its pieces."""
    yield _HEAD.pack(parcel.number, len(parcel.body)) + parcel.kind.encode()
    for start in range(0, len(parcel.body), PIECE):
        yield parcel.body[start : start + PIECE]


def head_of(frame: bytes) -> tuple[int, int, str]:
    """Number, length and kind of the message that begins with this frame."""
    if not _HEAD.size < len(frame) <= _HEAD.size + 64:
        raise RefusedError("a stream that does not begin with a head")
    number, length = _HEAD.unpack(frame[: _HEAD.size])
    return number, length, frame[_HEAD.size :].decode("ascii", errors="replace")


def parcels(frames: Iterator[bytes]) -> Iterator[Parcel]:
    """The messages that these frames make up; one that is cut off is none."""
    for head in frames:
        number, length, kind = head_of(head)
        body = bytearray()
        while len(body) < length:
            piece = next(frames, None)
            if piece is None:
                return
            body += piece
        yield Parcel(number, kind, bytes(body))


def packed(content: RecordDict) -> bytes:
    """A message's records as Flower writes them."""
    return bytes(recorddict_to_proto(content).SerializeToString())


def all_packed(contents: Mapping[int, RecordDict]) -> dict[int, bytes]:
    """Several messages; a record that they share, such as the model, is written once.

    The bytes of records one after another are those of a message that holds them all: so Protocol
    Buffers merge.
    """
    written: dict[int, bytes] = {}
    bodies = {}
    for node, content in contents.items():
        for name, record in content.items():
            if id(record) not in written:
                written[id(record)] = packed(RecordDict({name: record}))
        bodies[node] = b"".join(written[id(record)] for record in content.values())
    return bodies


def unpacked(body: bytes) -> RecordDict:
    """The records of a message."""
    try:
        return recorddict_from_proto(RecordDictBytes.FromString(body))
    except Exception as error:  # bytes from outside
        raise RefusedError(f"a message that cannot be read ({type(error).__name__})") from None
