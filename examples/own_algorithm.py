"""Your own algorithm: Per-FedAvg with momentum at the server, compared with Per-FedAvg under the
same planner.

    python examples/own_algorithm.py
    autofl compare --arms autofl,own_algorithm:PerFedAvgM    # in the folder of this file

An algorithm is a frozen dataclass with `init`, `client_update` and `server_update`. Here the client
is that of Per-FedAvg, and the server remembers its last move.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

import torch

import autofl as fl


@dataclass(frozen=True)
class MomentumState(fl.State):
    velocity: fl.Params


@dataclass(frozen=True)
class PerFedAvgM(fl.PerFedAvg):
    """Per-FedAvg whose server goes on in the direction of its last move."""

    momentum: Annotated[float, "of the server"] = 0.7

    def init(self, params: fl.Params) -> MomentumState:
        return MomentumState(params, {name: torch.zeros_like(p) for name, p in params.items()})

    def server_update(self, state: fl.State, average: fl.Params) -> MomentumState:
        assert isinstance(state, MomentumState)
        velocity = {
            name: self.momentum * v + average[name] - state.params[name]
            for name, v in state.velocity.items()
        }
        return MomentumState(
            {name: p + velocity[name] for name, p in state.params.items()}, velocity
        )


def main(rounds: int = 40) -> fl.Runs:
    cell = fl.Cell.disc(num_ue=20, radius=200, seed=1)
    data = fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)
    planner = fl.ExactPlanner(0.02)
    arms = {
        "Per-FedAvg": fl.Arm(fl.PerFedAvg(0.03, 0.07), planner),
        "with momentum": fl.Arm(PerFedAvgM(0.03, 0.07), planner),
    }
    runs = fl.compare(arms, cell, data, fl.mlp, rounds=rounds, seeds=2, progress=False)
    print(runs.table(target=0.8))
    return runs


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
