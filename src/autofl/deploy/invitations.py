"""Which nodes are asked, by a message of Flower, to open a stream: those that are online and have
none.
"""

import logging
import secrets
import threading
import time
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from autofl.deploy.messages import Ended, RefusedError, Session, refusing, shown
from autofl.deploy.post import content_of, new_stamp, pulled, stamped

log = logging.getLogger("autofl")

LOOK = 1.0
"""Seconds between looks for nodes that have no stream."""
PAUSE = 5.0
"""Seconds before a node is asked again; twice as long each time."""
LONGEST_PAUSE = 300.0
RENEW = 90.0
"""Seconds for which an invitation is valid that was not answered and brought no stream.

A node of Flower takes one message at a time, and takes a process that was killed for alive for up
to a minute.
"""
MONTH = 30 * 86_400.0
"""Seconds that a session may last."""
REASONS = {
    "unreachable": "the port of streams could not be reached",
    "untrusted": "the port of streams answers, but the certificates do not fit or have expired;"
    " copy ca.pem and nodes/ueN.pem from the server again",
    "no-keys": "the node has no certificate; name its folder in its node configuration",
    "bad-keys": "ca.pem, nodes/ueN or nodes/ueN.pem is missing in its folder or cannot be read;"
    " copy it from the server",
}
"""Why a node cannot have a stream: it is asked by messages for the rest of the run."""
MOST_FAILURES = 2
"""Sessions that may end in any other way, without a stream between them, before a node is asked by
messages.
"""


@dataclass
class Invitation:
    token: str  # which the stream must show
    message: str  # Flower's number of it; empty once it was answered
    since: float  # when it was sent, or when its stream was lost
    former: str = ""  # the token of the process whose stream was lost, which may still come back
    tries: int = 0
    failures: int = 0  # sessions that have ended since its last stream
    refused: str = ""  # why its stream was refused
    has_come: bool = False  # it has brought a stream
    has_stream: bool = False


class Invitations:
    """Asks in a thread of its own, as long as the run lasts."""

    def __init__(self, grid: Grid, host: str, port: int) -> None:
        """Streams are opened to this place."""
        self._grid = grid
        self._host = host
        self._port = port
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._of_node: dict[int, Invitation] = {}
        self._apart: dict[int, str] = {}
        self._online: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="invitations", daemon=True)
        self._thread.start()

    def node_of(self, token: str) -> int | None:
        """Who was invited with this token, if it is still valid."""
        with self._lock:
            for node, one in self._of_node.items():
                if token and token in (one.token, one.former):
                    return node
            return None

    def came(self, node: int, token: str) -> None:
        """A node has opened its stream: its new process, or the former one, whose successor then is
        not called yet.
        """
        with self._lock:
            one = self._of_node[node]
            if token == one.token:
                one.has_come = True
                one.former = ""
            one.has_stream = True
            one.tries = 0
            one.failures = 0
            self._apart.pop(node, None)

    def refuse(self, node: int, why: str) -> None:
        """Its stream was refused, for a reason that its device does not tell."""
        with self._lock:
            self._of_node[node].refused = why

    def left(self, node: int) -> None:
        """Its stream is gone. Its process comes back by itself, unless it is gone too: then it is
        invited again.
        """
        with self._lock:
            one = self._of_node[node]
            one.has_stream = False
            one.since = time.monotonic()

    def apart(self) -> dict[int, str]:
        """Nodes that are online and cannot have a stream, and why."""
        with self._lock:
            return {node: why for node, why in self._apart.items() if node in self._online}

    def end(self) -> None:
        self._over.set()
        self._thread.join(timeout=2 * LOOK)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                online = set(self._grid.get_node_ids())
                self._hear_of_ends()
                self._invite(online)
            # the SuperLink may be away for a while; whoever waits for the run sees to it
            except Exception as error:
                log.warning("no answer from the SuperLink: %s", shown(str(error)[:200]))
            self._over.wait(LOOK)

    def _hear_of_ends(self) -> None:
        """A session that ended says why."""
        with self._lock:
            unanswered = {one.message: node for node, one in self._of_node.items() if one.message}
        for number, node in unanswered.items():
            outcome = self._outcome(number)
            if outcome is None:
                continue
            with self._lock:
                one = self._of_node[node]
                one.message = ""
                if (
                    one.has_stream
                ):  # Flower takes its process for dead, or the one that had its stream before
                    continue
                one.failures += 1
                why = REASONS.get(outcome, "")
                if not why and one.failures >= MOST_FAILURES:
                    why = f"its session ended {one.failures} times: {one.refused or outcome}"
                if why:
                    self._apart[node] = why
            if why:
                log.warning("node %d is asked by messages: %s", node, why)

    def _invite(self, online: set[int]) -> None:
        with self._lock:
            self._online = online
            due = [node for node in sorted(online) if self._is_due(node)]
        for node in due:
            before = self._of_node.get(node)
            token = secrets.token_hex(16)
            session = Session(host=self._host, port=self._port, token=token)
            content = RecordDict({Session.part: session.written()})
            invitation = Invitation(token, "", time.monotonic())
            if before is not None:
                invitation.tries = before.tries + 1
                invitation.failures = before.failures
                invitation.refused = before.refused
                if before.has_come:
                    invitation.former = before.token
            with self._lock:
                self._of_node[node] = invitation  # before the node can know of it
            message = Message(
                stamped(content, new_stamp()),
                node,
                "query.session",
                ttl=MONTH,
                group_id="session",
            )
            invitation.message = next(iter(self._grid.push_messages([message])), "")

    def _is_due(self, node: int) -> bool:
        one = self._of_node.get(node)
        if one is None:
            return True
        is_awaited = (
            bool(one.message) and not one.has_come
        )  # whoever had a stream may be called before it answers
        pause = RENEW if is_awaited else min(PAUSE * 2.0**one.tries, LONGEST_PAUSE)
        return (
            not one.has_stream and node not in self._apart and time.monotonic() - one.since > pause
        )

    def _outcome(self, number: str) -> str | None:
        """How the session to which this message invited has ended, if it has."""
        try:
            reply = pulled(self._grid, number)
            if reply is None:
                return None
            with refusing():
                return Ended.of(content_of(reply)).outcome
        except RefusedError as error:
            return shown(str(error))
