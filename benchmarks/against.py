"""Two versions of AutoFL against each other: the engines' benchmark of each, by turns, in one run.

    python benchmarks/against.py OLD [--repeats 5] [--most 100]

OLD is another checkout. Prints, for each figure of `benchmarks/engines.py`, the median of both and
their ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def measured(tree: Path, options: list[str]) -> dict[str, float]:
    """The seconds that the benchmark of this tree gives, by name."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(tree / "benchmarks" / "engines.py"), *options]
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    result = json.loads(done.stdout)
    found = {}
    for group in ("rounds", "lenet"):
        for row in result[group]:
            for name in ("limit", "low_rank", "fedavg", "vmap", "loop"):
                if name in row:
                    found[f"{group}, {row['num_ue']} UEs, {row['samples']} samples, {name}"] = row[
                        name
                    ]
    for name in ("forward", "accuracies", "evaluation", "reference"):
        found[f"evaluation, {name}"] = result["evaluation"][name]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--data", default="mnist5k")
    given = parser.parse_args()
    options = ["--most", str(given.most), "--data", given.data]
    runs: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for repeat in range(given.repeats):
        for name, tree in (("old", given.old), ("new", ROOT)):
            runs[name].append(measured(tree, options))
        print(f"{repeat + 1} of {given.repeats}", file=sys.stderr, flush=True)
    for key in runs["new"][0]:
        old, new = (statistics.median(each[key] for each in runs[name]) for name in ("old", "new"))
        ratios = sorted(
            after[key] / before[key] for before, after in zip(runs["old"], runs["new"], strict=True)
        )
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"{key}: {1e3 * old:.2f} ms, {1e3 * new:.2f} ms, ratio {new / old:.2f} ({spread})")


if __name__ == "__main__":
    main()
