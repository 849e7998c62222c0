"""What an allocation is, and the allocation in given bands, where each UE has its own least time."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autofl.errors import AutoFLError
from autofl.planner.band import GUARD, PER_UE, FillsBand, Task, computing_share, spectral_efficiency
from autofl.units import Array, BoolArray


class Plan(NamedTuple):
    """Decisions for UEs that all take part, shape (num_ue,), and what they cost."""

    band: Array  # [Hz]
    power: Array  # [W]
    frequency: Array  # [cycle/s]
    time: Array  # s + t [s]
    energy: Array  # [J]


@dataclass(frozen=True)
class Allocation:
    """Band, power and frequency of each UE, arrays of shape (num_ue,), and what is known of the
    time they take.

    A UE that cannot take part at any deadline has `able` False, band and power 0 and an infinite
    time; it does not count in `time`. If nobody can take part, `time` is inf.
    """

    time: float  # T [s], the slowest UE that takes part
    band: Array  # B_i [Hz]
    power: Array  # p_i [W]
    frequency: Array  # f_i [cycle/s]
    ue_time: Array  # s_i + t_i [s]
    energy: Array  # kappa W_i f_i^2 + p_i t_i [J]
    able: BoolArray
    lower: float  # no allocation takes less than this [s]
    upper: float  # this one takes no more [s]
    residual: float  # of the optimality conditions, relative; NaN where not worked out

    @property
    def gap(self) -> float:
        """(upper - lower)/lower."""
        return 0.0 if math.isinf(self.upper) else self.upper / self.lower - 1.0


def part(task: Task, ues: BoolArray) -> Task:
    """The task of some of the UEs, with arrays of shape (number of them,)."""
    whole = ues.all() and all(np.shape(getattr(task, name)) == ues.shape for name in PER_UE)
    return task if whole else task.at(ues.shape, ues)


def allocate_fixed_band(task: Task, band: Array | float) -> Allocation:
    """The least time of each UE in a given band; T is the largest of these times.

    Args:
        task: one set of UEs, shape (num_ue,).
        band: B_i [Hz], shape (num_ue,). A UE whose band is too wide to reach phi at P^max is not
            able either.
    """
    shape = task.limits.able.shape
    band = np.broadcast_to(np.asarray(band, dtype=np.float64), shape)
    if not (band > 0.0).all() or not np.isfinite(band).all():
        raise AutoFLError("allocation: every band must be a finite number > 0")
    with np.errstate(all="ignore"):
        reaches = task.max_power * task.gain_to_noise / band >= task.phi * (1.0 - GUARD)
    able = task.limits.able & reaches
    served = part(task, able)
    plan = fixed_band_plan(served, band[able]) if able.any() else None
    return spread(task, plan, lower=math.inf, residual=math.nan, able=able)


def fixed_band_plan(task: Task, band: Array) -> Plan:
    """Power, frequency, time and energy of UEs that are able to send in these bands."""
    limits = task.limits
    unit_upload = task.bits * math.log(2.0) / (band * limits.s0)
    with np.errstate(all="ignore"):
        # s r y / s0 at both ends of the computing time: below the first value and above the second,
        # that end is best
        w = np.stack([limits.fastest, limits.slowest])
        y = limits.ends[:2]
        turns = 0.5 * limits.eps * y * (np.exp(y) - np.expm1(y) / y) / w**3
    slow = unit_upload >= turns[1]
    w = np.where(slow, w[1], w[0])
    y = np.where(slow, y[1], y[0])
    moves = (unit_upload > turns[0]) & ~slow
    if moves.any():
        eps = limits.eps[moves]
        lowest_y = limits.ends[0][moves]
        highest_y = limits.ends[2][moves]
        share = computing_share(FillsBand(unit_upload[moves]), eps, lowest_y, highest_y)
        w[moves] = np.clip(np.sqrt(share), limits.slowest[moves], limits.fastest[moves])
        y[moves] = spectral_efficiency((1.0 - w[moves] ** 2) / eps)
    strongest = task.max_power * task.gain_to_noise / band
    at_full_power = np.log1p(strongest)
    capped = at_full_power < y
    if capped.any():
        left = np.sqrt(np.maximum(1.0 - limits.eps * strongest / at_full_power, 0.0))
        w = np.where(capped, np.minimum(left, limits.fastest), w)
    power = np.where(
        capped, task.max_power, np.minimum(np.expm1(y) * band / task.gain_to_noise, task.max_power)
    )
    frequency = np.clip(task.cycles * w / limits.s0, task.min_frequency, task.max_frequency)
    return carried_out(task, band, power, frequency)


def carried_out(task: Task, band: Array, power: Array, frequency: Array) -> Plan:
    """What this band, power and frequency cost, from the definitions."""
    upload_time = task.bits * math.log(2.0) / (band * np.log1p(power * task.gain_to_noise / band))
    energy = task.kappa * task.cycles * frequency**2 + power * upload_time
    return Plan(band, power, frequency, task.cycles / frequency + upload_time, energy)


def spread(
    task: Task, plan: Plan | None, *, lower: float, residual: float, able: BoolArray | None = None
) -> Allocation:
    """A plan of the UEs that take part as an allocation of all; None where nobody does."""
    plan = Plan(*(np.empty(0) for _ in range(5))) if plan is None else plan
    able = task.limits.able if able is None else able
    time = float(plan.time.max()) if plan.time.size else math.inf

    def filled(values: Array, absent: float) -> Array:
        everyone = np.full(able.shape, absent)
        everyone[able] = values
        return everyone

    frequency = filled(plan.frequency, 0.0)
    return Allocation(
        time=time,
        band=filled(plan.band, 0.0),
        power=filled(plan.power, 0.0),
        frequency=np.where(able, frequency, task.max_frequency),
        ue_time=filled(plan.time, math.inf),
        energy=filled(plan.energy, 0.0),
        able=able,
        lower=min(lower, time),
        upper=time,
        residual=residual,
    )
