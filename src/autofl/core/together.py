"""Many independent runs as one batch: on a GPU, 64 runs take hardly longer than one.

Seeds, planners and cells may differ from run to run; the model, the learning algorithm, the pool of
samples and the numbers that stand for the whole cell must be the same. Each run gives the records it
gives alone, up to the rounding of its sums.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from autofl.algorithms import FedAvg, PerFedAvg, Personal, State, at_round, is_independent, split_of
from autofl.core.checkpoint import Checkpoint
from autofl.core.decide import WHOLE_CELL, are_equal
from autofl.core.play import Step, play
from autofl.core.round import Round
from autofl.core.simulation import Simulation
from autofl.data.batch import Batch, Draw, draw_in_parts, in_three
from autofl.engines import Updates
from autofl.engines.low_rank import low_rank_layers, low_rank_serves, mean_of_runs
from autofl.errors import AutoFLError
from autofl.evaluation.joint import JointEvaluator
from autofl.models import Params
from autofl.quality import Evaluation
from autofl.robust.aggregators import Mean
from autofl.units import Array, IntArray


def play_together(
    sims: Sequence[Simulation], past: Sequence[Checkpoint] | None = None
) -> Iterator[list[Step]]:
    """The rounds of all runs in step; with `past`, those after these checkpoints, all of one round."""
    return play(sims, BatchWorld(sims), past)


def fit_together(one: Simulation, other: Simulation) -> bool:
    """Whether two runs can be part of one batch: nothing in either needs single updates or a memory
    at the UEs.
    """
    shapes = {name: p.shape for name, p in one.params.items()}
    return (
        _in_summed_form(one)
        and _in_summed_form(other)
        and are_equal(one.algorithm, other.algorithm)
        and one.data.x is other.data.x
        and one.data.y is other.data.y
        and one.data.dtype == other.data.dtype
        and (one.data.scale is None) == (other.data.scale is None)
        and shapes == {name: p.shape for name, p in other.params.items()}
        and _settings_of(one.model) == _settings_of(other.model)
        and all(getattr(one.cell, name) == getattr(other.cell, name) for name in WHOLE_CELL)
    )


def _settings_of(model: nn.Module) -> list[object]:
    """What a model is but for its weights: its modules with their settings."""
    described: list[object] = []
    for name, module in model.named_modules():
        own = sorted((key, repr(value)) for key, value in vars(module).items() if key[0] != "_")
        described.append((name, type(module), own))
    return described


def _in_summed_form(sim: Simulation) -> bool:
    arm = sim.arm
    return (
        type(sim.algorithm.init(sim.params)).sent is State.sent
        and low_rank_serves(low_rank_layers(sim.model), sim.algorithm)
        and not isinstance(sim.algorithm, Personal)
        and not getattr(
            sim.algorithm, "longest_step", 0.0
        )  # which depends on each run's parameters
        and not sim.evaluator.measured
        and arm.compressor is None
        and arm.downlink is None
        and type(arm.aggregator or Mean()) is Mean
        and sim.lies is None
    )


@dataclass(frozen=True)
class Averaged(Updates):
    """The updates of one run of a batch: their average is all that was formed."""

    ue: IntArray
    sent: Params
    guarded: IntArray
    average: Params
    weight: Array

    def mean(self, weight: Array) -> Params:
        assert np.array_equal(weight, self.weight)
        return self.average

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """None of them was formed."""
        return iter(())


class BatchWorld:
    """The world of a batch of simulations: their UEs are computed side by side."""

    def __init__(self, sims: Sequence[Simulation]) -> None:
        if not all(fit_together(sims[0], sim) for sim in sims):
            raise AutoFLError(
                "runs in one batch need the same algorithm, model, pool of samples, noise, path loss,"
                " threshold and update size, an algorithm and model of the low_rank engine, and the"
                " plain mean of all updates; run them one by one"
            )
        layers = low_rank_layers(sims[0].model)
        assert layers is not None
        self._sims = sims
        self._layers = layers
        self._judge = JointEvaluator.of(
            [(sim.evaluator, sim.data, sim.seed) for sim in sims], layers
        )

    def train(
        self, runs: Sequence[int], rounds: Sequence[Round], sent: Sequence[Params]
    ) -> list[Updates | None]:
        """The averages of all runs in one call.

        A run in which fewer UEs are decoded than in another is filled up with UEs of no samples and
        no share.
        """
        algorithm = self._sims[0].algorithm
        assert isinstance(algorithm, FedAvg | PerFedAvg)
        counts = [int(this.decoded.sum()) for this in rounds]
        if not any(counts):
            return [None] * len(runs)

        # One step size serves all: no algorithm of a batch has one that depends on a run's weights.
        params = stacked(sent)
        current = at_round(algorithm, rounds[0].k, params)
        draw, share = self._drawn(runs, rounds, max(counts))
        batch = self._gathered(runs, draw)
        means, guarded = mean_of_runs(self._layers, params, current, batch, share)

        # A run in which nobody was decoded has no updates, whatever its padding gave.
        guarded = guarded.reshape(len(runs), -1)
        updates: list[Updates | None] = [None] * len(runs)
        for row, (this, count) in enumerate(zip(rounds, counts, strict=True)):
            if count:
                updates[row] = Averaged(
                    ue=this.ue[this.decoded],
                    sent=sent[row],
                    guarded=guarded[row, :count],
                    average={name: p[row] for name, p in means.items()},
                    weight=this.orders.weight,
                )
        return updates

    def _drawn(
        self, runs: Sequence[int], rounds: Sequence[Round], num_ue: int
    ) -> tuple[Draw, Array]:
        """The samples of all runs' UEs, (3, num_runs * num_ue, tau, num), and each UE's share of its
        run's average.
        """
        # UEs that fill a run up are number 0, with no samples, no steps and no share.
        shape = (len(runs), num_ue)
        ue = np.zeros(shape, dtype=np.int64)
        num = np.zeros(shape, dtype=np.int64)
        steps = np.zeros(shape, dtype=np.int64)
        size = np.zeros(shape, dtype=np.int64)
        start = np.zeros(shape, dtype=np.int64)
        share = np.zeros(shape)
        for row, (r, this) in enumerate(zip(runs, rounds, strict=True)):
            orders = this.orders
            count = len(orders.weight)
            ue[row, :count] = this.ue[this.decoded]
            num[row, :count] = orders.num_samples
            steps[row, :count] = orders.local_steps
            if count:
                share[row, :count] = orders.weight / orders.weight.sum()
            partition = self._sims[r].data.partition
            size[row] = partition.train_size[ue[row]]
            start[row] = partition.train_start[ue[row]]

        # What a UE draws depends on no other UE, so all are drawn at once.
        algorithm = self._sims[0].algorithm
        split = split_of(algorithm)
        seeds = np.repeat(np.array([self._sims[r].seed for r in runs]), num_ue)
        positions = draw_in_parts(
            size.ravel(),
            num.ravel(),
            ue.ravel(),
            steps.ravel(),
            seeds,
            "batch",
            rounds[0].k,
            split,
            is_independent(algorithm),
        )

        # Positions among a UE's own samples become places in the pool.
        where = (start.ravel()[:, None, None] + positions).reshape(len(runs), -1)
        samples = np.stack(
            [self._sims[r].data.partition.train[own] for r, own in zip(runs, where, strict=True)]
        )
        draw = in_three(samples.reshape(positions.shape), num.ravel(), steps.ravel(), split)
        return draw, share.ravel()

    def _gathered(self, runs: Sequence[int], draw: Draw) -> Batch:
        """The batches of these runs, leading axes (3, num_runs * num_ue, tau)."""
        pool = self._judge.pool
        data = pool.runs[0]
        shape = draw.sample.shape
        which = torch.tensor(runs, device=data.x.device)
        where = torch.from_numpy(draw.sample.reshape(3, len(runs), -1)).to(data.x.device)
        x, y = pool.gather(which, where)
        mask = torch.from_numpy(draw.mask).to(x)
        return Batch(x.view(*shape, *data.sample_shape), y.view(shape), mask)

    def evaluate(self, runs: Sequence[int], models: Sequence[Params]) -> list[Evaluation]:
        return self._judge(stacked(models), list(runs))

    def remembered(self, run: int) -> dict[str, torch.Tensor | Array]:
        return {}


def stacked(models: Sequence[Params]) -> Params:
    """Models along a leading run axis."""
    return {name: torch.stack([model[name] for model in models]) for name in models[0]}
