"""The exact allocation of band, power and frequency for the shortest round (docs/joint-planner.md).

Least T such that, for every UE i that takes part,

    W_i/f_i + Z_i/(B_i log2(1 + p_i a_i/B_i)) <= T,    kappa W_i f_i^2 + p_i t_i <= E_i,    sum_i
    B_i <= B_tot,
    p_i <= P_i^max,    f_i^min <= f_i <= f_i^max,    p_i a_i/B_i >= phi

The problem is convex in the logarithms. `least_band` gives the least band b_i(T) of each UE, and
sum_i b_i(T) = B_tot is solved by Newton's method in ln T. Newton never overshoots here, so each
iterate is a lower bound on T; the plan itself, evaluated on its own, gives an upper bound.

Rates with a ceiling or in steps, and circuits that draw power, are left to `general`, which bisects
and is slower.
"""

import math

from autofl.errors import AutoFLError
from autofl.planner import band, fixed_band, general, thrift
from autofl.planner.band import GUARD, Task, band_and_slope
from autofl.planner.certificate import kkt_residual
from autofl.planner.fixed_band import Allocation, fixed_band_plan, part, spread
from autofl.units import Array

__all__ = [
    "Allocation",
    "Task",
    "allocate",
    "allocate_fixed_band",
    "least_band",
    "least_energy",
    "least_energy_fixed_band",
    "shortest",
]


def allocate(
    task: Task,
    total_band: float,
    tolerance: float = 1e-8,
    max_steps: int = 100,
    certify: bool = True,
) -> Allocation:
    """The allocation with the least T, and its certificate.

    Args:
        task: one set of UEs, shape (num_ue,).
        total_band: B_tot [Hz].
        tolerance: surplus of band at which Newton's last step is taken; the remaining error is
            about its square.
        max_steps: more than ever needed; with fewer, the bounds show how close the result is.
        certify: whether to work out the residual of the optimality conditions.
    """
    if not 0.0 < total_band < math.inf:
        raise AutoFLError(
            f"allocation: total_band = {total_band} Hz; it must be a finite number > 0"
        )
    if not task.is_plain:
        return general.allocate(task, total_band)
    able = task.limits.able
    served = part(task, able)
    if not able.any():
        return spread(task, None, lower=math.inf, residual=0.0)
    limits = served.limits
    rate_limit = float((served.bits * math.log(2.0) / limits.ends[2]).sum())
    deadline = lower = max(float(limits.shortest.max()), rate_limit / total_band)
    for _ in range(max_steps):
        bands, slope = band_and_slope(served, deadline)
        total = float(bands.sum())
        surplus = math.log(total / total_band)
        step = surplus * total / -float(slope.sum())
        lower = max(lower, deadline * math.exp(step))  # the root of a tangent of a convex function
        if surplus < tolerance or step < 1e-15:
            bands = bands + max(step, 0.0) * slope
            break
        deadline = lower
    bands = bands * (min(1.0, total_band / float(bands.sum())) * (1.0 - 3.0 * GUARD))
    plan = fixed_band_plan(served, bands)
    residual = kkt_residual(served, plan, total_band) if certify else math.nan
    return spread(task, plan, lower=lower, residual=residual)


def shortest(task: Task) -> Array:
    """Least deadline that a UE can make with any band [s], shape (..., num_ue); inf where it can
    never take part.
    """
    return band.shortest(task) if task.is_plain else general.shortest(task)


def least_band(task: Task, deadline: Array | float) -> Array:
    """b_i(T): the least band with which UE i makes deadline T [Hz]; inf where no band is enough."""
    return band.least_band(task, deadline) if task.is_plain else general.least_band(task, deadline)


def allocate_fixed_band(task: Task, own: Array | float) -> Allocation:
    """The least time of each UE in a given band [Hz]; T is the largest of these times."""
    solver = fixed_band.allocate_fixed_band if task.is_plain else general.allocate_fixed_band
    return solver(task, own)


def least_energy(task: Task, total_band: float, deadline: float) -> Allocation:
    """The allocation of least total energy that makes the deadline, which must not be shorter than
    `allocate`'s.
    """
    return (thrift if task.is_plain else general).least_energy(task, total_band, deadline)


def least_energy_fixed_band(task: Task, own: Array | float, deadline: float) -> Allocation:
    """The same in given bands: each UE on its own, with a deadline no shorter than its own least
    time.
    """
    return (thrift if task.is_plain else general).least_energy_fixed_band(task, own, deadline)
