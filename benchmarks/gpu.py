"""Many runs in one batch on a GPU: rounds a second, the fraction of the GPU's limit, and the same results as a CPU.

    python benchmarks/gpu.py [--data FOLDER] [--runs 64] [--rounds 200] [--json FILE]

Needs NumPy, SciPy and PyTorch alone, and MNIST's four idx files in FOLDER (see `autofl data`).
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from autofl.algorithms import FedAvg, PerFedAvg, make_engine, pick_engine
from autofl.data import by_labels, iid, load, split
from autofl.data.federated import federate
from autofl.evaluation import Evaluator
from autofl.models import build, mlp, num_weights, params_of
from autofl.network import Cell, Rayleigh, drop_in_disc
from autofl.planner import FixedPlanner, PaperPlanner
from autofl.rng import stream
from autofl.rounds import Stop
from autofl.simulation import Simulation, simulate, simulate_together

NUM_UE, SELECTED, ALPHA, BETA = 20, 5, 0.03, 0.07
PLANNED, FIXED = PaperPlanner(0.02), FixedPlanner(5)
PAIRS = {
    "autofl": (PerFedAvg(ALPHA, BETA), PLANNED),
    "per-fedavg": (PerFedAvg(ALPHA, BETA), FIXED),
    "fedavg-1": (FedAvg(BETA), FIXED),
    "fedavg-2": (FedAvg(BETA), PLANNED),
}


def simulations(dataset, names, seeds, law, rounds, device, every=5):
    """The paper's setting (20 UEs within 200 m, 5 a round) for each algorithm and seed, over one pool of samples."""
    sims, pool = [], None
    for seed in seeds:
        rng = stream(seed, "partition")
        owned = iid(dataset.y, NUM_UE, rng) if law == "iid" else by_labels(dataset.y, NUM_UE, rng, 5, 10)
        data = federate(dataset, split(owned, stream(seed, "split")))
        pool = pool or data.to(device)
        data = dataclasses.replace(data, x=pool.x, y=pool.y).to(device)
        model = build(mlp, dataset.sample_shape, 10, stream(seed, "init")).to(device)
        params = params_of(model)
        cell = Cell(
            distance=np.linalg.norm(drop_in_disc(stream(seed, "cell.distance"), NUM_UE, 200.0), axis=-1),
            cycles_per_sample=stream(seed, "cell.cycles_per_sample").uniform(0.8e5, 1.2e5, NUM_UE),
            cpu_frequency=1e9,
            data_size=data.partition.train_size,
            max_energy=3e-3,
            max_power=0.01,
            bandwidth=1e6,
            update_bits=32.0 * num_weights(params),
        )
        for name in names:
            algorithm, planner = PAIRS[name]
            engine = pick_engine("auto", model, algorithm)
            sims.append(
                Simulation(
                    cell=cell,
                    fading=Rayleigh(40.0),
                    planner=planner,
                    algorithm=algorithm,
                    model=model,
                    params=params,
                    data=data,
                    engine=make_engine(engine, model),
                    engine_name=engine,
                    evaluator=Evaluator(inner_lr=ALPHA),
                    stop=Stop(rounds=rounds),
                    seed=seed,
                    num_selected=SELECTED,
                    evaluate_every=every,
                )
            )
    return sims


def flops(sims, rounds):
    """Multiplications and additions of the rounds' products with the shared weights: 3 forward, 2 gradients."""
    samples = sum(50 if isinstance(sim.planner, PaperPlanner) else 5 for sim in sims) * SELECTED * rounds
    return samples / 3 * 5 * 2 * 79_510


def timed(work):
    begin = time.perf_counter()
    value = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin, value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = load("mnist", given.data)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    result = {"device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "torch": torch.__version__}

    # The same results as the CPU: four runs, ten rounds, both devices.
    names = ["autofl", "per-fedavg"]
    on_gpu = {
        r: (rec, st) for r, rec, st in simulate_together(simulations(dataset, names, (1, 2), "labels", 10, device))
    }
    worst, same_plan = 0.0, True
    for r, sim in enumerate(simulations(dataset, names, (1, 2), "labels", 10, torch.device("cpu"))):
        *_, (record, state) = simulate(sim)
        gpu_record, gpu_state = on_gpu[r]
        same_plan &= (
            bool((record.num_samples == gpu_record.num_samples).all()) and record.sim_time == gpu_record.sim_time
        )
        for name, p in state.params.items():
            step = (p - sim.params[name]).norm()
            worst = max(worst, float((gpu_state.params[name].cpu() - p).norm() / step))
    result["same_as_cpu"] = {"plans_equal": same_plan, "largest_relative_difference_of_the_way_travelled": worst}
    say(json.dumps(result["same_as_cpu"]))

    # Rounds a second: runs in one batch, without and with evaluation every five rounds.
    def count(sims, together=True):
        if together:
            return sum(1 for _ in simulate_together(sims))
        return sum(1 for sim in sims for _ in simulate(sim))

    seeds = range(1, given.runs // 2 + 1)
    for label, every in (("no evaluation", 10**9), ("evaluation every 5 rounds", 5)):
        sims = simulations(dataset, names, seeds, "labels", given.rounds, device, every)
        timed(lambda sims=sims: [next(iter(simulate_together(sims)))])
        seconds, _ = timed(lambda sims=sims: count(sims))
        rate = given.runs * given.rounds / seconds
        row = {"runs": given.runs, "seconds": seconds, "run_rounds_per_second": rate,
               "tflops": flops(sims, given.rounds) / seconds / 1e12}  # fmt: skip
        alone = simulations(dataset, names, (1,), "labels", 50, device, every)
        seconds, _ = timed(lambda alone=alone: count(alone, together=False))
        row["run_rounds_per_second_one_by_one"] = 2 * 50 / seconds
        result[label] = row
        say(f"{label}: {json.dumps(row)}")

    if device.type == "cuda":
        a = torch.randn(8192, 8192, device=device)
        timed(lambda: a @ a)
        seconds, _ = timed(lambda: [a @ a for _ in range(5)])
        result["matrix_tflops_float32"] = 5 * 2 * 8192**3 / seconds / 1e12
        say(f"float32 products: {result['matrix_tflops_float32']:.1f} TFLOP/s")

    # Fig. 2 on MNIST: four algorithms, i.i.d. and five labels, ten seeds.
    figure = 0.0
    for law in ("iid", "labels"):
        for pair in (["autofl", "per-fedavg"], ["fedavg-1", "fedavg-2"]):
            sims = simulations(dataset, pair, range(1, 11), law, given.rounds, device)
            seconds, _ = timed(lambda sims=sims: count(sims))
            figure += seconds
    result["fig2a_and_fig2b_seconds"] = figure
    say(f"Fig. 2a and 2b, 80 runs of {given.rounds} rounds: {figure:.1f} s")
    text = json.dumps(result, indent=2)
    if given.json:
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
