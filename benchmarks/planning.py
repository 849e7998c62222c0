"""CPU time of `autofl plan` from start to end, of planning a million UEs, and of all decisions of
the joint planner.

python benchmarks/planning.py
"""

import resource
import statistics
import subprocess
import sys
import time

import numpy as np

from autofl.channels import Exponential
from autofl.compressors.entropy import Entropy
from autofl.network import Cell, channel_gain, drop_in_disc
from autofl.planner import ExactPlanner, FixedPlanner, PaperPlanner
from autofl.planner.joint import JointPlanner

NUM_UE = 1_000_000


def started() -> float:
    """Median CPU seconds of the command, Python's own start included."""
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "autofl", "plan", "--json"],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def joint_times(num_ue: int, num_rounds: int = 41) -> list[float]:
    """CPU seconds of each round: every decision, with the rates of entropy-coded updates."""
    planner = JointPlanner(rates=[list(pair) for pair in Entropy().rates()])
    cell, rng = Cell.disc(num_ue, 200.0, 1), np.random.default_rng(0)
    times, memory = [], planner.init(cell)
    for _ in range(num_rounds if num_ue < 1000 else 6):
        gain = channel_gain(cell, Exponential(1.0).draw(rng, (num_ue,)))
        begin = time.process_time()
        _, memory = planner(cell, gain, memory)
        times.append(time.process_time() - begin)
    return times


def main() -> None:
    rng = np.random.default_rng(0)
    cell = Cell(
        distance=np.linalg.norm(drop_in_disc(rng, NUM_UE, 400.0), axis=-1),
        cycles_per_sample=rng.uniform(0.8e5, 1.2e5, NUM_UE),
        cpu_frequency=1e9,
        data_size=rng.integers(2, 3000, NUM_UE),
        max_energy=3e-3,
        max_power=0.01,
        bandwidth=1e6,
        update_bits=32.0 * 79_510,
    )
    gain = channel_gain(cell, Exponential(1.0).draw(rng, (NUM_UE,)))
    for planner in (PaperPlanner(0.02), ExactPlanner(0.02), FixedPlanner(40, "computed")):
        times, memory = [], planner.init(cell)
        for _ in range(5):
            begin = time.process_time()
            planner(cell, gain, memory)
            times.append(time.process_time() - begin)
        print(
            f"{type(planner).__name__}: {statistics.median(times):.2f} s of CPU time for {NUM_UE:,} UEs"
        )
    for num_ue in (5, 10_000):
        times = joint_times(num_ue)
        rest = statistics.median(times[1:])
        first = f"{1e3 * times[0]:.1f} ms of CPU time at first"
        print(f"JointPlanner, {num_ue:,} UEs: {first}, then {1e3 * rest:.1f} ms a round")
    print(f"autofl plan: {started():.2f} s of CPU time from start to end")


if __name__ == "__main__":
    main()
