"""Who points against the others over the rounds of a run: liars whose single updates look honest."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autofl.robust.aggregators.rows import num_liars
from autofl.units import Array, BoolArray, IntArray

FEWEST = 5
"""Fewest UEs among which one can be against the others."""
TINY = 1e-30
"""Instead of a length of 0: the direction of a UE whose updates have cancelled agrees with nobody.
"""
AT_ONCE = 0.1
"""How far against the others a UE's first update must point for the UE to be left out already then.
"""
DEVIATIONS = 3.0
"""A direction drawn at random has a cosine of 0 +- 1/sqrt(P) with any other; this many of these are
agreement.
"""
PRICE = 4.0
"""How much agreement pays for opposition of 1."""
WINDOW = 10.0
"""Updates of a UE over which both are remembered; older ones fade, so nobody saves up for a lie."""
LONG = 5.0
"""Medians that an update counts at most when it opposes; one that agrees counts 1 at most."""
KNOWN = 2.5
"""Opposition beyond what agreement pays for at which a UE that is turned stays so: two ways to
divide the UEs may be nearly as good, and the other one would make liars of the honest.
"""
SPREAD = 5.0
"""Median deviations above the others' opposition at which a UE stands out."""
RECENT = 5
"""Rounds over which the common direction is measured."""
PART = 0.5
"""The part of its best below which the common direction is lost: nobody is judged any more."""
ENOUGH = 10
"""Rounds of judging that a verdict needs to outlast the common direction."""


class History:
    """What each UE has sent so far as one direction, and who points against the rest.

        m_i = sum over rounds of a_i (w_i - w)/|w_i - w|,    a_i = min(1, |w_i - w| / median of the
        round)
        D_ij = cos(m_i, m_j),    s_i = +1 or -1

    All signs begin as +1. As long as some UE has s_i sum_j D_ij s_j < 0, the one with the least is
    turned: agreement with a turned UE then counts against. Who has opposed the others by more than
    1 (below) is not turned back. A UE is left out if it is turned, or if its cosine with the sum of
    those who are not is below 3/sqrt(P), which is all that noise reaches. UEs are judged anew in
    every round, from all rounds. In a single round two honest UEs with different labels are nearly
    orthogonal; only the sum over rounds tells. After Karimireddy, He and Jaggi, ICML 2021 (liars
    are found by history) and FLTrust (Cao et al., NDSS 2021: the cosine), without data at the
    server.

    A sum can be cancelled by its owner, with v and -v by turns. So opposition is booked apart. With
    g_i the cosine of this update with the sum over the other UEs that are not turned, and (x)+ =
    max(x, 0),

        pro_i <- 0.9 pro_i + a_i min((g_i)+, (median_j g_j)+)
        con_i <- 0.9 con_i + min(5, |w_i - w| / median of the round) (-g_i)+

    and a UE is left out if con_i - pro_i/4 is above 0.1 and above the UEs' median by 5 median
    deviations. An update pays by what it weighs, and no more than most updates do.

    Where training has come to rest, the honest gradients add up to 0: everybody opposes the others,
    and opposition says nothing. So nothing is learnt about anybody while the common direction is
    lost, that is, while the median g_i of those who are not turned (the median of 5 rounds) is
    below half of the largest so far. Who was left out stays out, unless fewer than 10 rounds were
    judged: that is too little for a verdict that nothing can change any more.

    Note:
        It takes the majority to be honest, and their labels to overlap. Where they hardly do, honest
        UEs oppose each other and some are left out for good: one in six with one label each
        (docs/reliability-aggregation.md). Who begins to lie after the common direction is lost is
        not found. The state holds a model's weights for each UE.
    """

    def __init__(self, share: float, state: Mapping[str, NDArray[Any]] | None = None) -> None:
        """`share` of the UEs may be left out; `state` is that of the rounds before."""
        state = state or {}
        self._share = share
        self._ue: IntArray = np.asarray(state.get("ue", np.zeros(0)), dtype=np.int64)
        self._num: IntArray = np.asarray(state.get("num", np.zeros(0)), dtype=np.int64)
        self._turned: BoolArray = np.asarray(state.get("turned", np.zeros(0)), dtype=np.bool_)
        self._gram: Array = np.asarray(state.get("gram", np.zeros((0, 0))), dtype=np.float64)
        self._pro: Array = np.asarray(state.get("pro", np.zeros(len(self._ue))), dtype=np.float64)
        self._con: Array = np.asarray(state.get("con", np.zeros(len(self._ue))), dtype=np.float64)
        self._recent: deque[float] = deque(state.get("recent", np.zeros(0)).tolist(), maxlen=RECENT)
        best, judged = state.get("common", np.zeros(2)).tolist()
        self._best = float(best)
        self._judged = int(judged)
        self._total = {ue: torch.from_numpy(state[f"total.{ue}"]) for ue in self._ue.tolist()}

    def state(self) -> dict[str, NDArray[Any]]:
        """All that `History` goes on from, to the bit; nothing in it is changed afterwards."""
        return {
            "ue": self._ue,
            "num": self._num,
            "turned": self._turned,
            "gram": self._gram,
            "pro": self._pro,
            "con": self._con,
            "recent": np.array(self._recent),
            "common": np.array([self._best, self._judged], dtype=np.float64),
            **{f"total.{ue}": total.numpy() for ue, total in self._total.items()},
        }

    def __call__(
        self, ue: IntArray, changes: Tensor, lies: BoolArray | None = None
    ) -> dict[int, str]:
        """The rows that are left out, and why, after these w_i - w, finite and not 0, were added.

        `lies` are rows that another check leaves out: they say nothing of directions, and count as
        opposition.
        """
        if lies is None:
            lies = np.zeros(len(ue), dtype=np.bool_)
        if lies.all():
            return {}

        # A direction is what an update says; its length, over the median, is how loudly.
        exact = changes.cpu().double()
        norm = exact.norm(dim=1)
        unit = (exact / norm[:, None]).float()
        weight = norm.numpy() / float(np.median(norm.numpy()[~lies]))

        # At rest the honest oppose each other, and nothing is learnt about anybody.
        is_judging = len(self._recent) < RECENT or self._common() >= PART * self._best
        if is_judging:
            self._add(ue, unit, np.where(lies, 0.0, np.minimum(weight, 1.0)))
        if len(self._ue) < FEWEST:
            return {}

        # Who opposes the rest, by the directions summed over all rounds.
        length = np.sqrt(np.diag(self._gram))
        cosine = self._gram / np.maximum(np.outer(length, length), TINY)
        most = num_liars(self._share, len(cosine), len(cosine))
        if is_judging:
            known = self._turned & (self._debt > KNOWN)
            self._turned = against(cosine, self._turned, most, known)
            self._judged += 1

        # A sum can be cancelled by its owner, so what this round's updates say is booked apart.
        # While nobody is judged a UE may be new, and nothing is known of it.
        here = np.flatnonzero(np.isin(ue, self._ue))
        rows = self._rows_of(ue[here])
        with_others = np.where(lies[here], -1.0, self._cosines(rows, unit[here.tolist()], length))
        if is_judging:
            self._book(rows, with_others, weight[here])

        # Whether there still is a common direction, only those who are believed can tell.
        believed = ~(self._turned[rows] | lies[here])
        if believed.any():
            self._recent.append(float(np.median(with_others[believed])))
            if len(self._recent) == RECENT:
                self._best = max(self._best, self._common())
        if not is_judging and self._judged < ENOUGH:
            return {}

        noise = DEVIATIONS / np.sqrt(changes.shape[1])
        reasons = self._left_out(agreements(cosine, ~self._turned), noise, most)
        return {
            int(row): reasons[place]
            for row, place in zip(here.tolist(), rows.tolist(), strict=True)
            if place in reasons and not lies[row]
        }

    def _left_out(self, agreement: Array, noise: float, most: int) -> dict[int, str]:
        """Who is left out of all UEs so far, and why: at most so many, the worst ones."""
        slack = max(AT_ONCE, standing_out(self._debt)) - self._debt

        # A single update is no history, unless it is clearly against the others.
        is_sure = (self._num > 1) | (agreement < -AT_ONCE)
        is_odd = (is_sure & (self._turned | (agreement < noise))) | (slack < 0.0)
        worst_first = np.argsort(
            np.where(is_odd, np.minimum(agreement, slack), np.inf), kind="stable"
        )

        reasons = {}
        for place in worst_first[: min(most, int(is_odd.sum()))].tolist():
            why = (
                f"against the others: cosine {agreement[place]:.2g} over {self._num[place]} updates"
            )
            if slack[place] < 0.0:
                why += f", {self._con[place]:.2g} against and {self._pro[place]:.2g} with them"
            reasons[place] = why
        return reasons

    def _common(self) -> float:
        """How far updates of late agree with what the others have done so far; 0 before the first."""
        return float(np.median(self._recent)) if self._recent else 0.0

    @property
    def _debt(self) -> Array:
        """Opposition that agreement does not pay for, of each UE."""
        return self._con - self._pro / PRICE

    def _rows_of(self, ue: IntArray) -> IntArray:
        """Where these UEs stand among those that are known."""
        order = np.argsort(self._ue)
        return order[np.searchsorted(self._ue, ue, sorter=order)]

    def _cosines(self, rows: IntArray, unit: Tensor, length: Array) -> Array:
        """g_i of these updates: cosines with the sum of the directions of the others who are not
        turned.
        """
        trusted = {
            row: self._total[int(self._ue[row])] / max(float(length[row]), TINY)
            for row in np.flatnonzero(~self._turned).tolist()
        }
        if not trusted:
            return np.zeros(len(rows))
        everybody = torch.stack(list(trusted.values())).sum(dim=0)
        values = []
        for row, own in zip(rows.tolist(), unit, strict=True):
            others = everybody - trusted[row] if row in trusted else everybody
            values.append(float(own @ others) / max(float(others.norm()), TINY))
        return np.array(values)

    def _book(self, rows: IntArray, cosine: Array, weight: Array) -> None:
        """What the updates of these UEs say for them and against them."""
        usual = max(float(np.median(cosine)), 0.0)
        pro = self._pro.copy()
        pro[rows] *= 1.0 - 1.0 / WINDOW
        pro[rows] += np.minimum(weight, 1.0) * np.clip(cosine, 0.0, usual)
        self._pro = pro
        con = self._con.copy()
        con[rows] *= 1.0 - 1.0 / WINDOW
        con[rows] += np.minimum(weight, LONG) * np.maximum(-cosine, 0.0)
        self._con = con

    def _add(self, ue: IntArray, unit: Tensor, weight: Array) -> None:
        """Adds these directions to what their UEs have sent so far; of a new UE that was nothing."""
        new = np.setdiff1d(ue, self._ue)
        self._ue = np.append(self._ue, new)
        self._turned = np.pad(self._turned, (0, len(new)))
        self._pro = np.pad(self._pro, (0, len(new)))
        self._con = np.pad(self._con, (0, len(new)))
        rows = self._rows_of(ue)
        self._num = np.pad(self._num, (0, len(new)))
        self._num[rows] += 1

        # Only the inner products of those who sent something change.
        for one, direction, part in zip(ue.tolist(), unit, weight.tolist(), strict=True):
            self._total[one] = self._total.get(one, 0.0) + part * direction
        table = torch.stack([self._total[one] for one in self._ue.tolist()])
        fresh = (table[rows.tolist()] @ table.T).double().numpy()
        self._gram = np.pad(self._gram, (0, len(new)))
        self._gram[rows] = fresh
        self._gram[:, rows] = fresh.T


def standing_out(debt: Array) -> float:
    """The opposition above which a UE stands out among the others."""
    middle = float(np.median(debt))
    return middle + SPREAD * float(np.median(np.abs(debt - middle)))


def against(
    cosine: Array, before: BoolArray, most: int, known: BoolArray | None = None
) -> BoolArray:
    """Who is turned, starting from those turned before or from nobody, whichever is better; at most
    `most` if possible.

    Better is the larger sum of s_i D_ij s_j. Without the bound it is often largest where it divides
    honest UEs by labels. Who is `known` stays turned.
    """
    if known is None:
        known = np.zeros_like(before)
    pairs = cosine - np.diag(np.diag(cosine))

    def badness(sign: Array) -> tuple[int, float]:
        return max(int((sign < 0.0).sum()), most), -float(sign @ pairs @ sign)

    from_before = settled(pairs, np.where(before | known, -1.0, 1.0), known)
    from_nobody = settled(pairs, np.where(known, -1.0, 1.0), known)
    return min(from_before, from_nobody, key=badness) < 0.0


def settled(pairs: Array, sign: Array, known: BoolArray) -> Array:
    """Signs turned one by one until everybody agrees with the rest more than not; the majority has
    +1.

    Those who are `known` are not turned back, and then nobody needs to ask who the majority is.
    """
    sign = sign.copy()
    while (harmony := np.where(known, np.inf, sign * (pairs @ sign))).min() < -1e-9:
        sign[np.argmin(harmony)] *= -1.0
    majority = known.any() or (sign > 0.0).sum() * 2 >= len(sign)
    return sign if majority else -sign


def agreements(cosine: Array, trusted: BoolArray) -> Array:
    """Cosine of each direction with the sum of those of the trusted, without itself."""
    values = np.zeros(len(cosine))
    for i in range(len(cosine)):
        others = np.flatnonzero(trusted & (np.arange(len(cosine)) != i))
        square = float(cosine[np.ix_(others, others)].sum())  # of their sum's length
        if square > TINY:
            values[i] = cosine[i, others].sum() / np.sqrt(square)
    return values
