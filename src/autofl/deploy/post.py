"""Messages out, replies in, each exchange within its deadline and every reply to its own message."""

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from autofl.deploy.messages import (
    SMALL,
    RefusedError,
    Stamp,
    check_parts,
    refusing,
    shown,
    size_of,
    told,
)

NAN = float("nan")
POLL = 0.2
"""Seconds between looks for replies, if a look takes no longer itself."""
GRACE = 15.0
"""Seconds for which Flower keeps a message beyond our own deadline, so that our deadline decides.
"""
UNDELIVERED = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
"""Errors that come from the SuperLink; the others are the device's."""


@dataclass(frozen=True)
class Answer:
    """What a reply says and how long it took, or why nothing of it is used."""

    value: Any = None  # what `Expected.read` made of it
    problem: str = ""
    seconds: float = NAN
    sending: float = NAN  # seconds from its first byte to its last, where that is seen
    num_bytes: float = NAN


class Expected(NamedTuple):
    """What a reply may hold, and what is made of it at once, while others are still waited for."""

    parts: Collection[str]
    read: Callable[[int, RecordDict], object]  # of who replies, and the reply
    most_bytes: float = SMALL

    def answer(
        self,
        node: int,
        take: Callable[[], RecordDict],
        stamp: Stamp,
        seconds: float,
        sending: float = NAN,
    ) -> Answer:
        """A reply, if `take` gives one that holds what was asked for, to this very message."""
        try:
            with refusing():
                content = take()
                check_parts(content, self.parts, self.most_bytes)
                if Stamp.of(content) != stamp:
                    raise RefusedError("a reply to another message: its stamp is old")
                value = self.read(node, content)
                return Answer(value, "", seconds, sending, float(size_of(content)))
        except RefusedError as error:
            return Answer(problem=str(error), seconds=seconds)


class Ask(Protocol):
    """A way to the devices: Flower's messages, or streams."""

    def nodes(self) -> set[int]:
        """Who can be asked."""
        ...

    def owner(self, node: int) -> int | None:
        """The UE for which this node has shown a certificate, if it was asked for one."""
        ...

    def way(self, node: int) -> str:
        """How a node is asked, in words."""
        ...

    def __call__(
        self, contents: Mapping[int, RecordDict], kind: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask these nodes, one content each; every node gets an answer, if only that none came in
        time.
        """
        ...


@dataclass(frozen=True)
class Post:
    """Sends Flower's messages and waits for their replies.

    `watch` is called while waiting, and may raise to end it.
    """

    grid: Grid
    deadline: float
    watch: Callable[[], None] = lambda: None
    why: str = ""  # there are no streams

    @property
    def late(self) -> Answer:
        """That of a node which does not answer."""
        return Answer(problem=f"no reply within {self.deadline:g} s")

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def owner(self, node: int) -> int | None:
        return None  # Flower has looked at its key

    def way(self, node: int) -> str:
        return f"messages ({self.why})" if self.why else "messages"

    def __call__(
        self, contents: Mapping[int, RecordDict], kind: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        self.watch()
        stamp = new_stamp()
        ttl = self.deadline + GRACE
        messages = [
            Message(stamped(content, stamp), node, kind, ttl=ttl, group_id=group)
            for node, content in contents.items()
        ]
        begin = time.monotonic()
        sent = self.grid.push_messages(messages) if messages else []
        waiting = {number: node for number, node in zip(sent, contents, strict=False) if number}
        answers = dict.fromkeys(contents, Answer(problem="could not be sent"))
        answers |= dict.fromkeys(waiting.values(), self.late)
        while waiting:
            self.watch()
            look = time.monotonic()
            for number, node in list(waiting.items()):
                seconds = time.monotonic() - begin
                try:
                    reply = pulled(self.grid, number)
                except RefusedError as error:
                    answers[node] = Answer(problem=str(error), seconds=seconds)
                else:
                    if reply is None:
                        continue
                    answers[node] = expected.answer(
                        node, partial(content_of, reply), stamp, seconds
                    )
                del waiting[number]
            if time.monotonic() - begin > self.deadline:
                break
            if waiting:  # at most half of the SuperLink's time
                time.sleep(max(POLL, time.monotonic() - look))
        return answers


def pulled(grid: Grid, number: str) -> Message | None:
    """The reply to this message, if it is there; a RefusedError where Flower cannot read what the
    node sent.

    One at a time: Flower forgets all replies of a request once it has sent them, and drops them all
    where it cannot read one.
    """
    try:
        replies = grid.pull_messages([number])
        return next(
            (reply for reply in replies if reply.metadata.reply_to_message_id == number), None
        )
    except Exception as error:
        grid.get_node_ids()  # raises where the SuperLink is away: then it was nobody's reply
        raise RefusedError(f"a reply that Flower cannot read ({type(error).__name__})") from error


def content_of(reply: Message) -> RecordDict:
    """The content of a reply that is no error."""
    if reply.has_error():
        reason = str(reply.error.reason or "no reason given")[:400]
        text = f"error {reply.error.code}: {reason}"
        raise RefusedError(shown(text) if reply.error.code in UNDELIVERED else told(text))
    return reply.content


def new_stamp() -> Stamp:
    """One that no other message has."""
    return Stamp(nonce=secrets.token_hex(16))


def stamped(content: RecordDict, stamp: Stamp) -> RecordDict:
    """A message with the stamp that its reply has to repeat."""
    return RecordDict({**content, Stamp.part: stamp.written()})
