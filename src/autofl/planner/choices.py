"""The discrete side of a joint plan: how much work and how many bits each UE gets, for a set of
trial deadlines.

A UE that takes an option needs a least band to make the deadline; all of them share one band. That
is a knapsack with one choice for each UE. A price on the band separates the problem by UE; the band
left over is then filled up.
"""

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
    tau = np.repeat(steps, len(samples))
    d = np.tile(samples, len(steps))
    kept = []
    for bits, variance in rates:
        progress = pace.progress(
            tau.astype(float), d.astype(float), np.asarray(variance), num_selected
        )
        # In order of work, an option pays if it brings more progress than all before it.
        order = np.lexsort((-progress, tau * d))
        best_before = np.maximum.accumulate(np.append(-np.inf, progress[order]))[:-1]
        pays = order[progress[order] > best_before]

        # Of these, the ones nearest to evenly spaced amounts of work.
        work = np.log((tau * d)[pays])
        wanted = np.linspace(work[0], work[-1], most)
        near = np.unique(np.abs(work[:, None] - wanted).argmin(axis=0))
        best = pays[near]
        kept.append((tau[best], d[best], np.full(len(best), bits), progress[best]))
    return Options(*(np.concatenate(column) for column in zip(*kept, strict=True)))


def choose(
    band: Array,
    value: Array,
    must: BoolArray,
    total: float | None,
    own: Array,
) -> tuple[IntArray, Array]:
    """The option of each UE for each deadline, and the progress they make together.

    Args:
        band: least band [Hz] of each option, infinite where it is impossible, shape (num_deadlines,
            num_ue, num).
        value: progress of each option, shape (num_ue, num).
        must: UEs that may not be left out, shape (num_ue,).
        total: band [Hz] that all share; None where each UE has its own.
        own: band of each UE, shape (num_ue,), for that case.
    Returns:
        Options, -1 for a UE that is left out, shape (num_deadlines, num_ue), and the progress,
        shape (num_deadlines,), -inf where a deadline is too short for those that must take part.
    """
    worth, needs = _weighed(band, value, must, total if total is not None else own[:, None])
    picked = worth.argmax(axis=-1)
    if total is not None:
        picked = _within(worth, needs, picked, total)
        if band.shape[1] <= FILLED_UP:
            _fill(worth, needs, picked, total)
    left_out = picked == band.shape[-1]
    progress = _at(worth, picked).sum(axis=-1)
    progress = np.where((left_out & must).any(axis=-1), -np.inf, progress)
    return np.where(left_out, -1, picked), progress


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


def _at(values: Array, picked: IntArray) -> Array:
    """What was picked, shape (num_deadlines, num_ue); plain indices are three times as fast as
    take_along_axis.
    """
    trial = np.arange(picked.shape[0])[:, None]
    ue = np.arange(picked.shape[1])
    chosen: Array = values[trial, ue, picked]
    return chosen


def _within(worth: Array, needs: Array, picked: IntArray, total: float) -> IntArray:
    """The picks at the lowest price of band at which they fit, found by bisection for all deadlines
    at once.
    """
    over = _at(needs, picked).sum(axis=-1) > total
    if not over.any():
        return picked
    worth = worth[over]
    needs = needs[over]

    # From a price at which no option is worth its band, twelve decades down; of each deadline, so
    # that it does not matter which of them are judged together.
    best = np.where(np.isfinite(worth), np.abs(worth), 0.0).max(axis=(1, 2))
    least = np.where(needs > 0.0, needs, total).min(axis=(1, 2))
    high = np.log(4.0 * best / np.maximum(least, 1e-300))
    low = high + np.log(1e-12)
    chosen = np.full(picked[over].shape, worth.shape[-1] - 1)  # everybody left out always fits

    # Written anew in every step: memory for as many arrays takes longer than the sums.
    gain = np.empty_like(worth)
    for _ in range(PRICE_STEPS):
        middle = 0.5 * (low + high)
        np.subtract(worth, np.multiply(np.exp(middle)[:, None, None], needs, out=gain), out=gain)
        tried = gain.argmax(axis=-1)
        fits = _at(needs, tried).sum(axis=-1) <= total
        chosen = np.where(fits[:, None], tried, chosen)
        low = np.where(fits, low, middle)
        high = np.where(fits, middle, high)
    picked = picked.copy()
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
