"""How a run ended, as its manifest tells people and its checkpoints tell whoever resumes it."""

from collections.abc import Mapping
from typing import Any

from autofl.records import RoundRecord
from autofl.rounds.loop import Checkpoint
from autofl.rounds.suspects import suspect_words


def told_end(last: RoundRecord) -> dict[str, Any]:
    """What a manifest says of the last round so far; of one that diverged also who may have caused
    it.
    """
    facts: dict[str, Any] = {
        "stop": last.stop,
        "rounds": last.round,
        "sim_time": last.sim_time,
        "problem": None,
    }
    if last.suspects:
        facts["suspects"] = [ue for ue, _ in last.suspects]
        facts["problem"] = f"diverged; {suspect_words(last.suspects)}"
    return facts


def kept_end(last: RoundRecord) -> dict[str, Any]:
    """What a checkpoint keeps of its round: why that was the last one, if it was, and its suspects."""
    return {"stop": last.stop, "suspects": [[ue, ratio] for ue, ratio in last.suspects]}


def end_of(checkpoint: Checkpoint, facts: Mapping[str, Any]) -> RoundRecord:
    """The round of a checkpoint, as far as `kept_end` kept it."""
    suspects = tuple((ue, float(ratio)) for ue, ratio in facts.get("suspects", ()))
    return RoundRecord(
        checkpoint.round, checkpoint.sim_time, stop=facts.get("stop"), suspects=suspects
    )
