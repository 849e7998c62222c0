"""Do two versions of AutoFL give the same bytes? A small matrix of runs, hashed.

    python benchmarks/same_bytes.py --write tests/reference/bytes.json                     hash the
    runs of this tree
    python benchmarks/same_bytes.py --tree OLD --write tests/reference/bytes.json          of
    another checkout
    python benchmarks/same_bytes.py --compare tests/reference/bytes.json                   say what
    differs

Floating-point sums depend on the processor and the libraries, so hashes are compared on one
machine; a file of hashes says where it was made. The matrix is the paper's four algorithms on
MNIST-5k, and on CIFAR-10 where it is found.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARMS = ("autofl", "per-fedavg", "fedavg-1", "fedavg-2")
PLANNED = ("autofl", "fedavg-2")
"""Arms that plan: the settings of a fixed planner are not for them, nor another planner for the rest."""
SHORT = ("stop.rounds=12", "evaluation.every=4", "evaluation.test_samples=60")
MATRIX = {
    "default": SHORT,
    "physical, exact, wait": (
        *SHORT,
        "preset=physical",
        "planner.name=exact",
        "cell.distance={disc=400}",
        "simulation.outage=wait",
        "seed=2",
    ),
    "two steps, first-order": (
        *SHORT,
        "learning.local_steps=2",
        "learning.variant=first-order",
        "seed=3",
    ),
    "i.i.d., computed power": (
        *SHORT,
        "data.partition=iid",
        "planner.power=computed",
        "planner.num_samples=20",
        "simulation.num_selected=10",
    ),
    "far": (*SHORT, "cell.distance={disc=900}", "data.labels=2", "seed=4"),
    "loop": (
        "stop.rounds=3",
        "evaluation.every=3",
        "learning.engine=loop",
        "evaluation.test_samples=20",
    ),
    "vmap": (
        "stop.rounds=3",
        "evaluation.every=3",
        "learning.engine=vmap",
        "evaluation.test_samples=20",
    ),
}
CIFAR = {
    "CIFAR-10": (
        "data.name=cifar10",
        "stop.rounds=3",
        "evaluation.every=3",
        "evaluation.test_samples=20",
    )
}
ROUND_COLUMNS = (
    "round",
    "sim_time",
    "round_time",
    "num_selected",
    "num_decoded",
    "num_samples",
    "energy",
    "train_loss",
    "adapted_train_loss",
    "global_accuracy",
    "adapted_accuracy",
    "gradient_norm_sq",
)
"""Columns of rounds.csv that every version has."""
UE_COLUMNS = (
    "round",
    "ue",
    "channel_gain",
    "num_samples",
    "tx_power",
    "snr",
    "upload_time",
    "compute_time",
    "energy",
    "status",
    "decoded",
)
"""Columns of ues.csv that every version has."""


def fingerprint() -> str:
    """Processor, system and library: where sums round alike."""
    import torch

    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.is_file() else []
    facts = dict(
        reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line])
    )
    wanted = ("model name", "cpu family", "model", "stepping")
    cpu = " ".join(facts.get(name, "?") for name in wanted) if facts else platform.processor()
    widest = (
        "avx512"
        if "avx512f" in facts.get("flags", "")
        else "avx2"
        if "avx2" in facts.get("flags", "")
        else "sse"
    )
    return f"{cpu} {widest}, {platform.system()}, torch {torch.__version__}"


def digests(folder: Path) -> dict[str, str]:
    """Hashes of a run's tables and weights."""
    rounds = "".join(
        f"{line}\r\n"
        for line in (",".join(ROUND_COLUMNS), *lines_of(folder / "rounds.csv", ROUND_COLUMNS))
    )
    contents = {
        "rounds": rounds.encode(),
        "ues": "\n".join(lines_of(folder / "ues.csv", UE_COLUMNS)).encode(),
        "weights": (folder / "weights.safetensors").read_bytes(),
    }
    return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in contents.items()}


def lines_of(path: Path, columns: tuple[str, ...]) -> list[str]:
    """These columns of a table, a line a row."""
    rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
    return [",".join(row[name] for name in columns) for row in rows]


def told(overrides: tuple[str, ...], arm: str) -> list[str]:
    """Those of the overrides that concern an arm."""
    others = ("planner.power", "planner.num_samples") if arm in PLANNED else ("planner.name",)
    return [word for word in overrides if not word.startswith(others)]


def runs_of(tree: Path, with_cifar: bool) -> dict[str, dict[str, str]]:
    """The whole matrix, made by the code in this tree."""
    found = {}
    matrix = {**MATRIX, **(CIFAR if with_cifar else {})}
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        for name, overrides in matrix.items():
            for arm in ARMS:
                folder = Path(scratch) / f"{len(found)}"
                sets = [word for each in told(overrides, arm) for word in ("--set", each)]
                command = [
                    sys.executable,
                    "-m",
                    "autofl",
                    "simulate",
                    "--arm",
                    arm,
                    "--device",
                    "cpu",
                ]
                command += ["--out", str(folder), "--json", *sets]
                subprocess.run(
                    command,
                    check=True,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                found[f"{name}: {arm}"] = digests(folder)
                print(f"{name}: {arm}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--cifar", action="store_true", help="CIFAR-10 too")
    given = parser.parse_args()
    runs = runs_of(given.tree, given.cifar)
    if given.write is not None:
        text = json.dumps({"machine": fingerprint(), "runs": runs}, indent=1)
        given.write.write_text(text + "\n", encoding="utf-8")
    if given.compare is None:
        return 0
    kept = json.loads(given.compare.read_text(encoding="utf-8"))
    if kept["machine"] != fingerprint():
        print(f"made on another machine ({kept['machine']}): bytes may differ by rounding")
    wrong = [f"{name}, {part}" for name, parts in runs.items() for part, value in parts.items()
             if kept["runs"].get(name, {}).get(part) != value]  # fmt: skip
    print(
        "\n".join(f"differs: {each}" for each in wrong)
        or f"all {len(runs)} runs are the same to the byte"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
