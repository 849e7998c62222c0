"""A simulation: the rounds of Algorithm 2 with all UEs in this process."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from torch import nn

from autofl.algorithms import State, at_round, is_independent, split_of
from autofl.channels import Channel
from autofl.data.federated import FederatedData
from autofl.engines import ClientMemory, CompressedUpdates, Engine, Memories, Updates
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator, PreparedEvaluator, personal_models
from autofl.models import Params
from autofl.network import Cell
from autofl.records import Evaluation, RoundRecord
from autofl.rounds.loop import Checkpoint, Orders, Training, run_rounds
from autofl.rounds.round import ChannelAir, Gains
from autofl.simulation.liars import Liars, Lies
from autofl.units import IntArray


@dataclass(frozen=True, kw_only=True)
class Simulation(Training):
    """Everything a simulated run needs. The cell's data_size must be the partition's, UE by UE."""

    cell: Cell
    channel: Channel
    model: nn.Module
    data: FederatedData
    engine: Engine
    engine_name: str
    evaluator: Evaluator
    lies: Lies | None = None  # of UEs that do not send what they should

    def __post_init__(self) -> None:
        if self.cell.num_ue != self.data.partition.num_ue:
            raise AutoFLError(
                f"the cell has {self.cell.num_ue} UEs, the data {self.data.partition.num_ue}"
            )

    @property
    def air(self) -> ChannelAir:
        return ChannelAir(self.cell, self.channel, self.seed)


def simulate(sim: Simulation) -> Iterator[tuple[RoundRecord, State]]:
    """Rounds of Algorithm 2, each with the state after it; see `run_rounds`."""
    for record, past in play(sim):
        yield record, past.checkpoint.state


@dataclass(frozen=True)
class Past:
    """What a simulation has behind it: the loop's checkpoint, and what the UEs remember. No later
    round changes it.
    """

    checkpoint: Checkpoint
    memory: Memories = field(default_factory=dict)
    liars: Mapping[str, NDArray[Any]] = field(
        default_factory=dict
    )  # what they and the server's checks remember


def play(sim: Simulation, past: Past | None = None) -> Iterator[tuple[RoundRecord, Past]]:
    """Rounds of Algorithm 2, each with all that is needed to go on after it; with `past`, the
    rounds after that.
    """
    personal = personal_models(sim.arm.algorithm, sim.model, sim.params)
    memory = ClientMemory(None if past is None else past.memory)
    liars = (
        None
        if sim.lies is None
        else Liars(sim.lies, sim.seed, None if past is None else past.liars)
    )
    world = _Here(
        sim, sim.evaluator.prepare(sim.model, sim.data, sim.seed, personal), memory, liars
    )
    for record, checkpoint in run_rounds(sim, world, None if past is None else past.checkpoint):
        yield record, Past(checkpoint, memory.whole(), {} if liars is None else liars.state())


@dataclass(frozen=True)
class _Here:
    """The world of a simulation: channels are drawn, batches come from the one pool, every honest
    update arrives.
    """

    sim: Simulation
    evaluator: PreparedEvaluator
    memory: ClientMemory = field(default_factory=ClientMemory)
    liars: Liars | None = None

    @cached_property
    def data(self) -> FederatedData:
        """What UEs train on."""
        return self.sim.data if self.liars is None else self.liars.lies.data(self.sim.data)

    @property
    def cell(self) -> Cell:
        return self.sim.cell

    def gains(self, k: int, ue: IntArray, start: float) -> Gains:
        return self.sim.air.gains(k, ue, start)

    def train(self, sent: Params, k: int, orders: Orders) -> Updates:
        sim = self.sim
        arm = self.sim.arm
        self.memory.turn()
        how = (sim.seed, k, split_of(arm.algorithm), is_independent(arm.algorithm))
        batches = self.data.draw(orders.ue, orders.num_samples, orders.local_steps, *how)
        updates: Updates = sim.engine(
            at_round(arm.algorithm, k, sent), sent, batches, orders.ue, self.memory
        )
        if arm.compressor is not None:
            bits = orders.bits_per_weight
            updates = CompressedUpdates(
                updates, sent, arm.compressor, bits, sim.seed, k, self.memory
            )
        return updates if self.liars is None else self.liars.received(updates, sent, k, orders)

    def evaluate(self, params: Params) -> Evaluation:
        self.memory.turn()
        return self.evaluator(params, self.memory)
