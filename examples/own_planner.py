"""Your own planner: a UE whose channel is worse than usual waits for a better round.

    python examples/own_planner.py
    autofl compare --arms autofl --planner own_planner:Patient    # in the folder of this file

A planner gives the plan of a round and remembers what it likes: `init` is the memory before the
first round, for the whole cell, and each call takes it and returns the next one. `make_plan` fills
in what is not decided.
"""

import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import autofl as fl
from autofl.planner import Memory
from autofl.units import Array


@dataclass(frozen=True)
class Patient:
    """The exact planner, for the UEs whose channel is not far below their own mean so far."""

    epsilon: Annotated[float, "accuracy; 1/epsilon samples are wanted"] = 0.02
    share: Annotated[float, "of its mean gain so far that a UE waits for"] = 0.5

    def init(self, cell: fl.Cell) -> Memory:
        return {"turns": np.zeros(cell.num_ue), "total_gain": np.zeros(cell.num_ue)}

    def __call__(
        self, cell: fl.Cell, channel_gain: Array, memory: Memory
    ) -> tuple[fl.Plan, Memory]:
        turns, total_gain = memory["turns"].copy(), memory["total_gain"].copy()
        turns[cell.ue] += 1  # the cell holds the selected UEs, the memory all of them
        total_gain[cell.ue] += channel_gain
        waits = channel_gain < self.share * total_gain[cell.ue] / turns[cell.ue]
        exact, _ = fl.ExactPlanner(self.epsilon)(cell, channel_gain, {})
        plan = fl.make_plan(
            cell, num_samples=np.where(waits, 0, exact.num_samples), tx_power=exact.tx_power
        )
        return plan, {"turns": turns, "total_gain": total_gain}


def main(rounds: int = 60) -> fl.Runs:
    cell = fl.Cell.disc(num_ue=20, radius=100, seed=1)
    data = fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)
    learning, channel = fl.PerFedAvg(0.03, 0.07), fl.PathLoss(fl.Exponential(1.0))
    arms = {
        "exact": fl.Arm(learning, fl.ExactPlanner(0.02)),
        "patient": fl.Arm(learning, Patient(0.02)),
    }
    runs = fl.compare(
        arms, cell, data, fl.mlp, rounds=rounds, seeds=2, channel=channel, progress=False
    )
    for run in runs:
        seconds, sent = run.rounds["round_time"][1:].mean(), run.ues["decoded"].mean()
        print(
            f"{run.manifest['label']}: {seconds:.3f} s a round, {100 * sent:.0f} % of the selected UEs are heard"
        )
    print(runs.table(target=0.8))
    return runs


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
