"""The discrete side of a joint plan: how much work and how many bits each UE gets, for a set of
trial deadlines.

A UE that takes an option needs a least band to make the deadline; all of them share one band. That
is a knapsack with one choice for each UE. A price on the band separates the problem by UE; the band
left over is then filled up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autofl.planner.pace import Pace
from autofl.units import Array, BoolArray, IntArray

PRICE_STEPS = 20
"""Bisection steps on the logarithm of the price: from 12 decades to 6 digits."""
FILLED_UP = 64
"""Up to this many UEs, the band left over is offered to one after another; with more UEs it is
negligible.
"""

FEW = 8
"""Deadlines and options that are looked at together where few of them matter."""


@dataclass(frozen=True)
class Options:
    """What UEs may be told to do, arrays of shape (..., num_options), less work first."""

    local_steps: IntArray
    num_samples: IntArray
    bits_per_weight: Array
    progress: Array  # that the option adds to a round


@lru_cache(maxsize=64)
def make_options(
    pace: Pace,
    steps: tuple[int, ...],
    samples: tuple[int, ...],
    rates: tuple[tuple[float, float], ...],
    num_selected: int,
    most: int = 12,
) -> Options:
    """Options worth having: those that no option with the same bits and no more work beats in
    progress.

    Args:
        steps, samples: tau and d to choose from.
        rates: bits per weight and variance omega of the compressor.
        num_selected: m.
        most: amounts of work that are kept for each rate, evenly spaced in their logarithm.
    """
    tau, d = (grid.ravel() for grid in np.meshgrid(steps, samples, indexing="ij"))
    kept = []
    for bits, variance in rates:
        progress = pace.progress(
            tau.astype(float), d.astype(float), np.asarray(variance), num_selected
        )
        best = -np.inf
        pays: list[int] = []
        for place in np.lexsort((-progress, tau * d)):
            if progress[place] > best:
                best = float(progress[place])
                pays = [*pays, int(place)]
        work = np.log((tau * d)[pays])
        wanted = np.linspace(work[0], work[-1], most)
        near = np.unique(np.abs(work[:, None] - wanted).argmin(axis=0))
        kept += [(tau[p], d[p], bits, progress[p]) for p in np.asarray(pays)[near]]
    columns = [np.array(column) for column in zip(*kept, strict=True)]
    return Options(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2], columns[3])


def choose(
    band: Array,
    value: Array,
    must: BoolArray,
    total: float | None,
    own: Array,
    highest: float | None = None,
) -> tuple[IntArray, Array]:
    """The option of each UE for each deadline, and the progress they make together.

    Args:
        band: least band [Hz] of each option, infinite where it is impossible, shape (num_deadlines,
            num_ue, num).
        value: progress of each option, shape (num_ue, num).
        must: UEs that may not be left out, shape (num_ue,).
        total: band [Hz] that all share; None where each UE has its own.
        own: band of each UE, shape (num_ue,), for that case.
        highest: price of band at which the search begins; `highest_price` of these deadlines unless
            given.
    Returns:
        Options, -1 for a UE that is left out, shape (num_deadlines, num_ue), and the progress,
        shape (num_deadlines,), -inf where a deadline is too short for those that must take part.
    """
    worth, needs = _weighed(band, value, must, total if total is not None else own[:, None])
    picked = worth.argmax(axis=-1)
    if total is not None:
        picked = _within(worth, needs, picked, total, highest)
        if band.shape[1] <= FILLED_UP:
            _fill(worth, needs, picked, total)
    progress = _at(worth, picked).sum(axis=-1)
    left_out = picked == band.shape[-1]
    return np.where(left_out, -1, picked), np.where(
        (left_out & must).any(axis=-1), -np.inf, progress
    )


Bands = Callable[[slice, IntArray, IntArray], Array]
"""The least band at some deadlines of some UEs, shape (num_ue, 1), and of some options of each,
(num_ue, num).
"""


def highest_price(
    bands: Bands, num: int, value: Array, must: BoolArray, total: float
) -> float | None:
    """`highest` for `choose` of all `num` deadlines, though few options are looked at; None where
    everything fits.

    It depends on the longest deadline at which the options that UEs prefer do not fit. Most UEs can
    have the best ones there, so these are looked at first, and the longest deadlines.
    """
    best_first = np.argsort(-value, axis=1, kind="stable")
    for end in range(num, 0, -FEW):
        places = slice(max(end - FEW, 0), end)
        over = np.flatnonzero(_preferred(bands, places, best_first, total).sum(axis=-1) > total)
        if len(over):
            longest = places.start + int(over[-1])
            everybody = np.arange(len(must))[:, None]
            everything = np.arange(value.shape[1])
            band = bands(slice(longest, longest + 1), everybody, everything)
            return _highest(*_weighed(band, value, must, total), total)
    return None


def _preferred(bands: Bands, places: slice, best_first: IntArray, total: float) -> Array:
    """The band of the best option that each UE can have, 0 where it can have none, shape
    (num_deadlines, num_ue).
    """
    needs = np.zeros((places.stop - places.start, len(best_first)))
    pending = np.ones(needs.shape, np.bool_)
    begin = 0
    while begin < best_first.shape[1] and pending.any():
        ues = np.flatnonzero(pending.any(axis=0))
        end = begin + FEW * (
            len(best_first) // len(ues)
        )  # the fewer UEs are left, the more options at once
        band = bands(places, ues[:, None], best_first[ues, begin:end])
        fits = band <= total
        first = _at(band, fits.argmax(axis=-1))
        closes = fits.any(axis=-1) & pending[:, ues]
        needs[:, ues] = np.where(closes, first, needs[:, ues])
        pending[:, ues] &= ~closes
        begin = end
    return needs


def _weighed(
    band: Array, value: Array, must: BoolArray, limit: Array | float
) -> tuple[Array, Array]:
    """Progress and band of each option; leaving out is the last one: no band, no progress.

    A UE that must take part never prefers to be left out.
    """
    out = np.where(must, -2.0 * value.max() * len(must), 0.0)
    worth = np.where(band <= limit, value, -np.inf)
    worth = np.concatenate([worth, np.broadcast_to(out[:, None], (*band.shape[:2], 1))], axis=-1)
    needs = np.concatenate(
        [np.where(band <= limit, band, 0.0), np.zeros((*band.shape[:2], 1))], axis=-1
    )
    return worth, needs


def _highest(worth: Array, needs: Array, total: float) -> float:
    """A price at which no option is worth its band."""
    return float(
        4.0
        * np.abs(worth[np.isfinite(worth)]).max()
        / max(needs[needs > 0.0].min(initial=total), 1e-300)
    )


def _at(values: Array, picked: IntArray) -> Array:
    """What was picked, shape (num_deadlines, num_ue); plain indices are three times as fast as
    take_along_axis.
    """
    trial = np.arange(picked.shape[0])[:, None]
    ue = np.arange(picked.shape[1])
    chosen: Array = values[trial, ue, picked]
    return chosen


def _within(
    worth: Array, needs: Array, picked: IntArray, total: float, highest: float | None
) -> IntArray:
    """The picks at the lowest price of band at which they fit, found by bisection for all deadlines
    at once.
    """
    over = _at(needs, picked).sum(axis=-1) > total
    if not over.any():
        return picked
    worth = worth[over]
    needs = needs[over]
    before = picked
    highest = _highest(worth, needs, total) if highest is None else highest
    low = np.full(len(worth), np.log(1e-12 * highest))
    high = np.full(len(worth), np.log(highest))
    chosen = np.full(picked[over].shape, worth.shape[-1] - 1)  # everybody left out always fits
    gain = np.empty_like(
        worth
    )  # written anew in every step: memory for as many arrays takes longer than the sums
    for _ in range(PRICE_STEPS):
        middle = 0.5 * (low + high)
        np.subtract(worth, np.multiply(np.exp(middle)[:, None, None], needs, out=gain), out=gain)
        tried = gain.argmax(axis=-1)
        fits = _at(needs, tried).sum(axis=-1) <= total
        chosen = np.where(fits[:, None], tried, chosen)
        low = np.where(fits, low, middle)
        high = np.where(fits, middle, high)
    picked = before.copy()
    picked[over] = chosen
    return picked


def _fill(worth: Array, needs: Array, picked: IntArray, total: float) -> None:
    """Give the band left over to one UE after another, where it buys a better option; in place."""
    left = total - _at(needs, picked).sum(axis=-1)
    trial = np.arange(len(picked))
    for i in range(picked.shape[1]):
        has = needs[trial, i, picked[:, i]]
        fits = needs[:, i] <= (has + np.maximum(left, 0.0))[:, None]
        better = np.where(fits, worth[:, i], -np.inf).argmax(axis=-1)
        left = left + has - needs[trial, i, better]
        picked[:, i] = better
