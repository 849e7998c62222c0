"""Which updates of a round are too long to be honest, and which are shortened: bounds by the median
of their norms.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofl.units import Array, IntArray

FEWEST = 3
"""Fewest updates whose median says something: among fewer, one liar is half."""
MODELS = 10.0
"""How many times as long as 1 + the model a change may be, whatever the others are."""
HARD = 5.0
"""Of how many samples' noise an honest update may be made: one hard sample among few makes it long.
"""
ROUNDS = 20
"""Rounds whose medians are remembered."""
RISE = 1.5
"""How far above the usual the median of a round may lie; beyond it the usual one counts."""
FALL = 3.0
"""The part of the longest median below which none counts: late in a run most honest updates are
next to nothing.
"""
TINY = 1e-300
"""Instead of a length of 0."""
OWN = 5
"""Updates of a UE that are remembered: one that is long is no lie, most of them are."""


class Screen:
    """The server's check of lengths, over the rounds of a run.

        l_i = |w_i - w| / tau_i,    m_k = median_j l_j, but from usual to 1.5 usual,    longest_k =
        max_{j <= k} m_j

    `usual` is the median of the medians of the last 20 rounds, of the updates that passed: in a
    round in which the liars happen to be the majority, their median is not believed. Lengths of
    honest updates have a heavy tail: late in a run most are short, and one hard sample makes one
    many times as long as the median. It is no longer than updates once were, though, and most of
    that UE's next ones are short again. So an update is left out

        if l_i > b_i longest_k, or l_i > b_i max(m_k, longest_k / 3) for most of the UE's last 5
        updates,

    with b_i = bound (1 + 5/d_i), since honest updates on few samples differ more, or if |w_i - w| >
    10 (1 + |w|). A round of fewer than three updates has no median, so that only what is usual
    counts there, and at first the length of the model alone.

    What passes may still be long, and a liar who knows the bound sends just that. So an update
    counts no more than one of `shorten` times the usual length (Sun et al. 2019, for each local
    step):

        w_i - w is multiplied by min(1, shorten m_k / l_i)
    """

    def __init__(
        self, bound: float, shorten: float = 0.0, state: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """`bound` 0 and `shorten` 0 switch these off; `state` is that of the rounds before."""
        self._bound = bound
        self._shorten = shorten
        state = state or {}
        self._medians: deque[float] = deque(
            state.get("medians", np.zeros(0)).tolist(), maxlen=ROUNDS
        )
        self._longest = float(state.get("longest", np.zeros(1))[0])  # max_j m_j
        self._usual = np.inf  # m_k of the latest round
        recent = zip(
            state.get("measured", np.zeros(0)).tolist(),
            state.get("recent", np.zeros((0, OWN))),
            strict=True,
        )
        self._recent = {
            int(ue): [bool(long) for long in row if long >= 0] for ue, row in recent
        }  # were they long

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps; -1 where a UE has sent fewer updates."""
        rows = [[*own, *[-1] * (OWN - len(own))] for own in self._recent.values()]
        return {
            "medians": np.array(self._medians),
            "longest": np.array([self._longest]),
            "measured": np.array(list(self._recent), dtype=np.int64),
            "recent": np.array(rows, dtype=np.int8).reshape(-1, OWN),
        }

    def __call__(
        self,
        ue: IntArray,
        norm: Array,
        local_steps: IntArray,
        num_samples: IntArray,
        model_norm: float,
    ) -> dict[int, str]:
        """The rows that are left out, and why.

        Args:
            ue: who sent the updates, shape (num_updates,).
            norm: |w_i - w|.
            local_steps, num_samples: tau_i and d_i, of the plan.
            model_norm: |w|.
        """
        length = np.where(np.isfinite(norm), norm, np.inf) / local_steps
        middle = self._middle(length)
        self._usual = middle

        # Whatever the others are, a change is not many times as long as the model.
        bound = self._bound or np.inf
        out = ~(norm <= MODELS * (1.0 + model_norm)) & np.isfinite(bound)

        # Longer than updates ever were, or long more often than not.
        if np.isfinite(middle):
            allowed = bound * (1.0 + HARD / num_samples)
            self._longest = max(self._longest, middle)
            long = length > allowed * max(middle, self._longest / FALL)
            mostly = [
                self._mostly(one, is_long)
                for one, is_long in zip(ue.tolist(), long.tolist(), strict=True)
            ]
            out |= (length > allowed * self._longest) | (long & mostly)

        # Only what passes makes the next rounds' median.
        if out.sum() <= len(out) - FEWEST:
            self._medians.append(float(np.median(length[~out])))
        times = f"over {MODELS:g} models"
        reasons = {}
        for row in np.flatnonzero(out).tolist():
            if middle < np.inf:
                times = f"{length[row] / middle:.3g} times the median"
            reasons[row] = f"too long: |w_i - w| = {norm[row]:.3g}, {times}"
        return reasons

    def parts(self, norm: Array, local_steps: IntArray) -> Array:
        """How much of each update of the latest round counts, shape (num_updates,): 1 of all that
        are not long.
        """
        most = self._shorten * self._usual * local_steps if self._shorten else np.inf
        return np.minimum(1.0, most / np.maximum(norm, TINY))

    def _middle(self, length: Array) -> float:
        """m_k; infinite where nothing is known."""
        median = float(np.median(length)) if len(length) >= FEWEST else 0.0
        usual = float(np.median(self._medians)) if self._medians else 0.0
        return (min(max(median, usual), RISE * usual) if usual else median) or np.inf

    def _mostly(self, ue: int, long: bool) -> bool:
        """Whether more than half of a UE's last updates were long, this one among them."""
        own = self._recent[ue] = [*self._recent.get(ue, []), long][-OWN:]
        return 2 * sum(own) > len(own)
