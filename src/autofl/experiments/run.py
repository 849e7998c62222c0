"""From settings to a simulation, and to a run on disk."""

import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from autofl.algorithms import Algorithm, FedAvg, PerFedAvg, State
from autofl.config import AlgorithmName, Settings, dump_settings
from autofl.data import Dataset
from autofl.data.federated import FederatedData, federate
from autofl.engines import make_engine, pick_engine, use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator
from autofl.experiments.cell import build_cell, build_fading, planner_of
from autofl.experiments.cluster import spread
from autofl.experiments.data import build_partition, load_data
from autofl.models import MODELS, Params, build, check_model, num_weights, params_of
from autofl.network import Fading
from autofl.planner import Planner
from autofl.records import RoundRecord, Run, RunWriter, read_run
from autofl.rng import stream
from autofl.rounds import Job, Stop
from autofl.simulation import Simulation, simulate
from autofl.units import IntArray
from autofl.version import __version__

OnRound = Callable[[RoundRecord], None]


def build_algorithm(settings: Settings, name: AlgorithmName) -> Algorithm:
    """The client update an algorithm is paired with."""
    learning = settings.resolved().learning
    assert learning.inner_lr is not None  # resolved
    assert learning.outer_lr is not None
    if name in ("autofl", "per-fedavg"):
        return PerFedAvg(learning.inner_lr, learning.outer_lr, learning.variant)
    return FedAvg(learning.outer_lr)


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
    factory = MODELS[settings.resolved().model.name or "mlp"]
    return build(factory, sample_shape, num_classes, stream(settings.seed, "init"))


def build_evaluator(settings: Settings) -> Evaluator:
    """How models are judged."""
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


def build_job(settings: Settings, params: Params) -> Job:
    """What a run of these settings is, wherever it takes place."""
    settings = settings.resolved()
    return Job(
        planner=planner_of(settings, settings.algorithm),
        algorithm=build_algorithm(settings, settings.algorithm),
        params=params,
        stop=Stop(**settings.stop.model_dump()),
        seed=settings.seed,
        num_selected=settings.simulation.num_selected,
        outage=settings.simulation.outage,
        evaluate_every=settings.evaluation.every,
    )


def build_simulation(
    settings: Settings,
    *,
    dataset: Dataset | None = None,
    data: FederatedData | None = None,
    algorithm: Algorithm | None = None,
    planner: Planner | None = None,
    model: nn.Module | None = None,
    fading: Fading | None = None,
) -> Simulation:
    """The simulation of these settings; any part may be given as an object of the user's own instead."""
    settings = settings.resolved()
    if data is None:
        owner = None
        if dataset is None:
            dataset, owner = load_data(settings)
        data = federate(dataset, build_partition(settings, dataset, owner), standardise=settings.data.standardise)
    model = model or build_model(settings, data.sample_shape, data.num_classes)
    check_model(model, data.sample_shape, data.num_classes)
    device = pick_device(settings.simulation.device)
    data, model = data.to(device), model.to(device)
    params = params_of(model, data.dtype)
    job = build_job(settings, params)
    job = replace(job, algorithm=algorithm or job.algorithm, planner=planner or job.planner)
    engine = pick_engine(settings.learning.engine, model, job.algorithm)
    return Simulation(
        **job.__dict__,
        cell=build_cell(settings, data.partition.train_size, num_weights(params)),
        fading=fading or build_fading(settings),
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
    **own: Any,
) -> Run:
    """Simulate these settings into a run folder and read it back.

    `own` takes the objects of `build_simulation` (algorithm, planner, model, fading, data, dataset); `ray` is the
    address of a cluster that shares the UEs' work. An interrupted or failed run keeps its rounds and its last
    weights, and its manifest says so.
    """
    settings, folder = settings.resolved(), Path(folder)
    use_machine(settings.simulation.threads)
    if ray is None:
        sim = build_simulation(settings, **own)
    else:  # the machines of a cluster compute on their CPUs, and so does this one
        here = settings.simulation.model_copy(update={"device": "cpu"})
        sim = spread(build_simulation(settings.model_copy(update={"simulation": here}), **own), ray)
    writer = RunWriter(folder, dump_settings(settings), manifest_of(settings, sim, own))
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
    return read_run(folder)


def finish_run(writer: RunWriter, status: str, last: RoundRecord, state: State | None, begin: float) -> None:
    """Leave a readable run: the last weights, and how it ended."""
    if state is not None:
        writer.write_weights({name: p.cpu().numpy() for name, p in state.params.items()})
    host_time = round(time.perf_counter() - begin, 3)
    facts = {"rounds": last.round, "sim_time": last.sim_time, "host_time": host_time, "ended_at": round(time.time(), 3)}
    writer.finish(status, stop=last.stop, **facts)
    writer.close()


def manifest_of(settings: Settings, sim: Simulation, own: dict[str, Any]) -> dict[str, Any]:
    size = sim.data.partition.train_size
    return {
        "algorithm": settings.algorithm if own.get("algorithm") is None else repr(own["algorithm"]),
        "seed": settings.seed,
        "data": sim.data.name,
        "num_ue": sim.cell.num_ue,
        "num_weights": num_weights(sim.params),
        "data_size": size_range(size),
        "own": sorted(name for name in own if name not in ("data", "dataset") and own[name] is not None),
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
