"""From settings to a simulation, and to a run on disk."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import nn

from autofl.aggregators import Aggregator
from autofl.algorithms import Algorithm, State
from autofl.channels import Channel
from autofl.compressors import Compressor
from autofl.config import Settings, dump_settings
from autofl.config.parts import checked_settings
from autofl.data import Dataset
from autofl.data.federated import FederatedData
from autofl.engines import make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator
from autofl.experiments.cell import (
    build_cell,
    build_channel,
    build_compressor,
    build_network,
    build_planner,
    build_selection,
)
from autofl.experiments.cluster import spread
from autofl.experiments.data import load_federated
from autofl.models import Params, build, check_model, num_weights, params_of
from autofl.network import Cell
from autofl.planner import Planner
from autofl.records import RoundRecord, Run, RunWriter, read_run
from autofl.registry import Lazy, Part, find, unknown_key
from autofl.rng import stream
from autofl.rounds.arm import Arm
from autofl.rounds.horizon import draw_horizon
from autofl.rounds.loop import Training
from autofl.rounds.stop import Stop
from autofl.selection import Selection
from autofl.simulation import Simulation, simulate
from autofl.units import Array, IntArray
from autofl.version import __version__

OnRound = Callable[[RoundRecord], None]
LAW_ROUNDS = 2_000
"""Rounds of the network alone from which it is learned how likely each UE is to be heard."""


class Own(TypedDict, total=False):
    """Parts of a run that may be given as objects instead of by name."""

    dataset: Dataset | None
    data: FederatedData | None
    algorithm: Algorithm | None
    planner: Planner | None
    model: nn.Module | None
    channel: Channel | None
    selection: Selection | None
    compressor: Compressor | None
    aggregator: Aggregator | None


def build_algorithm(settings: Settings, name: str | None = None) -> Algorithm:
    """The algorithm of this name, the settings' own by default, with its settings out of [learning]."""
    settings = settings.resolved()
    part, learning = find("algorithm", name or settings.algorithm), settings.learning
    own = dict(learning.model_extra or {})
    compared = [find("algorithm", name) for name in dict.fromkeys([settings.algorithm, *settings.compare.algorithms])]
    known = {key: setting for candidate in (part, *compared) for key, setting in candidate.settings.items()}
    for key in own:
        if key not in known:
            raise AutoFLError(unknown_key("learning", key, known))
    given = checked_settings(part, {key: value for key, value in own.items() if key in part.settings})
    shared = {
        "inner_lr": learning.inner_lr,
        "outer_lr": learning.outer_lr,
        "variant": learning.variant,
        "participation": settings.simulation.num_selected / settings.cell.count,
    }
    algorithm = part.build(given, shared)
    if not isinstance(algorithm, Algorithm):
        raise AutoFLError(f"algorithm {part.name}: it needs init, client_update and server_update (see CONTRIBUTING)")
    return algorithm


def pick_device(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU where there is one. Products keep full float32 precision there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise AutoFLError("simulation.device: there is no GPU here that PyTorch can use; set it to cpu or auto")
    cuda = name != "cpu" and torch.cuda.is_available()
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda" if cuda else "cpu")


def build_model(settings: Settings, sample_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model of the settings with its first weights."""
    section = settings.resolved().model
    part = section.part
    given = checked_settings(part, section.given)

    def factory(shape: tuple[int, ...], classes: int) -> nn.Module:
        made = part.build(given, {"sample_shape": shape, "num_classes": classes})
        if not isinstance(made, nn.Module):
            raise AutoFLError(f"model {part.name}: it must give a torch.nn.Module, not {type(made).__name__}")
        return made

    return build(factory, sample_shape, num_classes, stream(settings.seed, "init"))


def build_evaluator(settings: Settings) -> Evaluator:
    """How models are evaluated."""
    learning, evaluation = settings.resolved().learning, settings.evaluation
    assert learning.inner_lr is not None  # resolved
    return Evaluator(
        inner_lr=learning.inner_lr,
        adapt_samples=evaluation.adapt_samples,
        train_samples=evaluation.train_samples,
        test_samples=evaluation.test_samples,
        num_ue=evaluation.num_ue,
        gradient_norm=settings.stop.gradient_norm_sq is not None,
    )


def build_arm(settings: Settings, cell: Cell) -> Arm:
    """The algorithm of the settings with everything that goes with it, in this cell."""
    aggregator: Aggregator = settings.aggregator.build(
        heard_probability=Lazy(lambda: heard_probability(settings, cell)), num_ue=settings.cell.count
    )
    return Arm(
        algorithm=build_algorithm(settings),
        planner=build_planner(settings),
        selection=build_selection(settings),
        compressor=build_compressor(settings),
        aggregator=aggregator,
    )


def heard_probability(settings: Settings, cell: Cell) -> Array:
    """P(decoded | selected) of each UE, from rounds of the network alone under another seed; at least one in them."""
    apart = settings.resolved().model_copy(update={"seed": int(stream(settings.seed, "law").integers(2**31))})
    horizon = draw_horizon(build_network(apart, cell), LAW_ROUNDS)
    selected = np.maximum(horizon.selected.sum(axis=0), 1)
    return np.clip(horizon.decoded.sum(axis=0) / selected, 1.0 / selected, 1.0)


def build_training(settings: Settings, params: Params, cell: Cell) -> Training:
    """What a run of these settings is, wherever it takes place."""
    settings = settings.resolved()
    return Training(
        arm=build_arm(settings, cell),
        params=params,
        stop=Stop(**settings.stop.model_dump()),
        seed=settings.seed,
        outage=settings.simulation.outage,
        evaluate_every=settings.evaluation.every,
    )


def build_simulation(settings: Settings, **own: Unpack[Own]) -> Simulation:
    """The simulation of these settings; any part may be given as an object of the user's own instead."""
    settings = settings.resolved()
    data = own.get("data") or load_federated(settings, own.get("dataset"))
    model = own.get("model") or build_model(settings, data.sample_shape, data.num_classes)
    check_model(model, data.sample_shape, data.num_classes)
    device = pick_device(settings.simulation.device)
    data, model = data.to(device), model.to(device)
    params = params_of(model, data.dtype)
    algorithm = own.get("algorithm") or build_algorithm(settings)
    cell = build_cell(settings, data.partition.train_size, num_weights(algorithm.init(params).sent))
    training = build_training(settings, params, cell)
    given = {
        name: own[name]
        for name in ("algorithm", "planner", "selection", "compressor", "aggregator")
        if own.get(name) is not None
    }
    arm = Arm(**{**training.arm.__dict__, **given})
    engine = pick_engine(settings.learning.engine, model, arm.algorithm)
    return Simulation(
        **{**training.__dict__, "arm": arm},
        cell=cell,
        channel=own.get("channel") or build_channel(settings),
        model=model,
        data=data,
        engine=make_engine(engine, model),
        engine_name=engine,
        evaluator=build_evaluator(settings),
    )


def run(
    settings: Settings,
    folder: Path | str,
    *,
    on_round: OnRound | None = None,
    ray: str | None = None,
    **own: Unpack[Own],
) -> Run:
    """Simulate these settings into a run folder and read it back.

    `own` takes the objects of `build_simulation`; `ray` is the address of a cluster that shares the UEs' work. An
    interrupted or failed run keeps its rounds and its last weights, and its manifest says so.
    """
    settings = settings.resolved()
    use_machine(settings.simulation.threads)
    if ray is None:
        sim = build_simulation(settings, **own)
    else:  # the machines of a cluster compute on their CPUs, and so does this one
        here = settings.simulation.model_copy(update={"device": "cpu"})
        sim = spread(build_simulation(settings.model_copy(update={"simulation": here}), **own), ray)
    return write_run(sim, folder, dump_settings(settings), manifest_of(settings, sim, own), on_round)


def write_run(
    sim: Simulation,
    folder: Path | str,
    config_text: str,
    manifest: Mapping[str, Any],
    on_round: OnRound | None = None,
) -> Run:
    """Play a simulation into a run folder and read it back."""
    writer = RunWriter(Path(folder), config_text, manifest)
    state, last, status, begin = None, RoundRecord(round=-1), "failed", time.perf_counter()
    try:
        for record, after in simulate(sim):
            last, state = record, after
            writer.write(last)
            if on_round is not None:
                on_round(last)
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        finish_run(writer, status, last, state, begin)
    return read_run(Path(folder))


def finish_run(writer: RunWriter, status: str, last: RoundRecord, state: State | None, begin: float) -> None:
    """Leave a readable run: the last weights, and how it ended."""
    if state is not None:
        writer.write_weights({name: p.cpu().numpy() for name, p in state.params.items()})
    host_time = round(time.perf_counter() - begin, 3)
    facts = {"rounds": last.round, "sim_time": last.sim_time, "host_time": host_time, "ended_at": round(time.time(), 3)}
    writer.finish(status, stop=last.stop, **facts)
    writer.close()


def manifest_of(settings: Settings, sim: Simulation, own: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is and where its parts came from."""
    given = sorted(name for name in own if name not in ("data", "dataset") and own[name] is not None)
    algorithm = find("algorithm", settings.algorithm)
    said = {"algorithm": settings.algorithm, "label": algorithm.label}
    if own.get("algorithm") is not None:
        said = {"algorithm": repr(own["algorithm"]), "label": type(own["algorithm"]).__name__}
    parts = {part.kind: part.origin() for part in parts_of(settings)}
    return {
        **said,
        "seed": settings.seed,
        "own": given,
        "parts": parts | {name: {"name": repr(own[name])} for name in given},
        **facts_of(sim),
    }


def parts_of(settings: Settings) -> list[Part]:
    """The parts that settings name."""
    planned = PLANNED_BY[find("algorithm", settings.algorithm).plan](settings)
    sections = [settings.channel, settings.selection, planned, settings.aggregator, settings.model]
    named = [find("data", settings.data.name), find("partition", settings.data.partition)]
    compressor = [settings.compressor.part] if settings.compressor.name != "none" else []
    return [find("algorithm", settings.algorithm), *named, *(section.part for section in sections), *compressor]


PLANNED_BY: dict[str, Callable[[Settings], Any]] = {
    "planner": lambda settings: settings.planner,
    "baseline": lambda settings: settings.baseline,
}


def facts_of(sim: Simulation) -> dict[str, Any]:
    """What a simulation is, for a manifest."""
    return {
        "data": sim.data.name,
        "num_ue": sim.cell.num_ue,
        "num_weights": num_weights(sim.params),
        "data_size": size_range(sim.data.partition.train_size),
        "engine": sim.engine_name,
        "device": torch.cuda.get_device_name() if sim.data.x.is_cuda else "cpu",
        **machine_facts(),
    }


def size_range(size: IntArray) -> list[int]:
    """Smallest, median and largest training set."""
    return [int(size.min()), int(np.median(size)), int(size.max())]


def machine_facts() -> dict[str, Any]:
    """Version, commit and machine, for a manifest."""
    return {
        "version": __version__,
        "commit": commit_of_source(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
    }


def commit_of_source() -> str | None:
    """The commit of the source tree, where there is one."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
