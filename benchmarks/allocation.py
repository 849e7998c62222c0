"""The exact allocation: 1,000 random cells against cvxpy with Clarabel, its certificate, and its
CPU times.

python benchmarks/allocation.py [number of cells]
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from autofl.planner.allocation import Task, allocate, laws_of, least_energy, shortest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference.allocation_reference import KINDS, conic_time, random_cell


def cpu_time(call: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds of a call."""
    call()
    times = []
    for _ in range(repeats):
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return statistics.median(times)


def typical(num_ue: int, seed: int = 0) -> Task:
    """UEs of a cell of 300 m, CPUs and budgets spread tenfold."""
    rng = np.random.default_rng(seed)
    return Task(
        cycles=rng.uniform(0.8e5, 1.2e5, num_ue) * 80.0,
        bits=np.full(num_ue, 1.3e5),
        gain_to_noise=rng.exponential(1.0, num_ue)
        * (300.0 * np.sqrt(rng.random(num_ue))) ** -3.8
        / 10.0**-20.4,
        max_energy=3e-3 * 10.0 ** rng.uniform(-1.0, 0.0, num_ue),
        max_power=np.full(num_ue, 0.01),
        min_frequency=np.full(num_ue, 1e8),
        max_frequency=2e9 * 10.0 ** rng.uniform(-1.0, 0.0, num_ue),
        phi=1000.0,
        kappa=5e-28,
    )


def times() -> None:
    for num_ue, repeats, share in (
        (5, 200, 1e6),
        (5, 200, 1e5),
        (20, 200, 1e5),
        (10_000, 5, 1e6),
        (10_000, 5, 1e4),
    ):
        task, total_band = typical(num_ue), share * num_ue
        plan = allocate(task, total_band)
        fresh = cpu_time(lambda: allocate(task, total_band), repeats)  # noqa: B023
        thrifty = cpu_time(lambda: least_energy(task, total_band, 1.15 * plan.time), repeats)  # noqa: B023
        print(
            f"{num_ue:6d} UEs ({plan.able.sum()} take part), {share:.0e} Hz each: allocate {1e3 * fresh:8.3f} ms, "
            f"least_energy {1e3 * thrifty:8.3f} ms, gap {plan.certificate.gap:.0e}, residual {plan.certificate.residual:.0e}"
        )
    task = typical(600)
    deadline = np.where(np.isfinite(shortest(task)), 2.0 * shortest(task), 1.0)
    laws = laws_of(task)
    again = cpu_time(lambda: laws.least_band(deadline), 200)
    anew = cpu_time(lambda: laws_of(task).least_band(deadline), 200)
    print(f"least_band of 600: {1e3 * anew:.3f} ms, of a task seen before {1e3 * again:.3f} ms")


def against_cvxpy(num_cells: int) -> None:
    off: dict[str, list[float]] = {kind: [] for kind in KINDS}
    gap = residual = violation = 0.0
    nobody = 0
    for seed in range(num_cells):
        task, total_band = random_cell(seed)
        plan = allocate(task, total_band)
        if not plan.able.any():
            nobody += 1
            continue
        served = task.part(plan.able)
        band, power = plan.band[plan.able], plan.power[plan.able]
        gap, residual = max(gap, plan.certificate.gap), max(residual, plan.certificate.residual)
        violation = max(
            violation,
            float((plan.energy[plan.able] / served.max_energy).max()) - 1.0,
            float((power / served.max_power).max()) - 1.0,
            float((served.phi * band / (power * served.gain_to_noise)).max()) - 1.0,
            float(band.sum()) / total_band - 1.0,
        )
        off[KINDS[seed % len(KINDS)]].append(
            abs(conic_time(served, total_band, plan.time) / plan.time - 1.0)
        )
    for kind, values in off.items():
        print(
            f"{kind:16s} {len(values):4d} cells, largest relative difference {max(values, default=0.0):.1e}"
        )
    print(f"in {nobody} cells nobody can take part")
    print(f"largest gap {gap:.1e}, residual {residual:.1e}, violation {violation:.1e}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Solution may be inaccurate")
    times()
    against_cvxpy(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
