"""How a server checks well-formed updates, in a deployment and where liars are simulated."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autofl.robust.evenness import FEWEST, too_even
from autofl.robust.history import History
from autofl.robust.screen import Screen
from autofl.robust.undo import Undo
from autofl.units import Array, IntArray

log = logging.getLogger("autofl")

REMEMBERED = 10_000
"""Updates whose digests are kept, to recognise one that comes again."""
NO_CHANGE = "no change: it has not trained"


@dataclass(frozen=True)
class Bounds:
    """Which checks are made: both bounds of `Screen`, the limit of `too_even`, the share of
    `History`; off at 0.
    """

    norm_bound: float = 0.0
    history: float = 0.0
    evenness: float = 0.0
    shorten: float = 0.0


class Checks:
    """The checks of a run, with what they remember of its rounds."""

    def __init__(self, bounds: Bounds, state: Mapping[str, NDArray[Any]] | None = None) -> None:
        """With the `state` of earlier rounds they go on as if they had never stopped."""
        if state is None:
            state = {}
        self._screen = Screen(bounds.norm_bound, bounds.shorten, state)
        self._evenness = bounds.evenness
        past = {
            name.removeprefix("history."): array
            for name, array in state.items()
            if name.startswith("history.")
        }
        self._history = History(bounds.history, past) if bounds.history else None
        self._undo = Undo(past)
        digests = state.get("digests", np.zeros((0, 32), np.uint8))
        whose = state.get("whose", np.zeros((0, 2)))
        self._seen = OrderedDict(
            (digest.tobytes(), (int(ue), int(k)))
            for digest, (ue, k) in zip(digests, whose, strict=True)
        )  # of which UE and round an update was

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps."""
        past = {}
        if self._history is not None:
            past = self._history.state() | self._undo.state()
        digests = np.frombuffer(b"".join(self._seen), np.uint8).reshape(
            len(self._seen), -1 if self._seen else 32
        )
        return {
            **self._screen.state(),
            "digests": digests,
            "whose": np.array(list(self._seen.values()), dtype=np.int64).reshape(-1, 2),
            **{f"history.{name}": array for name, array in past.items()},
        }

    def again(self, ue: int, k: int, digest: bytes) -> str | None:
        """Why an update with this digest of 32 bytes is refused, if it came before."""
        whose, when = self._seen.get(digest, (ue, k))
        if (whose, when) != (ue, k):
            return f"the update of UE {whose} in round {when} again"
        self._seen[digest] = ue, k
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return None

    def __call__(
        self,
        ue: IntArray,
        norm: Array,
        local_steps: IntArray,
        num_samples: IntArray,
        model_norm: float,
        changes: Callable[[], Tensor],
    ) -> tuple[dict[int, str], Tensor | None]:
        """The UEs whose updates are left out, and why; and what is to be added to the w_i - w of
        the others, a row for each, None where all stay as they are.

        Args:
            ue: who sent the updates, shape (num_updates,).
            norm: |w_i - w|.
            local_steps, num_samples: tau_i and d_i, of the plan.
            model_norm: |w|.
            changes: gives w_i - w, a row for each; asked only where weights must be looked at.
        """
        if not len(ue):
            return {}, None
        refused = self._screen(ue, norm, local_steps, num_samples, model_norm)

        # An update that is too long, or 0, says nothing of how evenly the others differ.
        table = None
        if self._history is not None or (self._evenness and len(ue) >= FEWEST):
            table = changes()
            judged = np.setdiff1d(np.flatnonzero(norm > 0.0), list(refused))
            even = too_even(table[judged], norm[judged], self._evenness)
            refused |= {int(judged[row]): why for row, why in even.items()}

        # What is refused already counts as opposition, so a crude liar is known by its history too.
        against = {}
        if self._history is not None and table is not None:
            judged = np.flatnonzero(np.isfinite(norm) & (norm > 0.0))
            opposed = self._history(ue[judged], table[judged], np.isin(judged, list(refused)))
            against = {int(judged[row]): why for row, why in opposed.items()}

        # What passes may still be long, or come after lies that have passed before.
        refused |= against
        passed = np.setdiff1d(np.arange(len(ue)), list(refused))
        part = self._screen.parts(norm, local_steps)[passed]
        added = None
        if self._history is not None or (part < 1.0).any():
            kept = (changes() if table is None else table)[passed]
            added = self._added(ue[list(against)], ue[passed], kept, part)
        return {int(ue[row]): refused[row] for row in sorted(refused)}, added

    def _added(self, against: IntArray, ue: IntArray, kept: Tensor, part: Array) -> Tensor | None:
        """What shortens what is long, and takes out of the model what known liars put into it."""
        counted = kept * torch.from_numpy(part).to(kept)[:, None]
        undone = None
        if self._history is not None:
            undone = self._undo(against.tolist(), ue, counted)
        if undone is not None:
            log.warning("what known liars have put into the model is taken out again")
            return counted - kept + undone.to(kept)
        return counted - kept if (part < 1.0).any() else None
