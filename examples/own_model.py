"""Your own model, compared with ours: a function (sample_shape, num_classes) that returns any
torch.nn.Module.

    python examples/own_model.py
    autofl simulate --set model.name=own_model:smooth --set model.width=32    # in the folder of
    this file

Its size sets the bits of an update, and so the upload time and the plan.
"""

import math
import sys

from torch import nn

import autofl as fl


def smooth(sample_shape: tuple[int, ...], num_classes: int, width: int = 64) -> nn.Module:
    """Two hidden layers with a smooth activation."""
    return nn.Sequential(
        nn.Linear(math.prod(sample_shape), width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, num_classes),
    )


def main(rounds: int = 40) -> dict[str, fl.Runs]:
    cell = fl.Cell.disc(num_ue=20, radius=200, seed=1)
    data = fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)
    arms = {"AutoFL": fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.ExactPlanner(0.02))}
    compared = {}
    for model in (fl.mlp, smooth):
        runs = fl.compare(arms, cell, data, model, rounds=rounds, seeds=2, progress=False)
        seconds = runs[0].rounds["round_time"][1:].mean()
        print(
            f"{model.__name__}: {runs[0].manifest['num_weights']} weights, {seconds:.3f} s a round"
        )
        print(runs.table(target=0.8))
        compared[model.__name__] = runs
    return compared


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
