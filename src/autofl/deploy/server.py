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
from autofl.core.play import play
from autofl.core.round import ChannelAir, Round
from autofl.deploy.certificates import StreamKeys
from autofl.deploy.fleet import Fleet, Form, total_sums
from autofl.deploy.lease import LeftAloneError, TakenOverError
from autofl.deploy.notes import Notes, lost_words, remarks_of
from autofl.deploy.overhead import Overheads, is_asked
from autofl.deploy.post import Ask, Post
from autofl.deploy.privacy import spent
from autofl.deploy.run_config import (
    attempt_of,
    folder_of,
    form_of,
    has_own_data,
    nodes_of,
    settings_of,
    slow_of,
    stream_of,
    watch_of,
)
from autofl.deploy.schema import shown
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
from autofl.records import (
    OWN_DATA,
    DeviceRecord,
    RunWriter,
    has_begun,
    has_checkpoint,
    read_checkpoint,
    read_manifest,
)
from autofl.rounds.checks import Bounds, Checks

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
    log.setLevel(
        logging.INFO
    )  # ours alone: Flower sends each line by a request, of which httpx would write a line
    settings = settings_of(str(context.run_config["settings"]))
    folder = folder_of(context)
    use_machine(settings.simulation.threads)
    lock = FolderLock(folder)
    try:
        _write(grid, context, settings, lock)
    finally:
        lock.release()


def _write(grid: Grid, context: Context, settings: Settings, lock: FolderLock) -> None:
    """Serve the rounds, and leave a folder that says how they ended."""
    writer, past = _begin(context, settings, lock)
    status: str = "failed"
    said = {"problem": "the server stopped before the end"}
    try:
        if past.checkpoint is None or past.checkpoint.stop is None:
            with _way(grid, context, settings) as ask:
                _serve(ask, context, settings, writer, past)
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


def _begin(context: Context, settings: Settings, lock: FolderLock) -> tuple[RunWriter, Past]:
    """A writer at the beginning of a run, or after the last checkpoint of the one that is there.

    Whether a run is there that must stay is certain only now: before, another program could have
        written one.
    """
    folder = lock.folder
    resume = bool(context.run_config.get("resume", False))
    attempt = attempt_of(context)
    if resume and has_begun(folder) and read_manifest(folder)["status"] == "finished":
        raise AutoFLError(
            f"{folder}: the run has been finished meanwhile; nothing is left to resume"
        )
    keep = bool(context.run_config.get("keep", not resume))
    begun = (
        dict.fromkeys(range(settings.cell.count), 1) if resume else {}
    )  # round 1 may have been answered
    if not resume or not has_checkpoint(folder):
        away = ("data", "partition") if has_own_data(context) else ()
        facts = {
            "algorithm": settings.arm_name,
            "label": settings.title,
            "seed": settings.seed,
            "deployed": True,
            "flower": version("flwr"),
            "attempt": attempt,
            "slow": slow_of(context),
            "decisions": [list(row) for row in decisions_of(settings)],
            "parts": {
                kind: origin for kind, origin in origins_of(settings).items() if kind not in away
            },
        }
        writer = RunWriter(folder, dump_settings(settings), facts | machine_facts(), lock, keep)
        return writer, Past(releases=begun)
    past = past_of(folder, build_algorithm(settings))
    assert past.checkpoint is not None
    writer = RunWriter.go_on(folder, past.checkpoint.round, lock=lock)
    writer.finish("running", attempt=attempt, notes=[])
    if past.checkpoint.stop is not None:  # it was stopped between its last round and its end
        params = past.checkpoint.state.params
        writer.write_weights({name: p.numpy() for name, p in params.items()})
        facts = end_of(past.checkpoint)
        writer.finish("running", **facts, **_privacy(settings, past.releases))
    return writer, past


@contextlib.contextmanager
def _way(grid: Grid, context: Context, settings: Settings) -> Iterator[Ask]:
    """The way to the devices: streams where the settings say so and a port can be had, else
    messages.
    """
    post = Post(grid, settings.deploy.deadline, watch_of(context))
    place = stream_of(context)
    streams = None
    if place is not None and settings.deploy.transport == "stream":
        folder, host, port = place
        try:
            streams = Streams(grid, post, StreamKeys.read(folder), host, port, nodes_of(context))
        except (AutoFLError, OSError) as error:
            log.warning("no streams, messages instead: %s", error)
            post = replace(post, why=shown(str(error)))
    try:
        yield streams or post
    finally:
        if streams is not None:
            streams.close()


def _serve(ask: Ask, context: Context, settings: Settings, writer: RunWriter, past: Past) -> None:
    begin = time.perf_counter() - past.host_time
    if settings.stop.gradient_norm_sq is not None:
        raise AutoFLError(
            "stop.gradient_norm_sq: needs all data in one place; a deployment cannot measure it"
        )
    num_ue = settings.cell.count
    watch = watch_of(context)
    nobody = np.zeros(num_ue, dtype=np.int64)
    fleet = Fleet(
        ask, build_cell(settings, nobody, 1), nodes_of(context), form_of(settings, context)
    )
    fleet.gather(settings.deploy.join)
    if not fleet.known or fleet.form is None:
        why = "; ".join(sorted({record.outcome for record in fleet.refused()})[:3])
        raise AutoFLError(
            f"no device came within {settings.deploy.join:g} s{f' ({why})' if why else ''}; look at the logs of the"
            " devices, and if they only start slowly, raise deploy.join (s until the run begins) and deploy.deadline (s"
            " for an answer)"
        )
    params = params_of_model(build_model(settings, fleet.form.sample_shape, fleet.form.num_classes))
    _check_same_model(past, params, fleet.form)
    size = np.array([one.data_size for one in fleet.known.values()])
    data = OWN_DATA if has_own_data(context) else settings.data.name
    writer.finish(
        "running",
        data=data,
        num_ue=num_ue,
        num_weights=num_weights(params),
        data_size=size_range(size),
    )
    sent = num_weights(build_algorithm(settings).init(params).sent)
    cell = build_cell(settings, nobody, sent)
    shared = settings.data.standardise and settings.deploy.statistics == "shared"
    sums = sums_of(past.world) or (total_sums(fleet.known) if shared else None)
    evaluated = evaluated_ues(build_evaluator(settings), num_ue, settings.seed)
    emulated = None
    channel = build_channel(settings)
    if settings.deploy.channel == "emulated":  # the channels the simulator draws with the same seed
        emulated = ChannelAir(cell, channel)
    compressor = build_compressor(settings)
    checks = Checks(Bounds(**settings.checks.model_dump()), group(past.world, "checks"))
    overheads = Overheads()
    planned_with = overheads if settings.deploy.overhead == "measured" else None
    world = Devices(
        fleet,
        ask,
        cell,
        emulated,
        sums,
        evaluated,
        compressor,
        checks,
        planned_with,
        slow_of(context),
    )
    books = Books(settings, writer, begin, past)
    law = ChannelAir(world.cell, channel)
    training = replace(build_training(settings, params, law), air=world)
    clock = time.monotonic()
    notes = Notes()
    idle = 0
    with books:
        checkpoints = None if past.checkpoint is None else [past.checkpoint]
        for [(_, record, checkpoint)] in play([training], world, checkpoints):
            watch()
            clock, before = time.monotonic() - world.evaluating, clock
            measured = tuple(replace(one, round_time=clock - before) for one in world.measured)
            overheads.add(measured, clock - before)

            # A round in which the network lets nobody send is none of ours; one whose orders came
            # to nothing is.
            idle = 0 if record.arrived.any() else idle + bool(world.lost)
            why = lost_words(world.lost)
            notes.tell(
                record.k,
                [*([("no update was used", why)] if idle == 1 else []), *remarks_of(fleet, ask)],
            )
            books.enter(
                record,
                checkpoint,
                measured,
                world,
                _ways(fleet, ask, overheads) | {"notes": notes.lines},
            )
            if record.stop is not None and books.wasted:
                raise AutoFLError(in_vain(books.wasted))
            if idle == MOST_IDLE:
                raise AutoFLError(
                    f"no update was used in {idle} rounds in a row ({why}); mend that first"
                )

            # Without the wait, ten rounds would pass in the moment in which all devices are away.
            if idle and record.stop is None:
                fleet.await_any(world.lost, settings.deploy.deadline, watch)
                clock = time.monotonic() - world.evaluating


def _check_same_model(past: Past, params: Params, form: Form) -> None:
    """Refuse to resume a run whose model the samples of the devices do not fit: they would refuse
    every order.
    """
    held = params if past.checkpoint is None else past.checkpoint.state.params
    if {name: p.shape for name, p in held.items()} != {name: p.shape for name, p in params.items()}:
        raise AutoFLError(
            f"the run began with another model than one for samples of shape {form.sample_shape} in {form.num_classes}"
            " classes, which the devices have now; give them the data of then, or begin a new run"
        )


class Books:
    """What a run writes into its folder, each round while the next one begins: a disk may take
    longer than a radio.

    A round is written before the one after the next begins. The weights and the manifest are
    written from time to time and at the end.
    """

    def __init__(
        self,
        settings: Settings,
        writer: RunWriter,
        begin: float,
        past: Past,
    ) -> None:
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

    def enter(
        self,
        record: Round,
        checkpoint: Checkpoint,
        measured: tuple[DeviceRecord, ...],
        world: Devices,
        ways: Mapping[str, Any],
    ) -> None:
        """A round is over."""
        if self._writing is not None:
            self._writing.result()
        self._releases = _counted(self._releases, measured, self._settings.cell.count)
        is_wasted = self.wasted is not None and not record.arrived.any()
        self.wasted = (lost_words(world.lost) or self.wasted) if is_wasted else None
        host_time = round(time.perf_counter() - self._begin, 3)
        facts = {**end_of(checkpoint), "host_time": host_time, **ways}
        self._latest = checkpoint, {**facts, **_privacy(self._settings, self._releases)}
        devices = (*measured, *world.refused())
        self._writing = self._pool.submit(self._write, record, devices, host_time)

    def _write(self, record: Round, devices: tuple[DeviceRecord, ...], host_time: float) -> None:
        assert self._latest is not None
        self._writer.write(record)
        self._writer.write_devices(record.k, devices)
        arrays, facts = packed(self._latest[0])
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


def _ways(fleet: Fleet, ask: Ask, overheads: Overheads) -> dict[str, Any]:
    """How the devices are asked, and the time this takes beyond computing and sending [s]."""
    ways = {
        str(ue): {"transport": ask.way(one.node), "overhead": overheads.of_ue(ue)}
        for ue, one in sorted(fleet.known.items())
    }
    return {"overhead": overheads.of_round, "devices": ways}


def _counted(
    releases: dict[int, int], measured: tuple[DeviceRecord, ...], num_ue: int
) -> dict[int, int]:
    """How often each UE was asked for an update: an order that got no answer may have been answered
    all the same.
    """
    asked = {record.ue for record in measured if is_asked(record)}
    return {ue: releases.get(ue, 0) + (ue in asked) for ue in range(num_ue)}


def _privacy(settings: Settings, releases: Mapping[int, int]) -> dict[str, Any]:
    deploy = settings.deploy
    most = max(releases.values())
    if deploy.noise_multiplier == 0.0:
        return {}
    epsilon = spent(deploy.noise_multiplier, most, deploy.delta)
    return {"privacy": {"epsilon": epsilon, "delta": deploy.delta, "releases": most}}
