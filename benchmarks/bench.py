"""The whole benchmark in one run: our engines against their limit, and AutoFL against the
frameworks of the field.

    make bench            everything; makes an environment for each peer first (minutes, once)
    python benchmarks/bench.py --only engines --most 100     a part measured anew, the rest kept
    python benchmarks/bench.py --redraw                      docs/performance.md and its pictures
    from the results

Writes docs/results/performance.json, docs/performance.md and docs/images/{performance,scale}.png,
and prints the tables of the field. CIFAR-10, for LeNet-5, and MNIST are used where they are found
(`autofl data`).
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from page import ROOT, field_tables, profile_tables, write

from autofl.data import find

HERE = ROOT / "benchmarks"
SCRATCH = ROOT / ".bench"
RESULTS = ROOT / "docs" / "results" / "performance.json"
PEERS = ("autofl", "fedjax", "pfl", "fluke", "flower")


class Work(NamedTuple):
    """What every framework does; Flower takes seconds a round and gets fewer rounds."""

    model: str
    num_ue: int
    selected: int
    rounds: int
    repeats: int

    def file(self, data: str) -> Path:
        """The work as a file, which is written anew."""
        path = SCRATCH / f"work-{self.model}-{self.num_ue}-{self.selected}.npz"
        # A UE's 600 images keep the file of CIFAR-10 at 150 MB.
        which = (
            ["--data", "cifar10", "--most", "600"] if self.model == "lenet5" else ["--data", data]
        )
        which += ["--num-ue", str(self.num_ue), "--selected", str(self.selected), "--samples", "40"]
        command = [sys.executable, str(HERE / "peers" / "make_work.py"), *which, "--out", str(path)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return path


SMALL = [Work("mlp", 20, 20, 30, 3), Work("lenet5", 20, 20, 5, 2)]
LARGE = [Work("mlp", 1000, 100, 8, 3), Work("mlp", 10_000, 1000, 3, 2)]
FLOWER_ROUNDS = 5


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_json(command: list[str], timeout: int = 1800) -> dict | None:
    """The JSON object on the last line of a command's output, or None where it failed."""
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=quiet, cwd=ROOT
        )
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        say(f"  failed: {' '.join(command[1:3])} ({type(error).__name__})")
        return None


def peer_python(peer: str, folder: Path) -> str | None:
    """The interpreter of a peer's environment, which is made where it is missing."""
    if peer == "autofl":
        return sys.executable
    python = folder / peer / "bin" / "python"
    if not python.is_file():
        say(f"making the environment of {peer}")
        done = subprocess.run(
            ["sh", str(HERE / "peers" / "setup.sh"), str(folder), peer],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            say(f"  {peer} does not install here: {done.stderr.strip().splitlines()[-1:]}")
            return None
    return str(python)


def field(folder: Path, data: str) -> list[dict]:
    """All workloads with all cores, the small ones with one thread too."""
    pythons = {peer: peer_python(peer, folder) for peer in PEERS}
    cores = os.cpu_count() or 1
    works = [(work, cores) for work in (*SMALL, *LARGE)] + [
        (work, 1) for work in SMALL if cores > 1
    ]
    if find("cifar10") is None:
        say("CIFAR-10 is not here ('autofl data fetch cifar10'): LeNet-5 is left out")
        works = [(work, threads) for work, threads in works if work.model != "lenet5"]
    return [
        row for work, threads in works for row in everyone(pythons, work, work.file(data), threads)
    ]


def everyone(pythons: dict[str, str | None], work: Work, file: Path, threads: int) -> list[dict]:
    """Each framework on the same work, one after another in every repeat."""
    rows: list[dict] = []
    for algorithm in ("per-fedavg", "fedavg"):
        found: dict[str, list[dict]] = {}
        for _ in range(work.repeats):
            for peer, python in pythons.items():
                if python is None or (
                    peer == "flower" and (len(found.get(peer, [])) > 0 or work.num_ue > 1000)
                ):
                    continue
                number = FLOWER_ROUNDS if peer == "flower" else work.rounds
                command = [python, str(HERE / "peers" / f"run_{peer}.py"), "--work", str(file)]
                command += ["--algorithm", algorithm, "--rounds", str(number), "--warmup", "2"]
                if (result := run_json([*command, "--threads", str(threads)])) is not None:
                    found.setdefault(peer, []).append(result)
        for peer, results in found.items():
            seconds = [each for result in results for each in result["round_seconds"]]
            keys = ("version", "per_fedavg", "startup_seconds", "peak_rss_mb", "note")
            row = {"peer": peer, "model": work.model, "num_ue": work.num_ue, "selected": work.selected,
                   "algorithm": algorithm, "threads": threads}  # fmt: skip
            row |= {"round_seconds": statistics.median(seconds), "rounds": len(seconds)}
            rows.append(row | {key: results[-1][key] for key in keys})
            say(
                f"  {work.model}, n = {work.num_ue}, {algorithm}, {peer}: {1e3 * row['round_seconds']:.1f} ms"
            )
    return rows


def measured(script: str, *options: str) -> list:
    """The lines of JSON a script prints."""
    command = [sys.executable, str(HERE / script), *options]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def machine() -> dict:
    import torch

    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.is_file() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--data", default="mnist" if find("mnist") else "mnist5k", choices=["mnist5k", "mnist"]
    )
    parser.add_argument(
        "--most", type=int, default=10_000, help="largest number of UEs for our engines"
    )
    parser.add_argument(
        "--peers", type=Path, default=SCRATCH / "peers", help="folder of the peers' environments"
    )
    parser.add_argument("--redraw", action="store_true")
    parts = ("engines", "profile", "scale", "field")
    parser.add_argument(
        "--only", nargs="+", choices=parts, default=parts, help="measure these, keep the rest"
    )
    given = parser.parse_args()
    results = (
        json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"measured": {}}
    )
    if given.redraw:
        return write(results)
    if find(given.data) is None:
        parser.error(
            f"{given.data} is not here: run 'autofl data fetch {given.data}', or take another with --data"
        )
    SCRATCH.mkdir(exist_ok=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    common = ("--threads", str(given.threads))
    measures: dict[str, Callable[[], object]] = {
        "engines": lambda: measured(
            "engines.py", *common, "--data", given.data, "--most", str(given.most)
        )[0],
        "profile": lambda: measured("where.py", *common, "--data", given.data, "--json")[0],
        "scale": lambda: measured("scale.py", *common),
        "field": lambda: field(given.peers, given.data),
    }
    for part in given.only:
        say(f"measuring: {part}")
        results[part] = measures[part]()
        results |= {"machine": machine()}
        results["measured"][part] = datetime.date.today().isoformat()
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    write(results)
    for part, tables in (("profile", profile_tables), ("field", field_tables)):
        if part in given.only:
            print(tables(results[part]))
    say(f"docs/performance.md and {RESULTS.relative_to(ROOT)} are written")
    return None


if __name__ == "__main__":
    main()
