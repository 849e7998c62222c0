"""One UE of the allocation where the rate is a staircase: the best level is searched for
(docs/radio.md).

At a level (y, xi) the amplifier takes A = (Z ln 2/a) xi/y whatever the band, so only the times are
left to decide:

    energy kappa W^3/s^2 + A + P_c t <= E,    t >= A/P,    band Z ln 2/(t y)
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from autofl.planner.band import SAFE, Task
from autofl.planner.smooth import Point, better, longest_upload
from autofl.units import Array, BoolArray, IntArray


class _Run(NamedTuple):
    """Levels one above the other, along which xi/y grows and is convex in ln y and in 1/y, as on
    Shannon's curve.
    """

    y: Array
    snr: Array
    cost: Array  # xi/y


@lru_cache(maxsize=64)
def _runs(levels: tuple[tuple[float, float], ...]) -> tuple[_Run, ...]:
    """The levels in as few runs as possible: one for the tables of NR, several where measured SNRs
    scatter.
    """
    y, snr = np.array(levels).T
    cost = snr / y
    rise = np.diff(cost)
    by_log = rise / np.diff(np.log(y))
    by_inverse = rise / np.diff(1.0 / y)
    bends = (np.diff(by_log) >= 0.0) & (np.diff(by_inverse) <= 0.0)
    begins = [0]
    for level in range(1, len(y)):
        if not rise[level - 1] > 0.0 or (level - begins[-1] >= 2 and not bends[level - 2]):
            begins.append(level)
    return tuple(
        _Run(y[begin:end], snr[begin:end], cost[begin:end])
        for begin, end in zip(begins, [*begins[1:], len(y)], strict=True)
    )


def _best(
    num: int, shape: tuple[int, ...], next_is_better: Callable[[IntArray], BoolArray]
) -> IntArray:
    """The best of `num` levels, which get better up to it and worse from there on, by bisection."""
    level = np.zeros(shape, np.int64)
    for power in reversed(range((num - 1).bit_length())):
        trial = np.minimum(level + 2**power, num - 1)
        level = np.where(next_is_better(trial - 1), trial, level)
    return level


def least_upload_energy(task: Task) -> Array:
    """The least A of all levels [J]."""
    return task.terms.eta * min(snr / y for y, snr in task.levels)


def narrowest(task: Task, deadline: Array) -> Point:
    """The least band with which a UE makes a deadline: at each level the longest upload that the
    energy allows.

    That time is concave in A and falls, so along a run t y grows up to the best level and falls
    from there on.
    """
    its = task.terms
    circuit = task.circuit_power
    best = None
    with np.errstate(all="ignore"):
        longest = longest_upload(its, deadline, circuit)
        least_time = its.eta / task.max_power * (1.0 - SAFE)
        for run in _runs(task.levels):

            def wants_less(level: IntArray, run: _Run = run) -> BoolArray:
                """Whether the next level needs less band: it then has energy to spare in the time t
                y/y'.
                """
                t = longest(its.energy - its.eta * run.cost[level])
                time = np.maximum(
                    t * run.y[level] / run.y[level + 1], least_time * run.cost[level + 1]
                )
                s = np.minimum(deadline - time, its.slowest)
                spent = its.cube / s**2 + circuit * time + its.eta * run.cost[level + 1]
                return np.asarray((s >= its.quickest) & (spent < its.energy))

            level = _best(
                len(run.y), np.broadcast_shapes(np.shape(deadline), its.eta.shape), wants_less
            )
            t = longest(its.energy - its.eta * run.cost[level])
            able = (t > 0.0) & (t >= least_time * run.cost[level])
            band = task.bits * math.log(2.0) / (t * run.y[level])
            s = np.minimum(deadline - t, its.slowest)
            best = better(
                best, _point(task, able, band, run.y[level], run.snr[level], s, t), "band"
            )
    assert best is not None
    return best


def fastest(task: Task, band: Array) -> Point:
    """The least time in a band."""
    its = task.terms
    circuit = task.circuit_power
    best = None
    with np.errstate(all="ignore"):
        for y, snr in task.levels:
            t = task.bits * math.log(2.0) / (band * y)
            left = its.energy - its.eta * snr / y - circuit * t
            s = np.maximum(np.sqrt(its.cube / left), its.quickest)
            able = (left > 0.0) & (s <= its.slowest) & _reaches(task, band, snr)
            best = better(
                best, _point(task, able, band, np.asarray(y), np.asarray(snr), s, t), "time"
            )
    assert best is not None
    return best


def thriftiest(task: Task, band: Array, deadline: Array | float) -> Point:
    """The least energy in a band within a deadline: along a run it is convex in 1/y."""
    its = task.terms
    circuit = task.circuit_power
    best = None
    with np.errstate(all="ignore"):
        upload = task.bits * math.log(2.0) / band
        for run in _runs(task.levels):

            def energy(level: IntArray, run: _Run = run) -> Array:
                """Infinite where the CPU is not done in time."""
                t = upload / run.y[level]
                s = np.minimum(deadline - t, its.slowest)
                used = its.cube / s**2 + circuit * t + its.eta * run.cost[level]
                return np.where(s >= its.quickest * (1.0 - SAFE), used, np.inf)

            def wants_less(
                level: IntArray, run: _Run = run, energy: Callable[[IntArray], Array] = energy
            ) -> BoolArray:
                less = energy(level)
                return _reaches(task, band, run.snr[level + 1]) & (
                    np.isinf(less) | (energy(level + 1) < less)
                )

            level = _best(
                len(run.y), np.broadcast_shapes(np.shape(upload), its.eta.shape), wants_less
            )
            t = upload / run.y[level]
            s = np.minimum(deadline - t, its.slowest)
            able = (s >= its.quickest * (1.0 - SAFE)) & _reaches(task, band, run.snr[level])
            point = _point(
                task, able, band, run.y[level], run.snr[level], np.maximum(s, its.quickest), t
            )
            best = better(
                best,
                point._replace(able=able & (point.energy <= task.max_energy * (1.0 + 1e-9))),
                "energy",
            )
    assert best is not None
    return best


def _reaches(task: Task, band: Array, snr: Array | float) -> BoolArray:
    return np.asarray(snr * band <= task.max_power * task.gain_to_noise * (1.0 + SAFE))


def _point(
    task: Task, able: BoolArray, band: Array, y: Array, snr: Array, compute_time: Array, t: Array
) -> Point:
    its = task.terms
    energy = its.cube / compute_time**2 + its.eta * snr / y + task.circuit_power * t
    shape = np.broadcast_shapes(np.shape(band), np.shape(energy))
    values = (able, band, np.asarray(snr), np.asarray(y), compute_time, t, energy)
    return Point._make(np.broadcast_to(value, shape) for value in values)
