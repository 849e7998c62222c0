"""Flower's grid in this process: messages go straight to the client app, replies come back in any
order asked for.
"""

import itertools
import threading

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from autofl.data import ByLabels, write_device
from autofl.deploy import client
from autofl.deploy.app import client_app
from autofl.deploy.folder import Deployment


def node_of(ue):
    """Flower's numbers are arbitrary."""
    return 9000 - 7 * ue


def make_nodes(dataset, folder, num_ue):
    """Devices with files, keys and certificates of their own: {node id: node config}."""
    site = Deployment(folder)
    site.prepare(["127.0.0.1"], num_ue)
    partition = dataset.partition(ByLabels(5), num_ue, seed=1)
    for ue in range(num_ue):
        write_device(site.node(ue, ".npz"), dataset, partition.train_of(ue), partition.test_of(ue))
    return {
        node_of(ue): {"ue": ue, "data": str(site.node(ue, ".npz")), "folder": str(folder)}
        for ue in range(num_ue)
    }


class Loopback(Grid):
    """Nodes are {node id: node config}; `spoil(node, message, reply)` may change or withhold (None)
    a reply.
    """

    def __init__(self, nodes, run_config, backwards=False, spoil=None):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes, self.run_config, self.backwards = dict(nodes), run_config, backwards
        self.spoil = spoil or (lambda node, message, reply: reply)
        self.sent, self._replies, self._number = [], {}, itertools.count()
        self.state = {}  # what each node keeps in its context from one message to the next

    set_run = run = create_message = send_and_receive = (
        None  # of Grid; the deployment uses none of them
    )

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"m{next(self._number)}"
            message.metadata.__dict__["_message_id"] = number
            node = message.metadata.dst_node_id
            self.sent.append((node, message))
            context = Context(
                1,
                node,
                self.nodes[node],
                self.state.setdefault(node, RecordDict()),
                self.run_config,
            )
            try:
                reply = client_app(message, context)
            except Exception as error:  # as Flower does
                reply = Message(
                    Error(code=1, reason=f"{type(error)}:<'{error}'>"), reply_to=message
                )
            reply = self.spoil(node, message, reply)
            if reply is not None:
                self._replies[number] = reply
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids):
        """A reply is given once. Backwards: only the last of those that are there, as if the others
        came later.
        """
        here = list(self._replies)[-1:] if self.backwards else list(self._replies)
        return [self._replies.pop(number) for number in list(message_ids) if number in here]


class Lines(Loopback):
    """The same with real streams: each invitation is answered by a thread, which stays as a
    device's process would.
    """

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.is_over, self.is_interrupted = threading.Event(), threading.Event()

    def asked(self):
        """What the devices answer on their streams, spoiled; who interrupts the run or withholds a
        reply stays mute.
        """

        def spoiled(handler):
            def answer(message, context):
                try:
                    reply = self.spoil(context.node_id, message, handler(message, context))
                except KeyboardInterrupt:
                    self.is_interrupted.set()
                    reply = None
                if reply is None:
                    self.is_over.wait()
                    raise RuntimeError("the run is over")
                return reply

            return answer

        return {kind: spoiled(handler) for kind, handler in client.ASKED.items()}

    def watch(self):
        """Of the server, while it waits for replies."""
        if self.is_interrupted.is_set():
            raise KeyboardInterrupt

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
        context = Context(
            1, node, self.nodes[node], self.state.setdefault(node, RecordDict()), self.run_config
        )
        self._replies[number] = client_app(message, context)
