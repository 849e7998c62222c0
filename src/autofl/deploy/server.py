"""The server of a deployment: a whole run, or the rest of one, into its run folder, with a checkpoint each round."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context
from flwr.serverapp import Grid
from numpy.typing import NDArray

from autofl.algorithms import Algorithm, State
from autofl.config import Settings, dump_settings
from autofl.data.federated import PixelSums
from autofl.deploy.fleet import Fleet, total_sums
from autofl.deploy.lease import LeftAloneError, TakenOverError
from autofl.deploy.post import Post
from autofl.deploy.privacy import spent
from autofl.deploy.run_config import form_of, nodes_of, settings_of, watch_of
from autofl.deploy.world import Devices
from autofl.engines import use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import evaluated_ues
from autofl.experiments.build import build_algorithm, build_evaluator, build_model, build_training
from autofl.experiments.cell import build_cell, build_channel, build_compressor
from autofl.experiments.run import machine_facts, origins_of, size_range
from autofl.models import Params, num_weights
from autofl.models import params_of as params_of_model
from autofl.records import DeviceRecord, Evaluation, RunWriter, read_checkpoint
from autofl.registry import label_of
from autofl.rounds.downlink import Reference
from autofl.rounds.loop import Checkpoint, run_rounds
from autofl.rounds.round import ChannelAir


def serve(grid: Grid, context: Context) -> None:
    """A whole run, or the rest of one, into its run folder on this machine."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings, folder = settings_of(context), Path(str(context.run_config["folder"]))
    use_machine(settings.simulation.threads)
    writer, past = _begin(settings, folder, bool(context.run_config["resume"]), str(context.run_config["attempt"]))
    status: str = "failed"
    problem: str | None = "the server stopped on the way; deploy run --resume goes on"
    try:
        _serve(grid, context, settings, writer, past)
        status, problem = "finished", None
    except TakenOverError:
        status = "taken over"  # the folder is another attempt's by now
        raise
    except LeftAloneError as error:
        status, problem = "interrupted", str(error)
        raise
    except AutoFLError as error:
        problem = str(error)
        raise
    finally:
        if status != "taken over":
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
        reference=_reference_of(arrays, facts),
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


def _reference_of(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> Reference | None:
    """What the devices have, where the downlink is compressed."""
    if "downlink_bits" not in facts:
        return None
    held = {name: torch.from_numpy(array) for name, array in _group(arrays, "reference").items()}
    return Reference(held, facts["downlink_bits"])


def _begin(settings: Settings, folder: Path, resume: bool, attempt: str) -> tuple[RunWriter, Past]:
    if not resume:
        facts = {
            "algorithm": settings.algorithm,
            "label": label_of("algorithm", settings.algorithm),
            "seed": settings.seed,
            "deployed": True,
            "attempt": attempt,
            "parts": origins_of(settings),
        }
        return RunWriter(folder, dump_settings(settings), facts | machine_facts()), Past()
    past = past_of(folder, build_algorithm(settings))
    assert past.checkpoint is not None
    writer = RunWriter.go_on(folder, past.checkpoint.round)
    writer.finish("running", attempt=attempt)
    return writer, past


def _serve(grid: Grid, context: Context, settings: Settings, writer: RunWriter, past: Past) -> None:
    begin = time.perf_counter() - past.host_time
    if settings.stop.gradient_norm_sq is not None:
        raise AutoFLError("stop.gradient_norm_sq: needs all data in one place; a deployment cannot measure it")
    num_ue, watch = settings.cell.count, watch_of(context)
    ask = Post(grid, settings.deploy.deadline, watch)
    nobody = np.zeros(num_ue, dtype=np.int64)
    fleet = Fleet(grid, ask, build_cell(settings, nobody, 1), nodes_of(context), form_of(settings, context))
    fleet.gather(settings.deploy.join)
    if not fleet.known or fleet.form is None:
        why = "; ".join(sorted({record.outcome for record in fleet.refused()})[:3])
        raise AutoFLError(
            f"no device came within {settings.deploy.join:g} s{f' ({why})' if why else ''}; see autofl deploy status"
        )
    params = params_of_model(build_model(settings, fleet.form.sample_shape, fleet.form.num_classes))
    size = np.array([one.data_size for one in fleet.known.values()])
    writer.finish(
        "running", data=settings.data.name, num_ue=num_ue, num_weights=num_weights(params), data_size=size_range(size)
    )
    sent = num_weights(build_algorithm(settings).init(params).sent)
    cell = build_cell(settings, nobody, sent)
    shared = settings.data.standardise and settings.deploy.statistics == "shared"
    sums = past.sums or (total_sums(fleet.known) if shared else None)
    evaluated = evaluated_ues(build_evaluator(settings), num_ue, settings.seed)
    emulated, channel = None, build_channel(settings)
    if settings.deploy.channel == "emulated":  # the channels the simulator draws with the same seed
        emulated = ChannelAir(cell, channel, settings.seed)
    compressor, bound = build_compressor(settings), settings.checks.norm_bound
    world = Devices(fleet, ask, cell, emulated, sums, evaluated, compressor, bound)
    releases = dict(past.releases)
    for record, checkpoint in run_rounds(build_training(settings, params, world.cell, channel), world, past.checkpoint):
        watch()
        writer.write(record)
        writer.write_devices(record.round, (*world.measured, *world.refused()))
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
    if checkpoint.reference is not None:
        arrays |= {f"reference.{name}": p.numpy() for name, p in checkpoint.reference.params.items()}
        facts["downlink_bits"] = checkpoint.reference.bits
    if sums is not None:
        arrays |= {"pixels.total": sums.total, "pixels.squares": sums.squares}
        facts["pixels"] = sums.num
    writer.write_checkpoint(arrays, facts)
