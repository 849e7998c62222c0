"""A simulation: the rounds of Algorithm 2 with all UEs in this process."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from autofl.algorithms import State
from autofl.data.federated import FederatedData
from autofl.engines import Engine, Updates
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator, Judge
from autofl.models import Params
from autofl.network import Cell, Fading, channel_gain
from autofl.records import RoundRecord
from autofl.rng import stream
from autofl.rounds import Job, Orders, run_rounds
from autofl.units import Array, IntArray


@dataclass(frozen=True, kw_only=True)
class Simulation(Job):
    """Everything a simulated run needs. The cell's data_size must be the partition's, one UE for one."""

    cell: Cell
    fading: Fading
    model: nn.Module
    data: FederatedData
    engine: Engine
    engine_name: str
    evaluator: Evaluator

    def __post_init__(self) -> None:
        if self.cell.num_ue != self.data.partition.num_ue:
            raise AutoFLError(f"the cell has {self.cell.num_ue} UEs, the data {self.data.partition.num_ue}")
        if not 1 <= self.num_selected <= self.cell.num_ue:
            raise AutoFLError(f"num_selected: {self.num_selected} is not between 1 and the {self.cell.num_ue} UEs")


def simulate(sim: Simulation) -> Iterator[tuple[RoundRecord, State]]:
    """Rounds of Algorithm 2, each with the state after it; see `run_rounds`."""
    for record, standing in run_rounds(sim, _Here(sim, sim.evaluator.judge(sim.model, sim.data, sim.seed))):
        yield record, standing.state


@dataclass(frozen=True)
class _Here:
    """The world of a simulation: channels are drawn, batches come from the one pool, every update arrives."""

    sim: Simulation
    judge: Judge

    @property
    def cell(self) -> Cell:
        return self.sim.cell

    def gain(self, k: int, selected: IntArray) -> Array:
        rng = stream(self.sim.seed, "fading", k)
        return channel_gain(self.cell, self.sim.fading.draw(rng, (self.cell.num_ue,)))[selected]

    def train(self, params: Params, k: int, orders: Orders) -> Updates:
        sim = self.sim
        batches = sim.data.draw(orders.ue, orders.num_samples, orders.local_steps, sim.seed, k)
        return sim.engine(sim.algorithm, params, batches, orders.ue)
