"""What a device answers: who it is, its channel, its update, how good a model is on its own
samples.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from autofl.deploy.certificates import DeviceKeys
from autofl.deploy.desk import desk_of
from autofl.deploy.device import Meter
from autofl.deploy.frames import ERROR, REPLY, Parcel, packed, unpacked
from autofl.deploy.messages import (
    Order,
    packed_record,
    params_of,
    params_record,
    pixels_record,
)
from autofl.deploy.privacy import local_noise
from autofl.deploy.schema import FIELDS, OWN_VALUES, STAMP, RefusedError, check_parts, read
from autofl.deploy.session import hold_session, leave
from autofl.deploy.testbed import be_as_modelled, first_packet_time
from autofl.engines import ClientMemory, ReceivedUpdates, flat
from autofl.errors import AutoFLError

log = logging.getLogger("autofl")

PURPOSES = ("client", "compressor")
"""What a device may remember: its algorithm's state, its compressor's."""
LARGEST = 2.0**31
"""Bytes of a message to a device; what it holds is checked against the device's own model."""

Handler = Callable[[Message, Context], Message]


def _answers(*parts: str) -> Callable[[Handler], Handler]:
    """A handler of messages with these parts and a stamp, which its reply repeats."""

    def wrap(handler: Handler) -> Handler:
        @wraps(handler)
        def answer(message: Message, context: Context) -> Message:
            check_parts(message.content, parts, LARGEST)
            nonce = read(message.content, STAMP, FIELDS[STAMP])["nonce"]
            reply = handler(message, context)
            if not reply.has_error():
                reply.content = RecordDict({**reply.content, STAMP: ConfigRecord({"nonce": nonce})})
            return reply

        return answer

    return wrap


@_answers()
def introduce(message: Message, context: Context) -> Message:
    """Who this device is and what it has: the number of its samples and, if they are shared, its
    pixel sums.
    """
    try:
        desk = desk_of(context)
    except AutoFLError as error:
        if not {"ue", "data"} <= set(context.node_config):
            raise
        # The server does not know yet whose words these are.
        raise AutoFLError(f"UE {context.node_config['ue']}: {error}") from None
    settings = desk.settings
    device = desk.device
    own = {
        name: float(context.node_config[name]) for name in OWN_VALUES if name in context.node_config
    }
    said: dict[str, Any] = {
        "ue": device.ue,
        "data-size": device.data_size,
        "num-classes": device.dataset.num_classes,
        "sample-shape": list(device.dataset.sample_shape),
        **own,
    }
    content = RecordDict({"device": ConfigRecord(said)})
    sums = (
        device.sums()
        if settings.data.standardise and settings.deploy.statistics == "shared"
        else None
    )
    if sums is not None:
        content["pixels"] = pixels_record(sums)
    return Message(content, reply_to=message)


@_answers()
def channel(message: Message, context: Context) -> Message:
    """The channel gain as this device measures it: a function of its own, named
    channel="module:function".
    """
    module, _, name = str(context.node_config.get("channel", "")).partition(":")
    if not name:
        raise AutoFLError(
            "this node reports no channel; start it with --node-config 'channel=\"module:function\"'"
        )
    gain = float(getattr(importlib.import_module(module), name)())
    return Message(RecordDict({"measured": MetricRecord({"gain": gain})}), reply_to=message)


@_answers("params", "order", "model", "pixels")
def train(message: Message, context: Context) -> Message:
    """The client update: clipped and noised where the settings say so, and then packed where there
    is a compressor.
    """
    deploy = desk_of(context).settings.deploy
    _take_order(Order.of(message.content), context)
    if deploy.clip is None:
        return _train(message, context)
    noised = local_noise(deploy.clip, deploy.noise_multiplier)(message, context, _train)
    return _packed(message, context, noised)


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


def _train(message: Message, context: Context) -> Message:
    desk = desk_of(context)
    order = Order.of(message.content)
    settings = desk.settings
    device = desk.device
    task = desk.task(message.content)
    sent = task.sent(message.content)
    memory = _memory(context, device.ue)
    compressor = desk.compressor if settings.deploy.clip is None else None  # noise comes first
    meter = Meter.start()
    updates = device.train(
        task.engine, desk.algorithm, sent, task.data, order, settings.seed, memory
    )
    content = RecordDict()
    if compressor is None:
        content["params"] = params_record(updates.mean(np.ones(1)))  # a mean of one
    else:
        content["packed"] = packed_record(
            device.pack(updates, compressor, order, settings.seed, memory)
        )
    if "slow" in context.node_config:  # on a testbed
        be_as_modelled(order, float(context.node_config["slow"]), meter.begin)
    content["measured"] = MetricRecord({**meter.read(), "guarded": int(updates.guarded[0])})
    _remember(context, device.ue, memory)
    return Message(content, reply_to=message)


def _packed(message: Message, context: Context, reply: Message) -> Message:
    """A reply with its parameters replaced by packed bytes, if there is a compressor."""
    desk = desk_of(context)
    device = desk.device
    compressor = desk.compressor
    if compressor is None or reply.has_error():
        return reply
    order = Order.of(message.content)
    sent = params_of(message.content)  # checked by `_train`
    memory = _memory(context, device.ue)
    change = flat(params_of(reply.content)) - flat(sent)
    one = np.ones(1, dtype=np.int64)
    updates = ReceivedUpdates(np.array([device.ue]), [change], sent, one, one)
    packed = packed_record(device.pack(updates, compressor, order, desk.settings.seed, memory))
    _remember(context, device.ue, memory)
    return Message(
        RecordDict({"packed": packed, "measured": reply.content.metric_records["measured"]}),
        reply_to=message,
    )


def _memory(context: Context, ue: int) -> ClientMemory:
    """What this device remembers of its last rounds in this run; Flower keeps it beside the node."""
    memory = ClientMemory()
    for purpose in PURPOSES:
        if purpose in context.state.array_records:
            own = {
                name: torch.from_numpy(array.numpy().copy())
                for name, array in context.state.array_records[purpose].items()
            }
            memory.write(purpose, ue, own)
    memory.turn()
    return memory


def _remember(context: Context, ue: int, memory: ClientMemory) -> None:
    memory.turn()
    for purpose in PURPOSES:
        own = memory.read(purpose, ue)
        if own is not None:
            context.state[purpose] = params_record(own)


@_answers("params", "model", "pixels")
def evaluate(message: Message, context: Context) -> Message:
    """The model's quality on this device's own samples."""
    desk = desk_of(context)
    task = desk.task(message.content)
    params = task.judged(message.content)
    quality = asdict(task.evaluator(params)(params, _memory(context, desk.device.ue)))
    return Message(
        RecordDict({"quality": MetricRecord({name: quality[name] for name in FIELDS["quality"]})}),
        reply_to=message,
    )


ASKED: dict[str, Handler] = {
    "query.introduce": introduce,
    "query.channel": channel,
    "train": train,
    "evaluate": evaluate,
}
"""What a device answers on a stream, as it does by messages."""


@_answers("session")
def session(message: Message, context: Context) -> Message:
    """Stay until the run is over and answer orders on a stream; the reply says how it ended."""
    place = read(message.content, "session", FIELDS["session"])

    def answer(parcel: Parcel) -> Parcel:
        try:
            if parcel.kind not in ASKED:
                raise RefusedError("an unknown kind of message")
            asked = Message(unpacked(parcel.body), context.node_id, parcel.kind)
            body = packed(ASKED[parcel.kind](asked, context).content)
            wait = 0.0
            if parcel.kind == "train" and "slow" in context.node_config:
                wait = first_packet_time(
                    Order.of(asked.content), float(context.node_config["slow"]), len(body)
                )
            return Parcel(parcel.number, REPLY, body, wait)
        except Exception as error:  # as Flower tells it of a message
            return Parcel(
                parcel.number, ERROR, f"error 1: {type(error)}:<'{error}'>".encode()[:1000]
            )

    try:
        keys = DeviceKeys.read(
            Path(str(context.node_config["folder"])), int(context.node_config["ue"])
        )
    except KeyError:
        outcome = "no-keys"
    except (OSError, ValueError) as error:
        log.warning("no stream: %s", error)
        outcome = "bad-keys"
    else:
        outcome = hold_session(place["host"], place["port"], place["token"], keys, answer, LARGEST)
        if outcome == "over":
            leave(int(context.node_config["ue"]))
    return Message(RecordDict({"ended": ConfigRecord({"outcome": outcome})}), reply_to=message)
