"""The loop of Algorithm 2: select, plan, train, send, average, book."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch

from autofl.aggregators import Arrived
from autofl.algorithms import State, at_round
from autofl.algorithms.base import Stepping, minus
from autofl.engines import Updates, bits_of
from autofl.errors import AutoFLError
from autofl.models import Params, num_weights
from autofl.network import Outage
from autofl.planner import Memory, observed
from autofl.records import Evaluation, RoundRecord
from autofl.records.round import NAN
from autofl.rounds.arm import Arm
from autofl.rounds.downlink import Reference, decided_bits, next_reference
from autofl.rounds.round import Air, Network, Round, network_round, with_bits
from autofl.rounds.stop import History, Stop, watched
from autofl.rounds.suspects import suspect_words, suspects_of
from autofl.units import Array, BoolArray, IntArray

log = logging.getLogger(__name__)


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
        downlink = self.arm.decided_downlink
        return Network(
            air, self.arm.planner, self.arm.selection, self.seed, self.outage, downlink=downlink
        )


class Steps(NamedTuple):
    """Step sizes of a round; NaN where there is none."""

    inner_lr: float = NAN  # alpha
    outer_lr: float = NAN  # beta
    longest: float = NAN  # of the local steps there may be, as a length of weights


@dataclass(frozen=True)
class Orders:
    """What the UEs that train in a round are told, arrays of shape (num_senders,)."""

    ue: IntArray
    num_samples: IntArray  # d_k^i of one local step
    local_steps: IntArray  # tau_k^i
    tx_power: Array  # p_k^i [W]
    bits_per_weight: Array  # of the update they send
    compute_time: Array  # [s] as modelled
    upload_rate: Array  # [bit/s] as modelled

    @classmethod
    def of(cls, this_round: Round) -> "Orders":
        plan = this_round.plan
        decoded = this_round.decoded
        cost = this_round.cost
        bits = plan.bits_per_weight[decoded] * this_round.cell.num_weights
        return cls(
            this_round.ue[decoded],
            plan.num_samples[decoded],
            plan.local_steps[decoded],
            plan.tx_power[decoded],
            plan.bits_per_weight[decoded],
            cost.compute_time[decoded],
            bits / cost.upload_time[decoded],
        )


class World(Air, Protocol):
    """Where rounds take place: in this process, or on devices behind Flower."""

    def train(self, sent: Params, k: int, orders: Orders) -> Updates:
        """Client updates, lines 9 and 10, of all UEs that have orders, or of those whose update
        arrived.
        """
        ...

    def evaluate(self, params: Params) -> Evaluation: ...


@dataclass(frozen=True)
class Checkpoint:
    """What a run carries from one round to the next: all that is needed to go on from here."""

    round: int
    state: State
    memory: Memory  # of the planner
    sim_time: float
    history: History  # the evaluated rounds that a stop rule still looks at
    reference: Reference | None = (
        None  # what the UEs have where the downlink is compressed; else the model itself
    )

    @property
    def held(self) -> Params:
        """What the UEs train from, in the form of `State.sent`."""
        return self.state.sent if self.reference is None else self.reference.params

    @property
    def judged(self) -> Params:
        """The model that is evaluated: the one the UEs have."""
        return (
            self.state.params
            if self.reference is None
            else {name: self.held[name] for name in self.state.params}
        )


def run_rounds(
    training: Training, world: World, checkpoint: Checkpoint | None = None
) -> Iterator[tuple[RoundRecord, Checkpoint]]:
    """Rounds of Algorithm 2, each with a checkpoint after it; round 0 is the model before training.

    With `checkpoint` the run goes on after that round. An aggregate that is not finite is
    discarded: the run stops as "diverged" with the last good model. Where the downlink is
    compressed, what a checkpoint holds of it is sent at the start of the next round in which
    anybody takes part, which pays for it.
    """
    arm = training.arm
    stop = training.stop
    network = training.network(world)
    if checkpoint is None:
        state = arm.algorithm.init(training.params)
        first = world.evaluate(state.params)
        message = 0.0 if arm.decides_downlink else world.cell.downlink_bits
        reference = None if arm.downlink is None else Reference(state.sent, message)
        memory = observed(arm.planner, arm.planner.init(world.cell), first)
        checkpoint = Checkpoint(0, state, memory, 0.0, ((0, first),), reference)
        yield RoundRecord(round=0, evaluation=first), checkpoint

    for k in range(checkpoint.round + 1, stop.rounds + 1):
        before = checkpoint
        network = replace(network, start=before.sim_time)
        if before.reference is not None:
            network = replace(network, downlink_bits=before.reference.bits or None)
        this_round, memory = network_round(network, k, before.memory)
        after = before
        arrived = this_round.decoded
        diverged = False
        bits = np.full(len(this_round.ue), 32.0 * num_weights(before.state.sent))
        guarded = np.zeros(len(this_round.ue), dtype=np.int64)
        steps = Steps()
        updates: Updates | None = None
        if this_round.decoded.any():
            updates = world.train(before.held, k, Orders.of(this_round))
            steps = steps_of(at_round(arm.algorithm, k, before.held))
            arrived = this_round.decoded & np.isin(this_round.ue, updates.ue)
            if len(updates.ue):
                after = replace(
                    before, state=server_step(arm, before, this_round, updates, world.cell.num_ue)
                )
                diverged = not is_finite(after.state.params)
                guarded = this_round.placed(updates.ue, updates.guarded)
                if (really := bits_of(updates)) is not None:  # known once the updates are formed
                    bits[np.searchsorted(this_round.ue, updates.ue)] = really
                    this_round = with_bits(this_round, arrived, bits, training.outage)
        if arm.downlink is not None and this_round.sends.any() and not diverged:
            reference = sent_down(arm, this_round, after.state.sent, before.held, training.seed)
            after = replace(after, reference=reference)
            diverged = not is_finite(after.judged)
        after = before if diverged else after
        sim_time = before.sim_time + float(
            this_round.cost.time
        )  # a UE whose update was lost has paid for it too
        due = diverged or stop.is_over(k, sim_time) or k % training.evaluate_every == 0
        evaluation = world.evaluate(after.judged) if due else None
        memory = observed(arm.planner, memory, evaluation)
        longer = before.history if evaluation is None else (*before.history, (k, evaluation))
        reason = "diverged" if diverged else stop.reason(k, sim_time, longer)
        suspects = suspects_of(updates) if diverged and updates is not None else ()
        history = (
            before.history
            if evaluation is None
            else watched(before.history, k, evaluation, stop.window)
        )
        checkpoint = Checkpoint(k, after.state, memory, sim_time, history, after.reference)
        record = record_of(this_round, sim_time, arrived, bits, evaluation, reason, guarded, steps)
        if suspects:
            log.warning("round %d diverged; %s", k, suspect_words(suspects))
        yield replace(record, suspects=suspects), checkpoint
        if reason is not None:
            return


def server_step(
    arm: Arm, before: Checkpoint, this_round: Round, updates: Updates, num_ue: int
) -> State:
    """Line 13: aggregate what arrived, then the algorithm's own step.

    Where the UEs have r instead of the model w, their mean change is added to w: what r lacks, w
        must not lose.
    """
    state = before.state
    held = before.held
    place = np.searchsorted(this_round.ue, updates.ue)  # A_k is in the order of the UEs' numbers
    arrived = Arrived(updates, this_round.plan.weight[place], this_round.probability[place], num_ue)
    average = arm.aggregator(held, arrived)
    shapes = {name: p.shape for name, p in held.items()}
    if (
        not isinstance(average, dict)
        or {name: getattr(p, "shape", None) for name, p in average.items()} != shapes
    ):
        raise AutoFLError(
            f"{type(arm.algorithm).__name__} with {type(arm.aggregator).__name__}: the aggregate lacks the names and"
            " shapes of what was sent down"
        )
    if before.reference is not None:
        average = minus(state.sent, -1.0, minus(average, 1.0, held))
    return arm.algorithm.server_update(state, average)


def sent_down(arm: Arm, this_round: Round, model: Params, held: Params, seed: int) -> Reference:
    """What the UEs have in the next round; its message has the bits that are worth their time,
    where they decide.
    """
    assert arm.downlink is not None
    bits = (
        decided_bits(arm.downlink, model, held, this_round, seed) if arm.decides_downlink else None
    )
    return next_reference(arm.downlink, model, held, seed, this_round.k, bits)


def record_of(
    this_round: Round,
    sim_time: float,
    arrived: BoolArray,
    bits: Array,
    evaluation: Evaluation | None,
    stop: str | None,
    guarded: IntArray,
    steps: Steps,
) -> RoundRecord:
    """The record of a round; `bits` of the updates, of those that arrived."""
    return RoundRecord(
        round=this_round.k,
        sim_time=sim_time,
        ue=this_round.ue,
        probability=this_round.probability,
        channel_gain=this_round.gain,
        snr=this_round.snr,
        plan=this_round.plan,
        cost=this_round.cost,
        bytes_up=np.where(arrived, bits / 8.0, 0.0),
        decoded=arrived,
        guarded=guarded,
        evaluation=evaluation,
        stop=stop,
        downlink_bits=this_round.cell.downlink_bits / this_round.cell.num_weights
        if this_round.sends.any()
        else NAN,
        inner_lr=steps.inner_lr,
        outer_lr=steps.outer_lr,
        step_length=steps.longest,
    )


def steps_of(algorithm: object) -> Steps:
    """The step sizes of a round, of an algorithm as it is in that round; a user's own may have
    none.
    """
    own = (getattr(algorithm, name, NAN) for name in ("inner_lr", "outer_lr"))
    alpha, beta = (float(value) if isinstance(value, int | float) else NAN for value in own)
    if isinstance(algorithm, Stepping) and algorithm.unit:
        return Steps(alpha, NAN, beta)
    clip = algorithm.grad_clip if isinstance(algorithm, Stepping) else 0.0
    return Steps(alpha, beta, beta * clip if clip else NAN)


def is_finite(params: Params) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in params.values())
