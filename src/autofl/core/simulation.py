"""A simulation: the rounds of Algorithm 2 with all UEs in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from autofl.algorithms import State, at_round, is_independent, split_of
from autofl.channels import Channel
from autofl.core.checkpoint import Checkpoint, group
from autofl.core.liars import Liars, Lies
from autofl.core.play import Step, Training, play
from autofl.core.round import ChannelAir, Round
from autofl.data.federated import FederatedData
from autofl.engines import ClientMemory, CompressedUpdates, Engine, Updates
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator, personal_models
from autofl.models import Params
from autofl.network import Cell
from autofl.quality import Evaluation
from autofl.units import Array


@dataclass(frozen=True, kw_only=True)
class Simulation(Training):
    """Everything a simulated run needs. The cell's data_size must be the partition's, UE by UE."""

    air: ChannelAir
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
    def cell(self) -> Cell:
        return self.air.cell

    @property
    def channel(self) -> Channel:
        return self.air.channel


def simulate(sim: Simulation) -> Iterator[tuple[Round, State]]:
    """Rounds of Algorithm 2, each with the server's state after it."""
    for step in simulated(sim):
        yield step.round, step.checkpoint.state


def simulated(sim: Simulation, past: Checkpoint | None = None) -> Iterator[Step]:
    """The rounds of one run, each with all that is needed to go on after it; with `past`, those after that."""
    for [step] in play([sim], SingleWorld(sim, past), None if past is None else [past]):
        yield step


class SingleWorld:
    """The world of one simulation: batches come from the one pool, every honest update arrives."""

    def __init__(self, sim: Simulation, past: Checkpoint | None = None) -> None:
        world = {} if past is None else past.world
        personal = personal_models(sim.algorithm, sim.model, sim.params)
        self._sim = sim
        self._evaluator = sim.evaluator.prepare(sim.model, sim.data, sim.seed, personal)
        self._memory = ClientMemory.of(group(world, "ue"))
        self._data = sim.data
        self._liars: Liars | None = None
        if sim.lies is not None:
            self._liars = Liars(sim.lies, sim.seed, group(world, "liars"))
            self._data = sim.lies.data(sim.data)

    def train(
        self, runs: Sequence[int], rounds: Sequence[Round], sent: Sequence[Params]
    ) -> list[Updates | None]:
        [this] = rounds
        return [self._updates(this, sent[0]) if this.decoded.any() else None]

    def _updates(self, this: Round, sent: Params) -> Updates:
        sim = self._sim
        arm = sim.arm
        self._memory.turn()
        ue = this.ue[this.decoded]
        orders = this.orders
        batches = self._data.draw(
            ue,
            orders.num_samples,
            orders.local_steps,
            sim.seed,
            this.k,
            split_of(sim.algorithm),
            is_independent(sim.algorithm),
        )
        algorithm = at_round(sim.algorithm, this.k, sent)
        updates: Updates = sim.engine(algorithm, sent, batches, ue, self._memory)
        if arm.compressor is not None:
            updates = CompressedUpdates(
                updates,
                arm.compressor,
                orders.bits_per_weight,
                sim.seed,
                this.k,
                self._memory,
            )
        if self._liars is not None:
            updates = self._liars.received(updates, this)
        return updates

    def evaluate(self, runs: Sequence[int], models: Sequence[Params]) -> list[Evaluation]:
        self._memory.turn()
        return [self._evaluator(models[0], self._memory)]

    def remembered(self, run: int) -> dict[str, Tensor | Array]:
        kept: dict[str, Tensor | Array] = {
            f"ue.{name}": own for name, own in self._memory.flat().items()
        }
        if self._liars is not None:
            kept |= {f"liars.{name}": array for name, array in self._liars.state().items()}
        return kept
