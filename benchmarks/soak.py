"""One long run of the real command, watched from outside: its memory and its CPU time for each
round stay flat.

`make soak` takes minutes and writes docs/results/faults/soak.json, a row of docs/reliability.md;
the tests watch a shorter run (tests/faults). Linux only: it reads /proc.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from fault_processes import SMALL, Row, keep_rows, sets

from faults import draw_page

SETTLED = 500
"""Rounds after which nothing may grow any more."""
MEMORY_GROWTH, CPU_GROWTH = 1.05, 1.10
"""Memory may vary by 5 %; CPU time by 10 %, since the machine is shared."""
LONG = {**SMALL, "evaluation": {"every": 20, "test_samples": 5, "train_samples": 20}}


def watch(
    process: subprocess.Popen[bytes], rounds: Path, pause: float = 0.25, pid: int = 0
) -> np.ndarray:
    """Round, resident bytes and CPU seconds of a process, or of another one that works for it,
    until its end.
    """
    pid, seen = pid or process.pid, []
    while process.poll() is None:
        time.sleep(pause)
        try:
            done = int(_last_line(rounds).split(b",")[0])
            resident = (
                int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
            )
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):  # not begun yet, or ended meanwhile
            continue
        seen.append((done, resident, (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")))
    return np.array(seen, dtype=np.float64)


def _last_line(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1000))
        return file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]


def judge(
    seen: np.ndarray, num_rounds: int, settled: int = SETTLED, most: float = CPU_GROWTH
) -> tuple[dict[str, float], bool]:
    """Memory after the first rounds and its extremes later; CPU time a round, early and late;
    whether both are flat.
    """
    done, resident, cpu = seen[
        (seen[:, 0] >= settled) & (seen[:, 0] < num_rounds)
    ].T  # the report at the end is not it
    quarter = (num_rounds - settled) // 4
    early, late = done < settled + quarter, done >= num_rounds - quarter
    each_round = [float(np.polyfit(done[part], cpu[part], 1)[0]) for part in (early, late)]
    figures = {
        "rounds": num_rounds,
        "memory_settled": float(resident[0]),
        "memory_least": float(resident.min()),
        "memory_most": float(resident.max()),
        "cpu_per_round_early": each_round[0],
        "cpu_per_round_late": each_round[1],
    }
    level = figures["memory_settled"]
    flat = resident.max() <= MEMORY_GROWTH * level and resident.min() >= level / MEMORY_GROWTH
    return figures, bool(flat and each_round[1] <= most * each_round[0])


def soak(
    place: Path,
    num_rounds: int,
    settled: int = SETTLED,
    pause: float = 0.25,
    most: float = CPU_GROWTH,
) -> tuple[Row, dict[str, float]]:
    """`autofl simulate` for so many rounds; `most` is the factor by which the CPU time of a round
    may grow.
    """
    words = [sys.executable, "-m", "autofl", "simulate", "--out", str(place / "run")]
    words += sets({**LONG, "stop": {"rounds": num_rounds, "target_accuracy": 1.0}})
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        seen = watch(process, place / "run" / "rounds.csv", pause)
    figures, flat = judge(seen, num_rounds, settled, most)
    held = int(flat and process.returncode == 0)
    return Row(f"{num_rounds:,} rounds of `simulate`", 1, held, words_of(figures, settled)), figures


def words_of(figures: dict[str, float], settled: int) -> str:
    memory = [figures[f"memory_{what}"] / 2**20 for what in ("settled", "least", "most")]
    cpu = [1000 * figures[f"cpu_per_round_{when}"] for when in ("early", "late")]
    return (
        f"{memory[0]:.0f} MiB after {settled} rounds, then {memory[1]:.0f} to {memory[2]:.0f};"
        f" CPU of a round {cpu[0]:.2f}, then {cpu[1]:.2f} ms"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row, measured = soak(Path(folder), chosen.rounds)
    print(f"{row.held} of {row.injected}  {row.fault}: {row.seen}")
    keep_rows("soak", "simulate", [row], measured)
    draw_page()
    sys.exit(row.held < row.injected)
