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
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from flwr.app import RecordDict
from flwr.serverapp import Grid

from autofl.deploy.certificates import StreamKeys
from autofl.deploy.frames import (
    ERROR,
    METHOD,
    MOST_FRAME,
    Assembly,
    Parcel,
    all_packed,
    frames_of,
    head_of,
    unpacked,
)
from autofl.deploy.invitations import Invitations
from autofl.deploy.messages import NAN
from autofl.deploy.post import Answer, Expected, Post, checked_answer, stamped
from autofl.deploy.schema import SMALL, RefusedError, refusing, shown, told
from autofl.errors import AutoFLError

log = logging.getLogger("autofl")

BEAT = 5.0
"""Seconds of silence after which a side asks whether the other is alive."""
PATIENCE = 60.0
"""Seconds that it waits for the answer, which on a slow link has to wait for an update that is on
its way.
"""
MOST_STREAMS = 10_000
MOST_HELD = 2**30
"""Bytes of replies that have begun and not ended, of all devices together, where orders were no
larger.
"""
MOST_OWED = 64
"""Orders that a device may leave unanswered; a reply to an older one is one that nobody asked for.
"""
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


@dataclass
class Link:
    """A stream that is open, as its own thread knows it."""

    node: int
    ue: int
    closing: asyncio.Event
    orders: asyncio.Queue[Parcel]
    assembly: Assembly = field(default_factory=Assembly)
    writes: bool = False  # an order is on its way
    last: int = 0  # number of the last order it was given
    owed: dict[int, float] = field(
        default_factory=dict
    )  # bytes that a reply may have, by number of the order
    most: float = 0.0  # bytes of the reply that has begun
    head_time: float = NAN  # when the reply began to arrive
    why: str = "the stream broke"
    is_over: bool = False


@dataclass
class Exchange:
    """One exchange: who is still to answer, and what has arrived."""

    number: int
    waiting: set[int]
    most_held: float = MOST_HELD  # bytes of all replies that have begun and not ended
    arrived: dict[int, tuple[Parcel | str, float, float]] = field(
        default_factory=dict
    )  # when, and since when


class Streams:
    """Asks devices over their streams, and over `post` those that have none and cannot have one."""

    def __init__(
        self,
        grid: Grid,
        post: Post,
        keys: StreamKeys,
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
        self._changed = threading.Condition()
        self._links: dict[int, Link] = {}
        self._held = 0  # bytes of replies that have begun and not ended
        self._number = 0
        self._exchange = Exchange(0, set())
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
        with self._changed:
            return set(self._links) | set(self._invitations.apart())

    def owner(self, node: int) -> int | None:
        """The UE that the certificate of this node names."""
        with self._changed:
            return self._links[node].ue if node in self._links else None

    def way(self, node: int) -> str:
        """How a node is asked, in words."""
        apart = self._invitations.apart()
        with self._changed:
            if node in self._links:
                return "stream"
        return f"messages ({apart[node]})" if node in apart else "away"

    def __call__(
        self, contents: Mapping[int, RecordDict], message_type: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask these nodes, one content each; every node gets an answer, if only that none came in
        time.
        """
        self._post.watch()
        reasons = self._invitations.apart()
        with self._changed:
            apart = [node for node in contents if node not in self._links and node in reasons]
            ours = [node for node in contents if node not in apart]
        nonces = {node: secrets.token_hex(16) for node in ours}
        bodies = all_packed({node: stamped(contents[node], nonces[node]) for node in ours})
        with self._changed:
            self._number += 1
            sizes = sum(
                len(body) for body in bodies.values()
            )  # an update is about as large as its order
            self._exchange = Exchange(self._number, set(ours), max(MOST_HELD, 2.0 * sizes))
        begin = time.monotonic()
        for node in ours:
            parcel = Parcel(self._number, message_type, bodies[node])
            self._loop.call_soon_threadsafe(self._order, node, parcel, expected.most_bytes + SMALL)
        answers = (
            self._post({node: contents[node] for node in apart}, message_type, group, expected)
            if apart
            else {}
        )
        return {**answers, **self._gathered(begin, nonces, expected)}

    def _gathered(
        self, begin: float, nonces: Mapping[int, str], expected: Expected
    ) -> dict[int, Answer]:
        """Answers as they come, each looked at while others are still on their way."""
        answers: dict[int, Answer] = {}
        exchange = self._exchange
        end = begin + self._post.deadline
        is_over = False
        while not is_over:
            with self._changed:
                came = self._changed.wait_for(
                    lambda: exchange.arrived or not exchange.waiting, WATCH
                )
                here = exchange.arrived
                exchange.arrived = {}
                is_over = not exchange.waiting or time.monotonic() > end
                if is_over:
                    exchange.waiting = set()
            for node, (what, ended, began) in here.items():
                answers[node] = _answer(
                    node, what, ended - begin, ended - began, nonces[node], expected
                )
            if not came:
                self._post.watch()
        self._loop.call_soon_threadsafe(self._forget, exchange.number)
        late = Answer(None, NAN, f"no reply within {self._post.deadline:g} s")
        return {node: answers.get(node, late) for node in nonces}

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

    async def _listen(self, keys: StreamKeys, host: str, port: int) -> int:
        credentials = grpc.ssl_server_credentials(
            [(keys.server_key, keys.server_certificate)], keys.devices, require_client_auth=True
        )
        self._server = grpc.aio.server(options=options(), maximum_concurrent_rpcs=MOST_STREAMS)
        self._server.add_generic_rpc_handlers((_Door(self._speak),))
        try:
            chosen = self._server.add_secure_port(f"{place_of(host)}:{port}", credentials)
        except RuntimeError as error:
            raise AutoFLError(
                f"port {port} cannot be listened on ({str(error).partition(';')[0]})"
            ) from None
        await self._server.start()
        return chosen

    async def _speak(self, requests: object, context: Any) -> None:
        """One stream, from its opening to its end."""
        try:
            link = self._admit(context)
        except RefusedError as error:
            log.warning("a stream is refused: %s", error)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        parts = (self._hear(link, context), self._tell(link, context), link.closing.wait())
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and isinstance(task.exception(), RefusedError):
                    link.why = str(task.exception())
                    log.warning("the stream of UE %d is closed: %s", link.ue, link.why)
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, link.why)
            if link.closing.is_set() and not link.is_over:
                with contextlib.suppress(
                    Exception
                ):  # an order that is not read is still on its way
                    await context.abort(grpc.StatusCode.PERMISSION_DENIED, link.why)
        finally:
            for task in tasks:
                task.cancel()
            self._lose(link)

    def _admit(self, context: Any) -> Link:
        """Who opens a stream: the token identifies the node, the certificate the UE; both must
        match.
        """
        said = {
            name: value for name, value in context.invocation_metadata() or () if name == "token"
        }
        names = context.auth_context().get("x509_common_name", [b""])
        name = names[0].decode(errors="replace")
        token = str(said.get("token", ""))
        node = self._invitations.node_of(token)
        if node is None:
            raise RefusedError("no such session")
        if not name.startswith("ue") or not name[2:].isdecimal():
            raise RefusedError(f"a certificate of {shown(name[:100])}, which is no UE")
        ue = int(name[2:])
        owner = self._bound.get(node) if self._bound else self._first.setdefault(node, ue)
        if owner != ue:
            why = f"the certificate of UE {ue} from the node of UE {'nobody' if owner is None else owner}"
            self._invitations.refuse(node, why)
            raise RefusedError(why)
        link = Link(node, ue, asyncio.Event(), asyncio.Queue())
        with self._changed:
            before = self._links.get(node)
            self._links[node] = link
        if before is not None:
            self._close(before, "it came again")
        self._invitations.came(node, token)
        log.info("UE %d is on the stream", ue)
        return link

    def _close(self, link: Link, why: str) -> None:
        """Close without waiting: the peer may never read that the stream is over."""
        link.why = why
        link.closing.set()
        self._lose(link)

    def _let_go(self) -> None:
        for link in self._links.values():
            link.is_over = True
            link.closing.set()

    def _forget(self, number: int) -> None:
        """An exchange has ended: nobody waits any more for what is on its way."""
        for link in self._links.values():
            if link.assembly.number is not None and link.assembly.number <= number:
                self._drop(link)

    def _drop(self, link: Link) -> None:
        self._held -= link.assembly.held
        link.assembly.let_go()

    def _lose(self, link: Link) -> None:
        """A stream is over, and so is its last order; an order given to its successor is not
        touched.
        """
        self._drop(link)
        with self._changed:
            if self._links.get(link.node) is link:
                del self._links[link.node]
                self._invitations.left(link.node)
        self._deliver(link.node, link.last, link.why, time.monotonic())

    def _deliver(self, node: int, number: int, what: Parcel | str, began: float) -> None:
        with self._changed:
            if number == self._exchange.number and node in self._exchange.waiting:
                self._exchange.waiting.discard(node)
                self._exchange.arrived[node] = what, time.monotonic(), began
                self._changed.notify_all()

    def _is_awaited(self, link: Link) -> bool:
        with self._changed:
            return (
                link.assembly.number == self._exchange.number
                and link.node in self._exchange.waiting
            )

    def _order(self, node: int, parcel: Parcel, most: float) -> None:
        link = self._links.get(node)
        if link is None:
            return self._deliver(node, parcel.number, "the stream broke", time.monotonic())
        link.last = parcel.number
        if link.writes:
            self._close(link, "it does not read what it is sent")
        else:
            link.writes, link.owed[parcel.number] = True, most
            if len(link.owed) > MOST_OWED:
                del link.owed[min(link.owed)]
            link.orders.put_nowait(parcel)
        return None

    async def _tell(self, link: Link, context: Any) -> None:
        while True:
            parcel = await link.orders.get()
            for frame in frames_of(parcel):
                await context.write(frame)
            link.writes = False

    async def _hear(self, link: Link, context: Any) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:
            begins = link.assembly.number is None
            if begins:
                number, _ = head_of(frame)
                if number not in link.owed:
                    raise RefusedError("a reply that nobody asked for")
                link.most = link.owed.pop(number)
                link.head_time = time.monotonic()
            before = link.assembly.held
            parcel = link.assembly.add(frame, link.most)
            self._held += link.assembly.held - before
            if parcel is not None:
                self._deliver(link.node, parcel.number, parcel, link.head_time)
            elif begins and not self._is_awaited(link):  # a late reply to an earlier question
                link.assembly.let_go()
            elif self._held > self._exchange.most_held:
                largest = max(self._links.values(), key=lambda one: one.assembly.held)
                self._close(
                    largest, f"unfinished replies hold {self._held} bytes; this is the largest one"
                )


def place_of(host: str) -> str:
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
    place = f"[{host}]" if is_ipv6 else host
    with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return "[::]" if is_ipv6 else "0.0.0.0"
    return place


def _answer(
    node: int, what: Parcel | str, seconds: float, sending: float, nonce: str, expected: Expected
) -> Answer:
    try:
        if isinstance(what, str):
            raise RefusedError(what)
        if what.kind == ERROR:
            raise RefusedError(told(what.body[:400].decode(errors="replace")))
        with refusing():
            content = checked_answer(unpacked(what.body, expected.most_rest), nonce, expected)
            return Answer(content, seconds, sending=sending, reading=expected.reader(node, content))
    except RefusedError as error:
        return Answer(None, seconds, str(error))


class _Door(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The one method there is."""

    def __init__(self, speak: Any) -> None:
        self._handler = grpc.stream_stream_rpc_method_handler(speak)

    def service(self, details: Any) -> Any:
        return self._handler if details.method == METHOD else None
