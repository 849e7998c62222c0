"""Where the time goes: of a round of exact Per-FedAvg in the engine low_rank, and of a comparison
of the paper's size.

    python benchmarks/where.py [--threads 1] [--data mnist5k] [--seeds 5] [--json]

A round (20 UEs, 40 samples a batch) is taken apart by torch.profiler: operators by what they are,
and whatever runs inside drawing, gathering and convolutions by that. A comparison (four algorithms,
10 of 20 UEs a round, 200 rounds, evaluation every 5) is taken apart by a stopwatch around the
functions named below. LeNet-5 needs CIFAR-10.
"""

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
from page import REST, profile_tables
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function
from work import INNER_LR, OUTER_LR, model_of, population

from autofl.algorithms import PerFedAvg
from autofl.config import load_settings
from autofl.data import find, load
from autofl.data.federated import FederatedData
from autofl.engines import make_engine, use_machine
from autofl.engines.low_rank.images import Conv
from autofl.evaluation import Evaluator, PreparedEvaluator
from autofl.jobs import many as experiments
from autofl.planner import FixedPlanner, PaperPlanner
from autofl.records import RunWriter
from autofl.robust.aggregators import Mean

NUM_UE, SAMPLES = 20, 40
ROUND_PARTS = [
    (FederatedData, "draw", "drawing"),
    (FederatedData, "gather", "gathering"),
    (Conv, "forward", "convolutions, forward"),
    (Conv, "backward", "convolutions, backward"),
    (Conv, "weight_gradient", "convolutions, weight gradients"),
]
COMPARISON_PARTS = [
    (experiments, "_shared_data", "loading and partition"),
    (PaperPlanner, "__call__", "planning"),
    (FixedPlanner, "__call__", "planning"),
    (FederatedData, "draw", "drawing"),
    (Mean, "__call__", "training"),  # updates are computed when they are summed
    (Evaluator, "prepare", "preparing the evaluation"),
    (PreparedEvaluator, "__call__", "evaluation"),
    *(
        (RunWriter, name, "writing")
        for name in ("__init__", "write", "write_weights", "finish", "close")
    ),
]
COPIES = ("copy_", "clone", "contiguous", "cat", "fill_", "zero_")


@contextmanager
def around(
    parts: list[tuple[object, str, str]], label: Callable[[str], AbstractContextManager[object]]
) -> Iterator[None]:
    """Each of these functions inside `label(its part)`."""

    def wrapped(inner: Callable[..., object], part: str) -> Callable[..., object]:
        @functools.wraps(inner)
        def outer(*args: object, **kwargs: object) -> object:
            with label(part):
                return inner(*args, **kwargs)

        return outer

    with ExitStack() as stack:
        for owner, name, part in parts:
            stack.enter_context(patch.object(owner, name, wrapped(getattr(owner, name), part)))
        yield


def shares_of(seconds: dict[str, float]) -> dict[str, float]:
    """Shares of the sum, the largest first and the rest last."""
    total = sum(seconds.values())
    order = sorted(seconds, key=lambda part: (part == REST, -seconds[part]))
    return {part: seconds[part] / total for part in order}


# --- a round --------------------------------------------------------------------------------------
# -------------------


def kind_of(event: FunctionEvent, num_inputs: int) -> str:
    """What an operator outside drawing, gathering and convolutions does."""
    name = event.name.removeprefix("aten::")
    if name == "addmm" and len(event.input_shapes[0]) == 2:  # onto a weight, not onto a bias
        return "weight gradients"
    if name in ("addmm", "mm"):
        first = event.input_shapes[-2 if name == "mm" else 1][-1] == num_inputs
        return "first layer's product" if first else "other products with shared weights"
    if name in ("bmm", "baddbmm", "baddbmm_"):
        return "each UE's products: Gram matrices, narrow layers"
    if name in COPIES:
        return "copies"
    return "elementwise work and sums" if event.name.startswith("aten::") else REST


def of_round(data_name: str, rounds: int, threads: int) -> dict[str, object]:
    """Shares of a round's time; `round_seconds` is the median without the profiler, CPU time with
    one thread.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    dataset = load(data_name)
    model, params = model_of(dataset)
    data, ue = population(dataset, NUM_UE), np.arange(NUM_UE)
    num, engine = np.full(NUM_UE, 3 * SAMPLES), make_engine("low_rank", model)

    def play(k: int) -> float:
        begin = clock()
        engine(PerFedAvg(INNER_LR, OUTER_LR), params, data.draw(ue, num, 1, 1, k), ue).mean(
            np.ones(NUM_UE)
        )
        return clock() - begin

    plain = statistics.median([play(k) for k in range(rounds + 1)][1:])
    watch = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    with around(ROUND_PARTS, record_function), watch, record_function("round"):
        profiled = statistics.median([play(k) for k in range(rounds)])
    parts = {part for *_, part in ROUND_PARTS}
    seconds: dict[str, float] = defaultdict(float)
    num_inputs = int(np.prod(data.narrow.sample_shape))

    def walk(event: FunctionEvent, inside: str | None) -> None:
        inside = event.name if event.name in parts else inside
        seconds[inside or kind_of(event, num_inputs)] += event.self_cpu_time_total / 1e6
        for child in event.cpu_children:
            walk(child, inside)

    walk(next(event for event in watch.events() if event.name == "round"), None)
    return {"num_ue": NUM_UE, "samples": SAMPLES, "round_seconds": plain, "profiled_seconds": profiled,
            "shares": shares_of(seconds)}  # fmt: skip


# --- a comparison ---------------------------------------------------------------------------------
# -------------------


class Stopwatch:
    """Seconds of each part; what runs inside another part counts there alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._since = 0.0

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        self._turn()
        self._stack.append(part)
        try:
            yield
        finally:
            self._turn()
            self._stack.pop()


def of_comparison(data_name: str, seeds: int, rounds: int) -> dict[str, object]:
    """Shares of a comparison's time in one process, and its time with a process for each core."""
    chosen = [f"data.name={data_name}", f"compare.seeds={seeds}", f"stop.rounds={rounds}"]
    settings = load_settings(
        overrides=[*chosen, "simulation.num_selected=10", "simulation.device=cpu"]
    )
    cores, watch = os.cpu_count() or 1, Stopwatch()

    def tell(progress: experiments.Progress) -> None:
        if progress.finished:
            print(f"  {progress.label}: {progress.host_time:.1f} s", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        with around(COMPARISON_PARTS, watch), watch(REST):
            runs = experiments.run_comparison(settings, f"{folder}/alone", on_progress=tell)
        begin = time.perf_counter()
        experiments.run_comparison(settings, f"{folder}/together", workers=cores, on_progress=tell)
        together = time.perf_counter() - begin
    alone = sum(watch.seconds.values())
    return {"data": data_name, "runs": len(runs), "rounds": rounds, "seconds": alone, "workers": cores,
            "together": together, "shares": shares_of(watch.seconds)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", default="mnist5k", choices=["mnist5k", "mnist"])
    parser.add_argument("--seeds", type=int, default=5, help="of the comparison")
    parser.add_argument("--rounds", type=int, default=200, help="of the comparison")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of tables")
    given = parser.parse_args()
    if find(given.data) is None:
        parser.error(
            f"{given.data} is not here: run 'autofl data fetch {given.data}', or take another with --data"
        )
    use_machine(given.threads)
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # the profiler need not say that it starts and stops
    rounds = {"mlp": of_round(given.data, 50, given.threads)}
    if find("cifar10"):
        rounds["lenet5"] = of_round("cifar10", 8, given.threads)
    else:
        print(
            "CIFAR-10 is not here ('autofl data fetch cifar10'): LeNet-5 is left out",
            file=sys.stderr,
        )
    found = {"rounds": rounds, "comparison": of_comparison(given.data, given.seeds, given.rounds)}
    print(json.dumps(found) if given.json else profile_tables(found))


if __name__ == "__main__":
    main()
