"""Variance of entropy-coded updates, E|Q(x) - x|^2 / |x|^2, on the updates of AutoFL-J itself.

python benchmarks/variance.py [--set data.name=mnist]      the table that compressors/entropy.py
offers to planners
"""

import argparse
from itertools import pairwise

import numpy as np

from autofl.compressors.entropy import MEASURED, Entropy
from autofl.config import load_settings
from autofl.core.simulation import simulate
from autofl.engines import ClientMemory
from autofl.experiments.build import build_simulation
from autofl.rng import stream

ROUNDS = (1, 5, 15, 40)
NUM_SAMPLES, LOCAL_STEPS = 8, 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", action="append", default=[], help="override a setting")
    given = parser.parse_args()
    settings = load_settings(
        overrides=[
            "arm=autofl-j",
            "seed=101",
            f"stop.rounds={ROUNDS[-1]}",
            "evaluation.every=1000",
            *given.set,
        ]
    )
    sim = build_simulation(settings)
    compressor, ue = Entropy(), np.arange(5)
    variances: dict[float, list[float]] = {bits: [] for bits, _ in MEASURED}
    states = [state.params for record, state in simulate(sim) if record.k + 1 in ROUNDS]
    for k, params in zip(ROUNDS, states, strict=True):
        algorithm = sim.arm.algorithm.at(k)  # type: ignore[attr-defined]
        num, steps = np.full(5, NUM_SAMPLES), np.full(5, LOCAL_STEPS)
        batches = sim.data.draw(ue, num, steps, sim.seed, k, algorithm.split)
        for _, change in sim.engine(algorithm, params, batches, ue, ClientMemory()):
            for bits in variances:
                sent, _ = compressor(change, bits, lambda k=k: stream(1, "variance", k), {})  # type: ignore[misc]
                variances[bits].append(
                    float((sent.received - change).square().sum() / change.square().sum())
                )
    print(
        "| bits a weight | variance, mean | lowest | highest | in compressors/entropy.py |\n|---|---|---|---|---|"
    )
    for bits, offered in MEASURED:
        found = variances[bits]
        print(
            f"| {bits} | {np.mean(found):.3g} | {min(found):.3g} | {max(found):.3g} | {offered} |"
        )
    assert all(low[1] > high[1] for low, high in pairwise(MEASURED))


if __name__ == "__main__":
    main()
