"""The loop of Algorithm 2: select, plan, train, send, average, book."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from autofl.aggregators import Arrived
from autofl.algorithms import State
from autofl.engines import Updates
from autofl.errors import AutoFLError
from autofl.models import Params
from autofl.network import Outage
from autofl.planner import Memory
from autofl.records import Evaluation, RoundRecord
from autofl.rounds.arm import Arm
from autofl.rounds.round import Air, Network, Round, network_round
from autofl.rounds.stop import Stop
from autofl.units import Array, BoolArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a run is, wherever it takes place."""

    arm: Arm
    params: Params  # w_0
    stop: Stop
    seed: int
    outage: Outage = "skip"
    evaluate_every: int = 5

    def network(self, air: Air) -> Network:
        """The run without its learning."""
        return Network(air, self.arm.planner, self.arm.selection, self.seed, self.outage)


@dataclass(frozen=True)
class Orders:
    """What the UEs that train in a round are told, arrays of shape (num_senders,)."""

    ue: IntArray
    num_samples: IntArray  # d_k^i of one local step
    local_steps: IntArray  # tau_k^i
    tx_power: Array  # p_k^i [W]
    bits_per_weight: Array  # of the update they send

    @classmethod
    def of(cls, this_round: Round) -> "Orders":
        plan, decoded = this_round.plan, this_round.decoded
        return cls(
            this_round.ue[decoded],
            plan.num_samples[decoded],
            plan.local_steps[decoded],
            plan.tx_power[decoded],
            plan.bits_per_weight[decoded],
        )


class World(Air, Protocol):
    """Where rounds take place: in this process, or on devices behind Flower."""

    def train(self, sent: Params, k: int, orders: Orders) -> Updates:
        """Client updates, lines 9 and 10; of all that were told, or of those among them whose update arrived."""
        ...

    def evaluate(self, params: Params) -> Evaluation: ...


@dataclass(frozen=True)
class Checkpoint:
    """What a run carries from one round to the next: all that is needed to go on from here."""

    round: int
    state: State
    memory: Memory  # of the planner
    sim_time: float
    history: tuple[tuple[int, Evaluation], ...]  # the evaluated rounds


def run_rounds(
    training: Training, world: World, checkpoint: Checkpoint | None = None
) -> Iterator[tuple[RoundRecord, Checkpoint]]:
    """Rounds of Algorithm 2, each with a checkpoint after it; round 0 is the model before training.

    With `checkpoint` the run goes on after that round. An aggregate that is no longer finite is not taken over: the run
    stops as "diverged" with the last good model.
    """
    arm, stop, network = training.arm, training.stop, training.network(world)
    if checkpoint is None:
        state = arm.algorithm.init(training.params)
        first = world.evaluate(state.params)
        checkpoint = Checkpoint(0, state, arm.planner.init(world.cell), 0.0, ((0, first),))
        yield RoundRecord(round=0, evaluation=first), checkpoint

    for k in range(checkpoint.round + 1, stop.rounds + 1):
        this_round, memory = network_round(network, k, checkpoint.memory)
        state, arrived, diverged = checkpoint.state, this_round.decoded, False
        guarded = np.zeros(len(this_round.ue), dtype=np.int64)
        if this_round.decoded.any():
            updates = world.train(state.sent, k, Orders.of(this_round))
            arrived = this_round.decoded & np.isin(this_round.ue, updates.ue)
            if len(updates.ue):
                state = server_step(arm, state, this_round, updates, world.cell.num_ue)
                guarded = this_round.placed(updates.ue, updates.guarded)
                diverged = not is_finite(state.params)
                state = checkpoint.state if diverged else state
        sim_time = checkpoint.sim_time + float(this_round.cost.time)  # a UE whose update was lost has paid for it too
        due = diverged or stop.is_over(k, sim_time) or k % training.evaluate_every == 0
        evaluation = world.evaluate(state.params) if due else None
        checkpoint = Checkpoint(k, state, memory, sim_time, _longer(checkpoint.history, k, evaluation))
        reason = "diverged" if diverged else stop.reason(k, sim_time, checkpoint.history)
        yield record_of(this_round, sim_time, arrived, evaluation, reason, guarded), checkpoint
        if reason is not None:
            return


def server_step(arm: Arm, state: State, this_round: Round, updates: Updates, num_ue: int) -> State:
    """Line 13: aggregate what arrived, then the algorithm's own step."""
    place = np.searchsorted(this_round.ue, updates.ue)  # A_k is in the order of the UEs' numbers
    arrived = Arrived(updates, this_round.plan.weight[place], this_round.probability[place], num_ue)
    average = arm.aggregator(state.sent, arrived)
    shapes = {name: p.shape for name, p in state.sent.items()}
    if not isinstance(average, dict) or {name: getattr(p, "shape", None) for name, p in average.items()} != shapes:
        raise AutoFLError(
            f"{type(arm.algorithm).__name__} with {type(arm.aggregator).__name__}: the aggregate has not the names and"
            " shapes of what was sent down"
        )
    return arm.algorithm.server_update(state, average)


def record_of(
    this_round: Round,
    sim_time: float,
    arrived: BoolArray,
    evaluation: Evaluation | None,
    stop: str | None,
    guarded: IntArray,
) -> RoundRecord:
    """The record of a round."""
    return RoundRecord(
        round=this_round.k,
        sim_time=sim_time,
        ue=this_round.ue,
        probability=this_round.probability,
        channel_gain=this_round.gain,
        snr=this_round.snr,
        plan=this_round.plan,
        cost=this_round.cost,
        decoded=arrived,
        guarded=guarded,
        evaluation=evaluation,
        stop=stop,
    )


def is_finite(params: Params) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in params.values())


def _longer(
    history: tuple[tuple[int, Evaluation], ...], k: int, evaluation: Evaluation | None
) -> tuple[tuple[int, Evaluation], ...]:
    return history if evaluation is None else (*history, (k, evaluation))
