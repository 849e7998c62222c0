"""A batch of simulations on disk: played into their folders round by round, and taken up again
where it was left.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofl.errors import AutoFLError, end_if_told, ending_later
from autofl.experiments.write import Keeper, finish_run, goes_on
from autofl.records import Kept, RoundRecord, RunWriter, checkpoints
from autofl.records.run import problem_of
from autofl.rounds.checkpoint import ANEW, unpacked
from autofl.rounds.ending import end_of
from autofl.rounds.loop import Checkpoint
from autofl.simulation import Past, Simulation, play_together


@dataclass(frozen=True)
class Member:
    """A run of a batch: what is played, where it goes, and whether it goes on with what is there."""

    sim: Simulation
    folder: Path
    config_text: str
    manifest: Mapping[str, Any]
    resume: bool
    keep: bool = False  # a run that is there is not overwritten


def write_together(members: Sequence[Member], on_round: Callable[[int, RoundRecord], None]) -> None:
    """Play the runs of a batch into their folders; `on_round` is told which run made a round.

    All runs keep their checkpoints after the same round, and once more before any of them leaves
    the batch: what goes on from there is the same batch, and gives the same bytes.
    """
    past, writers, about = _begin(members)
    begin = time.perf_counter() - max(float(facts.get("host_time", 0.0)) for facts in about)
    keepers = [Keeper(writer, begin) for writer in writers]
    last = [
        RoundRecord(-1) if one is None else end_of(one, facts)
        for one, facts in zip(past, about, strict=True)
    ]
    going = set(range(len(members)))
    status = "failed"
    problem = None

    def keep() -> None:
        for r in sorted(going):
            checkpoint = past[r]
            if checkpoint is not None:
                keepers[r].keep(Past(checkpoint), last[r])

    def leave(r: int, status: str) -> None:
        going.discard(r)
        checkpoint = past[r]
        finish_run(
            writers[r],
            status,
            last[r],
            None if checkpoint is None else checkpoint.state,
            begin,
            problem,
        )

    try:
        for r in [
            r for r in going if last[r].stop is not None
        ]:  # stopped between its last round and its end
            leave(r, "finished")
        batch = sorted(going)
        begun = [one for r in batch if (one := past[r]) is not None]
        for steps in play_together([members[r].sim for r in batch], begun or None) if batch else ():
            for place, record, after in steps:
                r = batch[place]
                writers[r].write(record)
                last[r], past[r] = record, after
                on_round(r, record)
            ended = [r for r in going if last[r].stop is not None]
            if ended or time.monotonic() >= max(keepers[r].due for r in going):
                keep()
            for r in ended:
                leave(r, "finished")
            end_if_told()
    except KeyboardInterrupt as error:
        status = "interrupted"
        problem = str(error) or "interrupted by a user"
        raise
    except Exception as error:
        problem = problem_of(error)
        raise
    finally:
        with ending_later():
            with contextlib.suppress(
                OSError
            ):  # a full disk, perhaps: the last checkpoint that was kept must do
                keep()
            for r in sorted(going):
                leave(r, "finished" if last[r].stop is not None else status)


def _begin(
    members: Sequence[Member],
) -> tuple[list[Checkpoint | None], list[RunWriter], list[Mapping[str, Any]]]:
    """Writers at the beginning, or after the last round of which every run has a checkpoint, and
    the facts of these.
    """
    kept = []
    problems = []
    for member in members:
        there = (
            list(checkpoints(member.folder))
            if member.resume and goes_on(member.folder, member.config_text)
            else []
        )
        kept.append({int(one.facts["round"]): one for one in there if isinstance(one, Kept)})
        problems += [str(one) for one in there if not isinstance(one, Kept)]
    common = set.intersection(*(set(one) for one in kept))
    if not common and problems:
        raise AutoFLError(f"{'; '.join(problems)}; {ANEW}")
    if not common:
        fresh = [
            RunWriter(member.folder, member.config_text, member.manifest, keep=member.keep)
            for member in members
        ]
        return [None] * len(members), fresh, [{}] * len(members)
    newest = [one[max(common)] for one in kept]
    past = []
    writers = []
    for member, one in zip(members, newest, strict=True):
        sim = member.sim
        past.append(
            unpacked(one.arrays, one.facts, sim.arm.algorithm, str(sim.data.x.device), sim.params)
        )
        writers.append(RunWriter.go_on(member.folder, max(common), one))
    return [*past], writers, [one.facts for one in newest]
