"""What the peers share: the work, the command line, the clock and the check. NumPy and the standard
library only.

A round is the selection of the UEs, the drawing of their batches, the client updates and the
averaging; nothing is evaluated. FedAvg takes one SGD step on `samples` samples of each UE,
Per-FedAvg one meta step on three times as many.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

STARTED = time.perf_counter()
Weights = list[np.ndarray]
"""Weight and bias of each layer in turn, as PyTorch keeps them: the MLP's four arrays or LeNet-5's
ten.
"""


@dataclass(frozen=True)
class Work:
    x: np.ndarray  # (num, 784) or (num, 3, 32, 32), float32, standardised
    y: np.ndarray  # (num,), int64
    train: np.ndarray  # samples of UE after UE
    train_start: np.ndarray  # (num_ue + 1,)
    selected: int
    samples: int  # of one batch
    inner_lr: float
    outer_lr: float
    weights: Weights  # before the first round
    expected: dict[
        str, Weights
    ]  # AutoFL's loop engine: one client's result and one round's, of each algorithm

    @property
    def num_ue(self) -> int:
        return len(self.train_start) - 1

    def owned(self, ue: int) -> np.ndarray:
        return self.train[self.train_start[ue] : self.train_start[ue + 1]]

    def num_drawn(self, algorithm: str) -> int:
        """Samples a UE takes in one round."""
        return self.samples if algorithm == "fedavg" else 3 * self.samples

    def constant(self) -> "Work":
        """The same work with one sample a UE, repeated: whatever is drawn, the round gives
        `expected`.
        """
        first = self.train[self.train_start[: self.selected]]
        size = 3 * self.samples
        return replace(
            self, train=np.repeat(first, size), train_start=np.arange(self.selected + 1) * size
        )


def read_work(path: Path) -> Work:
    with np.load(path) as file:

        def weights(what: str) -> Weights:
            return [file[f"{what}_{k}"] for k in range(int(file["num_weights"]))]

        return Work(
            x=file["x"],
            y=file["y"],
            train=file["train"],
            train_start=file["train_start"],
            selected=int(file["selected"]),
            samples=int(file["samples"]),
            inner_lr=float(file["inner_lr"]),
            outer_lr=float(file["outer_lr"]),
            weights=weights("weights"),
            expected={
                f"{what} {name}": weights(f"{what}_{name.replace('-', '_')}")
                for what in ("client", "round")
                for name in ("fedavg", "per-fedavg")
            },
        )


def arguments(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="a file of make_work.py")
    parser.add_argument("--algorithm", choices=["per-fedavg", "fedavg"], default="per-fedavg")
    parser.add_argument("--rounds", type=int, default=30, help="rounds measured")
    parser.add_argument("--warmup", type=int, default=5, help="rounds before them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--check", action="store_true", help="compare with AutoFL's loop engine and stop"
    )
    return parser.parse_args()


class Clock:
    """Notes the end of each round; the first ones warm up."""

    def __init__(self, warmup: int) -> None:
        self.warmup = max(warmup, 1)  # a round is timed from the end of the one before it
        self.ends: list[float] = []

    def tick(self) -> None:
        self.ends.append(time.perf_counter())

    @property
    def startup_seconds(self) -> float:
        """From the start of the process to the end of the first round."""
        return self.ends[0] - STARTED

    @property
    def round_seconds(self) -> list[float]:
        return np.diff(self.ends[self.warmup - 1 :]).tolist()


def peak_rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(
    peer: str,
    version: str,
    options: argparse.Namespace,
    per_fedavg: str,
    clock: Clock,
    note: str,
    peak_mb: float | None = None,
) -> None:
    """The result as one line of JSON, the last of the output."""
    print(
        f"{peer} {options.algorithm}: {1e3 * statistics.median(clock.round_seconds):.1f} ms a round",
        file=sys.stderr,
    )
    result = {
        "peer": peer,
        "version": version,
        "algorithm": options.algorithm,
        "per_fedavg": per_fedavg,
        "threads": options.threads,
        "round_seconds": [round(seconds, 6) for seconds in clock.round_seconds],
        "startup_seconds": round(clock.startup_seconds, 3),
        "peak_rss_mb": round(peak_rss_mb() if peak_mb is None else peak_mb, 1),
        "note": note,
    }
    print(json.dumps(result), flush=True)


def difference(work: Work, what: str, weights: Weights) -> float:
    """|w - w_expected| / |w_expected - w_0|: the error of the step, relative to its length. Printed
    and returned.
    """
    expected = work.expected[what]
    error = sum(float(((a - b) ** 2).sum()) for a, b in zip(weights, expected, strict=True))
    length = sum(float(((a - b) ** 2).sum()) for a, b in zip(expected, work.weights, strict=True))
    relative = (error / length) ** 0.5
    print(f"{what}: relative difference {relative:.2e}", flush=True)
    return relative


def demand(work: Work, what: str, weights: Weights, at_most: float = 2e-4) -> None:
    """Stops where a step differs from AutoFL's by more than float32 rounding (weights of size 1,
    steps of 0.01).
    """
    relative = difference(work, what, weights)
    if not relative <= at_most:
        sys.exit(
            f"{what}: the peer's step is not the one asked for: {relative:.2e} > {at_most:.0e}"
        )
