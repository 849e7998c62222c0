"""Who points against the others over the rounds of a run: liars whose single updates look honest."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
PART = 0.5
ENOUGH = 10
"""Rounds over which the common direction is measured, the part of its best at which nobody is
judged any more, and how many rounds of judging a verdict needs to outlast it.
"""


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
    below half of the largest so far. Who was left out stays out,
    unless fewer than 10 rounds were judged: then the labels of the UEs hardly overlap, and nobody
        is left out.

    Note:
        It takes the majority to be honest. Who begins to lie after the common direction is lost is
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
        total = {f"total.{ue}": summed.numpy() for ue, summed in self._total.items()}
        books = {"pro": self._pro, "con": self._con}
        common = {
            "recent": np.array(self._recent),
            "common": np.array([self._best, self._judged], dtype=np.float64),
        }
        people = {"ue": self._ue, "num": self._num, "turned": self._turned, "gram": self._gram}
        return {**people, **books, **common, **total}

    def __call__(
        self, ue: IntArray, changes: Tensor, lies: BoolArray | None = None
    ) -> dict[int, str]:
        """The rows that are left out, and why, after these w_i - w, finite and not 0, were added.

        `lies` are rows that another check leaves out: they say nothing of directions, and count as
        opposition.
        """
        lies = np.zeros(len(ue), dtype=np.bool_) if lies is None else lies
        if lies.all():
            return {}
        norm = changes.cpu().double().norm(dim=1)
        unit = (changes.cpu().double() / norm[:, None]).float()
        weight = norm.numpy() / float(np.median(norm.numpy()[~lies]))  # of the round's median
        judging = len(self._recent) < RECENT or self._common() >= PART * self._best
        if judging:
            self._add(ue, unit, np.where(lies, 0.0, np.minimum(weight, 1.0)))
        if len(self._ue) < FEWEST:
            return {}
        here = np.flatnonzero(np.isin(ue, self._ue))  # while nobody is judged, a UE may be new
        rows = np.array(
            [int(np.flatnonzero(self._ue == one)[0]) for one in ue[here].tolist()], dtype=np.int64
        )
        length = np.sqrt(np.diag(self._gram))
        cosine = self._gram / np.maximum(np.outer(length, length), TINY)
        most = num_liars(self._share, len(cosine))
        if judging:
            known = self._turned & (self._con - self._pro / PRICE > KNOWN)
            self._turned = against(cosine, self._turned, most, known)
            self._judged += 1
        agreeing = np.where(lies[here], -1.0, self._cosines(rows, unit[here.tolist()], length))
        if judging:
            self._book(rows, agreeing, weight[here])
        followed = ~(self._turned[rows] | lies[here])
        if followed.any():
            self._recent.append(float(np.median(agreeing[followed])))
            self._best = (
                max(self._best, self._common()) if len(self._recent) == RECENT else self._best
            )
        if not judging and self._judged < ENOUGH:
            return {}
        agreement = agreements(cosine, ~self._turned)
        debt = self._con - self._pro / PRICE
        slack = max(AT_ONCE, standing_out(debt)) - debt
        sure = (self._num > 1) | (agreement < -AT_ONCE)
        odd = (sure & (self._turned | (agreement < DEVIATIONS / np.sqrt(changes.shape[1])))) | (
            slack < 0.0
        )
        worst = np.where(odd, np.minimum(agreement, slack), np.inf)
        out = odd & (np.argsort(np.argsort(worst, kind="stable")) < most)
        return {
            int(
                row
            ): f"against the others: cosine {agreement[place]:.2g} over {self._num[place]} updates"
            + (
                f", {self._con[place]:.2g} against and {self._pro[place]:.2g} with them"
                if slack[place] < 0.0
                else ""
            )
            for row, place in zip(here.tolist(), rows.tolist(), strict=True)
            if out[place] and not lies[row]
        }

    def _common(self) -> float:
        """How far updates of late agree with what the others have done so far; 0 before the first."""
        return float(np.median(self._recent)) if self._recent else 0.0

    def _cosines(self, rows: IntArray, unit: Tensor, length: Array) -> Array:
        """g_i of these updates: cosines with the sum of the directions of the others who are not
        turned.
        """
        trusted = {
            int(row): self._direction(int(row), length) for row in np.flatnonzero(~self._turned)
        }
        if not trusted:
            return np.zeros(len(rows))
        everybody = torch.stack(list(trusted.values())).sum(dim=0)
        values = []
        for row, own in zip(rows.tolist(), unit, strict=True):
            others = everybody - trusted[row] if row in trusted else everybody
            values.append(float(own @ others) / max(float(others.norm()), TINY))
        return np.array(values)

    def _direction(self, row: int, length: Array) -> Tensor:
        return self._total[int(self._ue[row])] / max(float(length[row]), TINY)

    def _book(self, rows: IntArray, cosine: Array, weight: Array) -> None:
        pro = self._pro.copy()
        con = self._con.copy()
        usual = max(float(np.median(cosine)), 0.0)
        pro[rows] *= 1.0 - 1.0 / WINDOW
        con[rows] *= 1.0 - 1.0 / WINDOW
        pro[rows] += np.minimum(weight, 1.0) * np.clip(cosine, 0.0, usual)
        con[rows] += np.minimum(weight, LONG) * np.maximum(-cosine, 0.0)
        self._pro = pro
        self._con = con

    def _add(self, ue: IntArray, unit: Tensor, weight: Array) -> None:
        new = np.setdiff1d(ue, self._ue)
        self._ue = np.concatenate([self._ue, new])
        rows = np.array([int(np.flatnonzero(self._ue == one)[0]) for one in ue.tolist()])
        num = np.zeros(len(self._ue), dtype=np.int64)
        gram = np.zeros((len(self._ue),) * 2)
        num[: len(self._num)], gram[: len(self._gram), : len(self._gram)] = self._num, self._gram
        num[rows] += 1
        for one, direction, part in zip(ue.tolist(), unit, weight.tolist(), strict=True):
            self._total[one] = (
                self._total[one] + part * direction if one in self._total else part * direction
            )
        table = torch.stack([self._total[one] for one in self._ue.tolist()])
        fresh = (table[rows.tolist()] @ table.T).double().numpy()
        gram[rows], gram[:, rows] = fresh, fresh.T
        self._num = num
        self._gram = gram
        self._turned = np.append(self._turned, np.zeros(len(new), dtype=np.bool_))
        self._pro, self._con = (
            np.append(book, np.zeros(len(new))) for book in (self._pro, self._con)
        )


def standing_out(debt: Array) -> float:
    """The opposition above which a UE stands out among the others."""
    middle = float(np.median(debt))
    return middle + SPREAD * float(np.median(np.abs(debt - middle)))


def num_liars(share: float, num: int) -> int:
    return int(np.ceil(share * num - 1e-9))


def against(
    cosine: Array, before: BoolArray, most: int, known: BoolArray | None = None
) -> BoolArray:
    """Who is turned, starting from those turned before or from nobody, whichever is better; at most
    `most` if possible.

    Better is the larger sum of s_i D_ij s_j. Without the bound it is often largest where it divides
    honest UEs by labels. Who is `known` stays turned.
    """
    known = np.zeros_like(before) if known is None else known
    pairs = cosine - np.diag(np.diag(cosine))
    ways = [settled(pairs, np.where(start, -1.0, 1.0), known) for start in (before | known, known)]
    best = max(
        ways, key=lambda sign: (-max(int((sign < 0.0).sum()), most), float(sign @ pairs @ sign))
    )
    return best < 0.0


def settled(pairs: Array, sign: Array, known: BoolArray) -> Array:
    """Signs turned one by one until everybody agrees with the rest more than not; the majority has
    +1.

    Those who are `known` are not turned back, and then nobody needs to ask who the majority is.
    """
    sign = sign.copy()
    while (harmony := np.where(known, np.inf, sign * (pairs @ sign))).min() < -1e-9:
        sign[np.argmin(harmony)] *= -1.0
    return sign if known.any() or (sign > 0.0).sum() * 2 >= len(sign) else -sign


def agreements(cosine: Array, trusted: BoolArray) -> Array:
    """Cosine of each direction with the sum of those of the trusted, without itself."""
    rows = []
    for i in range(len(cosine)):
        others = np.flatnonzero(trusted & (np.arange(len(cosine)) != i))
        square = float(cosine[np.ix_(others, others)].sum())  # of their sum's length
        rows.append(cosine[i, others].sum() / np.sqrt(square) if square > TINY else 0.0)
    return np.array(rows)
