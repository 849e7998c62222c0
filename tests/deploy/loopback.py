"""Flower's grid in this process: messages go straight to the client app, replies come back in any order asked for."""

import itertools
import threading

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from autofl.deploy.app import client_app


class Loopback(Grid):
    """Nodes are {node id: node config}; `spoil(node, message, reply)` may change or withhold (None) a reply."""

    def __init__(self, nodes, run_config, backwards=False, spoil=None):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes, self.run_config, self.backwards = dict(nodes), run_config, backwards
        self.spoil = spoil or (lambda node, message, reply: reply)
        self.sent, self._replies, self._number = [], {}, itertools.count()
        self.state = {}  # what each node keeps in its context from one message to the next

    set_run = run = create_message = send_and_receive = None  # of Grid; the deployment uses none of them

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"m{next(self._number)}"
            message.metadata.__dict__["_message_id"] = number
            node = message.metadata.dst_node_id
            self.sent.append((node, message))
            context = Context(1, node, self.nodes[node], self.state.setdefault(node, RecordDict()), self.run_config)
            try:
                reply = client_app(message, context)
            except Exception as error:  # as Flower does
                reply = Message(Error(code=1, reason=f"{type(error)}:<'{error}'>"), reply_to=message)
            reply = self.spoil(node, message, reply)
            if reply is not None:
                self._replies[number] = reply
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids):
        there = [self._replies.pop(number) for number in list(message_ids) if number in self._replies]
        return there[::-1] if self.backwards else there


class Lines(Loopback):
    """The same with real streams: each invitation is answered by a thread, which stays as a device's process would."""

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            if message.metadata.message_type != "query.session":
                numbers += super().push_messages([message])
                continue
            number = f"m{next(self._number)}"
            message.metadata.__dict__["_message_id"] = number
            threading.Thread(target=self._stay, args=(number, message), daemon=True).start()
            numbers.append(number)
        return numbers

    def _stay(self, number, message):
        node = message.metadata.dst_node_id
        context = Context(1, node, self.nodes[node], self.state.setdefault(node, RecordDict()), self.run_config)
        self._replies[number] = client_app(message, context)
