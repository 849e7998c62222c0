"""How far a plan is from the optimality conditions of the allocation (docs/joint-planner.md)."""

import math

import numpy as np

from autofl.planner.allocation.result import Allocation
from autofl.planner.allocation.task import Task

ACTIVE = 1e-9
"""A constraint within this relative distance of its bound counts as active."""


def kkt_residual(task: Task, plan: Allocation, total_band: float) -> float:
    """Largest relative violation of the optimality conditions in the logarithms of band, power and
    frequency.

    With multipliers tau_i of the time (they add up to 1), tau_i e_i of the energy, tau_i m_i of the
    power, tau_i x_i of decoding and omega of the band, and xi = SNR/((1 + SNR) ln(1 + SNR)) = -d ln
    t/d ln p:

        ln f:  s/T     = e 2 kappa W f^2/E                    between the bounds of f; <= at f_min,
            >= at f_max
        ln p:  t/T xi  = e (p t/E) (1 - xi) + m - x
        ln B:  (t/T + e p t/E) (1 - xi) - x = (omega/tau) B/B_tot

    Active constraints leave each UE an interval for e; the residual is what is missing for it to be
    non-empty. The last line then gives tau. If band is left over, omega = 0, and the conditions are
    those of the slowest UE alone, which must be at P_max and at the decoding threshold.
    """
    # What the two conditions of frequency and power say of e T, where no bound holds them.
    snr = plan.power * task.gain_to_noise / plan.band
    y = np.log1p(snr)
    xi = snr / ((1.0 + snr) * y)
    compute_time = task.cycles / plan.frequency
    upload_time = task.bits * math.log(2.0) / (plan.band * y)
    upload_energy = plan.power * upload_time
    compute_energy = task.kappa * task.cycles * plan.frequency**2
    by_frequency = compute_time * task.max_energy / (2.0 * compute_energy)
    by_power = upload_time * xi * task.max_energy / (upload_energy * (1.0 - xi))

    # An active bound turns its equation into an inequality; without an active budget e is 0.
    full = plan.power >= task.max_power * (1.0 - ACTIVE)
    faint = snr <= task.phi * (1.0 + ACTIVE)
    quick = plan.frequency >= task.max_frequency * (1.0 - ACTIVE)
    calm = plan.frequency <= task.min_frequency * (1.0 + ACTIVE)
    spent = plan.energy >= task.max_energy * (1.0 - ACTIVE)
    lowest = np.maximum(np.where(quick, 0.0, by_frequency), np.where(full, 0.0, by_power))
    highest = np.minimum(np.where(calm, np.inf, by_frequency), np.where(faint, np.inf, by_power))
    highest = np.where(spent, highest, 0.0)
    missing = np.where(lowest > highest, 1.0 - highest / np.where(lowest > 0.0, lowest, 1.0), 0.0)

    # Where band is left over, one UE alone must hold up the others: the slowest at its bounds.
    longest = float(plan.ue_time.max())
    left_over = 1.0 - float(plan.band.sum()) / total_band
    idle = (longest - plan.ue_time) / longest
    if left_over > ACTIVE:
        slowest = (idle <= ACTIVE) & full & faint
        return float(missing[slowest].min()) if slowest.any() else 1.0
    return float(max(missing.max(), idle.max(), -left_over))
