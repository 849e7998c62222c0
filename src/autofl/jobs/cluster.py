"""Simulations on a Ray cluster: many runs, or the UEs of one large run in chunks. The results are
the local ones.
"""

import logging
import os
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autofl.algorithms import Algorithm, is_stateful
from autofl.core.simulation import Simulation
from autofl.data import Dataset
from autofl.data.batch import Batches, Draw
from autofl.data.federated import DrawnBatches, FederatedData, Scratch
from autofl.engines import ClientMemory, Summed, Updates, added, use_machine
from autofl.engines.updates import shares
from autofl.errors import AutoFLError, lacks
from autofl.experiments.data import build_data, load_data
from autofl.files import write_whole
from autofl.jobs.job import Job, OnProgress
from autofl.lock import FolderLock
from autofl.models import Params
from autofl.records import check_no_run
from autofl.records.checks import MANIFEST
from autofl.units import Array, IntArray

RunOne = Callable[..., object]
"""run_one(job, tell, data) makes a run and tells how far it is."""


def connect(address: str) -> Any:
    """Ray, connected to the cluster at this address; "local" starts one on this machine for as long
    as we run.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise lacks("--ray", "ray") from None
    if not ray.is_initialized():
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            _knock(address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of Ray about itself
                ray.init(
                    address=address,
                    include_dashboard=False if address == "local" else None,
                    **quiet,
                )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            first = (
                str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            )
            raise AutoFLError(
                f"--ray {address}: no cluster answers there ({first}); try --ray local"
            ) from None
    return ray


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray itself waits minutes for a cluster that is not there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()


def run_on_ray(jobs: Sequence[Job], address: str, run_one: RunOne, tell: OnProgress) -> None:
    """Each job as a task of the cluster; its folder comes here when it is whole.

    The data set travels with the tasks, so a machine of the cluster needs this package and no
    files.
    """
    ray = connect(address)
    from ray.util.queue import Queue

    queue: Any = Queue()

    def tell_what_is_said() -> None:
        while not queue.empty():
            tell(queue.get())

    # A data set is sent once, however many runs use it.
    loaded: dict[str, Any] = {}
    task = ray.remote(_run_there)
    running = {}
    for job in jobs:
        key = repr(job.settings.data.source())
        if key not in loaded:
            loaded[key] = ray.put(load_data(job.settings))
        options = {"num_cpus": job.settings.simulation.threads, "max_retries": 0}
        running[task.options(**options).remote(job, loaded[key], queue, run_one)] = job
    try:
        while running:
            done, _ = ray.wait(list(running), timeout=0.2)
            tell_what_is_said()
            for reference in done:
                job = running.pop(reference)
                _unpack(_result(ray, reference), job)
        tell_what_is_said()
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=True)
        raise


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def _run_there(
    job: Job, loaded: tuple[Dataset, IntArray | None], queue: Any, run_one: RunOne
) -> dict[str, bytes]:
    dataset, owner = loaded
    data = build_data(job.settings, dataset, owner)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        here = replace(job, folder=folder, resume=False, wait=False, keep=False)
        run_one(here, queue.put, data)
        files = [path for path in folder.iterdir() if not path.name.startswith(".")]
        return {path.name: path.read_bytes() for path in files}


def _unpack(files: dict[str, bytes], job: Job) -> None:
    """The files of a run in their folder, the manifest last: it is what makes a run finished."""
    with FolderLock(job.folder):
        if job.keep:
            check_no_run(job.folder)
        for name in sorted(files, key=lambda name: name == MANIFEST):
            write_whole(job.folder / name, files[name])


def spread(sim: Simulation, address: str) -> Simulation:
    """The same simulation, the client updates of each round computed by the cluster, chunk by
    chunk.
    """
    ray = connect(address)
    threads = torch.get_num_threads()
    num = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
    data = ray.put(replace(sim.data, scratch=Scratch()))
    worker = ray.remote(_Worker).options(num_cpus=threads)
    workers = [worker.remote(data, threads) for _ in range(num)]

    def engine(
        algorithm: Algorithm,
        sent: Params,
        batches: Batches,
        ue: IntArray,
        memory: ClientMemory | None = None,
    ) -> Updates:
        updates = sim.engine(algorithm, sent, batches, ue, memory)
        if (
            isinstance(updates, Summed)
            and isinstance(batches, DrawnBatches)
            and not is_stateful(algorithm)
        ):
            return SpreadUpdates(ray, workers, updates, batches)
        return updates

    return replace(sim, engine=engine)


@dataclass(frozen=True)
class SpreadUpdates(Updates):
    """Updates whose chunks are summed by the cluster and added here, in the order of the UEs'
    numbers.
    """

    ray: Any
    workers: list[Any]
    updates: Summed
    batches: DrawnBatches

    @cached_property
    def ue(self) -> IntArray:
        return self.updates.ue

    @cached_property
    def sent(self) -> Params:
        return self.updates.sent

    @property
    def guarded(self) -> IntArray:
        return self.updates.guarded

    def mean(self, weight: Array) -> Params:
        share = shares(self.ue, weight)
        chunks = self.updates.chunks()
        waiting = []
        for worker, mine in zip(
            self.workers, np.array_split(np.arange(len(chunks)), len(self.workers)), strict=True
        ):
            rows = [chunks[place] for place in mine]
            if rows:
                waiting.append((np.concatenate(rows), worker.parts.remote(*self._of(rows, share))))
        return self.updates.whole(
            added(part for rows, answer in waiting for part in self._parts(rows, answer))
        )

    def _parts(self, rows: IntArray, answer: Any) -> list[Params]:
        """The sums of a worker's chunks; the steps it guarded are noted."""
        parts: list[Params]
        parts, self.updates.guarded[rows] = _result(self.ray, answer)
        return parts

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """Single updates are formed here."""
        return iter(self.updates)

    def _of(self, rows: list[IntArray], share: Array) -> tuple[Any, Draw, IntArray, list[Array]]:
        """What a worker needs for these rows: the updates without any data, the rows' draws and
        steps, their shares.
        """
        all_rows = np.concatenate(rows)
        draw = Draw(self.batches.draw.sample[:, all_rows], self.batches.draw.mask[:, all_rows])
        bare: Any = replace(self.updates, batches=None)  # type: ignore[type-var]
        return bare, draw, self.batches.local_steps[all_rows], [share[some] for some in rows]


class _Worker:
    """A process of the cluster that holds the data of a run."""

    def __init__(self, data: FederatedData, threads: int) -> None:
        use_machine(threads)
        self._data = data

    def parts(
        self, updates: Any, draw: Draw, local_steps: IntArray, share: list[Array]
    ) -> tuple[list[Params], IntArray]:
        """The sums of these chunks, and the guarded steps of their rows."""
        updates = replace(updates, batches=DrawnBatches(self._data, draw, local_steps))
        begin = np.cumsum([0, *(len(part_share) for part_share in share)])
        rows = [
            np.arange(start, start + len(part_share))
            for start, part_share in zip(begin[:-1], share, strict=True)
        ]
        parts = [
            updates.part(some, part_share) for some, part_share in zip(rows, share, strict=True)
        ]
        return parts, updates.guarded[: begin[-1]]
