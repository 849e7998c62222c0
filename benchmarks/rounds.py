"""Rounds of a deployment on this machine: what they take beside computing and sending, and what
memory they keep.

    python benchmarks/rounds.py [--nodes 3] [--rounds 100] [--transport stream] [--json FILE]

Starts Flower's processes in a temporary folder, runs, ends them, and prints a table.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from autofl.config import load_settings
from autofl.deploy.commands import down, run, up
from autofl.deploy.folder import processes_of
from autofl.records import Run
from autofl.report.devices import facts


def memory_of(folder: Path) -> float:
    """Bytes of memory that the processes of a deployment have for themselves (PSS)."""
    total = 0
    for process in processes_of(folder):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return float(total)


def measured(nodes: int, rounds: int, transport: str, folder: Path) -> dict[str, Any]:
    words = [
        *(f"cell.num_ue={nodes}", f"simulation.num_selected={nodes}", f"stop.rounds={rounds}"),
        *("preset=paper", f"evaluation.every={rounds}", f"deploy.transport={transport}"),
    ]
    settings, site = load_settings(None, words), folder / "site"
    begin, memory = time.monotonic(), []

    def watch(so_far: Run) -> None:
        if so_far.manifest.get("rounds", 0) >= rounds // 10:  # by then everybody has what it needs
            memory.append(memory_of(site))

    try:
        up(settings, site, lambda text: None)
        started = time.monotonic()
        made = run(settings, site, folder / "run", watch)
        ended = time.monotonic()
    finally:
        down(site)
    costs = facts(made)
    there = np.array(memory[:-1] or [np.nan])  # at the last look processes may be on their way out
    return {
        "nodes": nodes,
        "rounds": rounds,
        "transport": transport,
        "overhead": costs["overhead"],
        "reply_time": costs["round_time"]["measured"],
        "train_time": costs["train_time"]["measured"],
        "updates_used": costs["updates_used"],
        "up_s": started - begin,
        "run_s": ended - started,
        "down_s": time.monotonic() - ended,
        "memory_growth": float(there[-1] / there[0] - 1.0),
        "memory_bytes": float(there[-1]),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }


HEAD = """\
| nodes | rounds | transport | overhead of a round, median | 99 % | up, run, down | memory grew by |
|---|---|---|---|---|---|---|"""


def line_of(result: dict[str, Any]) -> str:
    """A result as a line of the table."""
    overhead = result["overhead"]
    return (
        f"| {result['nodes']} | {result['rounds']} | {result['transport']} | {1e3 * overhead['median']:.1f} ms"
        f" | {1e3 * overhead['p99']:.1f} ms | {result['up_s']:.0f}, {result['run_s']:.0f}, {result['down_s']:.0f} s"
        f" | {100 * result['memory_growth']:.1f} % |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--transport", choices=("stream", "messages"), default="stream")
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measured(words.nodes, words.rounds, words.transport, Path(folder))
    if words.json is not None:
        words.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(HEAD)
    print(line_of(result))


if __name__ == "__main__":
    main()
