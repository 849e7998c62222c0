"""The server of a deployment: a whole run, or the rest of one, into its run folder, with a
checkpoint each round.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid

from autofl.algorithms import Algorithm
from autofl.config import Settings, dump_settings
from autofl.core.checkpoint import Checkpoint, group
from autofl.core.packing import packed, unpacked
from autofl.core.play import Step, Training, play
from autofl.core.round import ChannelAir
from autofl.deploy.certificates import keys_of_server
from autofl.deploy.fleet import Fleet, total_sums
from autofl.deploy.lease import LeftAloneError, TakenOverError
from autofl.deploy.messages import Form, shown
from autofl.deploy.notes import Notes, lost_words, remarks_of
from autofl.deploy.overhead import Overheads, is_asked
from autofl.deploy.post import Ask, Post
from autofl.deploy.privacy import spent
from autofl.deploy.run_config import RunConfig
from autofl.deploy.stream import Streams
from autofl.deploy.world import Devices, sums_of
from autofl.engines import use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import evaluated_ues
from autofl.experiments.build import build_algorithm, build_evaluator, build_model, build_training
from autofl.experiments.cell import build_cell, build_channel, build_compressor
from autofl.experiments.decisions import decisions_of
from autofl.jobs.recording import end_of
from autofl.jobs.run import machine_facts, origins_of, size_range
from autofl.lock import FolderLock
from autofl.models import Params, num_weights
from autofl.models import params_of as params_of_model
from autofl.network import Cell
from autofl.records import (
    OWN_DATA,
    DeviceRecord,
    RunWriter,
    has_begun,
    has_checkpoint,
    read_checkpoint,
    read_manifest,
)
from autofl.robust.checks import Bounds, Checks

log = logging.getLogger("autofl")

LOST = 2
"""Rounds that may be lost when a server is killed: one is written while the next one runs."""
MOST_IDLE = 10
"""Rounds in a row without a used update, though there were orders, after which a run has failed."""
SAY = 0.5
"""Seconds between manifests of an unfinished run; a checkpoint is kept each round."""


def serve(grid: Grid, context: Context) -> None:
    """A whole run, or the rest of one, into its run folder on this machine."""
    logging.basicConfig(format="%(message)s")
    # Ours alone: Flower sends each line by a request, of which httpx would write a line.
    log.setLevel(logging.INFO)
    config = RunConfig.of(context)
    use_machine(config.resolved.simulation.threads)
    lock = FolderLock(config.folder)
    try:
        _write(grid, config, lock)
    finally:
        lock.release()


def _write(grid: Grid, config: RunConfig, lock: FolderLock) -> None:
    """Serve the rounds, and leave a folder that says how they ended."""
    writer, past = _begin(config, lock)
    status: str = "failed"
    said = {"problem": "the server stopped before the end"}
    try:
        if past.checkpoint is None or past.checkpoint.stop is None:
            with _way(grid, config) as ask:
                _serve(ask, config, writer, past)
        elif past.wasted:
            raise AutoFLError(in_vain(past.wasted))
        # the last round has said what there is to say
        status = "finished"
        said = {}
    except TakenOverError:
        status = "taken over"  # the folder is another attempt's by now
        raise
    except LeftAloneError as error:
        status = "interrupted"
        said = {"problem": str(error)}
        raise
    except AutoFLError as error:
        said = {"problem": str(error)}
        raise
    finally:
        if status != "taken over":
            writer.finish(status, **said)
        writer.close()


@dataclass(frozen=True)
class Past:
    """What a resumed run already has behind it; nothing at first."""

    checkpoint: Checkpoint | None = None
    releases: Mapping[int, int] = field(default_factory=dict)
    host_time: float = 0.0
    wasted: str | None = ""  # why updates were not used so far; None as soon as one was

    @property
    def world(self) -> Mapping[str, Any]:
        """What the world remembered."""
        return {} if self.checkpoint is None else self.checkpoint.world


def past_of(folder: Path, algorithm: Algorithm) -> Past:
    """What `Books` kept of a run."""
    arrays, facts = read_checkpoint(folder)
    # The rounds that were lost, one that was not written yet and the next, may have been answered.
    releases = {int(ue): num + LOST for ue, num in facts["releases"].items()}
    checkpoint = unpacked(arrays, facts, algorithm)
    return Past(checkpoint, releases, facts["host_time"], facts["wasted"])


def in_vain(why: str) -> str:
    """What is said of a run that is over and has used no update."""
    return f"no update was used in the whole run ({why}); once that is mended, begin a new run"


def _begin(config: RunConfig, lock: FolderLock) -> tuple[RunWriter, Past]:
    """A writer at the beginning of a run, or after the last checkpoint of the one that is there.

    Whether a run is there that must stay is certain only now: before, another program could have
    written one.
    """
    folder = lock.folder
    settings = config.resolved
    resume = config.resume
    if resume and has_begun(folder) and read_manifest(folder)["status"] == "finished":
        raise AutoFLError(
            f"{folder}: the run has been finished meanwhile; nothing is left to resume"
        )
    if not resume or not has_checkpoint(folder):
        keep = not resume if config.keep is None else config.keep
        writer = RunWriter(folder, dump_settings(settings), _facts(config), lock, keep)
        # Round 1 of a run without a checkpoint may have been answered.
        releases = dict.fromkeys(range(settings.cell.count), 1) if resume else {}
        return writer, Past(releases=releases)
    past = past_of(folder, build_algorithm(settings))
    assert past.checkpoint is not None
    writer = RunWriter.go_on(folder, past.checkpoint.round, lock=lock)
    writer.finish("running", attempt=config.attempt, notes=[])
    if past.checkpoint.stop is not None:  # it was stopped between its last round and its end
        params = past.checkpoint.state.params
        writer.write_weights({name: p.numpy() for name, p in params.items()})
        facts = end_of(past.checkpoint)
        writer.finish("running", **facts, **_privacy(settings, past.releases))
    return writer, past


def _facts(config: RunConfig) -> dict[str, Any]:
    """What a manifest says of a run before its first round."""
    settings = config.resolved
    parts = origins_of(settings)
    if config.has_own_data:
        parts = {kind: parts[kind] for kind in parts if kind not in ("data", "partition")}
    return {
        "algorithm": settings.arm_name,
        "label": settings.title,
        "seed": settings.seed,
        "deployed": True,
        "flower": version("flwr"),
        "attempt": config.attempt,
        "slow": config.slow,
        "decisions": [list(row) for row in decisions_of(settings)],
        "parts": parts,
        **machine_facts(),
    }


@contextlib.contextmanager
def _way(grid: Grid, config: RunConfig) -> Iterator[Ask]:
    """The way to the devices: streams where the settings say so and a port can be had, else
    messages.
    """
    deploy = config.resolved.deploy
    post = Post(grid, deploy.deadline, config.watch)
    streams = None
    if config.stream and deploy.transport == "stream":
        host, port = config.stream.split()
        try:
            keys = keys_of_server(Path(config.site))
            streams = Streams(grid, post, keys, host, int(port), config.bound)
        except (AutoFLError, OSError) as error:
            log.warning("no streams, messages instead: %s", error)
            post = replace(post, why=shown(str(error)))
    try:
        yield streams or post
    finally:
        if streams is not None:
            streams.close()


def _serve(ask: Ask, config: RunConfig, writer: RunWriter, past: Past) -> None:
    """The rounds of a run, or those that are left of it."""
    begin = time.perf_counter() - past.host_time
    settings = config.resolved
    if settings.stop.gradient_norm_sq is not None:
        raise AutoFLError(
            "stop.gradient_norm_sq: needs all data in one place; a deployment cannot measure it"
        )
    fleet = Fleet(ask, _cell(settings, 1), config.bound, config.samples)
    form = _gathered(fleet, settings)

    # Only now it is known what the model looks like.
    params = params_of_model(build_model(settings, form.sample_shape, form.num_classes))
    _check_same_model(past, params, form)
    sizes = np.array([one.said.data_size for one in fleet.known.values()])
    writer.finish(
        "running",
        data=OWN_DATA if config.has_own_data else settings.data.name,
        num_ue=fleet.num_ue,
        num_weights=num_weights(params),
        data_size=size_range(sizes),
    )
    overheads = Overheads()
    world, training = _world(config, fleet, params, past, overheads)

    # What is heard of each round goes into the folder while the next one begins.
    with Books(settings, writer, begin, past) as books:
        _play(config, training, world, fleet, overheads, books, past)


def _cell(settings: Settings, num_sent: int) -> Cell:
    """The cell of the settings, before any device has said what data it has."""
    return build_cell(settings, np.zeros(settings.cell.count, dtype=np.int64), num_sent)


def _gathered(fleet: Fleet, settings: Settings) -> Form:
    """Wait for the devices; what their samples look like."""
    fleet.gather(settings.deploy.join)
    if fleet.known and fleet.form is not None:
        return fleet.form
    reasons = sorted({record.outcome for record in fleet.refused()})
    why = f" ({'; '.join(reasons[:3])})" if reasons else ""
    raise AutoFLError(
        f"no device came within {settings.deploy.join:g} s{why}; look at the logs of the"
        " devices, and if they only start slowly, raise deploy.join (s until the run begins) and"
        " deploy.deadline (s for an answer)"
    )


def _check_same_model(past: Past, params: Params, form: Form) -> None:
    """Refuse to resume a run whose model the samples of the devices do not fit: they would refuse
    every order.
    """
    held = params if past.checkpoint is None else past.checkpoint.state.params
    if {name: p.shape for name, p in held.items()} != {name: p.shape for name, p in params.items()}:
        raise AutoFLError(
            f"the run began with another model than one for samples of shape {form.sample_shape} in"
            f" {form.num_classes} classes, which the devices have now; give them the data of then,"
            " or begin a new run"
        )


def _world(
    config: RunConfig, fleet: Fleet, params: Params, past: Past, overheads: Overheads
) -> tuple[Devices, Training]:
    """The world that these devices are, and the training in it."""
    settings = config.resolved
    deploy = settings.deploy
    cell = _cell(settings, num_weights(build_algorithm(settings).init(params).sent))
    channel = build_channel(settings)

    # A resumed run goes on with the sums of its beginning, whoever is here now.
    sums = sums_of(past.world)
    if sums is None and settings.data.standardise and deploy.statistics == "shared":
        sums = total_sums(fleet.known)
    world = Devices(
        fleet,
        cell,
        # Emulated channels are those that the simulator draws with the same seed.
        emulated=ChannelAir(cell, channel) if deploy.channel == "emulated" else None,
        sums=sums,
        evaluated=evaluated_ues(build_evaluator(settings), fleet.num_ue, settings.seed),
        compressor=build_compressor(settings),
        checks=Checks(Bounds(**settings.checks.model_dump()), group(past.world, "checks")),
        overheads=overheads if deploy.overhead == "measured" else None,
        slow=config.slow,
    )
    training = build_training(settings, params, ChannelAir(world.cell, channel))
    return world, replace(training, air=world)


def _play(
    config: RunConfig,
    training: Training,
    world: Devices,
    fleet: Fleet,
    overheads: Overheads,
    books: "Books",
    past: Past,
) -> None:
    """Algorithm 2 on the devices: each round is timed, told and written; rounds in which devices
    answer and nothing can be used do not go on for ever.
    """
    deadline = config.resolved.deploy.deadline
    notes = Notes()
    idle = 0  # rounds in a row without a used update
    began = world.clock
    checkpoints = None if past.checkpoint is None else [past.checkpoint]
    for [step] in play([training], world, checkpoints):
        config.watch()

        # Later rounds may be planned with what this one took.
        ended = world.clock
        measured = tuple(replace(one, round_time=ended - began) for one in world.measured)
        overheads.add(measured, ended - began)
        began = ended

        # A round in which the network lets nobody send is none of ours; one whose orders came to
        # nothing is.
        this = step.round
        why = lost_words(world.lost)
        remarks = list(remarks_of(fleet))
        if this.arrived.any():
            idle = 0
        elif world.lost:
            idle += 1
            if idle == 1:
                remarks.insert(0, ("no update was used", why))
        notes.tell(this.k, remarks)
        facts = {**_ways(fleet, overheads), "notes": notes.lines}
        books.hear(step, (*measured, *world.refused()), why, facts)

        # It is said here why a run has failed: nobody else knows it.
        if this.stop is not None and books.wasted:
            raise AutoFLError(in_vain(books.wasted))
        if idle == MOST_IDLE:
            raise AutoFLError(
                f"no update was used in {idle} rounds in a row ({why}); mend that first"
            )

        # Without the wait, ten rounds would pass in the moment in which all devices are away.
        if idle and this.stop is None:
            fleet.await_any(world.lost, deadline, config.watch)
            began = world.clock


class Books:
    """Listens to what `play` yields and writes it into the run folder, each round while the next
    one begins: a disk may take longer than a radio.

    A round is written before the one after the next begins. The weights and the manifest are
    written from time to time and at the end.
    """

    def __init__(self, settings: Settings, writer: RunWriter, begin: float, past: Past) -> None:
        self._settings = settings
        self._writer = writer
        self._begin = begin
        self._releases = dict(past.releases)
        self._said = 0.0
        self.wasted = past.wasted
        self._latest: tuple[Checkpoint, dict[str, Any]] | None = None
        self._pool = ThreadPoolExecutor(1, "books")
        self._writing: Future[None] | None = None

    def __enter__(self) -> "Books":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Whatever ended the rounds, those that were done are written; but not into a folder of
        another attempt.
        """
        try:
            if self._writing is not None:
                self._writing.result()
            if kind is not TakenOverError:
                self._say()
        finally:
            self._pool.shutdown()

    def hear(
        self, step: Step, devices: tuple[DeviceRecord, ...], lost: str, facts: Mapping[str, Any]
    ) -> None:
        """A round is over: what became of the devices, why updates were lost, and what a manifest
        says besides.
        """
        if self._writing is not None:
            self._writing.result()
        if step.round.arrived.any():
            self.wasted = None
        elif self.wasted is not None:
            self.wasted = lost or self.wasted

        # An order that got no answer may have been answered all the same.
        self._releases = counted(self._releases, devices, self._settings.cell.count)
        host_time = round(time.perf_counter() - self._begin, 3)
        told = {**end_of(step.checkpoint), "host_time": host_time, **facts}
        self._latest = step.checkpoint, {**told, **_privacy(self._settings, self._releases)}
        self._writing = self._pool.submit(self._write, step, devices, host_time)

    def _write(self, step: Step, devices: tuple[DeviceRecord, ...], host_time: float) -> None:
        self._writer.write(step.round)
        self._writer.write_devices(step.round.k, devices)
        arrays, facts = packed(step.checkpoint)
        facts |= {"releases": self._releases, "host_time": host_time, "wasted": self.wasted}
        self._writer.write_checkpoint(arrays, facts)
        if time.monotonic() - self._said > SAY:
            self._say()

    def _say(self) -> None:
        if self._latest is not None:
            checkpoint, facts = self._latest
            self._said = time.monotonic()
            self._writer.write_weights(
                {name: p.numpy() for name, p in checkpoint.state.params.items()}
            )
            self._writer.finish("running", **facts)


def _ways(fleet: Fleet, overheads: Overheads) -> dict[str, Any]:
    """How the devices are asked, and the time this takes beyond computing and sending [s]."""
    ways = {
        str(ue): {"transport": fleet.way(ue), "overhead": overheads.of_ue(ue)}
        for ue in sorted(fleet.known)
    }
    return {"overhead": overheads.of_round, "devices": ways}


def counted(
    releases: Mapping[int, int], devices: tuple[DeviceRecord, ...], num_ue: int
) -> dict[int, int]:
    """How often each UE was asked for an update."""
    asked = {record.ue for record in devices if is_asked(record)}
    return {ue: releases.get(ue, 0) + (ue in asked) for ue in range(num_ue)}


def _privacy(settings: Settings, releases: Mapping[int, int]) -> dict[str, Any]:
    deploy = settings.deploy
    if deploy.noise_multiplier == 0.0:
        return {}
    most = max(releases.values())
    epsilon = spent(deploy.noise_multiplier, most, deploy.delta)
    return {"privacy": {"epsilon": epsilon, "delta": deploy.delta, "releases": most}}
