"""Orders and replies over a stream to each device, which stays open for the run.

One message of Flower asks a device to open it; from then on its process stays and nothing is
polled. gRPC brings TLS on both sides, flow control and heartbeats. A device that cannot reach the
port is asked by Flower's messages instead.
"""

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import grpc
from flwr.app import RecordDict
from flwr.serverapp import Grid

from autofl.deploy.certificates import Keys
from autofl.deploy.frames import (
    ERROR,
    METHOD,
    MOST_FRAME,
    SERVICE,
    Parcel,
    all_packed,
    frames_of,
    head_of,
    unpacked,
)
from autofl.deploy.invitations import Invitations
from autofl.deploy.messages import SMALL, RefusedError, shown, told
from autofl.deploy.post import Answer, Expected, Post, new_stamp, stamped
from autofl.errors import AutoFLError

log = logging.getLogger("autofl")

BEAT = 5.0
"""Seconds of silence after which a side asks whether the other is alive."""
PATIENCE = 60.0
"""Seconds that it waits for the answer, which on a slow link has to wait for an update that is on
its way.
"""
MOST_STREAMS = 10_000
WATCH = 0.2
"""Seconds between checks whether the run may continue."""
GRACE = 0.5
"""Seconds for which the end of a run waits for streams to close."""
CLOSE = 10.0
"""Seconds after which it no longer waits for gRPC itself."""


def options(most_frame: int = MOST_FRAME) -> list[tuple[str, int]]:
    """Of both sides: small frames, heartbeats."""
    beat = round(1e3 * BEAT)
    patience = round(1e3 * PATIENCE)
    return [
        ("grpc.max_receive_message_length", most_frame),
        ("grpc.keepalive_time_ms", beat),
        ("grpc.keepalive_timeout_ms", patience),
        ("grpc.http2.ping_timeout_ms", patience),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", beat // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", beat // 2),
        ("grpc.server_handshake_timeout_ms", 2 * beat),
        ("grpc.so_reuseport", 0),
    ]


@dataclass(eq=False)
class OpenStream:
    """A stream that is open, as the thread of the streams knows it."""

    node: int
    ue: int
    orders: asyncio.Queue[Parcel] = field(default_factory=asyncio.Queue)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = "the stream broke"  # it ended
    is_over: bool = False  # with the run
    is_sending: bool = False  # an order is on its way
    last: int = 0  # number of the last order
    awaited: int = 0  # number of the order that is still to be answered; 0: none
    most: float = 0.0  # bytes that its reply may have


class Delivery(NamedTuple):
    """A reply, or why there is none."""

    node: int
    number: int  # of the order
    what: Parcel | str
    began: float  # when its first byte came
    ended: float


class Streams:
    """Asks devices over their streams, and over `post` those that have none and cannot have one.

    A thread of its own holds the streams; what arrives comes from there in a queue, once for each
    order.
    """

    def __init__(
        self,
        grid: Grid,
        post: Post,
        keys: Keys,
        host: str,
        port: int,
        bound: Mapping[int, int],
    ) -> None:
        """Listen at `host`, on a port of the system's choice if it is 0; `bound` says whose node is
        which UE.

        Without it the first certificate that comes for a node keeps it.
        """
        self._post = post
        self._bound = dict(bound)
        self._first = dict[int, int]()
        self._open: dict[int, OpenStream] = {}
        self._number = 0
        self._inbox = queue.SimpleQueue[Delivery]()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="streams", daemon=True)
        self._thread.start()
        try:
            self.port = asyncio.run_coroutine_threadsafe(
                self._listen(keys, host, port), self._loop
            ).result()
        except BaseException:
            self._end_loop()
            raise
        self._invitations = Invitations(grid, host, self.port)

    def nodes(self) -> set[int]:
        """Who can be asked."""
        return set(self._open) | set(self._invitations.apart())

    def owner(self, node: int) -> int | None:
        """The UE that the certificate of this node names."""
        stream = self._open.get(node)
        return None if stream is None else stream.ue

    def way(self, node: int) -> str:
        """How a node is asked, in words."""
        apart = self._invitations.apart()
        if node in self._open:
            return "stream"
        return f"messages ({apart[node]})" if node in apart else "away"

    def __call__(
        self, contents: Mapping[int, RecordDict], kind: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        self._post.watch()
        reasons = self._invitations.apart()
        has_none = {node for node in contents if node in reasons and node not in self._open}

        # What all are sent, such as the model, is packed once.
        stamp = new_stamp()
        bodies = all_packed(
            {node: stamped(contents[node], stamp) for node in contents if node not in has_none}
        )
        begin = time.monotonic()
        self._number += 1
        most = expected.most_bytes + SMALL
        for node, body in bodies.items():
            parcel = Parcel(self._number, kind, body)
            self._loop.call_soon_threadsafe(self._order, node, parcel, most)

        # Who has no stream is asked by messages meanwhile.
        apart = {node: contents[node] for node in contents if node in has_none}
        answers = self._post(apart, kind, group, expected) if apart else {}
        answers |= dict.fromkeys(bodies, self._post.late)
        for one in self._arriving(set(bodies), begin + self._post.deadline):
            take = partial(_content, one.what)
            seconds = one.ended - begin
            sending = one.ended - one.began
            answers[one.node] = expected.answer(one.node, take, stamp, seconds, sending)
        return answers

    def _arriving(self, waiting: set[int], end: float) -> Iterator[Delivery]:
        """What comes of the last orders, one after another; what is here at the end still counts."""
        while waiting:
            left = end - time.monotonic()
            try:
                one = self._inbox.get(timeout=min(max(left, 0.0), WATCH))
            except queue.Empty:
                if left < 0.0:
                    return
                self._post.watch()
                continue
            if one.number == self._number:  # else it is of an earlier exchange
                waiting.discard(one.node)
                yield one

    def close(self) -> None:
        """The run is over: every device is told, and nothing listens any more."""
        self._invitations.end()
        self._loop.call_soon_threadsafe(self._let_go)
        try:
            asyncio.run_coroutine_threadsafe(self._server.stop(GRACE), self._loop).result(CLOSE)
        except concurrent.futures.TimeoutError:  # the run is over all the same
            log.warning("the streams could not be closed within %g s", CLOSE)
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5.0)

    # In the thread of the streams.

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()

    async def _listen(self, keys: Keys, host: str, port: int) -> int:
        credentials = grpc.ssl_server_credentials(
            [(keys.key, keys.certificate)], keys.authority, require_client_auth=True
        )
        self._server = grpc.aio.server(options=options(), maximum_concurrent_rpcs=MOST_STREAMS)
        method = grpc.stream_stream_rpc_method_handler(self._speak)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),)
        )
        try:
            chosen = self._server.add_secure_port(f"{listening_at(host)}:{port}", credentials)
        except RuntimeError as error:
            raise AutoFLError(
                f"port {port} cannot be listened on ({str(error).partition(';')[0]})"
            ) from None
        await self._server.start()
        return chosen

    async def _speak(self, requests: object, context: Any) -> None:
        """One stream, from its opening to its end."""
        try:
            stream = self._admit(context)
        except RefusedError as error:
            log.warning("a stream is refused: %s", error)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        parts = (self._hear(stream, context), self._tell(stream, context), stream.closing.wait())
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

            # A device that breaks the rules is told; so is one that another stream has replaced.
            for task in tasks:
                if task.done() and isinstance(task.exception(), RefusedError):
                    stream.why = str(task.exception())
                    log.warning("the stream of UE %d is closed: %s", stream.ue, stream.why)
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, stream.why)
            if stream.closing.is_set() and not stream.is_over:
                with contextlib.suppress(Exception):  # an order that is not read is on its way
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, stream.why)
        finally:
            for task in tasks:
                task.cancel()
            self._lose(stream)

    def _admit(self, context: Any) -> OpenStream:
        """Who opens a stream: the token identifies the node, the certificate the UE; both must
        match.
        """
        token = str(dict(context.invocation_metadata() or ()).get("token", ""))
        node = self._invitations.node_of(token)
        if node is None:
            raise RefusedError("no such session")
        names = context.auth_context().get("x509_common_name", [b""])
        name = names[0].decode(errors="replace")
        if not name.startswith("ue") or not name[2:].isdecimal():
            raise RefusedError(f"a certificate of {shown(name[:100])}, which is no UE")
        ue = int(name[2:])
        owner = self._bound.get(node) if self._bound else self._first.setdefault(node, ue)
        if owner != ue:
            of_whom = "nobody" if owner is None else owner
            why = f"the certificate of UE {ue} from the node of UE {of_whom}"
            self._invitations.refuse(node, why)
            raise RefusedError(why)

        # A device that comes again is a new process: what the old one was asked is lost.
        before = self._open.get(node)
        stream = self._open[node] = OpenStream(node, ue)
        if before is not None:
            self._close(before, "it came again")
        self._invitations.came(node, token)
        log.info("UE %d is on the stream", ue)
        return stream

    def _close(self, stream: OpenStream, why: str) -> None:
        """Close without waiting: the peer may never read that the stream is over."""
        stream.why = why
        stream.closing.set()
        self._lose(stream)

    def _let_go(self) -> None:
        for stream in self._open.values():
            stream.is_over = True
            stream.closing.set()

    def _lose(self, stream: OpenStream) -> None:
        """A stream is over, and so is its last order; an order given to its successor is not
        touched.
        """
        if self._open.get(stream.node) is stream:
            del self._open[stream.node]
            self._invitations.left(stream.node)
        self._deliver(stream, stream.awaited, stream.why, time.monotonic())

    def _deliver(self, stream: OpenStream, number: int, what: Parcel | str, began: float) -> None:
        """What came of an order, unless something came of it before or nobody waits for it."""
        if number and number == stream.awaited:
            stream.awaited = 0
            self._inbox.put(Delivery(stream.node, number, what, began, time.monotonic()))

    def _order(self, node: int, parcel: Parcel, most: float) -> None:
        stream = self._open.get(node)
        if stream is None:
            noticed = time.monotonic()
            self._inbox.put(Delivery(node, parcel.number, "the stream broke", noticed, noticed))
            return
        stream.last = parcel.number
        stream.awaited = parcel.number
        stream.most = most
        if stream.is_sending:
            self._close(stream, "it does not read what it is sent")
        else:
            stream.is_sending = True
            stream.orders.put_nowait(parcel)

    async def _tell(self, stream: OpenStream, context: Any) -> None:
        while True:
            parcel = await stream.orders.get()
            for frame in frames_of(parcel):
                await context.write(frame)
            stream.is_sending = False

    async def _hear(self, stream: OpenStream, context: Any) -> None:
        """Replies, one after another. Only what is still waited for is kept, and no more of it than
        it may have; memory grows with the bytes that have come.
        """
        while (frame := await context.read()) is not grpc.aio.EOF:
            number, length, kind = head_of(frame)
            began = time.monotonic()
            if not 0 < number <= stream.last:
                raise RefusedError("a reply that nobody asked for")
            if number == stream.awaited and length > stream.most:
                raise RefusedError(f"{length} bytes; it can have {stream.most:.0f}")
            body = bytearray()
            size = 0
            while size < length:
                piece = await context.read()
                if piece is grpc.aio.EOF:
                    return
                size += len(piece)
                if number == stream.awaited:
                    body += piece
            if size > length:
                raise RefusedError(f"more than the {length} bytes that were announced")
            self._deliver(stream, number, Parcel(number, kind, bytes(body)), began)


def listening_at(host: str) -> str:
    """Where to listen for those who are told `host`: there alone if it is an address of this
    machine, else everywhere.

    A name, or an address that leads here by way of a router, does not say which of this machine's
    addresses is meant.
    """
    if host == "localhost":
        return host
    try:
        is_ipv6 = ipaddress.ip_address(host).version == 6
    except ValueError:
        return "0.0.0.0"
    address = f"[{host}]" if is_ipv6 else host
    with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return "[::]" if is_ipv6 else "0.0.0.0"
    return address


def _content(what: Parcel | str) -> RecordDict:
    """The content of a reply that is no error."""
    if isinstance(what, str):
        raise RefusedError(what)
    if what.kind == ERROR:
        raise RefusedError(told(what.body[:400].decode(errors="replace")))
    return unpacked(what.body)
