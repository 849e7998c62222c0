"""The loop of Algorithm 2: select, plan, train, send, average, book."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from autofl.algorithms import Algorithm, State
from autofl.engines import Updates
from autofl.models import Params
from autofl.network import Cell, Outage, RoundCost, decoded, round_cost, select, snr
from autofl.planner import STATUS_NAMES, Plan, Planner
from autofl.records import Evaluation, RoundRecord
from autofl.rng import stream
from autofl.rounds.stop import Stop
from autofl.units import Array, BoolArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a run is, wherever it takes place."""

    planner: Planner
    algorithm: Algorithm
    params: Params  # w_0
    stop: Stop
    seed: int
    num_selected: int  # |A_k|
    outage: Outage = "skip"
    evaluate_every: int = 5


@dataclass(frozen=True)
class Orders:
    """What the UEs that train in a round are told, arrays of shape (num_senders,)."""

    ue: IntArray
    num_samples: IntArray  # d_k^i of one local step
    tx_power: Array  # p_k^i [W]
    local_steps: int  # tau


class World(Protocol):
    """Where rounds take place: in this process, or on devices behind Flower."""

    @property
    def cell(self) -> Cell:
        """What the base station knows of all UEs by now."""
        ...

    def gain(self, k: int, selected: IntArray) -> Array:
        """Channel gains of the selected UEs in round k."""
        ...

    def train(self, params: Params, k: int, orders: Orders) -> Updates:
        """Client updates, lines 9 and 10; of all that were told, or of those among them whose update arrived."""
        ...

    def judge(self, params: Params) -> Evaluation: ...


@dataclass(frozen=True)
class Standing:
    """What a run carries from one round to the next: all that is needed to go on from here."""

    round: int
    state: State
    previous_power: Array  # p_{k-1}^i [W] of all UEs; infinite for a UE that was never chosen
    sim_time: float
    history: tuple[tuple[int, Evaluation], ...]  # the evaluated rounds


def run_rounds(job: Job, world: World, standing: Standing | None = None) -> Iterator[tuple[RoundRecord, Standing]]:
    """Rounds of Algorithm 2, each with how things stand after it; round 0 is the model before training.

    With `standing` the run goes on after that round. An average that is no longer finite is not taken over: the run
    stops as "diverged" with the last good model.
    """
    if standing is None:
        state = job.algorithm.init(job.params)
        first = world.judge(state.params)
        standing = Standing(0, state, np.full(world.cell.num_ue, np.inf), 0.0, ((0, first),))
        yield RoundRecord(round=0, evaluation=first), standing

    state, previous_power, sim_time = standing.state, standing.previous_power, standing.sim_time
    history, diverged = standing.history, False
    for k in range(standing.round + 1, job.stop.rounds + 1):
        selected = select(len(previous_power), job.num_selected, stream(job.seed, "selection", k))  # line 3
        gain = world.gain(k, selected)
        ues = world.cell.take(selected)
        plan = job.planner(ues, gain, np.minimum(previous_power[selected], ues.max_power))  # lines 6 and 7; 1
        previous_power = _put(previous_power, selected, plan.carried_power)
        heard = plan.feasible & decoded(ues, gain, plan.tx_power)  # line 8
        arrived = heard
        if heard.any():
            orders = Orders(selected[heard], plan.num_samples[heard], plan.tx_power[heard], plan.local_steps)
            updates = world.train(state.params, k, orders)  # lines 9 and 10
            arrived = heard & np.isin(selected, updates.ue)
            if len(updates.ue):
                proposed = job.algorithm.server_update(
                    state, updates.mean(np.ones(len(updates.ue)))
                )  # line 13, Eq. (15)
                diverged = not _finite(proposed.params)
                state = state if diverged else proposed
        cost = cost_of(job, ues, gain, plan, heard)  # a UE whose update was lost on the way has paid for it
        sim_time += float(cost.time)  # the round ends with its slowest UE

        ends = diverged or job.stop.is_over(k, sim_time)
        evaluation = world.judge(state.params) if ends or k % job.evaluate_every == 0 else None
        if evaluation is not None:
            history = (*history, (k, evaluation))
        stop = "diverged" if diverged else job.stop.reason(k, sim_time, history)
        record = record_of(k, sim_time, selected, ues, gain, plan, arrived, cost, evaluation, stop)
        yield record, Standing(k, state, previous_power, sim_time, history)
        if stop is not None:
            return


def cost_of(job: Job, ues: Cell, gain: Array, plan: Plan, heard: BoolArray) -> RoundCost:
    """What a planned round costs; a UE that is not heard neither trains nor sends."""
    return round_cost(ues, gain, heard * plan.num_samples, plan.tx_power, plan.local_steps, job.outage)


def record_of(
    k: int,
    sim_time: float,
    selected: IntArray,
    ues: Cell,
    gain: Array,
    plan: Plan,
    arrived: BoolArray,
    cost: RoundCost,
    evaluation: Evaluation | None,
    stop: str | None,
) -> RoundRecord:
    """The record of a round."""
    return RoundRecord(
        round=k,
        sim_time=sim_time,
        round_time=float(cost.time),
        ue=selected,
        channel_gain=gain,
        num_samples=plan.num_samples,
        tx_power=plan.tx_power,
        snr=snr(ues, gain, plan.tx_power),
        upload_time=cost.upload_time,
        compute_time=cost.compute_time,
        energy=cost.energy,
        status=tuple(STATUS_NAMES[code] for code in plan.status),
        decoded=arrived,
        evaluation=evaluation,
        stop=stop,
    )


def _finite(params: Params) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in params.values())


def _put(values: Array, index: IntArray, new: Array) -> Array:
    copy = values.copy()
    copy[index] = new
    return copy
