"""The Flower app: from settings to what the server and each device do. `autofl deploy run` names it to Flower.

Settings travel as TOML text in the app's run configuration. A device's own facts (its number, its data file) are in
its node configuration and stay with it.
"""

import importlib
import logging
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import nn

from autofl.algorithms import State
from autofl.config import Settings, dump_settings, parse_settings
from autofl.data.federated import FederatedData, PixelSums
from autofl.deploy.device import Device, Meter, open_device
from autofl.deploy.fleet import OWN_VALUES, Devices, Fleet, Post, total_sums
from autofl.deploy.messages import Order, params_of, params_record, pixels_of, pixels_record
from autofl.deploy.privacy import local_noise, spent
from autofl.engines import make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import judged_ues
from autofl.experiments.cell import build_cell, build_fading
from autofl.experiments.run import build_algorithm, build_evaluator, build_job, build_model, machine_facts, size_range
from autofl.models import num_weights
from autofl.models import params_of as params_of_model
from autofl.network import Cell, channel_gain
from autofl.records import DeviceRecord, Evaluation, RunWriter, read_checkpoint
from autofl.rng import stream
from autofl.rounds import Standing, run_rounds
from autofl.units import Array, IntArray


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


class Past:
    """What a run has behind it when it goes on: nothing at first."""

    def __init__(self, folder: Path | None = None) -> None:
        self.standing: Standing | None = None
        self.sums: PixelSums | None = None
        self.releases: dict[int, int] = {}
        self.host_time = 0.0
        if folder is None:
            return
        arrays, facts = read_checkpoint(folder)
        params = {name[7:]: torch.from_numpy(array) for name, array in arrays.items() if name.startswith("params.")}
        history = tuple((int(k), Evaluation(**each)) for k, each in facts["history"])
        self.standing = Standing(facts["round"], State(params), arrays["previous_power"], facts["sim_time"], history)
        if "pixels.total" in arrays:
            self.sums = PixelSums(facts["pixels"], arrays["pixels.total"], arrays["pixels.squares"])
        # The round that was lost may have been answered: each device may have released one update more.
        self.releases = {int(ue): num + 1 for ue, num in facts["releases"].items()}
        self.host_time = facts["host_time"]


def _begin(settings: Settings, folder: Path, resume: bool, attempt: str) -> tuple[RunWriter, Past]:
    if not resume:
        facts = {"algorithm": settings.algorithm, "seed": settings.seed, "deployed": True, "attempt": attempt}
        facts |= machine_facts()
        return RunWriter(folder, dump_settings(settings), facts), Past()
    past = Past(folder)
    assert past.standing is not None
    writer = RunWriter.go_on(folder, past.standing.round)
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
    cell = build_cell(settings, np.zeros(num_ue, dtype=np.int64), num_weights(params))
    shared = settings.data.standardise and settings.deploy.statistics == "shared"
    sums = past.sums or (total_sums(fleet.known) if shared else None)
    judged = judged_ues(build_evaluator(settings), num_ue, settings.seed)
    draw = _emulated(settings, cell) if settings.deploy.channel == "emulated" else None
    world = Devices(fleet, ask, cell, draw, sums, judged)
    releases = past.releases
    for record, standing in run_rounds(build_job(settings, params), world, past.standing):
        writer.write(record)
        writer.write_devices(record.round, world.measured)
        releases = _counted(releases, world.measured, num_ue)
        host_time = round(time.perf_counter() - begin, 3)
        _keep(writer, standing, sums, releases, host_time)
        writer.write_weights({name: p.numpy() for name, p in standing.state.params.items()})
        facts = {"stop": record.stop, "rounds": record.round, "sim_time": record.sim_time, "host_time": host_time}
        writer.finish("running", **facts, **_privacy(settings, releases))


def _emulated(settings: Settings, cell: Cell) -> Callable[[int, IntArray], Array]:
    """The channel the simulator draws with the same seed."""
    fading = build_fading(settings)

    def draw(k: int, selected: IntArray) -> Array:
        return channel_gain(cell, fading.draw(stream(settings.seed, "fading", k), (cell.num_ue,)))[selected]

    return draw


def _counted(releases: dict[int, int], measured: tuple[DeviceRecord, ...], num_ue: int) -> dict[int, int]:
    """How often each UE was asked for an update: an order that got no answer may have been answered all the same."""
    asked = {each.ue for each in measured if each.outcome != "not connected"}
    return {ue: releases.get(ue, 0) + (ue in asked) for ue in range(num_ue)}


def _privacy(settings: Settings, releases: dict[int, int]) -> dict[str, Any]:
    deploy, most = settings.deploy, max(releases.values())
    if deploy.noise_multiplier == 0.0:
        return {}
    epsilon = spent(deploy.noise_multiplier, most, deploy.delta)
    return {"privacy": {"epsilon": epsilon, "delta": deploy.delta, "releases": most}}


def _keep(writer: RunWriter, now: Standing, sums: PixelSums | None, releases: dict[int, int], host_time: float) -> None:
    """A checkpoint from which `Past` goes on."""
    arrays = {f"params.{name}": p.numpy() for name, p in now.state.params.items()}
    arrays["previous_power"] = now.previous_power
    facts: dict[str, Any] = {
        "round": now.round,
        "sim_time": now.sim_time,
        "history": [(k, asdict(evaluation)) for k, evaluation in now.history],
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
    device, order, params = _device(context, settings), Order.of(message.content), params_of(message.content)
    model, data = _model_and_data(settings, device, message, params)
    algorithm = build_algorithm(settings, settings.algorithm)
    engine = make_engine(pick_engine(settings.learning.engine, model, algorithm), model)
    meter = Meter.start()
    update = device.train(engine, algorithm, params, data, order, settings.seed)
    found = meter.read()
    return Message(
        RecordDict({"params": params_record(update), "measured": MetricRecord(dict(found))}), reply_to=message
    )


def evaluate(message: Message, context: Context) -> Message:
    """The model's quality on this device's own samples."""
    settings = settings_of(context)
    device, params = _device(context, settings), params_of(message.content)
    model, data = _model_and_data(settings, device, message, params)
    found = asdict(device.judge(build_evaluator(settings), model, params, data, settings.seed))
    del found["gradient_norm_sq"]
    return Message(RecordDict({"quality": MetricRecord(found)}), reply_to=message)


def _model_and_data(
    settings: Settings, device: Device, message: Message, params: dict[str, torch.Tensor]
) -> tuple[nn.Module, FederatedData]:
    """The server's model, whose last layer says how many classes there are, and this device's samples for it."""
    num_classes = len(list(params.values())[-1])
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
