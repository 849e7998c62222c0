"""The joint planner where the band is not decided."""

import numpy as np

from autofl.network import Cell, Status
from autofl.planner.joint import JointPlanner


def test_a_ue_that_misses_phi_in_its_own_band_takes_no_part_unless_bands_are_shared():
    """At P_max the second UE has an SNR of phi / 2 in its own band, and of phi in half of it."""
    cell = Cell(distance=np.array([50.0, 100.0]))
    gain = np.array([1e3, 0.5]) * cell.snr_threshold * cell.noise_power / cell.max_power
    own = JointPlanner(admission=False, samples=False, frequency=False, band=False, bits=False)
    plan, _ = own(cell, gain, own.init(cell))
    assert plan.status[1] == Status.INFEASIBLE
    assert plan.feasible[0]
    shared = JointPlanner(admission=False, rates=[[0.1, 17.0]])
    plan, _ = shared(cell, gain, shared.init(cell))
    assert plan.feasible.all()
    assert plan.bandwidth[1] <= 0.5e6 * (1.0 + 1e-9)
