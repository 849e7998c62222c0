"""Planners with every rate law, amplifier and circuits against brute force on dense grids: 1,000
random cells.

python benchmarks/radio.py [number of cells]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference.radio_checks import CHECKS, Worst


def main(num_cells: int) -> None:
    for check in CHECKS:
        worst, before = Worst(), time.process_time()
        for seed in range(num_cells):
            check(seed, worst)
        spent = time.process_time() - before
        print(
            f"{check.__name__:24s} {worst.count:5d} UEs or cells, worse than brute force by at most {worst.off:.1e}"
        )
        print(
            f"{'':24s} constraints broken by at most {worst.violation:.1e}; {spent:.0f} s of CPU time",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
