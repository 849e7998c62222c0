"""Many runs, each into a folder of its own: over processes on a CPU, in batches on a GPU."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path

from autofl.config import CellSettings, DataSettings, Settings, dump_said, dump_settings
from autofl.config.arms import name_of_arm
from autofl.core.round import Round
from autofl.core.simulation import Simulation
from autofl.core.together import fit_together
from autofl.data.federated import FederatedData
from autofl.errors import AutoFLError
from autofl.experiments.build import build_algorithm, pick_device, simulation_from
from autofl.experiments.data import build_data, loaded_from
from autofl.files import inside, write_whole
from autofl.jobs.cluster import run_on_ray
from autofl.jobs.job import Job, Make, OnProgress, Progress, Unit
from autofl.jobs.processes import over_processes
from autofl.jobs.recording import Recording, is_finished, play_into
from autofl.jobs.run import manifest_of, run
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
    with locked(folder):
        check_free(jobs)  # another comparison may have made its runs while this one waited
        text = dump_said(settings)
        file = Path(folder) / CONFIG
        if keep and file.is_file() and file.read_text(encoding="utf-8") != text:
            raise AutoFLError(
                f"{folder}: a comparison with other settings is there; name another folder (--out) or overwrite it"
                " (--force)"
            )
        write_whole(file, text)  # what `resume` reads
        run_jobs(jobs, workers, ray, on_progress)
        return [read_run(job.folder) for job in jobs]


def check_free(jobs: Sequence[Job]) -> None:
    """Refuse before any work to overwrite runs that are to be kept; for whoever holds the lock."""
    for job in jobs:
        if job.keep:
            check_no_run(job.folder)


def is_same(settings: Settings, folder: Path) -> bool:
    """Whether the run in a folder, finished or not, is of these settings; True where there is none."""
    file = folder / CONFIG
    text = dump_settings(settings.resolved())
    return not file.is_file() or file.read_text(encoding="utf-8") == text


def is_kept(job: Job) -> bool:
    """Whether a job needs no work, since its run is there, finished and of the same settings."""
    return job.resume and is_finished(job.folder, dump_settings(job.settings.resolved()))


def distinct(jobs: Sequence[Job]) -> list[Job]:
    """Each run once: two arms of a study may be the same run."""
    return list({job.folder: job for job in jobs}.values())


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    """What is still to be run, each run once."""
    return [job for job in distinct(jobs) if not is_kept(job)]


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
        file = plain
        for number in count(2):
            if file not in files.values():
                break
            file = f"{plain}-{number}"
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
        inside(job.folder.parent, job.folder.name)
    left = unfinished(jobs)
    if not left:
        return
    tell = on_progress or (lambda _: None)

    # Bad data are reported once, here, and not by every worker.
    first = left[0].settings
    _shared_data(first.data, first.cell.count, first.seed)

    if ray is not None:
        run_on_ray(left, ray, run_with_progress, tell)
    elif pick_device(first.simulation.device).type == "cuda":
        batches = [batch for batch in batches_of(distinct(jobs)) if unfinished(batch)]
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
        over_processes(units, make, min(workers, len(units)), tell)


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
    settings = job.settings

    def on_round(this: Round) -> None:
        spent = time.perf_counter() - begin
        tell(Progress.of(job.label, settings.stop.rounds, this, spent))

    data = data or _shared_data(settings.data, settings.cell.count, settings.seed)
    return run(
        settings,
        job.folder,
        on_round=on_round,
        data=data,
        ray=ray,
        resume=job.resume,
        wait=job.wait,
        keep=job.keep,
    )


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

    # Also a batch of one: the last run that is left of many must go on as it began, to the bit.
    jobs = {}
    for job, sim in batch:
        settings = job.settings.resolved()
        text = dump_settings(settings)
        about = manifest_of(settings, sim, {})
        recording = Recording(sim, job.folder, text, about, resume=job.resume, keep=job.keep)
        jobs[recording] = job

    def on_round(recording: Recording, this: Round) -> None:
        job = jobs[recording]
        spent = time.perf_counter() - begin
        tell(Progress.of(job.label, job.settings.stop.rounds, this, spent))

    play_into(list(jobs), on_round)
