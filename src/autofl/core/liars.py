"""UEs that lie, in a simulation: their updates replaced, and the server's checks of a deployment
applied.
"""

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from hashlib import sha256
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autofl.core.round import Round
from autofl.data.federated import FederatedData
from autofl.engines import ReceivedUpdates, Updates, flat
from autofl.rng import stream
from autofl.robust.attacks import Attack, Attacked
from autofl.robust.checks import Bounds, Checks
from autofl.units import IntArray


@dataclass(frozen=True)
class Lies:
    """Who lies how, and what the server asks of an update besides being finite, new and not 0."""

    attack: Attack | None  # None: nobody lies
    ue: IntArray  # the liars
    bounds: Bounds = Bounds()  # noqa: RUF009 - frozen, so it may be shared
    begin: int = 1  # the first round in which they lie

    @classmethod
    def draw(
        cls, attack: Attack, share: float, num_ue: int, seed: int, bounds: Bounds, begin: int = 1
    ) -> "Lies":
        """The share of the UEs, rounded, drawn once."""
        drawn = stream(seed, "liars").permutation(num_ue)[: round(share * num_ue)]
        return cls(attack, np.sort(drawn), bounds, begin)

    def data(self, data: FederatedData) -> FederatedData:
        """What UEs train on: the liars' training samples have other labels where the attack is in
        the data.
        """
        labels = cast(Callable[[Tensor, int], Tensor] | None, getattr(self.attack, "labels", None))
        if labels is None or not len(self.ue):
            return data
        index = torch.from_numpy(
            np.concatenate([data.partition.train_of(int(ue)) for ue in self.ue])
        ).to(data.y.device)
        y = data.y.clone()
        y[index] = labels(y[index], data.num_classes)
        return replace(data, y=y)


@dataclass
class Liars:
    """The liars of a run and the server's checks, with what both remember."""

    lies: Lies
    seed: int
    past: InitVar[Mapping[str, NDArray[Any]] | None] = None  # of `state`
    _first: dict[int, Tensor] = field(
        default_factory=dict
    )  # by UE, for an attack that remembers it
    _checks: Checks = field(init=False)

    def __post_init__(self, past: Mapping[str, NDArray[Any]] | None) -> None:
        past = past or {}
        self._checks = Checks(
            self.lies.bounds, {name: array for name, array in past.items() if name[0] != "#"}
        )
        self._first = {
            int(name[1:]): torch.from_numpy(array) for name, array in past.items() if name[0] == "#"
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps: with it the rounds go on as if they had never stopped."""
        return {
            f"#{ue}": first.cpu().numpy() for ue, first in self._first.items()
        } | self._checks.state()

    def received(self, updates: Updates, this: Round) -> Updates:
        """What arrives at the server and passes its checks."""
        table = self._told(updates, this.k)
        order = this.row_of(updates.ue)
        steps = this.plan.local_steps[order]
        samples = this.plan.num_samples[order]

        # Any server refuses what is not finite, and what it has had before.
        finite = torch.isfinite(table).all(dim=1).cpu().numpy()
        fresh = [
            is_finite and self._is_new(row, this.k, updates, table)
            for row, is_finite in enumerate(finite)
        ]
        there = np.flatnonzero(fresh)

        refused, added = self._checks(
            updates.ue[there],
            table.double().norm(dim=1).cpu().numpy()[there],
            steps[there],
            samples[there],
            float(flat(updates.sent).double().norm()),
            lambda: table[there.tolist()],
        )
        there = there[~np.isin(updates.ue[there], list(refused))]
        passed = table[there.tolist()]
        if added is not None:
            passed = passed + added

        # An update that is not compressed takes 32 bits a weight.
        bits = updates.bits
        if bits is None:
            bits = np.full(len(table), 32.0 * table.shape[1])
        return ReceivedUpdates(
            updates.ue[there],
            list(passed),
            updates.sent,
            steps[there],
            updates.guarded[there],
            bits[there],
        )

    def _told(self, updates: Updates, k: int) -> Tensor:
        """w_i - w as each UE sends it, a row for each: the liars see all honest ones first."""
        attack = self.lies.attack
        table = updates.table()
        rows = np.flatnonzero(np.isin(updates.ue, self.lies.ue))
        if attack is None or not len(rows):
            return table

        first = None
        if getattr(attack, "remembers", False):
            whose = updates.ue[rows].tolist()
            for row, ue in zip(rows.tolist(), whose, strict=True):
                self._first.setdefault(ue, table[row].clone())
            first = torch.stack([self._first[ue] for ue in whose]).to(table)
        if k < self.lies.begin:
            return table
        told = attack(Attacked(table, rows, first), stream(self.seed, "lies", k))
        table = table.clone()
        table[torch.from_numpy(rows)] = told.to(table)
        return table

    def _is_new(self, row: int, k: int, updates: Updates, table: Tensor) -> bool:
        """Whether an update changes something and never came before; a compressed one may be 0
        again and again.

        Note:
            Here w_i - w is exact. A deployment without a compressor gets w_i, and sees only the
            same w_i again.
        """
        if not bool(table[row].any()):
            return updates.bits is not None
        digest = sha256(table[row].cpu().numpy().tobytes()).digest()
        return self._checks.again(int(updates.ue[row]), k, digest) is None
