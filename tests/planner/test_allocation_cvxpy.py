"""The allocation against an independent solver; `python benchmarks/allocation.py` does it for 1,000
cells.
"""

import pytest

from autofl.planner.allocation import allocate
from reference.allocation_reference import KINDS, conic_time, random_cell

pytest.importorskip("cvxpy", reason="needs the extra solver")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")
def test_no_cell_is_a_millionth_off(kind):
    compared = 0
    for seed in range(kind, 96, len(KINDS)):
        task, total_band = random_cell(seed)
        plan = allocate(task, total_band)
        if plan.able.any():
            assert conic_time(task.part(plan.able), total_band, plan.time) == pytest.approx(
                plan.time, rel=1e-6
            )
            compared += 1
    assert compared >= 12
