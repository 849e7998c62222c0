"""The evaluation of several runs in one batch, for `simulation.together`: the same numbers as for
each run alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
    each_loss,
    groups_of_like_size,
    mean_of,
)
from autofl.models import Params
from autofl.quality import Evaluation
from autofl.units import IntArray

MOST_VALUES = 2**30
"""Pixels, padding included, that are judged at a time: 4 GB."""
SMALL = 2**14
"""Samples of a group up to which any padding is cheaper than one more group."""


class Drawn(NamedTuple):
    """Which samples the UEs of a group take in each run: indices and mask, shape (num_runs, num_ue,
    num).
    """

    sample: Tensor
    mask: Tensor


class Group(NamedTuple):
    """UEs of the same ranks of every run, padded to the same numbers of UEs and samples."""

    adapt: Drawn
    train: Drawn
    test: Drawn


@dataclass(frozen=True)
class JointEvaluator:
    """Evaluates the parameters of several runs at once.

    UEs are sorted by their number of test samples, so that little is padded. `columns` are the
    places of each run's UEs among those of all groups, one group's after another's, in the order of
    the UEs' numbers.
    """

    evaluator: Evaluator
    pool: RunPool
    groups: tuple[Group, ...]
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
        num_ue = max(len(ue) for ue, _ in orders)
        # A run of fewer UEs lacks the lowest ranks.
        longest = np.max([np.pad(size, (num_ue - len(size), 0)) for _, size in orders], axis=0)
        pieces = [
            draw_piece(evaluator, data, seed, ue)
            for (_, data, seed), (ue, _) in zip(runs, orders, strict=True)
        ]
        drawn = {
            name: _stacked([getattr(piece, name) for piece in pieces], num_ue)
            for name in Group._fields
        }
        groups = [
            Group(
                **{
                    name: _drawn_on_device(all_ues, ranks, runs[0][1])
                    for name, all_ues in drawn.items()
                }
            )
            for ranks in groups_of_like_size(len(runs) * longest, small=SMALL)
        ]
        columns = [num_ue - len(ue) + np.argsort(ue) for ue, _ in orders]
        return cls(
            evaluator,
            RunPool(tuple(data for _, data, _ in runs)),
            tuple(groups),
            tuple(columns),
            layers,
        )

    def __call__(self, params: Params, runs: list[int]) -> list[Evaluation]:
        """Evaluations of these runs, whose parameters have a leading run axis in the same order."""
        values_by_group: list[Tensor] = []
        which = torch.tensor(runs, device=self.pool.runs[0].x.device)
        for group in self.groups:
            rows = group.test.sample[0].numel() + group.train.sample[0].numel()
            step = max(1, MOST_VALUES // max(1, rows * math.prod(self.pool.runs[0].sample_shape)))
            parts = [
                self._judge(
                    {name: p[begin : begin + step] for name, p in params.items()}, group, some
                )
                for begin, some in zip(
                    range(0, len(runs), step), torch.split(which, step), strict=True
                )
            ]
            values_by_group.append(torch.cat(parts, dim=1))
        values = torch.cat(values_by_group, dim=2).cpu().numpy()
        means = [values[:, place, self.columns[r]].mean(axis=1) for place, r in enumerate(runs)]
        return [
            replace(Evaluation(*metrics.tolist()), adapt_lr=self.evaluator.inner_lr)
            for metrics in means
        ]

    def _judge(self, params: Params, group: Group, runs: Tensor) -> Tensor:
        """Both losses and both accuracies of the UEs in this group, shape (4, num_runs, num_ue)."""
        adapt, train, test = (self._gathered(drawn, runs) for drawn in group)
        on_train, on_test = adapted_outputs(
            self.layers, params, adapt, self.evaluator.inner_lr, [train.x, test.x], [None, None]
        )
        loss = [mean_of(each_loss(output, train.y), train.mask) for output in on_train]
        accuracy = [mean_of(output.argmax(dim=-1) == test.y, test.mask) for output in on_test]
        return torch.stack([*loss, *accuracy]).view(4, len(runs), -1)

    def _gathered(self, drawn: Drawn, runs: Tensor) -> Batch:
        sample = drawn.sample[runs]
        mask = drawn.mask[runs]
        x, y = self.pool.gather(runs, sample.flatten(1))
        shape = (sample.shape[0] * sample.shape[1], sample.shape[2])
        return Batch(
            x.view(*shape, *self.pool.runs[0].sample_shape), y.view(shape), mask.view(shape)
        )


def _stacked(draws: list[Draw], num_ue: int) -> Draw:
    """The draws of all runs as (num_runs, num_ue, longest); what a run lacks is padding in front,
    of no sample.
    """
    longest = max(draw.sample.shape[1] for draw in draws)
    grown = [((num_ue - len(draw.mask), 0), (0, longest - draw.mask.shape[1])) for draw in draws]
    sample, mask = (
        np.stack([np.pad(getattr(draw, name), by) for draw, by in zip(draws, grown, strict=True)])
        for name in ("sample", "mask")
    )
    return Draw(sample, mask)


def _drawn_on_device(draw: Draw, ranks: slice, like: FederatedData) -> Drawn:
    """The UEs of these ranks, no longer than the longest of them, in the memory of the data's
    device.
    """
    longest = int(draw.mask[:, ranks].sum(axis=-1).max(initial=0))
    sample, mask = (torch.from_numpy(array[:, ranks, :longest]).to(like.x.device) for array in draw)
    return Drawn(sample, mask.to(like.dtype))
