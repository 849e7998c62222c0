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

from autofl.attacks import Attack, Attacked
from autofl.core.round import Round
from autofl.data.federated import FederatedData
from autofl.engines import UnpackedUpdates, Updates, bits_of
from autofl.engines.compressed import flat
from autofl.models import Params
from autofl.rng import stream
from autofl.rounds.checks import Bounds, Checks
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

    def received(self, updates: Updates, sent: Params, this: Round) -> Updates:
        """What arrives at the server and passes its checks."""
        table = _table(updates, sent)
        rows = np.flatnonzero(np.isin(updates.ue, self.lies.ue))
        remembers = bool(getattr(self.lies.attack, "remembers", False))
        for row in rows.tolist() if remembers else ():
            self._first.setdefault(int(updates.ue[row]), table[row].clone())
        if self.lies.attack is not None and len(rows) and this.k >= self.lies.begin:
            whose = updates.ue[rows].tolist()
            first = torch.stack([self._first[ue] for ue in whose]).to(table) if remembers else None
            told = self.lies.attack(Attacked(table, rows, first), stream(self.seed, "lies", this.k))
            table = table.clone()
            table[torch.from_numpy(rows)] = told.to(table)
        order = this.row_of(updates.ue)
        steps = this.plan.local_steps[order]
        samples = this.plan.num_samples[order]
        finite = torch.isfinite(table).all(dim=1).cpu().numpy()
        norm = table.double().norm(dim=1).cpu().numpy()
        model_norm = float(flat(sent).double().norm())
        there = np.flatnonzero(
            [fine and self._is_new(row, this.k, updates, table) for row, fine in enumerate(finite)]
        )
        ue = updates.ue[there]
        out = self._checks(
            ue, norm[there], steps[there], samples[there], model_norm, lambda: table[there.tolist()]
        )
        there = there[~np.isin(ue, list(out))]
        really = bits_of(updates)
        bits = np.full(len(table), 32.0 * table.shape[1]) if really is None else really
        moves = self._checks.moves(updates.ue[there], lambda: table[there.tolist()])
        passed = table[there.tolist()]
        changes = list(passed if moves is None else passed + moves)
        return UnpackedUpdates(
            updates.ue[there], steps[there], changes, bits[there], sent, updates.guarded[there]
        )

    def _is_new(self, row: int, k: int, updates: Updates, table: Tensor) -> bool:
        """Whether an update changes something and never came before; a compressed one may be 0
        again and again.

        Note:
            Here w_i - w is exact. A deployment without a compressor gets w_i, and sees only the
            same w_i again.
        """
        if not bool(table[row].any()):
            return bits_of(updates) is not None
        digest = sha256(table[row].cpu().numpy().tobytes()).digest()
        return self._checks.again(int(updates.ue[row]), k, digest) is None


def _table(updates: Updates, sent: Params) -> Tensor:
    """w_i - w of each update in one row."""
    rows: dict[int, Tensor] = {}
    for places, changes in updates.each():
        for place, row in enumerate(places.tolist()):
            rows[row] = flat({name: changes[name][place] for name in sent})
    return torch.stack([rows[row] for row in range(len(updates.ue))])
