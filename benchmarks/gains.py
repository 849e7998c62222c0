"""CPU seconds of one core for the gains of a round: path loss, line of sight, shadowing and
correlated fading.

python benchmarks/gains.py [--ues 1000000]      a row for each scenario and way of moving
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from autofl.channels.radio import Radio
from autofl.network import Cell

CASES = {
    "UMi, still": (Radio("umi"), 200.0),
    "UMa, still": (Radio("uma"), 500.0),
    "RMa, still": (Radio("rma", carrier=0.7e9), 3000.0),
    "InH mixed, still": (Radio("inh-mixed"), 50.0),
    "UMi, Nakagami fading": (Radio("umi", small_scale="nakagami"), 200.0),
    "UMa, random waypoint at 15 m/s": (Radio("uma", mobility="waypoint", speed=15.0), 500.0),
    "the same after half an hour": (Radio("uma", mobility="waypoint", speed=15.0), 500.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ues", type=int, default=1_000_000)
    given = parser.parse_args()
    print(
        f"| {given.ues:,} UEs | CPU s of a round, median of 5 | largest | median gain [dB] |\n|---|---|---|---|"
    )
    for name, (radio, radius) in CASES.items():
        cell, seconds, begin = (
            Cell.disc(given.ues, radius),
            [],
            1800.0 if "half an hour" in name else 0.0,
        )
        radio.gain_at(cell, 1, begin)
        for k in range(1, 6):
            start = time.process_time()
            gain = radio.gain_at(cell, 1, begin + 10.0 * k)
            seconds.append(time.process_time() - start)
        median_db = 10.0 * np.log10(np.median(gain))
        print(f"| {name} | {np.median(seconds):.2f} | {max(seconds):.2f} | {median_db:.1f} |")


if __name__ == "__main__":
    main()
