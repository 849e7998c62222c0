"""Our engines against plain SGD on the same samples, interleaved in one process, medians of CPU
time.

    python benchmarks/engines.py [--threads 1] [--data mnist5k]

Prints one line of JSON; how far it is goes to the error stream.

Plain SGD is the limit: a gradient on every sample of the round at one point. It is measured in
chunks of several sizes and the fastest counts; a second time, where the data has them, without the
inputs that are always 0, which our engine leaves out. With one thread the time is CPU time of the
process; with more, it is wall time.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch
from work import INNER_LR, OUTER_LR, model_of, plain_sgd, population

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.data import find, load
from autofl.engines import make_engine, use_machine
from autofl.evaluation import Evaluator
from autofl.models import outputs

EXACT = PerFedAvg(INNER_LR, OUTER_LR)
PLAIN = FedAvg(OUTER_LR)
WORKLOADS = [
    (20, 13),
    (20, 40),
    (100, 13),
    (100, 40),
    (1000, 13),
    (1000, 40),
    (10_000, 13),
    (10_000, 40),
]
REPEATS = {20: 61, 100: 21, 1000: 7, 10_000: 3}
SLOW_ENGINES_UP_TO = 100


def medians(
    tasks: dict[str, Callable[[int], object]], repeats: int, threads: int
) -> dict[str, float]:
    """Median seconds of each task, one after another in every repeat."""
    clock = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for k in range(repeats + 1):
        for name, task in tasks.items():
            begin = clock()
            task(k)
            if k:  # the first repeat warms up
                times[name].append(clock() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def matrix_rate() -> float:
    """GFLOP/s of a product of the first layer's shape."""
    x, w = torch.randn(2400, 784), torch.randn(784, 100)
    seconds = medians({"product": lambda _: x @ w}, 50, 1)["product"]
    return 2 * 2400 * 784 * 100 / seconds / 1e9


def rounds(
    data_name: str,
    workloads: list[tuple[int, int]],
    threads: int,
    sizes: tuple[int, ...],
    repeats: dict[int, int],
) -> list[dict[str, float]]:
    """Time of a round for each workload: (UEs, samples a batch); plain SGD in chunks of these
    sizes.
    """
    dataset = load(data_name)
    model, params = model_of(dataset)
    rows = []
    for num_ue, samples in workloads:
        data, ue = population(dataset, num_ue), np.arange(num_ue)
        num, weight = np.full(num_ue, 3 * samples), np.ones(num_ue)

        def run(
            name: str, algorithm: object, data=data, ue=ue, num=num, weight=weight
        ) -> Callable[[int], object]:
            engine = make_engine(name, model)
            return lambda k: engine(algorithm, params, data.draw(ue, num, 1, 1, k), ue).mean(weight)

        def sgd(size: int, data=data, model=model, ue=ue, num=num) -> Callable[[int], object]:
            return lambda k: plain_sgd(data, model, ue, num, k, size)

        tasks = {f"sgd {size}": sgd(size) for size in sizes}
        if data.columns is not None:
            narrow = model_of(data.narrow)[0]
            tasks |= {f"narrow sgd {size}": sgd(size, data.narrow, narrow) for size in sizes}
        tasks |= {"low_rank": run("low_rank", EXACT), "fedavg": run("low_rank", PLAIN)}
        if num_ue <= SLOW_ENGINES_UP_TO:
            tasks |= {name: run(name, EXACT) for name in ("vmap", "loop")}
        found = medians(tasks, repeats[num_ue], threads)
        limit = min(seconds for name, seconds in found.items() if name.startswith("sgd"))
        row = {"num_ue": num_ue, "samples": samples, "limit": limit}
        if data.columns is not None:
            row["narrow_limit"] = min(
                seconds for name, seconds in found.items() if name.startswith("narrow sgd")
            )
        row |= {
            name: found[name] for name in ("low_rank", "fedavg", "vmap", "loop") if name in found
        }
        row["ratio"] = found["low_rank"] / limit
        rows.append(row)
        print(
            json.dumps({key: round(value, 5) for key, value in row.items()}),
            file=sys.stderr,
            flush=True,
        )
    return rows


def evaluation(data_name: str, threads: int) -> dict[str, float]:
    """Evaluations of 20 UEs against one plain forward pass over the same test samples.

    `ready` is that pass over samples that lie in memory, as an evaluation keeps them. `accuracies`
    are the global and the adapted one on all test samples, `evaluation` has both training losses on
    100 samples of each UE too, as it is by default, and `reference` forms each UE's weights for it.
    """
    from autofl.config import load_settings
    from autofl.experiments.build import build_simulation

    sim = build_simulation(load_settings(overrides=[f"data.name={data_name}"]))
    default = Evaluator(inner_lr=INNER_LR)
    evaluators = {
        "accuracies": Evaluator(inner_lr=INNER_LR, train_samples=0).prepare(sim.model, sim.data, 1),
        "evaluation": default.prepare(sim.model, sim.data, 1),
        "reference": default.prepare(sim.model, sim.data, 1, fast=False),
    }
    test = sim.data.partition.test
    pieces = np.array_split(test, -(-len(test) // 4096))
    ready = [sim.data.gather(piece) for piece in pieces]

    def forward(samples: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for x, y in samples:
            (outputs(sim.model, sim.params, x).argmax(-1) == y).sum()

    tasks = {
        "forward": lambda _: forward(sim.data.gather(piece, "plain") for piece in pieces),
        "ready": lambda _: forward(ready),
    }
    tasks |= {
        name: lambda _, prepared=prepared: prepared(sim.params)
        for name, prepared in evaluators.items()
    }
    found = medians(tasks, 15, threads)
    return {**found, "test_samples": len(test), "train_samples": default.train_samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", default="mnist5k")
    parser.add_argument("--most", type=int, default=10_000, help="largest number of UEs")
    given = parser.parse_args()
    use_machine(given.threads)
    workloads = [work for work in WORKLOADS if work[0] <= given.most]
    result = {
        "data": given.data,
        "threads": given.threads,
        "matrix_gflops": matrix_rate(),
        "rounds": rounds(given.data, workloads, given.threads, (1200, 2400, 4800), REPEATS),
        "lenet": rounds("cifar10", [(20, 13), (20, 40)], given.threads, (120, 240), {20: 7})
        if find("cifar10")
        else [],
        "evaluation": evaluation(given.data, given.threads),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
