"""Large populations on one machine: time and memory of a simulated round, planning and costs
included.

    python benchmarks/scale.py [--threads 1]

10,000 UEs with 1,000 a round and 1,000,000 UEs with 10,000 a round, exact Per-FedAvg under the
exact planner; then the time of a round against the number of UEs, the samples of a batch and the
width of the network, one at a time from 100 UEs, 40 samples and 100 hidden units.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from work import INNER_LR, OUTER_LR, population

from autofl.algorithms import PerFedAvg
from autofl.channels import Exponential, PathLoss
from autofl.core.arm import Arm
from autofl.core.round import ChannelAir
from autofl.core.simulation import Simulation, simulate
from autofl.core.stop import Stop
from autofl.data import load
from autofl.engines import make_engine, use_machine
from autofl.evaluation import Evaluator
from autofl.models import build, num_weights, params_of
from autofl.network import Cell, drop_in_disc
from autofl.planner import ExactPlanner
from autofl.rng import stream
from autofl.selection import Uniform

ROUNDS = 4


def network(width):
    return lambda shape, classes: torch.nn.Sequential(
        torch.nn.Linear(shape[0], width), torch.nn.ReLU(), torch.nn.Linear(width, classes)
    )


def measure(num_ue, selected, samples=40, width=100):
    """Seconds of a round and peak memory [MB] of a simulation of ROUNDS rounds, 50 UEs judged."""
    dataset = load("mnist5k")
    data = population(dataset, num_ue, max(3 * samples, 10))
    model = build(network(width), dataset.sample_shape, 10, stream(1, "init"))
    params, rng = params_of(model), stream(1, "cell")
    cell = Cell(
        distance=np.linalg.norm(drop_in_disc(rng, num_ue, 200.0), axis=-1),
        cycles_per_sample=rng.uniform(0.8e5, 1.2e5, num_ue),
        cpu_frequency=1e9,
        data_size=data.partition.train_size,
        max_energy=1e-2,  # enough for all samples: the work is the same for every UE
        max_power=0.01,
        bandwidth=1e6,
        update_bits=32.0 * num_weights(params),
    )
    sim = Simulation(
        arm=Arm(PerFedAvg(INNER_LR, OUTER_LR), ExactPlanner(1 / (3 * samples)), Uniform(selected)),
        air=ChannelAir(cell, PathLoss(Exponential(1.0))), model=model, params=params, data=data,
        engine=make_engine("low_rank", model), engine_name="low_rank",
        evaluator=Evaluator(inner_lr=INNER_LR, num_ue=50), stop=Stop(rounds=ROUNDS), seed=1,
        evaluate_every=10**9,
    )  # fmt: skip
    ends, trained = [], []
    for record, _ in simulate(sim):
        ends.append(time.perf_counter())
        trained.append(int(record.arrived.sum()))
    return {
        "num_ue": num_ue,
        "selected": selected,
        "samples": samples,
        "width": width,
        "round_seconds": float(np.median(np.diff(ends)[:-1])),  # the last round is judged too
        "trained": trained[1],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", help="a single measurement: num_ue,selected,samples,width")
    given = parser.parse_args()
    use_machine(given.threads)
    if given.one:
        print(json.dumps(measure(*map(int, given.one.split(",")))))
        return
    works = [(10_000, 1_000, 40, 100), (1_000_000, 10_000, 5, 100)]
    works += [(n, n, 40, 100) for n in (20, 100, 1_000, 10_000)]
    works += [(100, 100, s, 100) for s in (5, 13, 120)] + [
        (100, 100, 40, w) for w in (25, 400, 1600)
    ]
    for work in works:  # each in a process of its own, for its own peak of memory
        command = [
            sys.executable,
            __file__,
            "--threads",
            str(given.threads),
            "--one",
            ",".join(map(str, work)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
