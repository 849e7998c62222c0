"""The loop of Algorithm 2: select, plan, train, send, average, book."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from autofl.algorithms import Algorithm, Engine, State
from autofl.data.federated import FederatedData
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator
from autofl.models import Params
from autofl.network import Cell, Fading, Outage, RoundCost, channel_gain, decoded, round_cost, select, snr
from autofl.planner import STATUS_NAMES, Plan, Planner
from autofl.records import Evaluation, RoundRecord
from autofl.rng import stream
from autofl.simulation.stop import Stop
from autofl.units import Array, BoolArray, IntArray


@dataclass(frozen=True)
class Simulation:
    """Everything a run needs. The cell's data_size must be the partition's, one UE for one."""

    cell: Cell
    fading: Fading
    planner: Planner
    algorithm: Algorithm
    model: nn.Module
    params: Params  # w_0
    data: FederatedData
    engine: Engine
    engine_name: str
    evaluator: Evaluator
    stop: Stop
    seed: int
    num_selected: int  # |A_k|
    outage: Outage = "skip"
    evaluate_every: int = 5

    def __post_init__(self) -> None:
        if self.cell.num_ue != self.data.partition.num_ue:
            raise AutoFLError(f"the cell has {self.cell.num_ue} UEs, the data {self.data.partition.num_ue}")
        if not 1 <= self.num_selected <= self.cell.num_ue:
            raise AutoFLError(f"num_selected: {self.num_selected} is not between 1 and the {self.cell.num_ue} UEs")


def simulate(sim: Simulation) -> Iterator[tuple[RoundRecord, State]]:
    """Rounds of Algorithm 2, each with the state after it. Round 0 is the model before training.

    An average that is no longer finite is not taken over: the run stops as "diverged" with the last good model.
    """
    cell, seed = sim.cell, sim.seed
    state = sim.algorithm.init(sim.params)
    previous_power = cell.max_power  # line 1: p_{-1} = P_max
    sim_time = 0.0
    diverged = False
    judge = sim.evaluator.judge(sim.model, sim.data, seed)
    first = judge(state.params)
    history: list[tuple[int, Evaluation]] = [(0, first)]
    yield RoundRecord(round=0, evaluation=first), state

    for k in range(1, sim.stop.rounds + 1):
        selected = select(cell.num_ue, sim.num_selected, stream(seed, "selection", k))  # line 3
        gain = channel_gain(cell, sim.fading.draw(stream(seed, "fading", k), (cell.num_ue,)))[selected]
        ues = cell.take(selected)
        plan = sim.planner(ues, gain, previous_power[selected])  # lines 6 and 7
        previous_power = _put(previous_power, selected, plan.carried_power)
        heard = plan.feasible & decoded(ues, gain, plan.tx_power)  # line 8
        senders = selected[heard]
        if len(senders):
            batches = sim.data.draw(senders, plan.num_samples[heard], plan.local_steps, seed, k)
            updates = sim.engine(sim.algorithm, state.params, batches, senders)  # lines 9 and 10
            proposed = sim.algorithm.server_update(state, updates, np.ones(len(senders)))  # line 13, Eq. (15)
            diverged = not _finite(proposed.params)
            state = state if diverged else proposed
        cost = cost_of(sim, ues, gain, plan, heard)
        sim_time += float(cost.time)  # the round ends with its slowest UE

        ends = diverged or sim.stop.is_over(k, sim_time)
        evaluation = judge(state.params) if ends or k % sim.evaluate_every == 0 else None
        if evaluation is not None:
            history.append((k, evaluation))
        stop = "diverged" if diverged else sim.stop.reason(k, sim_time, history)
        yield record_of(k, sim_time, selected, ues, gain, plan, heard, cost, evaluation, stop), state
        if stop is not None:
            return


def cost_of(sim: Simulation, ues: Cell, gain: Array, plan: Plan, heard: BoolArray) -> RoundCost:
    """What a planned round costs; a UE that is not heard neither trains nor sends."""
    return round_cost(ues, gain, heard * plan.num_samples, plan.tx_power, plan.local_steps, sim.outage)


def record_of(
    k: int,
    sim_time: float,
    selected: IntArray,
    ues: Cell,
    gain: Array,
    plan: Plan,
    heard: BoolArray,
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
        decoded=heard,
        evaluation=evaluation,
        stop=stop,
    )


def _finite(params: Params) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in params.values())


def _put(values: Array, index: IntArray, new: Array) -> Array:
    copy = values.copy()
    copy[index] = new
    return copy
