"""The Flower app: from settings to what the server and each device do. `autofl deploy run` names it to Flower.

Settings travel as TOML text in the app's run configuration. A device's own facts (its number, its data file) are in
its node configuration and stay with it.
"""

import importlib
import logging
import time
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray
from torch import nn

from autofl.algorithms import Algorithm, State
from autofl.config import Settings, dump_settings, parse_settings
from autofl.data.federated import FederatedData, PixelSums
from autofl.deploy.device import Device, Meter, open_device
from autofl.deploy.fleet import OWN_VALUES, Devices, Fleet, Post, total_sums
from autofl.deploy.messages import Order, params_of, params_record, pixels_of, pixels_record
from autofl.deploy.privacy import local_noise, spent
from autofl.engines import ClientMemory, make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import evaluated_ues, personal_models
from autofl.experiments.cell import build_cell, build_channel, build_compressor
from autofl.experiments.run import (
    build_algorithm,
    build_evaluator,
    build_model,
    build_training,
    machine_facts,
    parts_of,
    size_range,
)
from autofl.models import Params, num_weights
from autofl.models import params_of as params_of_model
from autofl.records import DeviceRecord, Evaluation, RunWriter, read_checkpoint
from autofl.registry import label_of
from autofl.rounds.loop import Checkpoint, run_rounds
from autofl.rounds.round import ChannelAir

PURPOSES = ("client", "compressor")
"""What a device may remember: its algorithm's state, its compressor's."""


def settings_of(context: Context) -> Settings:
    """The settings of a run, as its server and each of its devices get them."""
    return parse_settings(tomllib.loads(str(context.run_config["settings"])), "settings of the run").resolved()


# ---- the server ----


def serve(grid: Grid, context: Context) -> None:
    """A whole run, or the rest of one, into its run folder on this machine."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings, folder = settings_of(context), Path(str(context.run_config["folder"]))
    use_machine(settings.simulation.threads)
    writer, past = _begin(settings, folder, bool(context.run_config["resume"]), str(context.run_config["attempt"]))
    status: str = "failed"
    problem: str | None = "the server stopped on the way; deploy run --resume goes on"
    try:
        _serve(grid, settings, writer, past)
        status, problem = "finished", None
    except AutoFLError as error:
        problem = str(error)
        raise
    finally:
        writer.finish(status, problem=problem)
        writer.close()


@dataclass(frozen=True)
class Past:
    """What a run has behind it when it goes on: nothing at first."""

    checkpoint: Checkpoint | None = None
    sums: PixelSums | None = None
    releases: Mapping[int, int] = field(default_factory=dict)
    host_time: float = 0.0


def past_of(folder: Path, algorithm: Algorithm) -> Past:
    """What `_keep` kept of a run."""
    arrays, facts = read_checkpoint(folder)
    sums = None
    if "pixels.total" in arrays:
        sums = PixelSums(facts["pixels"], arrays["pixels.total"], arrays["pixels.squares"])
    checkpoint = Checkpoint(
        round=facts["round"],
        state=_state_of(arrays, algorithm),
        memory=_group(arrays, "planner"),
        sim_time=facts["sim_time"],
        history=tuple((int(k), Evaluation(**metrics)) for k, metrics in facts["history"]),
    )
    # The round that was lost may have been answered: each device may have released one update more.
    releases = {int(ue): num + 1 for ue, num in facts["releases"].items()}
    return Past(checkpoint, sums, releases, facts["host_time"])


def _group(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays of this prefix, without it."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def _state_of(arrays: Mapping[str, NDArray[Any]], algorithm: Algorithm) -> State:
    """The server's state, every field of it."""
    state = algorithm.init({name: torch.from_numpy(array) for name, array in _group(arrays, "state.params").items()})
    kept = {
        part: {name: torch.from_numpy(array) for name, array in _group(arrays, f"state.{part}").items()}
        for part in (state_field.name for state_field in fields(state))
    }
    return replace(state, **kept)


def _begin(settings: Settings, folder: Path, resume: bool, attempt: str) -> tuple[RunWriter, Past]:
    if not resume:
        facts = {
            "algorithm": settings.algorithm,
            "label": label_of("algorithm", settings.algorithm),
            "seed": settings.seed,
            "deployed": True,
            "attempt": attempt,
            "parts": {part.kind: part.origin() for part in parts_of(settings)},
        }
        return RunWriter(folder, dump_settings(settings), facts | machine_facts()), Past()
    past = past_of(folder, build_algorithm(settings))
    assert past.checkpoint is not None
    writer = RunWriter.go_on(folder, past.checkpoint.round)
    writer.finish("running", attempt=attempt)
    return writer, past


def _serve(grid: Grid, settings: Settings, writer: RunWriter, past: Past) -> None:
    begin = time.perf_counter() - past.host_time
    if settings.stop.gradient_norm_sq is not None:
        raise AutoFLError("stop.gradient_norm_sq: needs all data in one place; a deployment cannot measure it")
    num_ue, ask = settings.cell.count, Post(grid, settings.deploy.deadline)
    fleet = Fleet(grid, ask, num_ue)
    fleet.gather(settings.deploy.join)
    if not fleet.known:
        raise AutoFLError(f"no device came within {settings.deploy.join:g} s; see autofl deploy status")
    shapes = {one.sample_shape for one in fleet.known.values()}
    if len(shapes) > 1:
        raise AutoFLError(f"the devices have samples of different shapes: {', '.join(map(str, sorted(shapes)))}")
    num_classes = max(one.num_classes for one in fleet.known.values())
    params = params_of_model(build_model(settings, shapes.pop(), num_classes))
    size = np.array([one.data_size for one in fleet.known.values()])
    writer.finish(
        "running", data=settings.data.name, num_ue=num_ue, num_weights=num_weights(params), data_size=size_range(size)
    )
    sent = num_weights(build_algorithm(settings).init(params).sent)
    cell = build_cell(settings, np.zeros(num_ue, dtype=np.int64), sent)
    shared = settings.data.standardise and settings.deploy.statistics == "shared"
    sums = past.sums or (total_sums(fleet.known) if shared else None)
    evaluated = evaluated_ues(build_evaluator(settings), num_ue, settings.seed)
    emulated = None
    if settings.deploy.channel == "emulated":  # the channels the simulator draws with the same seed
        emulated = ChannelAir(cell, build_channel(settings), settings.seed)
    world = Devices(fleet, ask, cell, emulated, sums, evaluated, num_classes)
    releases = dict(past.releases)
    for record, checkpoint in run_rounds(build_training(settings, params, world.cell), world, past.checkpoint):
        writer.write(record)
        writer.write_devices(record.round, world.measured)
        releases = _counted(releases, world.measured, num_ue)
        host_time = round(time.perf_counter() - begin, 3)
        _keep(writer, checkpoint, sums, releases, host_time)
        writer.write_weights({name: p.numpy() for name, p in checkpoint.state.params.items()})
        facts = {"stop": record.stop, "rounds": record.round, "sim_time": record.sim_time, "host_time": host_time}
        writer.finish("running", **facts, **_privacy(settings, releases))


def _counted(releases: dict[int, int], measured: tuple[DeviceRecord, ...], num_ue: int) -> dict[int, int]:
    """How often each UE was asked for an update: an order that got no answer may have been answered all the same."""
    asked = {record.ue for record in measured if record.outcome != "not connected"}
    return {ue: releases.get(ue, 0) + (ue in asked) for ue in range(num_ue)}


def _privacy(settings: Settings, releases: dict[int, int]) -> dict[str, Any]:
    deploy, most = settings.deploy, max(releases.values())
    if deploy.noise_multiplier == 0.0:
        return {}
    epsilon = spent(deploy.noise_multiplier, most, deploy.delta)
    return {"privacy": {"epsilon": epsilon, "delta": deploy.delta, "releases": most}}


def _keep(
    writer: RunWriter, checkpoint: Checkpoint, sums: PixelSums | None, releases: dict[int, int], host_time: float
) -> None:
    """A checkpoint on disk, from which `past_of` goes on."""
    arrays: dict[str, NDArray[Any]] = {f"planner.{name}": np.asarray(held) for name, held in checkpoint.memory.items()}
    for state_field in fields(checkpoint.state):
        params: Params = getattr(checkpoint.state, state_field.name)
        arrays |= {f"state.{state_field.name}.{name}": p.numpy() for name, p in params.items()}
    facts: dict[str, Any] = {
        "round": checkpoint.round,
        "sim_time": checkpoint.sim_time,
        "history": [(k, asdict(evaluation)) for k, evaluation in checkpoint.history],
        "releases": releases,
        "host_time": host_time,
    }
    if sums is not None:
        arrays |= {"pixels.total": sums.total, "pixels.squares": sums.squares}
        facts["pixels"] = sums.num
    writer.write_checkpoint(arrays, facts)


# ---- a device ----


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
    """The client update, clipped and noised where the settings say so."""
    deploy = settings_of(context).deploy
    if deploy.clip is None:
        return _train(message, context)
    return local_noise(deploy.clip, deploy.noise_multiplier)(message, context, _train)


def _train(message: Message, context: Context) -> Message:
    settings = settings_of(context)
    device, order, sent = _device(context, settings), Order.of(message.content), params_of(message.content)
    model, data = _model_and_data(settings, device, message)
    algorithm, compressor, memory = build_algorithm(settings), build_compressor(settings), _memory(context, device.ue)
    engine = make_engine(pick_engine(settings.learning.engine, model, algorithm), model)
    meter = Meter.start()
    update = device.train(engine, algorithm, compressor, sent, data, order, settings.seed, memory)
    measured = MetricRecord(dict(meter.read()))
    _remember(context, device.ue, memory)
    return Message(RecordDict({"params": params_record(update), "measured": measured}), reply_to=message)


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


server_app = ServerApp()  # Flower looks these two names up without importing the module
client_app = ClientApp()
server_app.main()(serve)
client_app.query("introduce")(introduce)
client_app.query("channel")(channel)
client_app.train()(train)
client_app.evaluate()(evaluate)
