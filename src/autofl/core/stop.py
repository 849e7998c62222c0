"""When a run ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autofl.core.checkpoint import History
from autofl.errors import AutoFLError
from autofl.quality import PLATEAU_ROUNDS, SMOOTHING, Evaluation, convergence_round, reaches
from autofl.units import Array

FEWEST = 3
"""Evaluations in a half that is compared."""
Metric = Literal["adapted", "global"]


def watched(
    history: History, k: int, evaluation: Evaluation, window: int = PLATEAU_ROUNDS
) -> History:
    """The evaluations that a rule still looks at after this one: those it averages, and those of
    open windows.

    A window of a rule that was whole before has been judged before, so the cost of a rule does not
    grow.
    """
    longer = (*history, (k, evaluation))
    inside = sum(begin > k - window for begin, _ in longer)
    return longer[-max(inside, SMOOTHING) :]


@dataclass(frozen=True)
class Stop:
    """Stop after `rounds`, or earlier by any of the other rules; None or False switches a rule off.

    Fields:
        target_accuracy: on `metric`, smoothed over 3 evaluations.
        sim_time: budget of simulated seconds.
        gradient_norm_sq: epsilon of the epsilon-stationary point, ||grad F||^2 <= epsilon
            (Definition 1).
        plateau: accuracy stays within 1 % (std) over 20 rounds.
        stalled: so many rounds, of which the later half is no better than the earlier one, by two
            standard errors.
    """

    rounds: int
    target_accuracy: float | None = None
    sim_time: float | None = None
    gradient_norm_sq: float | None = None
    plateau: bool = False
    stalled: int | None = None
    metric: Metric = "adapted"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise AutoFLError(f"rounds: {self.rounds} is too few; at least 1")

    @property
    def window(self) -> int:
        """Rounds over which the rules look back."""
        return max(PLATEAU_ROUNDS, self.stalled or 0)

    def is_over(self, round_index: int, sim_time: float) -> bool:
        """Whether rounds or simulated time are used up, however good the model is."""
        return round_index >= self.rounds or (
            self.sim_time is not None and sim_time >= self.sim_time
        )

    def reason(
        self, round_index: int, sim_time: float, history: Sequence[tuple[int, Evaluation]]
    ) -> str | None:
        """Why to stop after this round, or None to go on; asked at every evaluation.

        `history` holds the evaluated rounds so far, or as many as `watched` kept before and this
        one.
        """
        if self.sim_time is not None and sim_time >= self.sim_time:
            return "sim_time"
        if history and history[-1][0] == round_index:
            accuracy = np.array(
                [getattr(evaluation, f"{self.metric}_accuracy") for _, evaluation in history]
            )
            rounds = np.array([k for k, _ in history], dtype=np.float64)
            if self.target_accuracy is not None and reaches(accuracy, self.target_accuracy)[-1]:
                return "target_accuracy"
            if (
                self.gradient_norm_sq is not None
                and history[-1][1].gradient_norm_sq <= self.gradient_norm_sq
            ):
                return "gradient_norm_sq"
            if self.plateau and not np.isnan(convergence_round(rounds, accuracy)):
                return "plateau"
            if self.stalled is not None and _has_stalled(rounds, accuracy, self.stalled):
                return "stalled"
        return "rounds" if round_index >= self.rounds else None


def _has_stalled(rounds: Array, accuracy: Array, window: int) -> bool:
    """Whether the later half of the last rounds is no better than the earlier one, but for two
    standard errors.
    """
    k = rounds[-1]
    late = rounds > k - window / 2
    early = (rounds > k - window) & (rounds <= k - window / 2)
    if k < window or min(late.sum(), early.sum()) < FEWEST:
        return False
    noise = np.sqrt(sum(accuracy[half].var(ddof=1) / half.sum() for half in (late, early)))
    return bool(accuracy[late].mean() - accuracy[early].mean() <= 2.0 * noise)
