"""A run to be made, and how far it is. Nothing here loads PyTorch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from autofl.config import Settings
from autofl.core.round import Round
from autofl.quality import Evaluation


@dataclass(frozen=True)
class Job:
    """A run to be made: its settings, its folder, what to call it, and what tells it from the other
    runs of a study.
    """

    settings: Settings
    folder: Path
    label: str
    values: Mapping[str, Any] = field(default_factory=dict)
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

    @classmethod
    def of(cls, label: str, num_rounds: int, this: Round, host_time: float) -> "Progress":
        """After this round."""
        quality = this.evaluation or Evaluation()
        accuracy = quality.adapted_accuracy
        is_over = this.stop is not None
        return cls(label, this.k, num_rounds, this.sim_time, accuracy, host_time, is_over)


OnProgress = Callable[[Progress], None]
Unit = TypeVar("Unit")
Make = Callable[[Unit, OnProgress], object]
"""Makes a unit of work, a job or a batch of them, and tells how far it is."""
