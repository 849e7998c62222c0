"""What a device answers: who it is, its channel, its update, how good a model is on its own samples."""

import importlib
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import nn

from autofl.config import Settings
from autofl.data.federated import FederatedData
from autofl.deploy.device import Device, Meter, open_device
from autofl.deploy.fleet import OWN_VALUES
from autofl.deploy.messages import Order, packed_record, params_of, params_record, pixels_of, pixels_record
from autofl.deploy.privacy import local_noise
from autofl.deploy.run_config import settings_of
from autofl.engines import ClientMemory, StackedUpdates, make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import personal_models
from autofl.experiments.build import build_algorithm, build_evaluator, build_model
from autofl.experiments.cell import build_compressor

PURPOSES = ("client", "compressor")
"""What a device may remember: its algorithm's state, its compressor's."""


def _device(context: Context, settings: Settings) -> Device:
    use_machine(settings.simulation.threads)
    node = context.node_config
    if "ue" not in node or "data" not in node:
        raise AutoFLError("this node has no UE number or data; start it with --node-config 'ue=0 data=\"own.npz\"'")
    return open_device(str(node["data"]), int(node["ue"]), settings.seed)


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


def channel(message: Message, context: Context) -> Message:
    """The channel gain as this device measures it: a function of its own, named channel="module:function"."""
    module, _, name = str(context.node_config.get("channel", "")).partition(":")
    if not name:
        raise AutoFLError("this node tells no channel; start it with --node-config 'channel=\"module:function\"'")
    gain = float(getattr(importlib.import_module(module), name)())
    return Message(RecordDict({"measured": MetricRecord({"gain": gain})}), reply_to=message)


def train(message: Message, context: Context) -> Message:
    """The client update: clipped and noised where the settings say so, and then packed where there is a compressor."""
    deploy = settings_of(context).deploy
    if deploy.clip is None:
        return _train(message, context)
    noised = local_noise(deploy.clip, deploy.noise_multiplier)(message, context, _train)
    return _packed(message, context, noised)


def _train(message: Message, context: Context) -> Message:
    settings = settings_of(context)
    device, order, sent = _device(context, settings), Order.of(message.content), params_of(message.content)
    model, data = _model_and_data(settings, device, message)
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
    device, order, sent = _device(context, settings), Order.of(message.content), params_of(message.content)
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


def evaluate(message: Message, context: Context) -> Message:
    """The model's quality on this device's own samples."""
    settings = settings_of(context)
    device, params = _device(context, settings), params_of(message.content)
    model, data = _model_and_data(settings, device, message)
    personal = personal_models(build_algorithm(settings), model, params)
    prepared = device.prepare(build_evaluator(settings), model, data, settings.seed, personal)
    quality = asdict(prepared(params, _memory(context, device.ue)))
    del quality["gradient_norm_sq"]
    return Message(RecordDict({"quality": MetricRecord(quality)}), reply_to=message)


def _model_and_data(settings: Settings, device: Device, message: Message) -> tuple[nn.Module, FederatedData]:
    """The server's model, which knows how many classes there are, and this device's samples for it."""
    num_classes = int(str(message.content.config_records["model"]["num-classes"]))
    shape = device.dataset.sample_shape
    data = device.data(num_classes, pixels_of(message.content, shape), settings.data.standardise)
    return build_model(settings, shape, num_classes), data
