"""Flower's own code between us and the devices: what it cannot read is one device's refusal, and
the others arrive.
"""

import itertools
import logging

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import GetNodesResponse, PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import validate_object_content
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from autofl.deploy import invitations
from autofl.deploy.invitations import Invitations
from autofl.deploy.post import Expected, Post

pytestmark = pytest.mark.slow

BAD = b"ConfigRecord  5\x00\xff\xff\xff\xff\xff"
"""An object that Flower's store takes and that its grid cannot read."""
LIES, NODES = 2, (1, 2, 3)


class SuperLink:
    """What a SuperLink answers to Flower's grid: each reply once, as it forgets what it has sent."""

    def __init__(self, unreadable=()):
        self.unreadable, self._objects, self._replies, self.requests = unreadable, {}, {}, []

    def take(self, number, message, content):
        message.metadata.__dict__["_message_id"] = number
        reply = Message(content, reply_to=message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        for key, one in get_all_nested_objects(reply).items():
            is_bad = message.metadata.dst_node_id in self.unreadable and isinstance(
                one, ConfigRecord
            )
            self._objects[key] = BAD if is_bad else one.deflate()
        self._replies[number] = reply

    def PullMessages(self, request):
        self.requests.append(list(request.message_ids))
        replies = [
            self._replies.pop(number) for number in request.message_ids if number in self._replies
        ]
        return PullAppMessagesResponse(
            messages_list=[message_to_proto(reply) for reply in replies],
            message_object_trees=[get_object_tree(reply) for reply in replies],
        )

    def GetNodes(self, request):
        return GetNodesResponse(nodes=[NodeInfo(node_id=node) for node in NODES])

    def PullObject(self, request):
        content = self._objects[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):
        pass


class Parrots(HttpGrid):
    """Flower's grid with devices that send back what they were sent."""

    def __init__(self, link):
        super().__init__("127.0.0.1:1", True, None, token="none")
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._client, self._number = link, itertools.count()
        self.set_run(Run.create_empty(1))

    def push_messages(self, messages):
        numbers = [f"m{next(self._number)}" for _ in messages]
        for number, message in zip(numbers, messages, strict=True):
            self._client.take(number, message, message.content)
        return numbers


def asked(link):
    post = Post(Parrots(link), 5.0)
    return post(
        {node: RecordDict({"x": ConfigRecord({"a": node})}) for node in NODES},
        "train",
        "1",
        Expected(("x",), lambda _, content: content["x"]["a"]),
    )


def test_flowers_store_takes_what_its_grid_cannot_read():
    validate_object_content(BAD)


def test_a_reply_that_flower_cannot_read_is_refused_and_the_others_arrive():
    answers = asked(SuperLink(unreadable=(LIES,)))
    assert answers[LIES].value is None
    assert answers[LIES].problem == "a reply that Flower cannot read (DecodeError)"
    assert {node: answers[node].value for node in NODES if node != LIES} == {1: 1, 3: 3}


def test_a_superlink_that_is_away_is_nobodys_refusal():
    class Away(SuperLink):
        def PullMessages(self, request):
            raise ConnectionError

        GetNodes = PullMessages

    with pytest.raises(ConnectionError):
        asked(Away())


def test_a_session_whose_end_flower_cannot_read_has_ended_and_the_others_are_heard_of(monkeypatch):
    """Each node sends back its invitation, which says nothing of an end; that of node 2 cannot even
    be read.
    """
    monkeypatch.setattr(invitations, "LOOK", 0.01)
    monkeypatch.setattr(invitations, "PAUSE", 0.0)
    logging.disable(logging.WARNING)
    inviting = Invitations(Parrots(SuperLink(unreadable=(LIES,))), "127.0.0.1", 8001)
    try:
        for _ in range(500):
            if set(inviting.apart()) == set(NODES):
                break
            inviting._over.wait(0.01)
        reasons = inviting.apart()
    finally:
        inviting.end()
        logging.disable(logging.NOTSET)
    assert (
        reasons[LIES] == "its session ended 2 times: a reply that Flower cannot read (DecodeError)"
    )
    assert reasons[1] == reasons[3] == "its session ended 2 times: ended: outcome is missing"
