"""A simulation on disk: played into its folder round by round, and taken up again where it was
left.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofl.algorithms import State
from autofl.config import flat_settings
from autofl.errors import AutoFLError, end_if_told, ending_later, in_own_code
from autofl.files import opening, quoted, read_bytes, read_toml
from autofl.lock import FolderLock
from autofl.records import (
    Kept,
    RoundRecord,
    Run,
    RunWriter,
    is_run,
    newest_checkpoint,
    read_manifest,
    read_run,
)
from autofl.records.run import problem_of
from autofl.rounds.checkpoint import ANEW, group, packed, packed_memory, unpacked, unpacked_memory
from autofl.rounds.ending import end_of, kept_end, told_end
from autofl.simulation import Past, Simulation, play
from autofl.version import __version__

OnRound = Callable[[RoundRecord], None]
BETWEEN_CHECKPOINTS = 10.0
"""Seconds of work that a killed run loses at most."""
MOST_OF_THE_TIME = 0.05
"""Share of the time that may go into checkpoints."""
log = logging.getLogger(__name__)


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
    lock = FolderLock(folder, wait)
    try:
        if not (resume and is_finished(folder, config_text)):
            begun = _begin(sim, folder, config_text, manifest, lock, resume, keep)
            _write(sim, begun, on_round)
        return read_run(folder)  # before anybody else can write there
    finally:
        lock.release()


Begun = tuple[Past | None, RunWriter, Mapping[str, Any]]
"""Where a run goes on, None for its beginning, its writer, and the facts of the checkpoint."""


def _write(sim: Simulation, begun: Begun, on_round: OnRound | None) -> None:
    """Play the rounds, and leave a folder that says how they ended."""
    past, writer, about = begun
    keeper = Keeper(writer, begin=time.perf_counter() - float(about.get("host_time", 0.0)))
    last = RoundRecord(-1) if past is None else end_of(past.checkpoint, about)
    status = "failed"
    problem = None
    try:
        for record, after in play(sim, past) if last.stop is None else ():
            writer.write(record)
            last = record
            past = after
            keeper.offer(past, record)
            if on_round is not None:
                on_round(record)
            end_if_told()
        status = "finished"
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
            if past is not None and status != "finished":
                with contextlib.suppress(
                    OSError
                ):  # a full disk, perhaps: the last checkpoint that was kept must do
                    keeper.keep(past, last)
            state = None if past is None else past.checkpoint.state
            finish_run(writer, status, last, state, keeper.begin, problem)


def is_finished(folder: Path, config_text: str) -> bool:
    """Whether a folder holds a finished run of these settings and this version."""
    if not is_run(folder):
        return False
    try:
        manifest = read_manifest(folder)
        return (
            manifest.get("status") == "finished"
            and manifest.get("version") == __version__
            and read_bytes(folder / "config.toml") == config_text.encode("utf-8")
        )
    except (AutoFLError, OSError):
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


def _begin(
    sim: Simulation,
    folder: Path,
    config_text: str,
    manifest: Mapping[str, Any],
    lock: FolderLock,
    resume: bool,
    keep: bool,
) -> Begun:
    """A writer at the beginning of a run, or after the last checkpoint of the one that is there;
    the facts of that.
    """
    kept: Kept | None = None
    if resume and is_run(folder) and read_manifest(folder).get("deployed"):
        raise AutoFLError(
            f"{folder}: a run on devices; autofl deploy run --resume {quoted(folder)} continues it"
        )
    if resume and goes_on(folder, config_text):
        kept, problems = newest_checkpoint(folder)
        if kept is None and problems:
            raise AutoFLError(f"{'; '.join(problems)}; {ANEW}")
        for problem in problems:
            log.warning("%s; it resumes from an older checkpoint", problem)
    if kept is None:
        return None, RunWriter(folder, config_text, manifest, lock, keep), {}
    device = str(sim.data.x.device)
    with opening(folder / kept.name, "a checkpoint of this run", f"; {ANEW}"):
        checkpoint = unpacked(kept.arrays, kept.facts, sim.arm.algorithm, device, sim.params)
        past = Past(checkpoint, unpacked_memory(kept.arrays, device), group(kept.arrays, "liars"))
    return past, RunWriter.go_on(folder, checkpoint.round, kept, lock), kept.facts


@dataclass
class Keeper:
    """Keeps a checkpoint now and then: often enough for little to be lost, seldom enough to cost
    little.
    """

    writer: RunWriter
    begin: float
    due: float = 0.0
    possible: bool = True

    def __post_init__(self) -> None:
        self.due = time.monotonic() + BETWEEN_CHECKPOINTS

    def offer(self, past: Past, last: RoundRecord) -> None:
        if self.possible and time.monotonic() >= self.due:
            self.keep(past, last)

    def keep(self, past: Past, last: RoundRecord) -> None:
        """A checkpoint after the last round so far, with the reason why the run is over, if it is.

        A part of a user's own may remember what no file can hold; such a run cannot go on, but it
        can run.
        """
        begin = time.monotonic()
        try:
            arrays, facts = packed(past.checkpoint)
            arrays |= packed_memory(past.memory)
            arrays |= {f"liars.{name}": array for name, array in past.liars.items()}
            facts |= {"host_time": time.perf_counter() - self.begin, **kept_end(last)}
        except AutoFLError as error:
            self.possible = False
            log.warning("no checkpoints: %s", error)
            return
        self.writer.write_checkpoint(arrays, facts)
        spent = time.monotonic() - begin
        self.due = time.monotonic() + max(BETWEEN_CHECKPOINTS, spent / MOST_OF_THE_TIME)


def finish_run(
    writer: RunWriter,
    status: str,
    last: RoundRecord,
    state: State | None,
    begin: float,
    problem: str | None = None,
) -> None:
    """Leave a readable run: the last weights, and how it ended."""
    trouble: OSError | None = None
    try:
        try:
            if state is not None:
                writer.write_weights({name: p.cpu().numpy() for name, p in state.params.items()})
        except OSError as error:
            problem = problem or problem_of(error)
            if status == "finished":
                status = "failed"
                trouble = error
        facts = told_end(last)
        facts["problem"] = problem or facts["problem"]
        host_time = round(time.perf_counter() - begin, 3)
        writer.finish(status, **facts, host_time=host_time, ended_at=round(time.time(), 3))
    finally:
        writer.close()
    if trouble is not None:
        raise trouble
