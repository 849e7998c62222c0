"""Many independent runs as one batch: on a GPU, 64 runs take hardly longer than one.

Seeds, planners and cells may differ from run to run; the model, the learning algorithm, the pool of
samples and the numbers that stand for the whole cell must be the same. Each run gives the records
it gives alone, up to the rounding of its sums.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from autofl.aggregators import Mean
from autofl.algorithms import (
    Averaging,
    FedAvg,
    PerFedAvg,
    Personal,
    State,
    at_round,
    is_independent,
    split_of,
)
from autofl.data.batch import Batch, Draw, draw_in_parts, in_three
from autofl.data.federated import RunPool
from autofl.engines.low_rank import low_rank_layers, low_rank_serves, mean_of_runs
from autofl.errors import AutoFLError
from autofl.evaluation.joint import JointEvaluator
from autofl.models import Params, num_weights
from autofl.planner import Memory, observed
from autofl.records import RoundRecord
from autofl.rounds.loop import Checkpoint, Orders, Steps, record_of, steps_of
from autofl.rounds.round import WHOLE_CELL, Round, are_equal, network_rounds
from autofl.rounds.stop import History, watched
from autofl.simulation.loop import Simulation
from autofl.units import Array


@dataclass
class _Run:
    """What one run carries from round to round."""

    sim: Simulation
    state: State
    memory: Memory  # of the planner
    sim_time: float
    history: History

    def checkpoint(self, k: int) -> Checkpoint:
        return Checkpoint(k, self.state, self.memory, self.sim_time, self.history)


def simulate_together(sims: Sequence[Simulation]) -> Iterator[tuple[int, RoundRecord, State]]:
    """The rounds of all runs in step: (which run, record, state), round after round; see
    `play_together`.
    """
    for steps in play_together(sims):
        for r, record, checkpoint in steps:
            yield r, record, checkpoint.state


Step = tuple[int, RoundRecord, Checkpoint]
"""Which run, what happened in its round, and all that is needed to go on after it."""


def play_together(
    sims: Sequence[Simulation], past: Sequence[Checkpoint] | None = None
) -> Iterator[list[Step]]:
    """A round of all runs at a time; with `past`, the rounds after these checkpoints, which are all
    of one round.

    A run that ends leaves the batch; the others go on.
    """
    _check(sims)
    layers = low_rank_layers(sims[0].model)
    algorithm = sims[0].arm.algorithm
    assert layers is not None
    assert isinstance(algorithm, FedAvg | PerFedAvg)
    evaluator = JointEvaluator.of([(sim.evaluator, sim.data, sim.seed) for sim in sims], layers)
    runs = [
        _Run(sim, sim.arm.algorithm.init(sim.params), sim.arm.planner.init(sim.cell), 0.0, ())
        for sim in sims
    ]
    alive = list(range(len(sims)))
    k = 0
    if past is None:
        params = _stacked(runs)
        first = []
        for r, evaluation in enumerate(evaluator(params, alive)):
            runs[r].history = ((0, evaluation),)
            runs[r].memory = observed(runs[r].sim.arm.planner, runs[r].memory, evaluation)
            first.append((r, RoundRecord(round=0, evaluation=evaluation), runs[r].checkpoint(0)))
        yield first
    else:
        (k,) = {checkpoint.round for checkpoint in past}
        runs = [
            _Run(sim, one.state, one.memory, one.sim_time, one.history)
            for sim, one in zip(sims, past, strict=True)
        ]
        params = _stacked(runs)

    while alive:
        k += 1
        playing = [runs[r] for r in alive]
        networks = [replace(run.sim.network(run.sim.air), start=run.sim_time) for run in playing]
        rounds = network_rounds(networks, k, [run.memory for run in playing])
        drawn = _drawn(playing, [this_round for this_round, _ in rounds], k)
        current = at_round(algorithm, k, params)  # the same for all: no longest step here
        finite = [True] * len(playing)
        guarded = np.zeros((len(playing), 0), dtype=np.int64)
        if drawn is not None:
            batch = _gathered(evaluator.pool, alive, drawn.draw)
            means, acted = mean_of_runs(layers, params, current, batch, drawn.share)
            guarded = acted.reshape(len(playing), -1)
            params, finite = _step(playing, means, drawn.heard)
        due = []
        for place, (run, (this_round, memory)) in enumerate(zip(playing, rounds, strict=True)):
            run.memory = memory
            run.sim_time = run.sim_time + float(this_round.cost.time)
            stop = run.sim.stop
            every = run.sim.evaluate_every
            if not finite[place] or stop.is_over(k, run.sim_time) or k % every == 0:
                due.append(place)
        judged = (
            evaluator(_stacked([playing[place] for place in due]), [alive[place] for place in due])
            if due
            else []
        )
        evaluations = dict(zip(due, judged, strict=True))
        stays = []
        steps_here = []
        for place, (r, run) in enumerate(zip(alive, playing, strict=True)):
            this_round = rounds[place][0]
            evaluation_here = evaluations.get(place)
            run.memory = observed(run.sim.arm.planner, run.memory, evaluation_here)
            longer = (
                run.history if evaluation_here is None else (*run.history, (k, evaluation_here))
            )
            reason = run.sim.stop.reason(k, run.sim_time, longer) if finite[place] else "diverged"
            if evaluation_here is not None:
                run.history = watched(run.history, k, evaluation_here, run.sim.stop.window)
            bits = np.full(len(this_round.ue), 32.0 * num_weights(run.state.sent))
            senders = this_round.ue[this_round.decoded]
            counts = this_round.placed(senders, guarded[place, : len(senders)])
            steps = steps_of(current) if this_round.decoded.any() else Steps()
            heard = this_round.decoded
            record = record_of(
                this_round, run.sim_time, heard, bits, evaluation_here, reason, counts, steps
            )
            steps_here.append((r, record, run.checkpoint(k)))
            if reason is None:
                stays.append(place)
        yield steps_here
        if len(stays) < len(alive):
            alive = [alive[place] for place in stays]
            params = {
                name: p[torch.tensor(stays, dtype=torch.long, device=p.device)]
                for name, p in params.items()
            }


def fit_together(one: Simulation, other: Simulation) -> bool:
    """Whether two runs can be part of one batch: nothing in either needs single updates or a memory
    at the UEs.
    """
    shapes, others = ({name: p.shape for name, p in sim.params.items()} for sim in (one, other))
    return (
        all(_in_summed_form(sim) for sim in (one, other))
        and are_equal(one.arm.algorithm, other.arm.algorithm)
        and one.data.x is other.data.x
        and one.data.y is other.data.y
        and one.data.dtype == other.data.dtype
        and (one.data.scale is None) == (other.data.scale is None)
        and shapes == others
        and _are_alike(one.model, other.model)
        and all(getattr(one.cell, name) == getattr(other.cell, name) for name in WHOLE_CELL)
    )


def _are_alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two models are the same but for their weights: the same modules with the same
    settings.
    """

    def settings(model: nn.Module) -> list[object]:
        return [
            (
                name,
                type(module),
                sorted((key, repr(value)) for key, value in vars(module).items() if key[0] != "_"),
            )
            for name, module in model.named_modules()
        ]

    return settings(one) == settings(other)


def _in_summed_form(sim: Simulation) -> bool:
    arm = sim.arm
    return (
        type(arm.algorithm.init(sim.params)).sent is State.sent
        and low_rank_serves(low_rank_layers(sim.model), arm.algorithm)
        and not isinstance(arm.algorithm, Personal)
        and not getattr(
            arm.algorithm, "longest_step", 0.0
        )  # which depends on each run's parameters
        and not sim.evaluator.measured
        and arm.compressor is None
        and arm.downlink is None
        and type(arm.aggregator) is Mean
        and sim.lies is None
    )


def _check(sims: Sequence[Simulation]) -> None:
    if not all(fit_together(sims[0], sim) for sim in sims):
        raise AutoFLError(
            "runs in one batch need the same algorithm, model, pool of samples, noise, path loss, threshold and update"
            " size, an algorithm and model of the low_rank engine, and the plain mean of all updates; run them one by"
            " one"
        )


def _step(runs: list[_Run], means: Params, heard: list[bool]) -> tuple[Params, list[bool]]:
    """The server's step of each run in which somebody is heard: all parameters after it, and which
    are finite.

    A run whose parameters are not finite keeps its state, like one in which nobody is heard.
    """
    before = [run.state for run in runs]
    for place, run in enumerate(runs):
        if heard[place]:
            average = {name: p[place] for name, p in means.items()}
            run.state = run.sim.arm.algorithm.server_update(run.state, average)
    # A server that takes the average as it is leaves nothing to be stacked: the means are the
    # parameters already.
    params = means if all(_takes_average(run) for run in runs) else _stacked(runs)
    flags = (
        torch.stack([torch.isfinite(p).flatten(1).all(dim=1) for p in params.values()])
        .all(dim=0)
        .tolist()
    )
    for run, state, fine in zip(runs, before, flags, strict=True):
        run.state = run.state if fine else state
    return params, flags


def _takes_average(run: _Run) -> bool:
    """Whether the server's step is to take the average for its parameters, and nothing else."""
    algorithm = run.sim.arm.algorithm
    plain = getattr(type(algorithm), "server_update", None) is Averaging.server_update
    return (
        plain
        and "server_update" not in vars(algorithm)
        and type(run.state).with_params is State.with_params
    )


class _Drawn(NamedTuple):
    """The samples of all runs' UEs, (3, num_runs * num_ue, tau, num), and each UE's share of its
    run's average.

    `heard` says in which runs anybody is heard.
    """

    draw: Draw
    share: Array
    heard: list[bool]


def _drawn(runs: list[_Run], rounds: list[Round], k: int) -> _Drawn | None:
    """What the UEs of all runs train on; None where nobody is heard in any.

    A run in which fewer UEs are decoded than in another is filled up with UEs of no samples and no
    share.
    """
    orders = [Orders.of(this_round) for this_round in rounds]
    heard = [len(order.ue) > 0 for order in orders]
    if not any(heard):
        return None
    shape = (len(runs), max(len(order.ue) for order in orders))
    ue, num, steps = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    size = np.zeros(shape, dtype=np.int64)
    start = np.zeros(shape, dtype=np.int64)
    share = np.zeros(shape)
    for place, (run, this_round, order) in enumerate(zip(runs, rounds, orders, strict=True)):
        count = len(order.ue)
        weight = this_round.plan.weight[this_round.decoded]
        ue[place, :count], num[place, :count], steps[place, :count] = (
            order.ue,
            order.num_samples,
            order.local_steps,
        )
        share[place, :count] = weight / weight.sum() if count else weight
        part = run.sim.data.partition
        size[place], start[place] = part.train_size[ue[place]], part.train_start[ue[place]]
    seeds = np.repeat(np.array([run.sim.seed for run in runs]), shape[1])
    algorithm = runs[0].sim.arm.algorithm  # the same in all runs, as far as samples go
    split = split_of(algorithm)
    how = ("batch", k, split, is_independent(algorithm))
    positions = draw_in_parts(size.ravel(), num.ravel(), ue.ravel(), steps.ravel(), seeds, *how)
    where = (start.ravel()[:, None, None] + positions).reshape(len(runs), -1)
    samples = np.stack(
        [run.sim.data.partition.train[row] for run, row in zip(runs, where, strict=True)]
    )
    draw = in_three(samples.reshape(positions.shape), num.ravel(), steps.ravel(), split)
    return _Drawn(draw, share.ravel(), heard)


def _gathered(pool: RunPool, alive: list[int], draw: Draw) -> Batch:
    """The batches of the runs that are alive, leading axes (3, num_runs * num_ue, tau)."""
    shape = draw.sample.shape
    data = pool.runs[0]
    which = torch.tensor(alive, device=data.x.device)
    where = torch.from_numpy(draw.sample.reshape(3, len(alive), -1)).to(data.x.device)
    x, y = pool.gather(which, where)
    return Batch(
        x.view(*shape, *data.sample_shape), y.view(shape), torch.from_numpy(draw.mask).to(x)
    )


def _stacked(runs: list[_Run]) -> Params:
    """The parameters of these runs along a leading run axis."""
    return {
        name: torch.stack([run.state.params[name] for run in runs]) for name in runs[0].state.params
    }
