"""The loop of Algorithm 2: select, plan, train, send, average, book. Written once.

One run, a batch of runs on a GPU and a deployment all come through `play`; they differ in their world.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch

from autofl.algorithms import Algorithm, State, at_round
from autofl.algorithms.base import Stepping, minus
from autofl.core.checkpoint import Checkpoint
from autofl.core.decide import Network, decide, with_bits
from autofl.core.downlink import decided_bits, received_model
from autofl.core.round import NAN, Round
from autofl.core.stop import Stop, watched
from autofl.core.suspects import suspect_words, suspects_of
from autofl.engines import Updates
from autofl.errors import AutoFLError
from autofl.models import Params, num_weights
from autofl.planner import Memory, observed
from autofl.quality import Evaluation
from autofl.robust.aggregators import Arrived, Mean
from autofl.units import Array

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Training(Network):
    """What a run is, wherever it takes place: a network in which somebody learns."""

    params: Params  # w_0
    stop: Stop
    evaluate_every: int = 5

    @property
    def algorithm(self) -> Algorithm:
        """That of the arm; one that learns has one."""
        assert self.arm.algorithm is not None
        return self.arm.algorithm


class World(Protocol):
    """Where rounds take place: in this process, or on devices behind Flower.

    Runs are told apart by their numbers, and come in the order of these.
    """

    def train(
        self, runs: Sequence[int], rounds: Sequence[Round], sent: Sequence[Params]
    ) -> "Sequence[Updates | None]":
        """Client updates of each run, lines 9 and 10: of the UEs that are decoded, or of those
        whose update arrived; None where nobody trains.
        """
        ...

    def evaluate(self, runs: Sequence[int], models: Sequence[Params]) -> list[Evaluation]:
        """The quality of each run's model."""
        ...

    def remembered(self, run: int) -> dict[str, torch.Tensor | Array]:
        """What a checkpoint of this run keeps of the world."""
        ...


class Step(NamedTuple):
    """A round of one of the runs, and all that is needed to go on after it."""

    run: int
    round: Round
    checkpoint: Checkpoint


def play(
    runs: Sequence[Training], world: World, past: Sequence[Checkpoint] | None = None
) -> Iterator[list[Step]]:
    """Algorithm 2, one round of all runs at a time; a single run is a batch of one.

    Round 0 is the model before training. With `past` the runs go on after these checkpoints. A run
    that ends leaves the others. A model that is not finite never was: the run stops as "diverged"
    with the last good one. Where the downlink is compressed, what a checkpoint holds of it is sent
    at the start of the next round in which anybody takes part, which pays for it.
    """
    if past is None:
        begun = _begin(runs, world)
        yield begun
        past = [step.checkpoint for step in begun]
    latest = dict(enumerate(past))
    going = [r for r, checkpoint in latest.items() if checkpoint.round < runs[r].stop.rounds]

    while going:
        playing = [runs[r] for r in going]
        before = [latest[r] for r in going]

        # Lines 3 to 8: who takes part, with what, at what cost. Nothing has been trained yet.
        decided = decide(playing, before)
        rounds = [this for this, _ in decided]

        # Lines 9 and 10. One call: a GPU trains all runs at once, a deployment asks all devices.
        updates = world.train(going, rounds, [checkpoint.sent for checkpoint in before])

        # Line 13. Whether the new models are finite is asked of all at once: a GPU is waited for.
        states = [server_step(*one) for one in zip(playing, before, rounds, updates, strict=True)]
        finite = are_finite([state.params for state in states])
        settled = []
        for i, run in enumerate(playing):
            state = states[i] if finite[i] else None
            settled.append(_settled(run, before[i], *decided[i], updates[i], state))

        # An evaluation is a call of its own, for the runs that are due.
        quality = _evaluated(world, going, playing, settled)
        steps = []
        for r, (this, after), evaluation in zip(going, settled, quality, strict=True):
            this, after = _judged(runs[r], this, after, evaluation)
            latest[r] = replace(after, world=world.remembered(r))
            steps.append(Step(r, this, latest[r]))
        yield steps
        going = [step.run for step in steps if step.round.stop is None]


def _begin(runs: Sequence[Training], world: World) -> list[Step]:
    """Round 0 of each run: its first model, evaluated."""
    states = [run.algorithm.init(run.params) for run in runs]
    quality = world.evaluate(range(len(runs)), [state.params for state in states])
    steps = []
    for r, (run, state, first) in enumerate(zip(runs, states, quality, strict=True)):
        planner = run.arm.planner
        checkpoint = Checkpoint(
            memory=observed(planner, planner.init(run.air.cell), first),
            state=state,
            history=((0, first),),
            world=world.remembered(r),
        )
        if run.arm.downlink is not None:
            message = 0.0 if run.arm.decides_downlink else run.air.cell.downlink_bits
            checkpoint = replace(checkpoint, held=state.sent, message=message)
        steps.append(Step(r, Round(0, evaluation=first), checkpoint))
    return steps


def server_step(run: Training, before: Checkpoint, this: Round, updates: Updates | None) -> State:
    """Line 13: aggregate what arrived, then the algorithm's own step; the same state if nothing did.

    Where the UEs have r instead of the model w, their mean change is added to w: what r lacks, w
    must not lose.
    """
    state: State = before.state
    if updates is None or not len(updates.ue):
        return state
    arm = run.arm
    held = before.sent
    row = this.row_of(updates.ue)
    arrived = Arrived(updates, this.plan.weight[row], this.probability[row], run.air.cell.num_ue)
    aggregator = arm.aggregator or Mean()
    average = aggregator(held, arrived)
    shapes = {name: p.shape for name, p in held.items()}
    fits = isinstance(average, dict) and shapes == {
        name: getattr(p, "shape", None) for name, p in average.items()
    }
    if not fits:
        raise AutoFLError(
            f"{type(run.algorithm).__name__} with {type(aggregator).__name__}: the aggregate lacks the"
            " names and shapes of what was sent down"
        )
    if before.held is not None:
        average = minus(state.sent, -1.0, minus(average, 1.0, held))
    return run.algorithm.server_update(state, average)


def _settled(
    run: Training,
    before: Checkpoint,
    this: Round,
    memory: Memory,
    updates: Updates | None,
    state: State | None,
) -> tuple[Round, Checkpoint]:
    """The round with what came of it, and where the run stands after it, not yet evaluated.

    Without a `state` the new model is not finite: nothing of it is kept.
    """
    bits = np.full(len(this.ue), 32.0 * num_weights(before.state.sent))
    guarded = np.zeros(len(this.ue), dtype=np.int64)
    arrived = this.decoded
    if updates is not None:
        this = with_steps(this, at_round(run.algorithm, this.k, before.sent))
        arrived = this.decoded & np.isin(this.ue, updates.ue)
        row = this.row_of(updates.ue)
        guarded[row] = updates.guarded
        if updates.bits is not None and len(row):
            # The size of an update is known only once it is formed: time and energy are settled here.
            bits[row] = updates.bits
            this = with_bits(this, arrived, bits, run.outage)

    # A UE whose update was lost has paid for it too.
    sim_time = before.sim_time + float(this.cost.time)
    this = replace(this, arrived=arrived, bits=bits, guarded=guarded, sim_time=sim_time)
    after = replace(before, memory=memory, round=this.k, sim_time=sim_time)
    if state is not None:
        learned = replace(after, state=state)
        if run.arm.downlink is not None and this.sends.any():
            learned = _sent_down(run, learned, this)
        if run.arm.downlink is None or are_finite([learned.judged])[0]:
            return this, learned

    suspects = () if updates is None else suspects_of(updates)
    if suspects:
        log.warning("round %d diverged; %s", this.k, suspect_words(suspects))
    return replace(this, stop="diverged", suspects=suspects), after


def _sent_down(run: Training, after: Checkpoint, this: Round) -> Checkpoint:
    """What the UEs have in the next round; its message has the bits that are worth their time, where
    they decide.
    """
    downlink = run.arm.downlink
    assert downlink is not None
    model = after.state.sent
    bits = None
    if run.arm.decides_downlink:
        bits = decided_bits(downlink, model, after.held, this, run.seed)
    held, message = received_model(downlink, model, after.held, run.seed, this.k, bits)
    return replace(after, held=held, message=message)


def _is_due(run: Training, this: Round, after: Checkpoint) -> bool:
    """Whether the model after this round is evaluated."""
    is_over = this.stop is not None or run.stop.is_over(this.k, this.sim_time)
    return is_over or this.k % run.evaluate_every == 0


def _evaluated(
    world: World,
    going: Sequence[int],
    runs: Sequence[Training],
    settled: Sequence[tuple[Round, Checkpoint]],
) -> list[Evaluation | None]:
    """The quality of the models of the runs that are due; None for the others."""
    due = [row for row, (this, after) in enumerate(settled) if _is_due(runs[row], this, after)]
    quality: list[Evaluation | None] = [None] * len(runs)
    if due:
        models = [settled[row][1].judged for row in due]
        evaluations = world.evaluate([going[row] for row in due], models)
        for row, evaluation in zip(due, evaluations, strict=True):
            quality[row] = evaluation
    return quality


def _judged(
    run: Training, this: Round, after: Checkpoint, evaluation: Evaluation | None
) -> tuple[Round, Checkpoint]:
    """The round with its evaluation, and whether the run ends with it."""
    history = after.history
    longer = history
    if evaluation is not None:
        longer = (*history, (this.k, evaluation))
        history = watched(history, this.k, evaluation, run.stop.window)
    stop = this.stop or run.stop.reason(this.k, this.sim_time, longer)
    memory = observed(run.arm.planner, after.memory, evaluation)
    this = replace(this, evaluation=evaluation, stop=stop)
    return this, replace(after, memory=memory, history=history, stop=stop, suspects=this.suspects)


def with_steps(this: Round, algorithm: object) -> Round:
    """The round with the step sizes of an algorithm as it is in it; a user's own may have none."""
    alpha = _number(getattr(algorithm, "inner_lr", NAN))
    beta = _number(getattr(algorithm, "outer_lr", NAN))
    if isinstance(algorithm, Stepping) and algorithm.unit:
        return replace(this, inner_lr=alpha, step_length=beta)
    clip = algorithm.grad_clip if isinstance(algorithm, Stepping) else 0.0
    return replace(this, inner_lr=alpha, outer_lr=beta, step_length=beta * clip if clip else NAN)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else NAN


def are_finite(models: Sequence[Params]) -> list[bool]:
    """Which of these models have no NaN and no infinity."""
    if len(models) == 1:
        return [all(bool(torch.isfinite(p).all()) for p in models[0].values())]
    flags = [
        torch.isfinite(torch.stack([model[name] for model in models])).flatten(1).all(dim=1)
        for name in models[0]
    ]
    finite: list[bool] = torch.stack(flags).all(dim=0).tolist()
    return finite
