"""The device's side of a stream: it stays, answers what it is asked, and comes back when the stream
breaks.
"""

import queue
import time
from collections.abc import Callable

import grpc

from autofl.deploy.certificates import Keys
from autofl.deploy.folder import address_of, answers
from autofl.deploy.frames import METHOD, SERVICE, Parcel, frames_of, parcels
from autofl.deploy.stream import options

REACH = 10.0
"""Seconds within which the port must first be reached."""
RETURN = 15.0
"""Seconds for which a device whose stream broke tries to come back; after that Flower has to call
it again.
"""
PAUSE = 0.2
"""Seconds before it tries."""
LEAVE = 1.0
"""Seconds that a device stays after the run is over: Flower then drops its last message, which
nobody needs.
"""
APART = 0.1
"""Seconds between devices that leave: many at once keep the SuperLink's database locked for longer
than it bears.
"""
FINAL = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""What a server says to a device that should not come back."""

Answering = Callable[[Parcel], Parcel]


def leave(ue: int) -> None:
    """Wait for this device's turn to end its session."""
    time.sleep(LEAVE + APART * (ue % 20))


def hold_session(host: str, port: int, token: str, keys: Keys, answer: Answering) -> str:
    """Answer orders until the run is over, and how it ended.

    That is "over", "unreachable", "untrusted" where the port answers but one side's certificate is
    not accepted, "refused" or "lost".
    """
    credentials = grpc.ssl_channel_credentials(keys.authority, keys.key, keys.certificate)
    wait = REACH
    was_there = False
    again = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 2000)]
    while True:
        with grpc.secure_channel(
            address_of(host, port), credentials, [*options(), *again]
        ) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=wait)
            except grpc.FutureTimeoutError:
                if was_there:
                    return "lost"
                return "untrusted" if answers(host, port) else "unreachable"
            outcome = _speak(channel, token, answer)
        if outcome != "broken":
            return outcome
        wait = RETURN
        was_there = True
        time.sleep(PAUSE)


def _speak(channel: grpc.Channel, token: str, answer: Answering) -> str:
    """One stream, and how it ended: "over", "refused" or "broken"."""
    frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    method = channel.stream_stream(f"/{SERVICE}/{METHOD}")
    call = method(iter(frames.get, None), metadata=(("token", token),))
    try:
        for parcel in parcels(call):
            reply = answer(parcel)
            head, *pieces = frames_of(reply)
            frames.put(head)
            time.sleep(reply.wait)
            for piece in pieces:
                frames.put(piece)
    except grpc.RpcError as error:
        return "refused" if error.code() in FINAL else "broken"
    else:
        return "over"
    finally:
        frames.put(None)
        call.cancel()
