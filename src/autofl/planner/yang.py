"""The rival of Yang et al.: band, power and frequency of least delay for given work."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from autofl.errors import AutoFLError
from autofl.network import Cell, Plan, Status, decoded, make_plan
from autofl.planner.allocation import Task, allocate
from autofl.planner.base import (
    MIN_SAMPLES,
    ROUNDING,
    STEP_SAMPLES,
    Memory,
    Memoryless,
    power_limit,
)
from autofl.ranges import Checked
from autofl.units import Array


@dataclass(frozen=True)
class YangPlanner(Checked, Memoryless):
    """Least round time over band, power and CPU frequency, after Yang et al., "Delay minimization
    for federated learning over wireless communication networks" (ICML workshop 2020, arXiv
    2007.03462) and "Energy efficient federated learning over wireless communication networks" (IEEE
    TWC 2021, arXiv 1911.02417).

    Their method: all users end together at T, so T is feasible if the least bands with which each
    makes it sum to at most the band there is; the least T is that of `allocate`. Samples, local
    steps and bits are given: `num_samples`, and what the cell says. The band to share is the sum of
    the selected UEs' own.

    Note:
        Their delay problem has no energy limit, so f = f_max, p = p_max, and the least band is a
        Lambert W of T. Here each UE has E_max, so the least band is a search over one number; where
        E_max does not bind it gives theirs. The cell's frequency is f_max, as
        in theirs. Their users are all heard. Here a UE that cannot be
        decoded or pay for it takes no part: with `reach = "own"` that is judged in its own band,
        with "any" also in the narrower bands that it might get. A wider band does not help a weak
        UE once its SNR is down at phi, so it may decide T while band is left over; theirs is always
        used up. Their outer search over the local accuracy eta is
        not here: local work is given.
    """

    num_samples: Annotated[int, STEP_SAMPLES, "d"] = 40
    reach: Annotated[
        Literal["own", "any"], "who takes part: decodable in its own band, or in a narrower one"
    ] = "own"

    def __call__(self, cell: Cell, channel_gain: Array, memory: Memory) -> tuple[Plan, Memory]:
        if not cell.link.is_shannon or cell.circuit_power > 0.0 or cell.pa_efficiency < 1.0:
            raise AutoFLError(
                "planner yang: its formulas are those of link shannon without amplifier and circuits; use joint"
            )
        samples = np.minimum(float(self.num_samples), np.floor(cell.data_size))
        feasible = samples >= MIN_SAMPLES
        if self.reach == "own":
            feasible = feasible & decoded(cell, channel_gain, cell.max_power)

        # Sums must not depend on the order of UEs.
        order = np.argsort(cell.ue, kind="stable")
        there = order[feasible[order]]
        ues = cell.take(there)
        cycles = ues.local_steps * ues.cycles_per_sample * samples[there]
        task = Task.of(ues, channel_gain[there], cycles, ues.update_bits, frequency=True)
        task = replace(task, min_frequency=np.zeros(len(there)))  # theirs has no lowest frequency
        solved = allocate(task, float(cell.bandwidth[order].sum()))

        feasible[there] = solved.able
        tx_power = np.zeros(cell.num_ue)
        tx_power[there] = solved.power
        bandwidth = cell.bandwidth.copy()
        bandwidth[there] = np.where(solved.able, solved.band, ues.bandwidth)
        frequency = cell.cpu_frequency.copy()
        frequency[there] = solved.frequency
        few = samples < self.num_samples
        plan = make_plan(
            cell,
            feasible=feasible,
            num_samples=samples,
            tx_power=tx_power,
            cpu_frequency=frequency,
            bandwidth=bandwidth,
            samples_limit=np.where(few, Status.DATA, Status.ACCURACY).astype(np.int8),
            power_limit=power_limit(cell, channel_gain, tx_power, slack=ROUNDING),
        )
        return plan, memory
