"""What a device answers: who it is, its channel, its update, how good a model is on its own samples."""

import importlib
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import nn

from autofl.config import Settings
from autofl.data.federated import FederatedData
from autofl.deploy.device import Device, Meter, open_device
from autofl.deploy.messages import (
    Order,
    checked_params,
    packed_record,
    params_of,
    params_record,
    pixels_of,
    pixels_record,
)
from autofl.deploy.privacy import local_noise
from autofl.deploy.run_config import settings_of
from autofl.deploy.schema import FIELDS, OWN_VALUES, STAMP, RefusedError, check_parts, read
from autofl.engines import ClientMemory, StackedUpdates, make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import personal_models
from autofl.experiments.build import build_algorithm, build_evaluator, build_model
from autofl.experiments.cell import build_compressor
from autofl.models import Params
from autofl.models import params_of as params_of_model

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


def _device(context: Context, settings: Settings) -> Device:
    use_machine(settings.simulation.threads)
    node = context.node_config
    if "ue" not in node or "data" not in node:
        raise AutoFLError("this node has no UE number or data; start it with --node-config 'ue=0 data=\"own.npz\"'")
    return open_device(str(node["data"]), int(node["ue"]), settings.seed)


@_answers()
def introduce(message: Message, context: Context) -> Message:
    """Who this device is and what it has; of its data, how much and, where they are shared, the pixel sums."""
    settings = settings_of(context)
    device = _device(context, settings)
    own = {name: float(context.node_config[name]) for name in OWN_VALUES if name in context.node_config}
    said: dict[str, Any] = {
        "ue": device.ue,
        "data-size": device.data_size,
        "num-classes": device.dataset.num_classes,
        "sample-shape": list(device.dataset.sample_shape),
        **own,
    }
    content = RecordDict({"device": ConfigRecord(said)})
    sums = device.sums() if settings.data.standardise and settings.deploy.statistics == "shared" else None
    if sums is not None:
        content["pixels"] = pixels_record(sums)
    return Message(content, reply_to=message)


@_answers()
def channel(message: Message, context: Context) -> Message:
    """The channel gain as this device measures it: a function of its own, named channel="module:function"."""
    module, _, name = str(context.node_config.get("channel", "")).partition(":")
    if not name:
        raise AutoFLError("this node tells no channel; start it with --node-config 'channel=\"module:function\"'")
    gain = float(getattr(importlib.import_module(module), name)())
    return Message(RecordDict({"measured": MetricRecord({"gain": gain})}), reply_to=message)


@_answers("params", "order", "model", "pixels")
def train(message: Message, context: Context) -> Message:
    """The client update: clipped and noised where the settings say so, and then packed where there is a compressor."""
    deploy = settings_of(context).deploy
    _take_order(Order.of(message.content), context)
    if deploy.clip is None:
        return _train(message, context)
    noised = local_noise(deploy.clip, deploy.noise_multiplier)(message, context, _train)
    return _packed(message, context, noised)


def _take_order(order: Order, context: Context) -> None:
    """Each round once: an order of a round that is over would have the device release a second update of it."""
    last = context.state.config_records.get("orders", ConfigRecord()).get("round", 0)
    if isinstance(last, int) and order.round <= last:
        raise RefusedError(f"an order of round {order.round} after one of round {last}")
    context.state["orders"] = ConfigRecord({"round": order.round})


def _train(message: Message, context: Context) -> Message:
    settings = settings_of(context)
    device, order = _device(context, settings), Order.of(message.content)
    model, data, sent = _what_came(settings, device, message)
    algorithm, memory = build_algorithm(settings), _memory(context, device.ue)
    engine = make_engine(pick_engine(settings.learning.engine, model, algorithm), model)
    compressor = build_compressor(settings) if settings.deploy.clip is None else None  # noise comes first
    meter = Meter.start()
    updates = device.train(engine, algorithm, sent, data, order, settings.seed, memory)
    content = RecordDict()
    if compressor is None:
        content["params"] = params_record(updates.mean(np.ones(1)))  # a mean of one
    else:
        content["packed"] = packed_record(device.pack(updates, compressor, sent, order, settings.seed, memory))
    content["measured"] = MetricRecord({**meter.read(), "guarded": int(updates.guarded[0])})
    _remember(context, device.ue, memory)
    return Message(content, reply_to=message)


def _packed(message: Message, context: Context, reply: Message) -> Message:
    """A reply with parameters as one with packed bytes, where there is a compressor."""
    settings = settings_of(context)
    compressor = build_compressor(settings)
    if compressor is None or reply.has_error():
        return reply
    device, order = _device(context, settings), Order.of(message.content)
    sent = params_of(message.content)  # checked by `_train`
    memory = _memory(context, device.ue)
    stacked = {name: p[None] for name, p in params_of(reply.content).items()}
    updates = StackedUpdates(np.array([device.ue]), stacked, sent)
    packed = packed_record(device.pack(updates, compressor, sent, order, settings.seed, memory))
    _remember(context, device.ue, memory)
    return Message(
        RecordDict({"packed": packed, "measured": reply.content.metric_records["measured"]}), reply_to=message
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
    settings = settings_of(context)
    device = _device(context, settings)
    model, data, params = _what_came(settings, device, message, trains=False)
    personal = personal_models(build_algorithm(settings), model, params)
    prepared = device.prepare(build_evaluator(settings), model, data, settings.seed, personal)
    quality = asdict(prepared(params, _memory(context, device.ue)))
    return Message(
        RecordDict({"quality": MetricRecord({name: quality[name] for name in FIELDS["quality"]})}), reply_to=message
    )


def _what_came(
    settings: Settings, device: Device, message: Message, trains: bool = True
) -> tuple[nn.Module, FederatedData, Params]:
    """The server's model, this device's samples for it, and the weights that came, all checked.

    The server knows how many classes there are; the form of everything else follows from the settings and the
    device's own samples.
    """
    num_classes = read(message.content, "model", FIELDS["model"])["num-classes"]
    if num_classes < device.dataset.num_classes:
        raise RefusedError(f"a model of {num_classes} classes; the samples here have {device.dataset.num_classes}")
    shape = device.dataset.sample_shape
    data = device.data(num_classes, pixels_of(message.content, shape), settings.data.standardise)
    model = build_model(settings, shape, num_classes)
    params = params_of_model(model)
    like = build_algorithm(settings).init(params).sent if trains else params
    return model, data, checked_params(message.content, like)
