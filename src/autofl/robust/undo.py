"""Takes back what a UE has put into the model once it is known to lie, and gives it again if that
was a mistake.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autofl.units import IntArray

MOST = 5
"""Updates of a UE that can be taken back, its first: a liar is known by then, or it has helped
before it lied.
"""


class Undo:
    """What each UE has put into the model by its first updates.

        c_i = sum over its first 5 rounds of (w_i - w) / m_k,    m_k the updates of round k that
        passed

    A liar is known by its history only after some lies have passed. When it is left out for the
    first time, -c_i goes into the model; when it passes again, +c_i. What others learnt from a
    model that was led astray stays, which is why it must not be late. Only the first updates count:
    a UE that helps for long and then lies, in order to be left out, would have all its good work
    taken out of the model in one round.

    Note:
        Updates are taken to have equal weights. An aggregator that is not the mean has used less of
        a lie than 1/m_k.
    """

    def __init__(self, state: Mapping[str, NDArray[Any]] | None = None) -> None:
        state = state or {}
        self._given = {
            int(name[6:]): torch.from_numpy(row)
            for name, row in state.items()
            if name.startswith("given.")
        }
        counted = state.get("counted", np.zeros((0, 2)))
        self._num = {int(ue): int(num) for ue, num in counted}  # updates of a UE that passed
        self._undone = set(state.get("undone", np.zeros(0)).astype(int).tolist())

    def state(self) -> dict[str, NDArray[Any]]:
        """All that it goes on from; nothing in it is changed afterwards."""
        return {
            "undone": np.array(sorted(self._undone), dtype=np.int64),
            "counted": np.array(sorted(self._num.items()), dtype=np.int64).reshape(-1, 2),
            **{f"given.{ue}": row.numpy() for ue, row in self._given.items()},
        }

    def __call__(self, out: Collection[int], ue: IntArray, changes: Tensor) -> Tensor | None:
        """What is to be added to each change of the UEs that passed, so that the aggregate has it.

        Args:
            out: UEs that were left out for their history in this round.
            ue: UEs that passed; where there are none, nothing can be undone yet.
            changes: their w_i - w, a row for each.
        """
        if not len(ue):
            return None

        # Before this round's updates are booked: they are in no model yet.
        lost = sorted(set(out) & set(self._given) - self._undone)
        back = sorted(set(ue.tolist()) & self._undone)
        self._undone = (self._undone | set(lost)) - set(back)
        moves = [-self._given[one] for one in lost] + [self._given[one] for one in back]

        for one, change in zip(ue.tolist(), changes.cpu(), strict=True):
            self._num[one] = self._num.get(one, 0) + 1
            if self._num[one] <= MOST:
                part = change / len(ue)
                self._given[one] = self._given[one] + part if one in self._given else part
        return torch.stack(moves).sum(dim=0) if moves else None
