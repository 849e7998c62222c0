"""What a device answers: who it is, its channel, its update, how good a model is on its own
samples.
"""

import importlib
import logging
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from autofl.deploy.arrays import packed_record, params_of, params_record, pixels_record
from autofl.deploy.certificates import keys_of_device
from autofl.deploy.desk import desk_of
from autofl.deploy.device import Meter
from autofl.deploy.frames import ERROR, REPLY, Parcel, packed, unpacked
from autofl.deploy.messages import (
    OWN_VALUES,
    Ended,
    Gain,
    Introduction,
    Judged,
    Order,
    Record,
    RefusedError,
    Session,
    Stamp,
    Trained,
    check_parts,
)
from autofl.deploy.post import stamped
from autofl.deploy.privacy import local_noise
from autofl.deploy.session import hold_session, leave
from autofl.deploy.testbed import be_as_modelled, first_packet_time
from autofl.engines import ClientMemory, ReceivedUpdates, Updates, flat
from autofl.errors import AutoFLError
from autofl.models import Params

log = logging.getLogger("autofl")

PURPOSES = ("client", "compressor")
"""What a device may remember: its algorithm's state, its compressor's."""

Answers = Callable[[RecordDict, Context], RecordDict]
Handler = Callable[[Message, Context], Message]


def _to(*parts: str) -> Callable[[Answers], Handler]:
    """What answers messages with these parts and a stamp, which the reply repeats."""

    def wrap(answers: Answers) -> Handler:
        @wraps(answers)
        def handle(message: Message, context: Context) -> Message:
            check_parts(message.content, parts, math.inf)
            stamp = Stamp.of(message.content)
            return Message(stamped(answers(message.content, context), stamp), reply_to=message)

        return handle

    return wrap


def _part(record: Record) -> RecordDict:
    return RecordDict({record.part: record.written()})


@_to()
def introduce(content: RecordDict, context: Context) -> RecordDict:
    """Who this device is and what it has: the number of its samples and, if they are shared, its
    pixel sums.
    """
    node = context.node_config
    try:
        desk = desk_of(context)
    except AutoFLError as error:
        if not {"ue", "data"} <= set(node):
            raise
        # The server does not know yet whose words these are.
        raise AutoFLError(f"UE {node['ue']}: {error}") from None
    device = desk.device
    said = _part(
        Introduction.saying(
            ue=device.ue,
            data_size=device.data_size,
            num_classes=device.dataset.num_classes,
            sample_shape=device.dataset.sample_shape,
            **{name: float(node[name]) for name in OWN_VALUES if name in node},
        )
    )
    settings = desk.settings
    if settings.data.standardise and settings.deploy.statistics == "shared":
        sums = device.sums()
        if sums is not None:
            said["pixels"] = pixels_record(sums)
    return said


@_to()
def channel(content: RecordDict, context: Context) -> RecordDict:
    """The channel gain as this device measures it: a function of its own, named
    channel="module:function".
    """
    module, _, name = str(context.node_config.get("channel", "")).partition(":")
    if not name:
        raise AutoFLError(
            "this node reports no channel; start it with --node-config 'channel=\"module:function\"'"
        )
    return _part(Gain.saying(gain=float(getattr(importlib.import_module(module), name)())))


@_to("params", "order", "model", "pixels")
def train(content: RecordDict, context: Context) -> RecordDict:
    """The client update: clipped and noised where the settings say so, and then packed where there
    is a compressor.
    """
    desk = desk_of(context)
    order = Order.of(content)
    _take_order(order, context)
    learner = desk.learner(content)
    sent = learner.sent(content)
    memory = _memory(context, desk.device.ue)
    reply = RecordDict()

    # What is measured is all that a device does for an update, as slow as a testbed makes it.
    meter = Meter.start()
    updates = trained = learner.train(sent, order, memory)
    own = None
    if desk.settings.deploy.clip is not None:
        own = _noised(trained, content, context)
        change = flat(own) - flat(sent)
        one = np.ones(1, dtype=np.int64)
        updates = ReceivedUpdates(trained.ue, [change], sent, one, one)
    if desk.compressor is None:
        reply["params"] = params_record(own or trained.mean(np.ones(1)))  # a mean of one
    else:
        payload = learner.pack(updates, desk.compressor, order, memory)
        reply["packed"] = packed_record(payload)
    if "slow" in context.node_config:
        be_as_modelled(order, float(context.node_config["slow"]), meter.begin)
    guarded = int(trained.guarded[0])  # known once the update was formed
    reply[Trained.part] = Trained.saying(guarded=guarded, **meter.read()).written()

    _remember(context, desk.device.ue, memory)
    return reply


def _take_order(order: Order, context: Context) -> None:
    """An order is for one UE, even if its node was restarted as another one before the server could
    know.

    Each round is answered once: a repeated order would make the device release a second update of a
    round.
    """
    if order.ue != (ue := desk_of(context).device.ue):
        raise RefusedError(f"an order for UE {order.ue}; this is UE {ue}")
    last = context.state.config_records.get("orders", ConfigRecord()).get("round", 0)
    if isinstance(last, int) and order.round <= last:
        raise RefusedError(f"an order of round {order.round} after one of round {last}")
    context.state["orders"] = ConfigRecord({"round": order.round})


def _noised(updates: Updates, content: RecordDict, context: Context) -> Params:
    """w_i as Flower's mod makes it private; it takes a message with the model and its reply."""
    deploy = desk_of(context).settings.deploy
    assert deploy.clip is not None
    asked = Message(RecordDict({"params": content["params"]}), context.node_id, "train")
    own = RecordDict({"params": params_record(updates.mean(np.ones(1)))})
    noised = local_noise(deploy.clip, deploy.noise_multiplier)(
        asked, context, lambda message, _: Message(own, reply_to=message)
    )
    return params_of(noised.content.array_records["params"])


def _memory(context: Context, ue: int) -> ClientMemory:
    """What this device remembers of its last rounds in this run; Flower keeps it beside the node."""
    memory = ClientMemory()
    for purpose in PURPOSES:
        if purpose in context.state.array_records:
            memory.write(purpose, ue, params_of(context.state.array_records[purpose]))
    memory.turn()
    return memory


def _remember(context: Context, ue: int, memory: ClientMemory) -> None:
    memory.turn()
    for purpose in PURPOSES:
        own = memory.read(purpose, ue)
        if own is not None:
            context.state[purpose] = params_record(own)


@_to("params", "model", "pixels")
def evaluate(content: RecordDict, context: Context) -> RecordDict:
    """The model's quality on this device's own samples."""
    desk = desk_of(context)
    quality = desk.learner(content).evaluate(content, _memory(context, desk.device.ue))
    return _part(Judged.saying(**{name: getattr(quality, name) for name in Judged.model_fields}))


ASKED: dict[str, Handler] = {
    "query.introduce": introduce,
    "query.channel": channel,
    "train": train,
    "evaluate": evaluate,
}
"""What a device answers on a stream, as it does by messages."""


@_to(Session.part)
def session(content: RecordDict, context: Context) -> RecordDict:
    """Stay until the run is over and answer orders on a stream; the reply says how it ended."""
    place = Session.of(content)
    node = context.node_config
    try:
        keys = keys_of_device(Path(str(node["folder"])), int(node["ue"]))
    except KeyError:
        return _part(Ended(outcome="no-keys"))
    except (OSError, ValueError) as error:
        log.warning("no stream: %s", error)
        return _part(Ended(outcome="bad-keys"))

    def answer(parcel: Parcel) -> Parcel:
        return _answer(parcel, context)

    outcome = hold_session(place.host, place.port, place.token, keys, answer)
    if outcome == "over":
        leave(int(node["ue"]))
    return _part(Ended.saying(outcome=outcome))


def _answer(parcel: Parcel, context: Context) -> Parcel:
    """The reply to an order on a stream; an error is told as Flower tells it of a message."""
    try:
        if parcel.kind not in ASKED:
            raise RefusedError("an unknown kind of message")
        asked = Message(unpacked(parcel.body), context.node_id, parcel.kind)
        body = packed(ASKED[parcel.kind](asked, context).content)
        wait = 0.0
        if parcel.kind == "train" and "slow" in context.node_config:
            slow = float(context.node_config["slow"])
            wait = first_packet_time(Order.of(asked.content), slow, len(body))
        return Parcel(parcel.number, REPLY, body, wait)
    except Exception as error:
        return Parcel(parcel.number, ERROR, f"error 1: {type(error)}:<'{error}'>".encode()[:1000])
