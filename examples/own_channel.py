"""Your own channel: path loss with shadowing, which stays with a UE, and Nakagami-m fading, new in
every round.

    python examples/own_channel.py
    autofl simulate --set channel.name=own_channel:Shadowed --set channel.m=1    # in the folder of
    this file

A channel gives the gains of round k from cell, seed and k alone. With `survival`, its law, success
probabilities are exact. `estimate` would be what the planner knows, if that differs from the true
gains.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.special import gammaincc

import autofl as fl
from autofl.network import path_gain
from autofl.rng import stream
from autofl.units import Array


@dataclass(frozen=True)
class Shadowed(fl.Channel):
    """g = r^-kappa 10^(s/10) h with s ~ N(0, shadowing_db^2) for each UE and h ~ Gamma(m, 1/m) for
    each round.
    """

    shadowing_db: Annotated[float, "standard deviation [dB]"] = 8.0
    m: Annotated[float, "of Nakagami fading: the larger, the less spread"] = 2.0
    place: Annotated[int, "seed of the shadows"] = 1

    def shadowed_gain(self, cell: fl.Cell) -> Array:
        """The gain of each UE without its fading; `cell.ue` are the UEs' numbers."""
        shadow_db = [
            stream(self.place, "shadowing", ue).normal(0.0, self.shadowing_db)
            for ue in cell.ue.tolist()
        ]
        return path_gain(cell) * 10.0 ** (np.array(shadow_db) / 10.0)

    def gain(self, cell: fl.Cell, seed: int, k: int) -> Array:
        return self.shadowed_gain(cell) * stream(seed, "fading", k).gamma(
            self.m, 1.0 / self.m, cell.num_ue
        )

    def survival(self, cell: fl.Cell, gain: Array) -> Array:
        return np.asarray(gammaincc(self.m, self.m * gain / self.shadowed_gain(cell)))


def main(rounds: int = 20) -> dict[float, float]:
    cell = fl.Cell.disc(num_ue=20, radius=200, seed=1)
    data = fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)
    arms = {"AutoFL": fl.Arm(fl.PerFedAvg(0.03, 0.07), fl.ExactPlanner(0.02))}
    heard = {}
    for shadowing_db in (0.0, 4.0, 8.0):
        channel = Shadowed(shadowing_db)
        runs = fl.compare(
            arms, cell, data, fl.mlp, rounds=rounds, seeds=2, channel=channel, progress=False
        )
        heard[shadowing_db] = float(np.mean([run.ues["decoded"].mean() for run in runs]))
        possible = fl.success_probability(cell, channel, cell.max_power).mean()
        decoded = f"{100 * heard[shadowing_db]:.0f} % of the updates are decoded"
        print(
            f"{shadowing_db:g} dB of shadowing: {decoded}, {100 * possible:.0f} % expected at P_max"
        )
    return heard


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
