"""Each planner on one random cell against the best on dense grids: how much worse it is, and what
it breaks.
"""

import math
from dataclasses import dataclass

import numpy as np

from autofl.planner import ExactPlanner, FixedPlanner
from autofl.planner.allocation import (
    Outcome,
    Task,
    allocate,
    allocate_fixed_band,
    least_energy,
    least_energy_fixed_band,
    shortest,
)
from reference.radio_reference import (
    band_on_a_grid,
    best_of_p3_p4,
    costs,
    in_a_band,
    lowest_snr,
    random_radio,
)

NEAR = 1e-3


@dataclass
class Worst:
    """The largest that was seen: off is relative, negative where a grid is worse than ours."""

    off: float = -math.inf
    violation: float = 0.0
    count: int = 0

    def see(self, ours, theirs):
        self.count += 1
        if math.isinf(ours) and math.isinf(theirs):
            return
        self.off = max(self.off, math.inf if math.isinf(ours) else ours / theirs - 1.0)


def violation(cell, gain, i, work, band, power, frequency):
    """Largest relative violation of energy, power and decoding by one UE's decisions."""
    snr, _, energy = costs(cell, gain, i, work, band, power, frequency)
    return max(
        energy / cell.max_energy[i] - 1.0,
        power / cell.max_power[i] - 1.0,
        1.0 - snr / lowest_snr(cell) * (1.0 + 1e-12),
    )


def exact(seed, worst):
    cell, gain = random_radio(seed)
    plan, _ = ExactPlanner(0.02)(cell, gain, {})
    for i in range(cell.num_ue):
        samples, time = best_of_p3_p4(cell, gain, i, 50)
        if plan.num_samples[i] == 0:
            worst.see(math.inf if samples else 1.0, 1.0)
            continue
        work = cell.cycles_per_sample[i] * plan.num_samples[i]
        decided = (cell, gain, i, work, cell.bandwidth[i], plan.tx_power[i], cell.cpu_frequency[i])
        worst.violation = max(worst.violation, violation(*decided))
        more, _ = best_of_p3_p4(cell, gain, i, 50, slack=NEAR)
        assert samples <= plan.num_samples[i] <= more, (seed, i, samples, plan.num_samples[i], more)
        if plan.num_samples[i] == samples:
            worst.see(costs(*decided)[1], time)


def fixed(seed, worst):
    cell, gain = random_radio(seed)
    plan, _ = FixedPlanner(10)(cell, gain, {})
    for i in range(cell.num_ue):
        wanted = min(10, int(cell.data_size[i]))
        samples, time = best_of_p3_p4(cell, gain, i, wanted)
        more, _ = best_of_p3_p4(cell, gain, i, wanted, slack=NEAR)
        if samples == more:  # else the grid cannot tell
            work = cell.cycles_per_sample[i] * wanted
            decided = (
                cell,
                gain,
                i,
                work,
                cell.bandwidth[i],
                plan.tx_power[i],
                cell.cpu_frequency[i],
            )
            takes_part = plan.num_samples[i] > 0
            worst.see(
                costs(*decided)[1] if takes_part else math.inf,
                time if samples == wanted >= 3 else math.inf,
            )


def tasks(seed, num_ue=None):
    cell, gain = random_radio(seed, num_ue)
    work = cell.cycles_per_sample * 10.0
    return cell, gain, work, Task.of(cell, gain, work, cell.update_bits, True)


def shared_band(seed, worst):
    """No round 0.1 % shorter has bands that fit."""
    cell, gain, work, task = tasks(seed)
    total = float(cell.bandwidth.sum())
    solved = allocate(task, total)
    if solved.outcome is Outcome.NO_BAND:
        able = np.flatnonzero(np.isfinite(shortest(task)))
        ever = float(
            (work / cell.min_cpu_frequency + cell.max_energy / cell.circuit_power)[able].max()
        )
        assert sum(band_on_a_grid(cell, gain, i, work[i], ever) for i in able) > total, seed
        return
    there = np.flatnonzero(solved.able)
    if not len(there):
        return
    power = cell.pa_efficiency * solved.power
    for i in there:
        decided = (cell, gain, i, work[i], solved.band[i], power[i], solved.frequency[i])
        worst.violation = max(
            worst.violation,
            violation(*decided),
            costs(*decided)[1] / solved.certificate.upper - 1.0,
        )
    worst.violation = max(worst.violation, float(solved.band.sum()) / total - 1.0)
    least = sum(band_on_a_grid(cell, gain, i, work[i], solved.time * (1.0 - NEAR)) for i in there)
    worst.count += 1
    worst.off = max(worst.off, 0.0 if least > total else math.inf, solved.certificate.gap)
    assert least > total, (seed, least, total)


def own_band(seed, worst):
    cell, gain, work, task = tasks(seed)
    solved = allocate_fixed_band(task, cell.bandwidth)
    for i in range(cell.num_ue):
        worst.see(float(solved.ue_time[i]), in_a_band(cell, gain, i, work[i], cell.bandwidth[i]))
        if solved.able[i]:
            power = cell.pa_efficiency * solved.power[i]
            decided = (cell, gain, i, work[i], solved.band[i], power, solved.frequency[i])
            worst.violation = max(worst.violation, violation(*decided))


def thrift_in_own_band(seed, worst):
    cell, gain, work, task = tasks(seed)
    fastest = allocate_fixed_band(task, cell.bandwidth)
    if not fastest.able.any():
        return
    deadline = 1.3 * fastest.time
    solved = least_energy_fixed_band(task, cell.bandwidth, deadline)
    for i in np.flatnonzero(fastest.able):
        assert solved.ue_time[i] <= deadline * (1.0 + 1e-9)
        worst.see(
            float(solved.energy[i]), in_a_band(cell, gain, i, work[i], cell.bandwidth[i], deadline)
        )


def thrift_in_shared_band(seed, worst, splits=300):
    """Two UEs: every split of the band."""
    cell, gain, work, task = tasks(seed, 2)
    total = float(cell.bandwidth.sum())
    fastest = allocate(task, total)
    if not fastest.able.all():
        return
    deadline = fastest.time * 1.2
    solved = least_energy(task, total, deadline)
    assert solved.time <= deadline * (1.0 + 1e-9)
    assert solved.band.sum() <= total * (1.0 + 1e-9)
    best = math.inf
    for share in np.linspace(0.0, 1.0, splits + 1)[1:-1]:
        best = min(
            best,
            in_a_band(cell, gain, 0, work[0], share * total, deadline, 4000)
            + in_a_band(cell, gain, 1, work[1], (1.0 - share) * total, deadline, 4000),
        )
    worst.see(float(solved.energy.sum()), best)


CHECKS = (exact, fixed, shared_band, own_band, thrift_in_own_band, thrift_in_shared_band)
