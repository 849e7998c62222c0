"""One UE of the allocation where the rate is a staircase: the levels are tried one after another (docs/radio.md).

At a level (y, xi) the amplifier takes A = (Z ln 2/a) xi/y whatever the band, so only the times are left to decide:

    energy kappa W^3/s^2 + A + P_c t <= E,    t >= A/P,    band Z ln 2/(t y)
"""

import math

import numpy as np

from autofl.planner.band import Task, power_crossing
from autofl.planner.smooth import SAFE, Point, better, terms
from autofl.units import Array


def least_upload_energy(task: Task) -> Array:
    """The least A of all levels [J]."""
    return terms(task).eta * min(snr / y for y, snr in task.levels)


def narrowest(task: Task, deadline: Array) -> Point:
    """The least band with which a UE makes a deadline: at each level the longest upload that the energy allows.

    It begins at u: the root of kappa W^3/u^2 + P_c (T - u) = E - A, a cubic with one positive root, or later where the
    CPU, at f_min, is done before then.
    """
    its, circuit, best = terms(task), task.circuit_power, None
    with np.errstate(all="ignore"):
        alone = np.sqrt(its.cube / its.energy)  # s0, computing takes all energy
        for y, snr in task.levels:
            left = its.energy - its.eta * snr / y
            share = (left - circuit * deadline) / its.energy
            if circuit > 0.0:
                crossing = power_crossing(circuit * alone / its.energy + 0.0 * share, share)
            else:
                crossing = np.sqrt(np.maximum(share, 0.0))
            u = np.maximum(alone / crossing, its.quickest)
            t = deadline - u
            if circuit > 0.0:
                t = np.where(u > its.slowest, (left - its.cube / its.slowest**2) / circuit, t)
            else:
                t = np.where(u > its.slowest, 0.0, t)
            able = (t > 0.0) & (t * task.max_power >= its.eta * snr / y * (1.0 - SAFE))
            band = task.bits * math.log(2.0) / (t * y)
            best = better(best, _point(task, able, band, y, snr, np.minimum(u, its.slowest), t), "band")
    assert best is not None
    return best


def fastest(task: Task, band: Array) -> Point:
    """The least time in a band."""
    its, circuit, best = terms(task), task.circuit_power, None
    with np.errstate(all="ignore"):
        for y, snr in task.levels:
            t = task.bits * math.log(2.0) / (band * y)
            left = its.energy - its.eta * snr / y - circuit * t
            s = np.maximum(np.sqrt(its.cube / left), its.quickest)
            able = (left > 0.0) & (s <= its.slowest) & _reaches(task, band, snr)
            best = better(best, _point(task, able, band, y, snr, s, t), "time")
    assert best is not None
    return best


def thriftiest(task: Task, band: Array, deadline: Array | float) -> Point:
    """The least energy in a band within a deadline."""
    its, best = terms(task), None
    with np.errstate(all="ignore"):
        for y, snr in task.levels:
            t = task.bits * math.log(2.0) / (band * y)
            s = np.minimum(deadline - t, its.slowest)
            able = (s >= its.quickest * (1.0 - SAFE)) & _reaches(task, band, snr)
            point = _point(task, able, band, y, snr, np.maximum(s, its.quickest), t)
            best = better(best, point._replace(able=able & (point.energy <= task.max_energy * (1.0 + 1e-9))), "energy")
    assert best is not None
    return best


def _reaches(task: Task, band: Array, snr: float) -> np.ndarray:
    return np.asarray(snr * band <= task.max_power * task.gain_to_noise * (1.0 + SAFE))


def _point(task: Task, able: np.ndarray, band: Array, y: float, snr: float, compute_time: Array, t: Array) -> Point:
    its = terms(task)
    energy = its.cube / compute_time**2 + its.eta * snr / y + task.circuit_power * t
    shape = np.broadcast_shapes(np.shape(band), np.shape(energy))
    values = (able, band, np.asarray(snr), np.asarray(y), compute_time, t, energy)
    return Point(*(np.broadcast_to(value, shape) for value in values))
