"""A simulation: the rounds of Algorithm 2 with all UEs in this process."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from autofl.algorithms import State, at_round, split_of
from autofl.channels import Channel
from autofl.data.federated import FederatedData
from autofl.engines import ClientMemory, CompressedUpdates, Engine, Updates
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator, PreparedEvaluator, personal_models
from autofl.models import Params
from autofl.network import Cell
from autofl.records import Evaluation, RoundRecord
from autofl.rounds.loop import Checkpoint, Orders, Training, run_rounds
from autofl.rounds.round import ChannelAir, Gains
from autofl.units import IntArray


@dataclass(frozen=True, kw_only=True)
class Simulation(Training):
    """Everything a simulated run needs. The cell's data_size must be the partition's, one UE for one."""

    cell: Cell
    channel: Channel
    model: nn.Module
    data: FederatedData
    engine: Engine
    engine_name: str
    evaluator: Evaluator

    def __post_init__(self) -> None:
        if self.cell.num_ue != self.data.partition.num_ue:
            raise AutoFLError(f"the cell has {self.cell.num_ue} UEs, the data {self.data.partition.num_ue}")

    @property
    def air(self) -> ChannelAir:
        return ChannelAir(self.cell, self.channel, self.seed)


def simulate(sim: Simulation) -> Iterator[tuple[RoundRecord, State]]:
    """Rounds of Algorithm 2, each with the state after it; see `run_rounds`."""
    for record, past in play(sim):
        yield record, past.checkpoint.state


@dataclass(frozen=True)
class Past:
    """What a simulation has behind it: the loop's checkpoint, and what the UEs remember."""

    checkpoint: Checkpoint
    memory: ClientMemory


def play(sim: Simulation, past: Past | None = None) -> Iterator[tuple[RoundRecord, Past]]:
    """Rounds of Algorithm 2, each with all that is needed to go on after it; with `past`, the rounds after that."""
    personal = personal_models(sim.arm.algorithm, sim.model, sim.params, sim.evaluator.sample_loss)
    memory = ClientMemory() if past is None else past.memory
    world = _Here(sim, sim.evaluator.prepare(sim.model, sim.data, sim.seed, personal), memory)
    for record, checkpoint in run_rounds(sim, world, None if past is None else past.checkpoint):
        yield record, Past(checkpoint, memory)


@dataclass(frozen=True)
class _Here:
    """The world of a simulation: channels are drawn, batches come from the one pool, every update arrives."""

    sim: Simulation
    evaluator: PreparedEvaluator
    memory: ClientMemory = field(default_factory=ClientMemory)

    @property
    def cell(self) -> Cell:
        return self.sim.cell

    def gains(self, k: int, ue: IntArray, start: float) -> Gains:
        return self.sim.air.gains(k, ue, start)

    def train(self, sent: Params, k: int, orders: Orders) -> Updates:
        sim, arm = self.sim, self.sim.arm
        self.memory.turn()
        split = split_of(arm.algorithm)
        batches = sim.data.draw(orders.ue, orders.num_samples, orders.local_steps, sim.seed, k, split)
        updates = sim.engine(at_round(arm.algorithm, k), sent, batches, orders.ue, self.memory)
        if arm.compressor is None:
            return updates
        return CompressedUpdates(updates, sent, arm.compressor, orders.bits_per_weight, sim.seed, k, self.memory)

    def evaluate(self, params: Params) -> Evaluation:
        self.memory.turn()
        return self.evaluator(params, self.memory)
