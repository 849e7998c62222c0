"""Runs on disk: played into their folders round by round, and taken up again where they were left.

What `play` yields is heard by a `Recording` for each run, which writes its tables, keeps checkpoints
and leaves a readable folder whatever happens.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofl.config import flat_settings
from autofl.core.checkpoint import Checkpoint
from autofl.core.packing import ANEW, packed, unpacked
from autofl.core.play import Step
from autofl.core.round import Round
from autofl.core.simulation import Simulation, simulated
from autofl.core.suspects import suspect_words
from autofl.core.together import play_together
from autofl.errors import AutoFLError, end_if_told, ending_later, in_own_code
from autofl.files import opening, quoted, read_toml
from autofl.lock import FolderLock
from autofl.records import Kept, Run, RunWriter, checkpoints, is_run, read_manifest, read_run
from autofl.records.writer import problem_of
from autofl.version import __version__

OnRound = Callable[[Round], None]
BETWEEN_CHECKPOINTS = 10.0
"""Seconds of work that a killed run loses at most."""
MOST_OF_THE_TIME = 0.05
"""Share of the time that may go into checkpoints."""
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Recording:
    """A simulation on its way into a run folder.

    Fields:
        resume: it goes on from what is there.
        keep: a run that is there is an error.
        lock: of the folder, the caller's to release; None to take one.
        checkpoint: where it stands, None before its first round.
    """

    sim: Simulation
    folder: Path
    config_text: str
    manifest: Mapping[str, Any]
    resume: bool = False
    keep: bool = False
    lock: FolderLock | None = None
    checkpoint: Checkpoint | None = field(default=None, init=False)
    begin: float = field(default_factory=time.perf_counter, init=False)
    _writer: RunWriter | None = field(default=None, init=False)
    _can_pack: bool = field(default=True, init=False)
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        self._due = time.monotonic() + BETWEEN_CHECKPOINTS

    @property
    def writer(self) -> RunWriter:
        assert self._writer is not None
        return self._writer

    @property
    def is_over(self) -> bool:
        return self.checkpoint is not None and self.checkpoint.stop is not None

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._can_pack and time.monotonic() >= self._due

    def to_resume(self) -> dict[int, Kept]:
        """The checkpoints that are there to go on from, by their rounds."""
        if not self.resume or not is_run(self.folder):
            return {}
        if read_manifest(self.folder).get("deployed"):
            raise AutoFLError(
                f"{self.folder}: a run on devices; autofl deploy run --resume {quoted(self.folder)}"
                " continues it"
            )
        if not goes_on(self.folder, self.config_text):
            return {}
        usable, problems = checkpoints(self.folder)
        if problems and not usable:
            raise AutoFLError(f"{'; '.join(problems)}; {ANEW}")
        for problem in problems:
            log.warning("%s; it resumes from an older checkpoint", problem)
        return {kept.round: kept for kept in usable}

    def start(self, kept: Kept | None) -> None:
        """Open the folder: for a new run, or after this checkpoint."""
        if kept is None:
            self._writer = RunWriter(
                self.folder, self.config_text, self.manifest, self.lock, self.keep
            )
            return
        sim = self.sim
        device = str(sim.data.x.device)
        with opening(kept.path, "a checkpoint of this run", f"; {ANEW}"):
            checkpoint = unpacked(kept.arrays, kept.facts, sim.algorithm, device, sim.params)
            self.begin -= float(kept.facts["host_time"])
        self._writer = RunWriter.go_on(self.folder, kept.round, self.lock)
        self.checkpoint = checkpoint

    def hear(self, step: Step) -> None:
        """A round is over."""
        self.writer.write(step.round)
        self.checkpoint = step.checkpoint

    def save(self) -> None:
        """A checkpoint after the last round so far.

        A part of a user's own may remember what no file can hold; such a run cannot be resumed, but
        it can be made.
        """
        if self.checkpoint is None or not self._can_pack:
            return
        begin = time.monotonic()
        try:
            arrays, facts = packed(self.checkpoint)
        except AutoFLError as error:
            self._can_pack = False
            log.warning("no checkpoints: %s", error)
            return
        facts["host_time"] = time.perf_counter() - self.begin
        self.writer.write_checkpoint(arrays, facts)
        spent = time.monotonic() - begin
        self._due = time.monotonic() + max(BETWEEN_CHECKPOINTS, spent / MOST_OF_THE_TIME)

    def leave(self, status: str, problem: str | None = None) -> None:
        """Leave a readable run: the last weights, and how it ended."""
        trouble: OSError | None = None
        try:
            try:
                if self.checkpoint is not None:
                    params = self.checkpoint.state.params
                    self.writer.write_weights({name: p.cpu().numpy() for name, p in params.items()})
            except OSError as error:
                problem = problem or problem_of(error)
                if status == "finished":
                    status = "failed"
                    trouble = error
            facts = end_of(self.checkpoint)
            facts["problem"] = problem or facts["problem"]
            facts["host_time"] = round(time.perf_counter() - self.begin, 3)
            self.writer.finish(status, **facts, ended_at=round(time.time(), 3))
        finally:
            self.writer.close()
        if trouble is not None:
            raise trouble


def end_of(checkpoint: Checkpoint | None) -> dict[str, Any]:
    """What a manifest says of the last round so far; of one that diverged also who may have caused it."""
    if checkpoint is None:
        return {"stop": None, "rounds": -1, "sim_time": 0.0, "problem": None}
    facts: dict[str, Any] = {
        "stop": checkpoint.stop,
        "rounds": checkpoint.round,
        "sim_time": checkpoint.sim_time,
        "problem": None,
    }
    if checkpoint.suspects:
        facts["suspects"] = [ue for ue, _ in checkpoint.suspects]
        facts["problem"] = f"diverged; {suspect_words(checkpoint.suspects)}"
    return facts


def write_run(
    sim: Simulation,
    folder: Path | str,
    config_text: str,
    manifest: Mapping[str, Any],
    on_round: OnRound | None = None,
    *,
    resume: bool = False,
    wait: bool = False,
    keep: bool = False,
) -> Run:
    """Play a simulation into a run folder and read it back.

    With `resume` a finished run of the same settings is only read, and one that was stopped goes on
    from its last checkpoint, to the same bytes as a run that was never stopped. With `wait`, wait
    for a process that makes it now. With `keep`, a run that is there already is not overwritten but
    an error.
    """
    folder = Path(folder)

    def alone(
        sims: Sequence[Simulation], past: Sequence[Checkpoint] | None
    ) -> Iterator[list[Step]]:
        return ([step] for step in simulated(sims[0], past[0] if past else None))

    def tell(_: Recording, this: Round) -> None:
        if on_round is not None:
            on_round(this)

    with FolderLock(folder, wait) as lock:
        if not (resume and is_finished(folder, config_text)):
            recording = Recording(sim, folder, config_text, manifest, resume, keep, lock)
            play_into([recording], tell, alone)
        return read_run(folder)  # before anybody else can write there


def play_into(
    recordings: Sequence[Recording],
    on_round: Callable[[Recording, Round], None],
    play: Callable[..., Iterator[list[Step]]] = play_together,
) -> None:
    """Play simulations into their folders side by side, by default as one batch.

    All go on after the last round of which every one has a checkpoint.
    """
    resumable = [recording.to_resume() for recording in recordings]
    common = set.intersection(*map(set, resumable))
    for recording, own in zip(recordings, resumable, strict=True):
        recording.start(own[max(common)] if common else None)
    begin = min(recording.begin for recording in recordings)
    for recording in recordings:
        recording.begin = begin

    # A run may have been stopped between its last round and its end.
    for recording in recordings:
        if recording.is_over:
            recording.leave("finished")
    going = [recording for recording in recordings if not recording.is_over]
    if going:
        past = [one.checkpoint for one in going if one.checkpoint is not None]
        _record(going, play([one.sim for one in going], past or None), on_round)


def _record(
    recordings: Sequence[Recording],
    steps: Iterator[list[Step]],
    on_round: Callable[[Recording, Round], None],
) -> None:
    """Let each recording hear the rounds of its run, and leave folders that say how they ended."""
    going = list(recordings)
    status = "failed"
    problem = None
    try:
        for batch in steps:
            for step in batch:
                recordings[step.run].hear(step)
                on_round(recordings[step.run], step.round)

            # All save their checkpoints after the same round, and once more before one of several
            # leaves: what is resumed from there is the same batch, and gives the same bytes.
            ended = [one for one in going if one.is_over]
            splits = 0 < len(ended) < len(going)
            if splits or (not ended and any(one.is_due for one in going)):
                for one in going:
                    one.save()
            for one in ended:
                with ending_later():
                    going.remove(one)
                    one.leave("finished")
            end_if_told()
    except KeyboardInterrupt as error:
        status = "interrupted"
        problem = str(error) or "interrupted by a user"
        raise
    except Exception as error:
        own = in_own_code(error)
        problem = problem_of(own or error)
        raise own or error from None
    finally:
        with ending_later():
            for one in going:
                if one.is_over:
                    one.leave("finished")
                    continue
                # Where the disk is full, the last checkpoint that was saved must do.
                with contextlib.suppress(OSError):
                    one.save()
                one.leave(status, problem)


def is_finished(folder: Path, config_text: str) -> bool:
    """Whether a folder holds a finished run of these settings and this version."""
    if not is_run(folder):
        return False
    try:
        manifest = read_manifest(folder)
        return (
            manifest.get("status") == "finished"
            and manifest.get("version") == __version__
            and (folder / "config.toml").read_text(encoding="utf-8") == config_text
        )
    except (AutoFLError, OSError, UnicodeDecodeError):
        return False


def goes_on(folder: Path, config_text: str) -> bool:
    """Whether there is a run to go on with. One of another version or other settings is refused: to
    go on would mix two runs, and to begin anew would lose one that nobody asked to lose.
    """
    if not is_run(folder):
        return False
    manifest = read_manifest(folder)
    if (there := manifest.get("version")) != __version__:
        raise AutoFLError(
            f"{folder}: a run of version {there} is there, which {__version__} cannot continue; {ANEW}"
        )
    _check_same_settings(folder, config_text)
    if manifest.get("status") == "finished":  # and `is_finished` did not know it
        raise AutoFLError(
            f"{folder}: a finished run whose config.toml is not what it wrote; {ANEW}"
        )
    return True


def _check_same_settings(folder: Path, config_text: str) -> None:
    import tomllib

    if not (folder / "config.toml").is_file():
        return
    there = flat_settings(read_toml(folder / "config.toml"))
    wanted = flat_settings(tomllib.loads(config_text))
    other = sorted(key for key in there.keys() | wanted.keys() if there.get(key) != wanted.get(key))
    if other:
        raise AutoFLError(
            f"{folder}: a run with other settings is there ({other[0]} = {there.get(other[0])}, not"
            f" {wanted.get(other[0])}); name another folder or overwrite it (--force)"
        )
