"""Messages out, replies in, each exchange within its deadline and every reply to its own message."""

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from autofl.deploy.messages import NAN, content_of
from autofl.deploy.schema import SMALL, STAMP, RefusedError, check_parts, read

POLL = 0.2
"""Seconds between looks for replies."""
GRACE = 15.0
"""Seconds for which Flower keeps a message longer than we wait for its reply: the deadline is ours to tell."""


@dataclass(frozen=True)
class Answer:
    """A reply and how long it took, or why there is none."""

    content: RecordDict | None
    seconds: float
    problem: str = ""


class Expected(NamedTuple):
    """What a reply may hold."""

    parts: Collection[str]
    most_bytes: float = SMALL


Ask = Callable[[Mapping[int, RecordDict], str, str, Expected], dict[int, Answer]]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Post:
    """Sends messages and waits for their replies.

    Each message carries a nonce of its own, which its reply must repeat: the reply to another message, of this round
    or of one long ago, is refused. `watch` is called while waiting, and may raise to end it.
    """

    grid: Grid
    deadline: float
    watch: Callable[[], None] = _nothing

    def __call__(
        self, contents: Mapping[int, RecordDict], message_type: str, group: str, expected: Expected
    ) -> dict[int, Answer]:
        """Ask these nodes, one content each; every node gets an answer, if only that none came in time."""
        self.watch()
        nodes = list(contents)
        nonces = {node: secrets.token_hex(16) for node in nodes}
        messages = [
            Message(
                RecordDict({**contents[node], STAMP: ConfigRecord({"nonce": nonces[node]})}),
                node,
                message_type,
                ttl=self.deadline + GRACE,
                group_id=group,
            )
            for node in nodes
        ]
        begin = time.monotonic()
        waiting = dict(zip(self.grid.push_messages(messages), nodes, strict=True)) if messages else {}
        answers = {node: Answer(None, NAN, "could not be sent") for node in nodes if node not in waiting.values()}
        while waiting:
            self.watch()
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = _answer(reply, time.monotonic() - begin, nonces[node], expected)
            if time.monotonic() - begin > self.deadline:
                break
            if waiting:
                time.sleep(POLL)
        late = Answer(None, NAN, f"no reply within {self.deadline:g} s")
        return {**answers, **dict.fromkeys(waiting.values(), late)}


def _answer(reply: Message, seconds: float, nonce: str, expected: Expected) -> Answer:
    try:
        content = content_of(reply)
        check_parts(content, expected.parts, expected.most_bytes)
        if read(content, STAMP, ("nonce",))["nonce"] != nonce:
            raise RefusedError("a reply to another message: its stamp is old")
        return Answer(content, seconds)
    except RefusedError as error:
        return Answer(None, seconds, str(error))
