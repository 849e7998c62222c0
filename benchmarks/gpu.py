"""Many runs in one batch on a GPU: rounds a second, the fraction of the GPU's limit, and the same
results as a CPU.

    python benchmarks/gpu.py [--data FOLDER] [--runs 64] [--rounds 200] [--json FILE]

Needs NumPy, SciPy and PyTorch alone, and in FOLDER MNIST's four idx files, and for LeNet-5
CIFAR-10's binary files (see `autofl data`).
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.channels import PathLoss, Rayleigh
from autofl.core.arm import Arm
from autofl.core.round import ChannelAir
from autofl.core.simulation import Simulation, simulate
from autofl.core.stop import Stop
from autofl.core.together import play_together
from autofl.data import ByLabels, Iid, find, load
from autofl.data.federated import federate
from autofl.engines import make_engine, pick_engine
from autofl.evaluation import Evaluator
from autofl.models import build, lenet5, mlp, num_weights, params_of
from autofl.network import Cell, drop_in_disc
from autofl.planner import FixedPlanner, PaperPlanner
from autofl.rng import stream
from autofl.selection import Uniform

NUM_UE, SELECTED = 20, 5
PLANNED, FIXED = PaperPlanner(0.02), FixedPlanner(5, "max")
LAWS = {"iid": Iid(), "labels": ByLabels(5)}


def pair(name, alpha, beta):
    """The client update and the planner an algorithm is made of."""
    learner = PerFedAvg(alpha, beta) if name in ("autofl", "per-fedavg") else FedAvg(beta)
    return learner, PLANNED if name in ("autofl", "fedavg-2") else FIXED


def simulations(dataset, names, seeds, law, rounds, device, every=5, dtype=torch.float32):
    """The paper's setting (20 UEs within 200 m, 5 a round) for each algorithm and seed, over one
    pool of samples.
    """
    sims, pool = [], None
    images = len(dataset.sample_shape) == 3
    alpha, beta = (0.06, 0.02) if images else (0.03, 0.07)
    for seed in seeds:
        data = federate(dataset, dataset.partition(LAWS[law], NUM_UE, seed), dtype)
        pool = pool or data.to(device)
        data = dataclasses.replace(data, x=pool.x, y=pool.y).to(device)
        model = build(lenet5 if images else mlp, dataset.sample_shape, 10, stream(seed, "init")).to(
            device, dtype
        )
        params = params_of(model, dtype)
        cell = Cell(
            distance=np.linalg.norm(
                drop_in_disc(stream(seed, "cell.distance"), NUM_UE, 200.0), axis=-1
            ),
            cycles_per_sample=stream(seed, "cell.cycles_per_sample").uniform(0.8e5, 1.2e5, NUM_UE),
            cpu_frequency=1e9,
            data_size=data.partition.train_size,
            max_energy=3e-3,
            max_power=0.01,
            bandwidth=1e6,
            update_bits=32.0 * num_weights(params),
        )
        for name in names:
            algorithm, planner = pair(name, alpha, beta)
            engine = pick_engine("auto", model, algorithm)
            sims.append(
                Simulation(
                    arm=Arm(algorithm, planner, Uniform(SELECTED)),
                    air=ChannelAir(cell, PathLoss(Rayleigh(40.0))),
                    model=model,
                    params=params,
                    data=data,
                    engine=make_engine(engine, model),
                    engine_name=engine,
                    evaluator=Evaluator(inner_lr=alpha),
                    stop=Stop(rounds=rounds),
                    seed=seed,
                    evaluate_every=every,
                )
            )
    return sims


def timed(work):
    begin = time.perf_counter()
    value = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin, value


def count(sims, together=True):
    """Rounds of all runs, in one batch or one run after another."""
    if together:
        return sum(len(steps) for steps in play_together(sims))
    return sum(1 for sim in sims for _ in simulate(sim))


def same_as_cpu(dataset, device, dtype):
    """Four runs of ten rounds on both devices: plans, times, and the weights relative to the way
    they travelled.
    """
    names = ["autofl", "per-fedavg"]
    here = simulations(dataset, names, (1, 2), "labels", 10, device, 10, dtype)
    on_gpu = {}
    for steps in play_together(here):
        for r, record, checkpoint in steps:
            on_gpu[r] = record, checkpoint.state
    worst, same_plan = 0.0, True
    for r, sim in enumerate(
        simulations(dataset, names, (1, 2), "labels", 10, torch.device("cpu"), 10, dtype)
    ):
        *_, (record, state) = simulate(sim)
        gpu_record, gpu_state = on_gpu[r]
        same_plan &= bool((record.plan.num_samples == gpu_record.plan.num_samples).all())
        same_plan &= record.sim_time == gpu_record.sim_time
        for name, p in state.params.items():
            step = (p - sim.params[name]).norm()
            worst = max(worst, float((gpu_state.params[name].cpu() - p).norm() / step))
    return {"plans_equal": same_plan, "largest_relative_difference_of_the_way_travelled": worst}


def rate(dataset, device, num_runs, rounds, every):
    """Rounds of a run per second: so many runs in one batch, and one by one."""
    names = ["autofl", "per-fedavg"]
    sims = simulations(dataset, names, range(1, num_runs // 2 + 1), "labels", rounds, device, every)
    timed(lambda: next(play_together(sims)))
    seconds, _ = timed(lambda: count(sims))
    row = {
        "runs": num_runs,
        "seconds": seconds,
        "run_rounds_per_second": num_runs * rounds / seconds,
    }
    if sims[0].params.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}:
        # Products with the shared weights: 3 forward, 2 gradients.
        samples = sum(50 if sim.arm.planner is PLANNED else 5 for sim in sims) * SELECTED * rounds
        row["tflops"] = samples / 3 * 5 * 2 * num_weights(sims[0].params) / seconds / 1e12
    alone = simulations(dataset, names, (1,), "labels", 50, device, every)
    seconds, _ = timed(lambda: count(alone, together=False))
    return row | {"run_rounds_per_second_one_by_one": 2 * 50 / seconds}


def figure_2(dataset, device, laws, rounds):
    """Seconds for the panels of Fig. 2 on this data: four algorithms, ten seeds."""
    total = 0.0
    for law in laws:
        for names in (["autofl", "per-fedavg"], ["fedavg-1", "fedavg-2"]):
            sims = simulations(dataset, names, range(1, 11), law, rounds, device)
            total += timed(lambda sims=sims: count(sims))[0]
    return total


def matrix_rate(device):
    """TFLOP/s of a large float32 product."""
    a = torch.randn(8192, 8192, device=device)
    timed(lambda: a @ a)
    return 5 * 2 * 8192**3 / timed(lambda: [a @ a for _ in range(5)])[0] / 1e12


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    result = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
    }

    def note(name, value):
        result[name] = value
        print(f"{name}: {json.dumps(value)}", file=sys.stderr, flush=True)

    if device.type == "cuda":
        note("matrix_tflops_float32", matrix_rate(device))
    for name, laws in (("mnist", ("iid", "labels")), ("cifar10", ("labels",))):
        if find(name, given.data) is None:
            print(f"{name}: not here", file=sys.stderr)
            continue
        dataset = load(name, given.data)
        for dtype in (torch.float32, torch.float64):
            note(f"{name}: same as on a CPU, {str(dtype)[6:]}", same_as_cpu(dataset, device, dtype))
        for label, every in (("no evaluation", 10**9), ("evaluation every 5 rounds", 5)):
            note(f"{name}: {label}", rate(dataset, device, given.runs, given.rounds, every))
        note(f"{name}: seconds for Fig. 2", figure_2(dataset, device, laws, given.rounds))
    text = json.dumps(result, indent=2)
    if given.json:
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
