"""AutoFL itself on the same work: engine low_rank, exact Per-FedAvg or FedAvg, in the environment
AutoFL lives in.
"""

import numpy as np
import torch
from common import Clock, arguments, demand, read_work, report

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.data import Partition
from autofl.data.federated import FederatedData
from autofl.engines import make_engine, use_machine
from autofl.models import lenet5, mlp
from autofl.network import Cell
from autofl.rng import stream
from autofl.selection import Candidates, Uniform
from autofl.version import __version__


def run(work, algorithm, num_rounds, clock):
    """Runs the rounds; returns the weights after them."""
    model = mlp() if work.x.ndim == 2 else lenet5()
    names = [name for name, _ in model.named_parameters()]
    params = {name: torch.from_numpy(w) for name, w in zip(names, work.weights, strict=True)}
    none = np.zeros(0, dtype=np.int64)
    partition = Partition(
        work.train, work.train_start, none, np.zeros(work.num_ue + 1, dtype=np.int64)
    )
    data = FederatedData("work", torch.from_numpy(work.x), torch.from_numpy(work.y), 10, partition)
    chosen = (
        PerFedAvg(work.inner_lr, work.outer_lr)
        if algorithm == "per-fedavg"
        else FedAvg(work.outer_lr)
    )
    engine = make_engine("low_rank", model)
    num = np.full(work.selected, work.num_drawn(algorithm))
    selection, everybody = Uniform(work.selected), Cell(distance=np.ones(work.num_ue))
    for k in range(num_rounds):
        candidates = Candidates(everybody, k, lambda: np.ones(work.num_ue))
        ue = selection.draw(candidates, stream(1, "selection", k)).ue
        params = engine(chosen, params, data.draw(ue, num, 1, 1, k), ue).mean(np.ones(len(ue)))
        clock.tick()
    return [p.numpy() for p in params.values()]


if __name__ == "__main__":
    options = arguments(__doc__)
    use_machine(options.threads)
    work, clock = read_work(options.work), Clock(options.warmup)
    if options.check:
        demand(
            work, f"round {options.algorithm}", run(work.constant(), options.algorithm, 1, clock)
        )
    else:
        run(work, options.algorithm, clock.warmup + options.rounds, clock)
        report("autofl", __version__, options, "shipped: exact", clock, "engine low_rank")
