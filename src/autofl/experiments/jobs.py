"""Many runs, each into a folder of its own: over processes on a CPU, in batches on a GPU."""

import contextlib
import multiprocessing
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import resource_tracker
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any, TypeVar

from autofl.config import CellSettings, DataSettings, Settings, dump_said, dump_settings
from autofl.config.arms import name_of_arm
from autofl.core.round import Round
from autofl.core.simulation import Simulation
from autofl.core.together import fit_together
from autofl.data.federated import FederatedData
from autofl.errors import (
    ENDING,
    AutoFLError,
    end_with_parent,
    raise_when_told_to_end,
    starting_pythons,
)
from autofl.experiments.build import build_algorithm, pick_device, simulation_from
from autofl.experiments.cluster import run_on_ray
from autofl.experiments.data import build_data, loaded_from
from autofl.experiments.run import manifest_of, run
from autofl.experiments.write import Recording, is_finished, write_together
from autofl.files import inside, read_bytes, write_whole
from autofl.lock import locked
from autofl.records import Run, check_no_run, read_run
from autofl.records.run import CONFIG

BATCH = 64
"""Runs that advance together on a GPU: more gain little."""
GPU_WORKERS = 8
GPU_SHARE = 12 * 2**30
"""Most processes that share a GPU, and the bytes of its memory for each: a round is mostly Python
on one core.
"""
KEPT_PARTITIONS = 64
"""Partitions kept in memory, an index table each: algorithms of one seed share theirs."""


@dataclass(frozen=True)
class Job:
    """A run to be made: its settings, its folder, what to call it."""

    settings: Settings
    place: Path
    label: str
    resume: bool = False  # a finished run is kept, one that was stopped goes on
    wait: bool = False  # for another process that makes the same run
    keep: bool = False  # a run that is there is not overwritten


@dataclass(frozen=True)
class Progress:
    """How far a job is, after each round; accuracy is NaN where it was not measured."""

    label: str
    round: int
    num_rounds: int  # at most
    sim_time: float
    adapted_accuracy: float
    host_time: float
    finished: bool


OnProgress = Callable[[Progress], None]
Unit = TypeVar("Unit")
Make = Callable[[Unit, OnProgress], object]
"""Makes a unit of work, a job or a batch of them, and tells how far it is."""


def run_comparison(
    settings: Settings,
    folder: Path | str,
    *,
    force: bool = False,
    resume: bool = False,
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> list[Run]:
    """Every arm of the comparison with every seed, a folder each; one comparison at a time in
    a folder.

    All arms of a seed see the same cell, fading, selection, partition and first weights. With
    `resume` finished runs are kept, and runs that were stopped go on.
    """
    keep = not (force or resume)
    jobs = [replace(job, resume=resume, keep=keep) for job in comparison(settings, Path(folder))]
    with locked(
        folder
    ):  # first: another comparison may have made its runs while this one waited for the lock
        check_free(jobs)
        text = dump_said(settings).encode("utf-8")
        file = Path(folder) / CONFIG
        if keep and file.is_file() and read_bytes(file) != text:
            raise AutoFLError(
                f"{folder}: a comparison with other settings is there; name another folder (--out) or overwrite it"
                " (--force)"
            )
        write_whole(file, text)  # what `resume` reads
        run_jobs(jobs, workers, ray, on_progress)
        return [read_run(job.place) for job in jobs]


def check_free(jobs: Sequence[Job]) -> None:
    """Refuse before any work to overwrite runs that are to be kept; for whoever holds the lock."""
    for job in jobs:
        if job.keep:
            check_no_run(job.place)


def is_same(settings: Settings, place: Path) -> bool:
    """Whether the run in a folder, finished or not, is of these settings; True where there is none."""
    file = place / CONFIG
    return not file.is_file() or read_bytes(file) == dump_settings(settings.resolved()).encode(
        "utf-8"
    )


def is_kept(job: Job) -> bool:
    """Whether a job needs no work, since its run is there, finished and of the same settings."""
    return job.resume and is_finished(job.place, dump_settings(job.settings.resolved()))


def comparison(settings: Settings, folder: Path) -> Iterator[Job]:
    """The runs of a comparison, seed by seed."""
    arms = {name_of_arm(arm): settings.with_arm(arm) for arm in settings.compare.arms}
    files = file_names(arms)
    for seed in range(settings.seed, settings.seed + settings.compare.seeds):
        for name, one in arms.items():
            seeded = one.model_copy(update={"seed": seed})
            yield Job(seeded, folder / f"{files[name]}-seed{seed}", f"{name} seed {seed}")


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Each name as part of a file's, `module:object` without its colon; no two the same."""
    files: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "arm"
        number = 1
        while (file := plain if number == 1 else f"{plain}-{number}") in files.values():
            number += 1
        files[name] = file
    return files


def run_jobs(
    jobs: Sequence[Job],
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Run all jobs; they share a device.

    With several workers they are spread over processes, with `ray` over the cluster at this
    address. The results do not depend on it; on a GPU their rounding depends on which runs share a
    batch, which is the same for every number of workers.
    """
    for job in jobs:
        inside(job.place.parent, job.place.name)
    left = [job for job in jobs if not is_kept(job)]
    if not left:
        return
    tell = on_progress or (lambda _: None)
    first = left[0].settings
    _shared_data(first.data, first.cell.count, first.seed)  # bad data are reported once, here
    if ray is not None:
        run_on_ray(left, ray, run_with_progress, tell)
    elif pick_device(first.simulation.device).type == "cuda":
        batches = [batch for batch in batches_of(jobs) if not all(is_kept(job) for job in batch)]
        _run_units(batches, _run_together, min(workers, _gpu_workers()), tell)
    else:
        _run_units(left, run_with_progress, workers, tell)


def _gpu_workers() -> int:
    import torch

    return max(1, min(GPU_WORKERS, torch.cuda.get_device_properties(0).total_memory // GPU_SHARE))


def _run_units(units: Sequence[Unit], make: "Make[Unit]", workers: int, tell: OnProgress) -> None:
    """Jobs, or batches of them, one after another or over processes."""
    if min(workers, len(units)) == 1:
        for unit in units:
            make(unit, tell)
    else:
        _run_in_processes(units, make, min(workers, len(units)), tell)


@lru_cache(maxsize=KEPT_PARTITIONS)
def _shared_data(data: DataSettings, num_ue: int, seed: int) -> FederatedData:
    """The data of a seed, the same for all its algorithms."""
    settings = Settings(data=data, cell=CellSettings(num_ue=num_ue), seed=seed)
    dataset, owner = loaded_from(data.source())
    return build_data(settings, dataset, owner)


def run_with_progress(
    job: Job, tell: OnProgress, data: FederatedData | None = None, ray: str | None = None
) -> Run:
    """Simulate into a folder, telling after each round how far it is; with `ray` a cluster shares
    the UEs.
    """
    begin = time.perf_counter()

    def on_round(record: Round) -> None:
        tell(_progress(job, record, time.perf_counter() - begin))

    settings = job.settings
    data = data or _shared_data(settings.data, settings.cell.count, settings.seed)
    return run(
        settings,
        job.place,
        on_round=on_round,
        data=data,
        ray=ray,
        resume=job.resume,
        wait=job.wait,
        keep=job.keep,
    )


def _progress(job: Job, record: Round, spent: float) -> Progress:
    accuracy = record.evaluation.adapted_accuracy if record.evaluation is not None else float("nan")
    most = job.settings.stop.rounds
    done = record.stop is not None
    return Progress(job.label, record.k, most, record.sim_time, accuracy, spent, done)


def batches_of(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs on a GPU: those with the same client update in batches of at most BATCH, the longest
    batches first.

    Batches are cut from all jobs, including those that need no work: a batch that was stopped is
    then put together as it was.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(_batch_key(job.settings.resolved()), []).append(job)
    batches = [
        group[begin : begin + BATCH]
        for group in groups.values()
        for begin in range(0, len(group), BATCH)
    ]
    return sorted(batches, key=lambda batch: -max(job.settings.stop.rounds for job in batch))


def _run_together(jobs: Sequence[Job], tell: OnProgress) -> None:
    """A batch on a GPU, in several pieces where the engine does not allow one."""
    device = pick_device(jobs[0].settings.simulation.device)
    pool: FederatedData | None = None
    batches: list[list[tuple[Job, Simulation]]] = []
    for job in jobs:
        if is_kept(job):
            continue
        settings = job.settings.resolved()
        data = _shared_data(settings.data, settings.cell.count, settings.seed)
        pool = pool or data.to(device)
        sim = simulation_from(settings, data=replace(data, x=pool.x, y=pool.y))
        fitting = next((batch for batch in batches if fit_together(batch[0][1], sim)), None)
        if fitting is not None:
            fitting.append((job, sim))
        else:
            batches.append([(job, sim)])
    for batch in batches:
        _write_together(batch, tell)


def _batch_key(settings: Settings) -> str:
    """What jobs must have in common to be part of one batch, as far as settings tell;
    `fit_together` decides.

    Runs with other numbers of selected UEs could be part of it, but would only be padded to the
    largest.
    """
    data = settings.data
    learning = settings.learning
    source = data.source()
    judged = (settings.evaluation, settings.stop.gradient_norm_sq, learning.inner_lr)
    update = (
        settings.model,
        build_algorithm(settings),
        settings.compressor,
        settings.downlink,
        settings.aggregator,
    )
    return repr((source, judged, update, settings.simulation.num_selected, settings.selection))


def _write_together(batch: list[tuple[Job, Simulation]], tell: OnProgress) -> None:
    begin = time.perf_counter()
    job, sim = batch[0]
    if not fit_together(sim, sim):
        run_with_progress(job, tell, sim.data)
        return
    jobs = {}  # even of one: the last run left of a batch must go on as it began, to the bit
    for job, sim in batch:
        settings = job.settings.resolved()
        text = dump_settings(settings)
        about = manifest_of(settings, sim, {})
        recording = Recording(sim, job.place, text, about, resume=job.resume, keep=job.keep)
        jobs[recording] = job

    def on_round(recording: Recording, record: Round) -> None:
        tell(_progress(jobs[recording], record, time.perf_counter() - begin))

    write_together(list(jobs), on_round)


_interrupted = False
"""Whether this worker was told to stop: its pool may have handed it another job already."""


def _pool_unit(make: "Make[Unit]", unit: Unit, tell: OnProgress) -> None:
    global _interrupted
    if _interrupted:
        raise KeyboardInterrupt
    try:
        raise_when_told_to_end()
        make(unit, tell)
    except KeyboardInterrupt:
        _interrupted = True
        raise
    finally:
        _note_when_told_to_end()


def _begin_worker() -> None:
    """Stop as told, and end when the process that started this one is gone: nobody would read its
    results.
    """
    _note_when_told_to_end()
    end_with_parent()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _begin_manager() -> None:
    """What carries the words of workers must not end before them, though a signal to all processes
    reaches it too.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()


def _note_when_told_to_end() -> None:
    """Between two jobs there is nothing to close: a worker that waits for the next one must not end
    in a traceback.
    """

    def note(number: int, _: object) -> None:
        global _interrupted
        _interrupted = True

    for (
        number
    ) in ENDING:  # a terminal sends its signal to all processes, and then the parent ends them too
        signal.signal(number, note)


@contextlib.contextmanager
def _interrupt_later() -> Iterator[None]:
    """A terminal's signal waits until this is over, and in processes that are started here until
    they let it in.

    They import for seconds before they can listen, and would end in a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    with starting_pythons():
        resource_tracker.ensure_running()  # which lets signals in once it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_in_processes(
    units: Sequence[Unit], make: "Make[Unit]", workers: int, tell: OnProgress
) -> None:
    """Jobs, or batches, over processes of their own; each has the same number of threads as a run
    alone.
    """
    context = multiprocessing.get_context("spawn")
    manager = SyncManager(ctx=context)
    with _interrupt_later(), starting_pythons():
        manager.start(_begin_manager)
    queue: Any = manager.Queue()
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, context, _begin_worker) as pool:
        with _interrupt_later(), starting_pythons():
            futures = {pool.submit(_pool_unit, make, unit, queue.put) for unit in units}
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
        except BrokenProcessPool:
            raise AutoFLError(
                "a worker was killed, perhaps for lack of memory (--workers 1 needs least); --resume continues it"
            ) from None
        except BaseException as error:
            if isinstance(
                error, KeyboardInterrupt
            ):  # a terminal has told the workers already, nobody else has
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        while not queue.empty():
            tell(queue.get())
