"""Many independent runs as one batch: on a GPU, 64 runs take hardly longer than one.

Seeds, planners and cells may differ from run to run; the model, the learning algorithm, the pool of samples and the
numbers that stand for the whole cell must be the same. Each run gives the records it gives alone, up to the rounding
of its sums.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autofl.algorithms import FedAvg, PerFedAvg, State
from autofl.data.batch import Batch, Draw, draw_positions, in_thirds
from autofl.data.federated import RunPool
from autofl.engines.low_rank import Layer, low_rank_layers, low_rank_serves, mean_of_runs
from autofl.errors import AutoFLError
from autofl.evaluation.joint import JointJudge
from autofl.models import Params, cross_entropy
from autofl.network import Cell, channel_gain, decoded, select
from autofl.planner import Plan
from autofl.records import Evaluation, RoundRecord
from autofl.rng import stream
from autofl.rounds import cost_of, record_of
from autofl.simulation.loop import Simulation
from autofl.units import Array, BoolArray, IntArray


@dataclass
class _Run:
    """What one run carries from round to round."""

    sim: Simulation
    offset: int  # of its UEs among those of all runs
    previous_power: Array
    sim_time: float
    history: list[tuple[int, Evaluation]]


def simulate_together(sims: Sequence[Simulation]) -> Iterator[tuple[int, RoundRecord, State]]:
    """The rounds of all runs in step: (which run, record, state), round after round.

    A run that ends leaves the batch; the others go on.
    """
    _check(sims)
    first = sims[0]
    layers = low_rank_layers(first.model)
    assert layers is not None
    algorithm = first.algorithm
    assert isinstance(algorithm, FedAvg | PerFedAvg)
    cells = _joined([sim.cell for sim in sims])
    offsets = np.cumsum([0, *(sim.cell.num_ue for sim in sims[:-1])])
    params = {name: torch.stack([sim.params[name] for sim in sims]) for name in first.params}
    judge = JointJudge.of([(sim.evaluator, sim.data, sim.seed) for sim in sims], layers)
    alive: list[int] = list(range(len(sims)))
    runs = [_Run(sim, int(offset), sim.cell.max_power, 0.0, []) for sim, offset in zip(sims, offsets, strict=True)]
    for r, evaluation in enumerate(judge(params, alive)):
        runs[r].history.append((0, evaluation))
        yield r, RoundRecord(round=0, evaluation=evaluation), State(_one(params, r))

    k = 0
    while alive:
        k += 1
        now = [runs[r] for r in alive]
        selected = [select(x.sim.cell.num_ue, x.sim.num_selected, stream(x.sim.seed, "selection", k)) for x in now]
        gains = [
            channel_gain(x.sim.cell, x.sim.fading.draw(stream(x.sim.seed, "fading", k), (x.sim.cell.num_ue,)))[ue]
            for x, ue in zip(now, selected, strict=True)
        ]
        plans = _plans(now, cells, selected, gains)
        taken = [x.sim.cell.take(ue) for x, ue in zip(now, selected, strict=True)]
        heard = []
        for x, ues, ue, gain, plan in zip(now, taken, selected, gains, plans, strict=True):
            x.previous_power = x.previous_power.copy()
            x.previous_power[ue] = plan.carried_power
            heard.append(plan.feasible & decoded(ues, gain, plan.tx_power))
        proposed = _train(layers, algorithm, judge.pool, alive, now, params, selected, plans, heard, k)
        finite = torch.stack([torch.isfinite(p).flatten(1).all(dim=1) for p in proposed.values()]).all(dim=0).tolist()
        keep = torch.tensor(finite, device=next(iter(params.values())).device)
        params = {name: torch.where(_along(keep, p), p, params[name]) for name, p in proposed.items()}

        costs = [
            cost_of(x.sim, *each) for x, each in zip(now, zip(taken, gains, plans, heard, strict=True), strict=True)
        ]
        due = []
        for place, (x, cost) in enumerate(zip(now, costs, strict=True)):
            x.sim_time += float(cost.time)
            if not finite[place] or x.sim.stop.is_over(k, x.sim_time) or k % x.sim.evaluate_every == 0:
                due.append(place)
        judged = dict(zip(due, judge(_some(params, due), [alive[place] for place in due]), strict=True)) if due else {}
        stays = []
        for place, (r, x) in enumerate(zip(alive, now, strict=True)):
            found = judged.get(place)
            if found is not None:
                x.history.append((k, found))
            stop = x.sim.stop.reason(k, x.sim_time, x.history) if finite[place] else "diverged"
            about = (selected[place], taken[place], gains[place], plans[place], heard[place], costs[place])
            yield r, record_of(k, x.sim_time, *about, found, stop), State(_one(params, place))
            if stop is None:
                stays.append(place)
        if len(stays) < len(alive):
            alive = [alive[place] for place in stays]
            params = _some(params, stays)


def fit_together(one: Simulation, other: Simulation) -> bool:
    """Whether two runs can be part of one batch."""
    shapes, others = ({name: p.shape for name, p in sim.params.items()} for sim in (one, other))
    return (
        low_rank_serves(one.model, one.algorithm, cross_entropy)
        and one.algorithm == other.algorithm
        and one.data.x is other.data.x
        and shapes == others
        and str(one.model) == str(other.model)
        and all(getattr(one.cell, name) == getattr(other.cell, name) for name in _WHOLE_CELL)
    )


_WHOLE_CELL = [name for name in Cell.__dataclass_fields__ if name not in Cell.PER_UE]


def _check(sims: Sequence[Simulation]) -> None:
    if not all(fit_together(sims[0], sim) for sim in sims):
        raise AutoFLError(
            "runs in one batch need the same algorithm, model, pool of samples, noise, path loss, threshold and update"
            " size, and an algorithm and model of the low_rank engine; run them one by one"
        )


def _joined(cells: list[Cell]) -> Cell:
    """One cell of the UEs of all runs."""
    per_ue: dict[str, Any] = {name: np.concatenate([getattr(cell, name) for cell in cells]) for name in Cell.PER_UE}
    return replace(cells[0], **per_ue)


def _plans(runs: list[_Run], cells: Cell, selected: list[IntArray], gains: list[Array]) -> list[Plan]:
    """The plan of each run; runs of the same planner are planned in one call."""
    plans: list[Plan | None] = [None] * len(runs)
    for planner in {id(run.sim.planner): run.sim.planner for run in runs}.values():
        mine = [place for place, run in enumerate(runs) if run.sim.planner is planner or run.sim.planner == planner]
        if plans[mine[0]] is not None:
            continue
        ue = np.concatenate([runs[place].offset + selected[place] for place in mine])
        power = np.concatenate([runs[place].previous_power[selected[place]] for place in mine])
        whole = planner(cells.take(ue), np.concatenate([gains[place] for place in mine]), power)
        begin = 0
        for place in mine:
            end = begin + len(selected[place])
            part = {
                name: getattr(whole, name)[begin:end] for name in Plan.__dataclass_fields__ if name != "local_steps"
            }
            plans[place], begin = replace(whole, **part), end
    return [plan for plan in plans if plan is not None]


def _train(
    layers: tuple[Layer, ...],
    algorithm: FedAvg | PerFedAvg,
    pool: RunPool,
    alive: list[int],
    runs: list[_Run],
    params: Params,
    selected: list[IntArray],
    plans: list[Plan],
    heard: list[BoolArray],
    k: int,
) -> Params:
    """The averaged parameters of each run; a run in which nobody is heard keeps its own."""
    most = max(int(each.sum()) for each in heard)
    if most == 0:
        return params
    num_runs = len(runs)
    ue = np.zeros((num_runs, most), dtype=np.int64)
    num = np.zeros((num_runs, most), dtype=np.int64)
    share = np.zeros((num_runs, most))
    for place, (who, plan, there) in enumerate(zip(selected, plans, heard, strict=True)):
        count = int(there.sum())
        ue[place, :count], num[place, :count] = who[there], plan.num_samples[there]
        share[place, :count] = 1.0 / max(count, 1)
    size, start = np.zeros_like(ue), np.zeros_like(ue)
    for place, run in enumerate(runs):
        part = run.sim.data.partition
        size[place], start[place] = part.train_size[ue[place]], part.train_start[ue[place]]
    seeds = np.repeat(np.array([run.sim.seed for run in runs]), most)
    steps = plans[0].local_steps
    positions = draw_positions(size.ravel(), num.ravel(), ue.ravel(), steps, seeds, "batch", k)
    where = (start.ravel()[:, None, None] + positions).reshape(num_runs, -1)
    samples = np.stack([run.sim.data.partition.train[row] for run, row in zip(runs, where, strict=True)])
    draw = in_thirds(samples.reshape(positions.shape), num.ravel())
    return mean_of_runs(layers, params, algorithm, _gathered(pool, alive, draw), share.ravel())


def _gathered(pool: RunPool, alive: list[int], draw: Draw) -> Batch:
    """The batches of the runs that are alive, leading axes (3, num_runs * num_ue, tau)."""
    shape, data = draw.sample.shape, pool.runs[0]
    which = torch.tensor(alive, device=data.x.device)
    where = torch.from_numpy(draw.sample.reshape(3, len(alive), -1)).to(data.x.device)
    x, y = pool.gather(which, where)
    return Batch(x.view(*shape, *data.sample_shape), y.view(shape), torch.from_numpy(draw.mask).to(x))


def _one(params: Params, place: int) -> Params:
    return {name: p[place] for name, p in params.items()}


def _some(params: Params, places: list[int]) -> Params:
    return {name: p[torch.tensor(places, dtype=torch.long, device=p.device)] for name, p in params.items()}


def _along(flags: Tensor, p: Tensor) -> Tensor:
    return flags.view(-1, *[1] * (p.ndim - 1))
