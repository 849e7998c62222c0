"""Writes the work every peer does: samples, who owns them, the first weights, and the results to
check a peer against.

    python benchmarks/peers/make_work.py --num-ue 20 --selected 20 --samples 40 --data mnist5k --out
    work.npz

Needs AutoFL installed, since the results to check against are its own, UE after UE as in the engine
`loop`. Every UE owns the same number of samples, at least the 3 * samples of one Per-FedAvg round.
Where the data set is too small for
that, the UEs share samples: each UE's are drawn at random from the whole pool, none twice. The
model is the paper's: LeNet-5 for CIFAR-10, else the MLP.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.data import Partition, load
from autofl.data.batch import Batch, MetaBatch
from autofl.data.federated import federate
from autofl.models import Loss, Params, build, lenet5, loss_of, mlp, params_of
from autofl.rng import stream

INNER_LR, OUTER_LR = 0.03, 0.07
SEED = 0


def own(
    num_samples: int, num_ue: int, needed: int, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of each UE's samples, shape (num_ue, size): disjoint where there are enough, else
    shared.
    """
    size = min(num_samples // num_ue, most)
    if size >= needed:
        return rng.permutation(num_samples)[: num_ue * size].reshape(num_ue, size)
    return np.stack([rng.choice(num_samples, needed, replace=False) for _ in range(num_ue)])


def next_weights(
    loss: Loss, params: Params, algorithm: FedAvg | PerFedAvg, batches: list[MetaBatch]
) -> Params:
    """One round: the average of `client_update` over the UEs, one after another, all decoded."""
    updates = [algorithm.client_update(loss, params, batch) for batch in batches]
    return {name: torch.stack([w[name] for w in updates]).mean(dim=0) for name in params}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-ue", type=int, default=20)
    parser.add_argument("--selected", type=int, default=20)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--data", choices=["mnist5k", "mnist", "cifar10"], default="mnist5k")
    parser.add_argument(
        "--most", type=int, default=10**9, help="samples of a UE: fewer make a smaller file"
    )
    parser.add_argument(
        "--folder", type=Path, help="where the data set is, if not in AutoFL's cache"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    num_ue, samples = options.num_ue, options.samples

    dataset = load(options.data, options.folder)
    owned = own(len(dataset.y), num_ue, 3 * samples, options.most, stream(SEED, "bench-owners"))
    used, place = np.unique(owned, return_inverse=True)
    none = np.zeros(0, dtype=np.int64)
    data = federate(
        dataset, Partition(used, np.array([0, len(used)]), none, np.zeros(2, dtype=np.int64))
    )
    x, y = data.gather(used)
    owned = place.reshape(owned.shape)
    model = build(
        lenet5 if options.data == "cifar10" else mlp,
        data.sample_shape,
        data.num_classes,
        stream(SEED, "bench-weights"),
    )
    params, loss = params_of(model), loss_of(model)

    def batches(index: np.ndarray, algorithm: FedAvg | PerFedAvg) -> list[MetaBatch]:
        """One MetaBatch a UE from indices (num_ue, 3, samples). FedAvg joins its three, so it gets
        one and no more.
        """
        sizes = (samples, samples, samples) if isinstance(algorithm, PerFedAvg) else (samples, 0, 0)
        return [
            MetaBatch(
                *(
                    Batch(x[None, k[:d]], y[None, k[:d]], torch.ones(1, d))
                    for k, d in zip(ue, sizes, strict=True)
                )
            )
            for ue in torch.from_numpy(index)
        ]

    # One client with three batches of its own; then a round in which every UE owns one sample,
    # again and again, so
    # that the result does not depend on how a framework draws.
    client = owned[0, : 3 * samples].reshape(1, 3, samples)
    constant = np.tile(owned[: options.selected, :1, None], (1, 3, samples))
    algorithms = {"fedavg": FedAvg(OUTER_LR), "per_fedavg": PerFedAvg(INNER_LR, OUTER_LR)}
    expected = {
        f"{what}_{name}_{k}": w.numpy()
        for name, algorithm in algorithms.items()
        for what, index in (("client", client), ("round", constant))
        for k, w in enumerate(
            next_weights(loss, params, algorithm, batches(index, algorithm)).values()
        )
    }
    np.savez(
        options.out,
        x=x.numpy(),
        y=y.numpy(),
        train=owned.reshape(-1),
        train_start=np.arange(num_ue + 1) * owned.shape[1],
        num_ue=num_ue,
        selected=options.selected,
        samples=samples,
        inner_lr=INNER_LR,
        outer_lr=OUTER_LR,
        num_weights=len(params),
        **{f"weights_{k}": p.numpy() for k, p in enumerate(params.values())},
        **expected,
    )
    shared = "shared" if owned.shape[0] * owned.shape[1] > len(dataset.y) else "disjoint"
    print(
        f"{options.out}: {num_ue} UEs, {owned.shape[1]} samples each ({shared}), {options.selected} selected"
    )


if __name__ == "__main__":
    main()
