"""From settings to runs on disk: one simulation, or a comparison over algorithms and seeds."""

import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from autofl.algorithms import Algorithm, FedAvg, PerFedAvg, State, make_engine, pick_engine
from autofl.config import AlgorithmName, CellSettings, DataSettings, Settings, dump_settings
from autofl.data import Dataset
from autofl.data.federated import FederatedData, federate
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator
from autofl.experiments.cell import build_cell, build_fading, planner_of
from autofl.experiments.cluster import run_on_ray, spread
from autofl.experiments.data import build_partition, load_data
from autofl.models import MODELS, Params, build, num_weights, params_of
from autofl.network import Fading
from autofl.planner import Planner
from autofl.records import RoundRecord, Run, RunWriter, is_run, read_run
from autofl.rng import stream
from autofl.rounds import Job, Stop
from autofl.simulation import Simulation, fit_together, simulate, simulate_together
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
        data = federate(dataset, build_partition(settings, dataset, owner))
    model = model or build_model(settings, data.sample_shape, data.num_classes)
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
    torch.set_num_threads(settings.simulation.threads)  # the bits of a sum depend on how many share it
    if ray is None:
        sim = build_simulation(settings, **own)
    else:  # the machines of a cluster compute on their CPUs, and so does this one
        here = settings.simulation.model_copy(update={"device": "cpu"})
        sim = spread(build_simulation(settings.model_copy(update={"simulation": here}), **own), ray)
    writer = RunWriter(folder, dump_settings(settings), _manifest(settings, sim, own))
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
        _finish(writer, status, last, state, begin)
    return read_run(folder)


def _finish(writer: RunWriter, status: str, last: RoundRecord, state: State | None, begin: float) -> None:
    """Leave a readable run: the last weights, and how it ended."""
    if state is not None:
        writer.write_weights({name: p.cpu().numpy() for name, p in state.params.items()})
    host_time = round(time.perf_counter() - begin, 3)
    writer.finish(status, stop=last.stop, rounds=last.round, sim_time=last.sim_time, host_time=host_time)
    writer.close()


@dataclass(frozen=True)
class Progress:
    """How far a run of a comparison is, after each evaluation."""

    algorithm: str
    seed: int
    round: int
    sim_time: float
    adapted_accuracy: float
    host_time: float
    finished: bool


OnProgress = Callable[[Progress], None]


def compare(
    settings: Settings,
    folder: Path | str,
    *,
    force: bool = False,
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> list[Run]:
    """Every algorithm of the comparison with every seed, a folder each.

    All algorithms of a seed see the same cell, fading, selection, partition and first weights. With several workers
    the runs are spread over processes, with `ray` over the cluster at this address; the results do not depend on it.
    """
    jobs = list(comparison(settings, Path(folder)))
    taken = [place for _, place in jobs if is_run(place)]
    if taken and not force:
        raise AutoFLError(f"{taken[0]}: a run is there already; name another folder (--out) or overwrite it (--force)")
    tell = on_progress or (lambda _: None)
    _shared_data(settings.data, settings.cell.count, settings.seed)  # what is wrong with the data is said once, here
    if ray is not None:
        run_on_ray(jobs, ray, run_with_progress, tell)
    elif pick_device(settings.simulation.device).type == "cuda":
        _run_together(jobs, tell)
    elif min(workers, len(jobs)) == 1:
        for job, place in jobs:
            run_with_progress(job, place, tell)
    else:
        _run_jobs(jobs, min(workers, len(jobs)), tell)
    return [read_run(place) for _, place in jobs]


@lru_cache(maxsize=1)
def _shared_data(data: DataSettings, num_ue: int, seed: int) -> FederatedData:
    """The data of a seed, the same for all its algorithms."""
    settings = Settings(data=data, cell=CellSettings(num_ue=num_ue), seed=seed)
    dataset, owner = _loaded(data)
    return federate(dataset, build_partition(settings, dataset, owner))


@lru_cache(maxsize=1)
def _loaded(data: DataSettings) -> tuple[Dataset, IntArray | None]:
    return load_data(Settings(data=data))


def run_with_progress(
    job: Settings, place: Path, tell: OnProgress, data: FederatedData | None = None, ray: str | None = None
) -> None:
    """Simulate into a folder, telling after each evaluation how far it is."""
    begin = time.perf_counter()

    def on_round(record: RoundRecord) -> None:
        if record.evaluation is not None:
            tell(_progress(job, record, time.perf_counter() - begin))

    data = data or _shared_data(job.data, job.cell.count, job.seed)
    run(job, place, on_round=on_round, data=data, ray=ray)


def _progress(job: Settings, record: RoundRecord, spent: float) -> Progress:
    accuracy = record.evaluation.adapted_accuracy if record.evaluation is not None else float("nan")
    done = record.stop is not None
    return Progress(job.algorithm, job.seed, record.round, record.sim_time, accuracy, spent, done)


def _run_together(jobs: list[tuple[Settings, Path]], tell: OnProgress) -> None:
    """Jobs on a GPU: those with the same client update as one batch, where the engine allows it."""
    pool: FederatedData | None = None
    batches: list[list[tuple[Settings, Path, Simulation]]] = []
    for job, place in jobs:
        resolved = job.resolved()
        data = _shared_data(job.data, job.cell.count, job.seed)
        pool = pool or data.to(pick_device(job.simulation.device))
        sim = build_simulation(resolved, data=replace(data, x=pool.x, y=pool.y))
        fitting = next((batch for batch in batches if fit_together(batch[0][2], sim)), None)
        if fitting is not None:
            fitting.append((resolved, place, sim))
        else:
            batches.append([(resolved, place, sim)])
    for batch in batches:
        _write_together(batch, tell)


def _write_together(batch: list[tuple[Settings, Path, Simulation]], tell: OnProgress) -> None:
    begin = time.perf_counter()
    writers = [RunWriter(place, dump_settings(job), _manifest(job, sim, {})) for job, place, sim in batch]
    last: dict[int, tuple[RoundRecord, State]] = {}
    status = "failed"
    try:
        steps = simulate_together([sim for *_, sim in batch]) if len(batch) > 1 else _alone(batch[0][2])
        for r, record, state in steps:
            writers[r].write(record)
            last[r] = record, state
            if record.evaluation is not None:
                job, spent = batch[r][0], time.perf_counter() - begin
                tell(_progress(job, record, spent))
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        for r, writer in enumerate(writers):
            if r in last:
                record, state = last[r]
                _finish(writer, "finished" if record.stop else status, record, state, begin)


def _alone(sim: Simulation) -> Iterator[tuple[int, RoundRecord, State]]:
    for record, state in simulate(sim):
        yield 0, record, state


_interrupted = False
"""Whether this worker was told to stop: its pool may have handed it another job already."""


def _pool_job(job: Settings, place: Path, tell: OnProgress) -> None:
    global _interrupted
    if _interrupted:
        raise KeyboardInterrupt
    try:
        run_with_progress(job, place, tell)
    except KeyboardInterrupt:
        _interrupted = True
        raise


def _run_jobs(jobs: list[tuple[Settings, Path]], workers: int, tell: OnProgress) -> None:
    """Jobs over processes of their own; each has the same number of threads as a run alone."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Manager().Queue()
    with ProcessPoolExecutor(workers, context) as pool:
        futures = {pool.submit(_pool_job, job, place, queue.put) for job, place in jobs}
        try:
            while futures:
                done = {future for future in futures if future.done()}
                while not queue.empty():
                    tell(queue.get())
                for future in done:
                    future.result()
                futures -= done
                if futures and not done:
                    wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        while not queue.empty():
            tell(queue.get())


def comparison(settings: Settings, folder: Path) -> Iterator[tuple[Settings, Path]]:
    """The settings and the folder of each run of a comparison, seed by seed."""
    for seed in range(settings.seed, settings.seed + settings.compare.seeds):
        for name in settings.compare.algorithms:
            yield settings.model_copy(update={"algorithm": name, "seed": seed}), folder / f"{name}-seed{seed}"


def _manifest(settings: Settings, sim: Simulation, own: dict[str, Any]) -> dict[str, Any]:
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
        "commit": _commit(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The commit of the source tree, where there is one."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
