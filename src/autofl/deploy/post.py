"""Messages out, replies in, each exchange within its deadline and every reply to its own message."""

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from autofl.deploy.messages import NAN, content_of
from autofl.deploy.schema import SMALL, STAMP, RefusedError, check_parts, read, refusing

POLL = 0.2
"""Seconds between looks for replies, if a look takes no longer itself."""
NAMES = 512
"""Bytes that name, type and shape of an array may take."""
GRACE = 15.0
"""Seconds for which Flower keeps a message beyond our own deadline, so that our deadline decides.
"""


@dataclass(frozen=True)
class Answer:
    """A reply and how long it took, or why there is none."""

    content: RecordDict | None
    seconds: float
    problem: str = ""
    sending: float = NAN  # seconds from its first byte to its last, where that is seen
    reading: object = None  # what `Expected.reader` made of it


def _nothing(*_: object) -> None:
    pass


class Expected(NamedTuple):
    """What a reply may hold, and what is done with it at once, while others are still waited for."""

    parts: Collection[str]
    most_bytes: float = SMALL
    reader: Callable[[int, RecordDict], object] = _nothing  # of who replies, and the reply
    num_arrays: int = 0

    @property
    def most_rest(self) -> float:
        """Bytes of a reply besides the values of arrays and packed updates."""
        return SMALL + NAMES * self.num_arrays


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
        self, contents: Mapping[int, RecordDict], message_type: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask these nodes, one content each; every node gets an answer, if only that none came in
        time.
        """
        ...


@dataclass(frozen=True)
class Post:
    """Sends messages and waits for their replies.

    Each message carries a nonce of its own, which its reply must repeat: the reply to another
    message, of this round or of one long ago, is refused. `watch` is called while waiting, and may
    raise to end it.
    """

    grid: Grid
    deadline: float
    watch: Callable[[], None] = _nothing
    why: str = ""  # there are no streams

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def owner(self, node: int) -> int | None:
        return None  # Flower has looked at its key

    def way(self, node: int) -> str:
        return f"messages ({self.why})" if self.why else "messages"

    def __call__(
        self, contents: Mapping[int, RecordDict], message_type: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask these nodes, one content each; every node gets an answer, if only that none came in
        time.
        """
        self.watch()
        nodes = list(contents)
        nonces = {node: secrets.token_hex(16) for node in nodes}
        messages = [
            Message(
                stamped(contents[node], nonces[node]),
                node,
                message_type,
                ttl=self.deadline + GRACE,
                group_id=group,
            )
            for node in nodes
        ]
        begin = time.monotonic()
        waiting = (
            dict(zip(self.grid.push_messages(messages), nodes, strict=True)) if messages else {}
        )
        answers = {
            node: Answer(None, NAN, "could not be sent")
            for node in nodes
            if node not in waiting.values()
        }
        while waiting:
            self.watch()
            look = time.monotonic()
            for number, node in list(waiting.items()):
                try:
                    reply = pulled(self.grid, number)
                except RefusedError as error:
                    answers[waiting.pop(number)] = Answer(
                        None, time.monotonic() - begin, str(error)
                    )
                    continue
                if reply is not None:
                    seconds = time.monotonic() - begin
                    answers[waiting.pop(number)] = _answer(
                        node, reply, seconds, nonces[node], expected
                    )
            if time.monotonic() - begin > self.deadline:
                break
            if waiting:
                time.sleep(
                    max(POLL, time.monotonic() - look)
                )  # at most half of the SuperLink's time
        late = Answer(None, NAN, f"no reply within {self.deadline:g} s")
        return {**answers, **dict.fromkeys(waiting.values(), late)}


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


def stamped(content: RecordDict, nonce: str) -> RecordDict:
    """A message with the nonce that its reply has to repeat."""
    return RecordDict({**content, STAMP: ConfigRecord({"nonce": nonce})})


def checked_answer(content: RecordDict, nonce: str, expected: Expected) -> RecordDict:
    """A reply that holds what was asked for, to this very message."""
    check_parts(content, expected.parts, expected.most_bytes)
    if read(content, STAMP, ("nonce",))["nonce"] != nonce:
        raise RefusedError("a reply to another message: its stamp is old")
    return content


def _answer(node: int, reply: Message, seconds: float, nonce: str, expected: Expected) -> Answer:
    try:
        with refusing():
            content = checked_answer(content_of(reply), nonce, expected)
            return Answer(content, seconds, reading=expected.reader(node, content))
    except RefusedError as error:
        return Answer(None, seconds, str(error))
