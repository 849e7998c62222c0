"""An algorithm of one's own: Per-FedAvg with momentum at the server, planned like AutoFL.

    python examples/own_algorithm.py

An algorithm is a frozen dataclass with `init`, `client_update` and `server_update`. Here the client's side is
Per-FedAvg's as it is, and the server remembers its last move.
"""

import sys
from dataclasses import dataclass, replace

import torch

import autofl
from autofl.algorithms import PerFedAvg, State
from autofl.models import Params


@dataclass(frozen=True)
class MomentumState(State):
    velocity: Params


@dataclass(frozen=True)
class PerFedAvgM(PerFedAvg):
    momentum: float = 0.7

    def init(self, params: Params) -> MomentumState:
        return MomentumState(params, {name: torch.zeros_like(p) for name, p in params.items()})

    def server_update(self, state: MomentumState, mean: Params) -> MomentumState:
        velocity = {name: self.momentum * v + mean[name] - state.params[name] for name, v in state.velocity.items()}
        params = {name: p + velocity[name] for name, p in state.params.items()}
        return replace(state, params=params, velocity=velocity)


def main(rounds: int = 40) -> dict[str, float]:
    settings = autofl.load_settings(overrides=[f"stop.rounds={rounds}"])
    final = {}
    for name, algorithm in {"Per-FedAvg": PerFedAvg(0.03, 0.07), "with momentum": PerFedAvgM(0.03, 0.07)}.items():
        simulation = autofl.build_simulation(settings, algorithm=algorithm)
        *_, (last, _) = autofl.simulate(simulation)
        final[name] = last.evaluation.adapted_accuracy
        print(f"{name}: {100 * final[name]:.1f} % after {last.round} rounds, {last.sim_time:.1f} simulated s")
    return final


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
