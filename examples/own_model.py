"""A model of one's own: any torch.nn.Module, here a wider network with a smooth activation.

    python examples/own_model.py

Its size sets the bits of an update, and so the upload time and the plan.
"""

import sys

import torch
from torch import nn

import autofl


def main(rounds: int = 40) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    settings = autofl.load_settings(overrides=[f"stop.rounds={rounds}", "planner.name=exact"])
    simulation = autofl.build_simulation(settings, model=model)
    print(f"an update is {simulation.cell.update_bits / 1e6:.2f} Mbit")
    for record, _ in autofl.simulate(simulation):
        if record.evaluation is not None and record.round % 20 == 0:
            print(f"round {record.round}: {100 * record.evaluation.adapted_accuracy:.1f} % adapted")
    return record.evaluation.adapted_accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
