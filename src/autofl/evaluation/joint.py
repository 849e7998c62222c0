"""The evaluation of several runs in one batch, for `simulation.together`: the same numbers as for
each run alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from autofl.data.batch import Batch, Draw
from autofl.data.federated import FederatedData, RunPool
from autofl.engines.low_rank import Layer, adapted_outputs
from autofl.errors import AutoFLError
from autofl.evaluation.evaluator import (
    Evaluator,
    by_test_size,
    draw_piece,
    groups_of_like_size,
    judged,
)
from autofl.models import Params
from autofl.quality import Evaluation
from autofl.units import IntArray

MOST_VALUES = 2**30
"""Pixels, padding included, that are judged at a time: 4 GB."""
SMALL = 2**14
"""Samples of a group up to which any padding is cheaper than one more group."""


@dataclass(frozen=True)
class JointEvaluator:
    """Evaluates the parameters of several runs at once.

    UEs are sorted by their number of test samples, so that little is padded: a group holds the UEs
    of the same ranks of every run.

    Fields:
        groups: which samples each group adapts with, is trained and is tested on, arrays of shape
            (num_runs, num_ue, num).
        columns: the places of each run's UEs among those of all groups, one group's after
            another's, in the order of the UEs' numbers.
    """

    evaluator: Evaluator
    pool: RunPool
    groups: tuple[tuple[Draw, Draw, Draw], ...]
    columns: tuple[IntArray, ...]
    layers: tuple[Layer, ...]

    @classmethod
    def of(
        cls, runs: Sequence[tuple[Evaluator, FederatedData, int]], layers: tuple[Layer, ...]
    ) -> "JointEvaluator":
        """The judge of these runs: evaluator, data and seed of each."""
        evaluator = runs[0][0]
        if any(other != evaluator for other, _, _ in runs) or evaluator.gradient_norm:
            raise AutoFLError(
                "runs in one batch need the same evaluation, without ||grad F||^2; run them one by one"
            )
        orders = [by_test_size(evaluator, data, seed) for _, data, seed in runs]
        pieces = [
            draw_piece(evaluator, data, seed, ue)
            for (_, data, seed), (ue, _) in zip(runs, orders, strict=True)
        ]

        # A run of fewer UEs lacks the lowest ranks.
        num_ue = max(len(ue) for ue, _ in orders)
        longest = np.max([np.pad(size, (num_ue - len(size), 0)) for _, size in orders], axis=0)
        adapt = _stacked([piece.adapt for piece in pieces], num_ue)
        train = _stacked([piece.train for piece in pieces], num_ue)
        test = _stacked([piece.test for piece in pieces], num_ue)
        groups = tuple(
            (_part(adapt, ranks), _part(train, ranks), _part(test, ranks))
            for ranks in groups_of_like_size(len(runs) * longest, small=SMALL)
        )
        columns = tuple(num_ue - len(ue) + np.argsort(ue) for ue, _ in orders)
        pool = RunPool(tuple(data for _, data, _ in runs))
        return cls(evaluator, pool, groups, columns, layers)

    def __call__(self, params: Params, runs: list[int]) -> list[Evaluation]:
        """Evaluations of these runs, whose parameters have a leading run axis in the same order."""
        by_group = [self._group(params, group, np.array(runs)) for group in self.groups]
        values = torch.cat(by_group, dim=2).cpu().numpy()
        means = [values[:, place, self.columns[r]].mean(axis=1) for place, r in enumerate(runs)]
        alpha = self.evaluator.inner_lr
        return [replace(Evaluation(*metrics.tolist()), adapt_lr=alpha) for metrics in means]

    def _group(self, params: Params, group: tuple[Draw, Draw, Draw], runs: IntArray) -> Tensor:
        """What `judged` says of the UEs in this group, shape (4, num_runs, num_ue), a few runs at a
        time.
        """
        _, train, test = group
        rows = test.sample[0].size + train.sample[0].size
        step = max(1, MOST_VALUES // max(1, rows * math.prod(self.pool.runs[0].sample_shape)))
        parts = []
        for begin in range(0, len(runs), step):
            some = {name: p[begin : begin + step] for name, p in params.items()}
            parts.append(self._judge(some, group, runs[begin : begin + step]))
        return torch.cat(parts, dim=1)

    def _judge(self, params: Params, group: tuple[Draw, Draw, Draw], runs: IntArray) -> Tensor:
        adapt, train, test = (self._gathered(draw, runs) for draw in group)
        on_both = adapted_outputs(
            self.layers, params, adapt, self.evaluator.inner_lr, [train.x, test.x], [None, None]
        )
        return judged(on_both, train, test).view(4, len(runs), -1)

    def _gathered(self, draw: Draw, runs: IntArray) -> Batch:
        """The samples of these runs' UEs, one run's after another's."""
        data = self.pool.runs[0]
        sample = draw.sample[runs]
        shape = (sample.shape[0] * sample.shape[1], sample.shape[2])
        where = torch.from_numpy(sample.reshape(len(runs), -1)).to(data.x.device)
        x, y = self.pool.gather(torch.from_numpy(runs).to(data.x.device), where)
        mask = torch.from_numpy(draw.mask[runs].reshape(shape)).to(x)
        return Batch(x.view(*shape, *data.sample_shape), y.view(shape), mask)


def _stacked(draws: list[Draw], num_ue: int) -> Draw:
    """The draws of all runs as (num_runs, num_ue, longest); what a run lacks is padding in front,
    of no sample.
    """
    shape = (len(draws), num_ue, max(draw.sample.shape[1] for draw in draws))
    sample = np.zeros(shape, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.bool_)
    for r, draw in enumerate(draws):
        lacking = num_ue - len(draw.mask)
        sample[r, lacking:, : draw.sample.shape[1]] = draw.sample
        mask[r, lacking:, : draw.mask.shape[1]] = draw.mask
    return Draw(sample, mask)


def _part(draw: Draw, ranks: slice) -> Draw:
    """The UEs of these ranks, no longer than the longest of them."""
    longest = int(draw.mask[:, ranks].sum(axis=-1).max(initial=0))
    return Draw(draw.sample[:, ranks, :longest], draw.mask[:, ranks, :longest])
