"""What it costs to compress every update: CPU time for each weight and UE, and memory as the UEs
grow.

    python benchmarks/compression.py [--ues 100] [--samples 40]

The summed form of a round and the same round with every update formed, compressed and added up, one
after the other in every repeat, medians of CPU time, one thread; then one update alone: compressed,
packed, unpacked. Prints JSON.
"""

import argparse
import functools
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from work import INNER_LR, OUTER_LR, model_of, population

from autofl.algorithms import PerFedAvg
from autofl.compressors import Compressor
from autofl.compressors.entropy import Entropy
from autofl.compressors.quantise import Quantise
from autofl.compressors.ternary import Ternary
from autofl.compressors.top_k import TopK
from autofl.data import load
from autofl.engines import ClientMemory, CompressedUpdates, make_engine, use_machine

COMPRESSORS: dict[str, Compressor | None] = {
    "none": None,
    "entropy 0.4 bit": Entropy(0.4),
    "entropy 1 bit": Entropy(1.0),
    "ternary": Ternary(),
    "quantise 4 bit": Quantise(4),
    "top-k 5 %": TopK(0.05),
}


def rounds(num_ue: int, samples: int, repeats: int, names: list[str]) -> dict[str, float]:
    """Median CPU seconds of a round under each compressor."""
    dataset = load("mnist5k")
    model, params = model_of(dataset)
    data, ue, num = population(dataset, num_ue), np.arange(num_ue), np.full(num_ue, 3 * samples)
    engine, algorithm, weight = (
        make_engine("low_rank", model),
        PerFedAvg(INNER_LR, OUTER_LR),
        np.ones(num_ue),
    )
    weights = sum(p.numel() for p in params.values())
    times: dict[str, list[float]] = {name: [] for name in names}
    for k in range(repeats + 1):
        for name in names:
            compressor = COMPRESSORS[name]
            begin = time.process_time()
            updates = engine(algorithm, params, data.draw(ue, num, 1, 1, k), ue)
            if compressor is not None:
                bits = np.full(num_ue, compressor.update_bits(weights) / weights)
                updates = CompressedUpdates(updates, compressor, bits, 1, k, ClientMemory())
            updates.mean(weight)
            if k:  # the first repeat warms up
                times[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in times.items()} | {
        "weights": weights
    }


def packing(num_weights: int, repeats: int) -> dict[str, dict[str, float]]:
    """Of one update with the tails that updates have: ns a weight to compress, pack and unpack it;
    bits; variance.
    """
    change = torch.randn(num_weights, generator=torch.Generator().manual_seed(1)) ** 3
    results = {}
    for name, compressor in COMPRESSORS.items():
        if compressor is None:
            continue
        budget, own = (
            compressor.update_bits(num_weights) / num_weights,
            compressor.init(num_weights),
        )
        times: list[list[float]] = [[], [], []]
        for repeat in range(repeats + 1):
            moments = [time.process_time()]
            sent, _ = compressor(
                change, budget, functools.partial(np.random.default_rng, repeat), own
            )
            moments.append(time.process_time())
            payload = sent.pack()
            moments.append(time.process_time())
            compressor.unpack(payload, num_weights)
            moments.append(time.process_time())
            for spent, (begin, end) in zip(times, itertools.pairwise(moments), strict=True):
                spent.append(end - begin)
        call, pack, unpack = (1e9 * statistics.median(spent[1:]) / num_weights for spent in times)
        variance = float(((sent.received - change) ** 2).sum() / (change**2).sum())
        bits = sent.bits / num_weights
        results[name] = {
            "call": call,
            "pack": pack,
            "unpack": unpack,
            "bits": bits,
            "variance": variance,
        }
    return results


def peak_mb(num_ue: int, samples: int) -> float:
    """Peak memory of a process that plays one quantised round."""
    code = f"import compression as c; c.rounds({num_ue}, {samples}, 1, ['quantise 4 bit']); print(c.peak())"
    done = subprocess.run([sys.executable, "-c", code], cwd=__file__.rpartition("/")[0] or ".", check=True,
                          capture_output=True, text=True)  # fmt: skip
    return float(done.stdout)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ues", type=int, default=100)
    parser.add_argument("--samples", type=int, default=40, help="of each of the three batches")
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    use_machine(1)
    memory = {
        num: peak_mb(num, given.samples) for num in (100, 400, 1600)
    }  # first: a child's peak begins at ours
    seconds = rounds(given.ues, given.samples, given.repeats, list(COMPRESSORS))
    parts = given.ues * seconds["weights"]
    result = {
        "ues": given.ues,
        "samples": given.samples,
        "seconds": seconds,
        "ns_per_weight_and_ue": {
            name: 1e9 * (seconds[name] - seconds["none"]) / parts
            for name in COMPRESSORS
            if name != "none"
        },
        "ns_per_weight_of_one_update": packing(int(seconds["weights"]), given.repeats),
        "peak_mb": memory,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
