"""UEs that lie, in a simulation: their updates replaced, and the server's checks of a deployment applied."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from autofl.attacks import Attack, Attacked
from autofl.data.federated import FederatedData
from autofl.engines import UnpackedUpdates, Updates, bits_of
from autofl.engines.compressed import flat
from autofl.models import Params
from autofl.rng import stream
from autofl.rounds.loop import Orders
from autofl.rounds.screen import too_long
from autofl.units import IntArray


@dataclass(frozen=True)
class Lies:
    """Who lies how, and what the server asks of an update: `norm_bound` of `too_long`, and that it is finite."""

    attack: Attack
    ue: IntArray  # the liars
    norm_bound: float = 0.0

    @classmethod
    def draw(cls, attack: Attack, share: float, num_ue: int, seed: int, norm_bound: float) -> "Lies":
        """The share of the UEs, rounded, drawn once."""
        drawn = stream(seed, "liars").permutation(num_ue)[: round(share * num_ue)]
        return cls(attack, np.sort(drawn), norm_bound)

    def data(self, data: FederatedData) -> FederatedData:
        """What UEs train on: the liars' training samples have other labels where the attack is in the data."""
        labels = cast(Callable[[Tensor, int], Tensor] | None, getattr(self.attack, "labels", None))
        if labels is None or not len(self.ue):
            return data
        index = torch.from_numpy(np.concatenate([data.partition.train_of(int(ue)) for ue in self.ue])).to(data.y.device)
        y = data.y.clone()
        y[index] = labels(y[index], data.num_classes)
        return replace(data, y=y)


@dataclass
class Liars:
    """The liars of a run, with what they remember."""

    lies: Lies
    seed: int
    _first: dict[int, Tensor] = field(default_factory=dict)  # by UE

    def received(self, updates: Updates, sent: Params, k: int, orders: Orders) -> Updates:
        """What arrives at the server and passes its checks."""
        table = _table(updates, sent)
        rows = np.flatnonzero(np.isin(updates.ue, self.lies.ue))
        if len(rows):
            for row in rows.tolist():
                self._first.setdefault(int(updates.ue[row]), table[row].clone())
            first = torch.stack([self._first[int(updates.ue[row])] for row in rows.tolist()])
            told = self.lies.attack(Attacked(table, rows, first), stream(self.seed, "lies", k))
            table = table.clone()
            table[torch.from_numpy(rows)] = told.to(table)
        place = np.searchsorted(orders.ue, updates.ue)
        steps, samples = orders.local_steps[place], orders.num_samples[place]
        finite = torch.isfinite(table).all(dim=1).cpu().numpy()
        norm = table.double().norm(dim=1).cpu().numpy()
        model_norm = float(flat(sent).double().norm())
        kept = finite.copy()
        kept[finite] = ~too_long(norm[finite], steps[finite], samples[finite], model_norm, self.lies.norm_bound)
        there = np.flatnonzero(kept)
        really = bits_of(updates)
        bits = np.full(len(table), 32.0 * table.shape[1]) if really is None else really
        changes = [table[row] for row in there.tolist()]
        return UnpackedUpdates(updates.ue[there], steps[there], changes, bits[there], sent, updates.guarded[there])


def _table(updates: Updates, sent: Params) -> Tensor:
    """w_i - w of each update in one row."""
    rows: dict[int, Tensor] = {}
    for places, changes in updates.each():
        for place, row in enumerate(places.tolist()):
            rows[row] = flat({name: changes[name][place] for name in sent})
    return torch.stack([rows[row] for row in range(len(updates.ue))])
