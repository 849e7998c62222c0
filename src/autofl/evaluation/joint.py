"""The evaluation of several runs in one batch, for `simulation.together`: the same numbers as each run's own Judge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from autofl.algorithms.low_rank import Layer, adapted_outputs
from autofl.data.batch import Batch, Draw
from autofl.data.federated import FederatedData, gather_runs
from autofl.errors import AutoFLError
from autofl.evaluation import Evaluator, Piece, alike, by_test_size, draw_piece, mean_of
from autofl.models import Params, cross_entropy
from autofl.records import Evaluation
from autofl.units import Array

MOST_VALUES = 2**30
"""Pixels, padding included, that are judged at a time: 4 GB."""
SMALL = 2**14
"""Samples of a group up to which any padding is cheaper than one more group."""


@dataclass(frozen=True)
class JointJudge:
    """Evaluates the parameters of several runs at once.

    UEs are sorted by their number of test samples; a group has the UEs of the same ranks of every run, as pieces of
    the same shape, one a run.
    """

    evaluator: Evaluator
    data: tuple[FederatedData, ...]
    groups: tuple[tuple[Piece, ...], ...]
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, runs: Sequence[tuple[Evaluator, FederatedData, int]], layers: tuple[Layer, ...]) -> "JointJudge":
        """The judge of these runs: evaluator, data and seed of each."""
        evaluator = runs[0][0]
        if any(each != evaluator for each, _, _ in runs) or evaluator.gradient_norm:
            raise AutoFLError("runs in one batch need the same evaluation, without ||grad F||^2; run them one by one")
        orders = [by_test_size(evaluator, data, seed) for _, data, seed in runs]
        num_ue = max(len(ue) for ue, _ in orders)
        longest = np.max([np.pad(size, (num_ue - len(size), 0)) for _, size in orders], axis=0)
        pieces = [draw_piece(evaluator, data, seed, ue) for (_, data, seed), (ue, _) in zip(runs, orders, strict=True)]
        groups = [
            _same_shape([_some(piece, ranks, num_ue) for piece in pieces], ranks.stop - ranks.start)
            for ranks in alike(len(runs) * longest, small=SMALL)
        ]
        return cls(evaluator, tuple(data for _, data, _ in runs), tuple(groups), layers)

    def __call__(self, params: Params, runs: list[int]) -> list[Evaluation]:
        """Evaluations of these runs, whose parameters have a leading run axis in the same order."""
        each: list[list[Array]] = [[] for _ in runs]
        for group in self.groups:
            rows = group[0].test.sample.size + group[0].train.sample.size
            step = max(1, MOST_VALUES // (rows * math.prod(self.data[0].sample_shape)))
            for begin in range(0, len(runs), step):
                part = {name: p[begin : begin + step] for name, p in params.items()}
                for place, values in enumerate(self._judge(part, group, runs[begin : begin + step]), begin):
                    each[place].append(values)
        evaluations = []
        for r, found in zip(runs, each, strict=True):
            by_ue = np.argsort(np.concatenate([group[r].ue for group in self.groups]))  # sum in the order of the UEs
            means = np.concatenate(found, axis=1)[:, by_ue].mean(axis=1).tolist()
            evaluations.append(Evaluation(*means))
        return evaluations

    def _judge(self, params: Params, group: tuple[Piece, ...], runs: list[int]) -> list[Array]:
        """Of each run both losses and both accuracies of the UEs in this group, shape (4, num_ue)."""
        adapt, train, test = (self._gathered(group, name, runs) for name in ("adapt", "train", "test"))
        on_train, on_test = adapted_outputs(
            self.layers, params, adapt, self.evaluator.inner_lr, [train.x, test.x], [None, None]
        )
        loss = [mean_of(self._each_loss(output, train.y), train.mask) for output in on_train]
        accuracy = [mean_of(output.argmax(dim=-1) == test.y, test.mask) for output in on_test]
        values = np.stack([*loss, *accuracy]).reshape(4, len(runs), -1)
        return [values[:, place, : len(group[r].ue)] for place, r in enumerate(runs)]

    def _gathered(self, group: tuple[Piece, ...], name: str, runs: list[int]) -> Batch:
        draws: list[Draw] = [getattr(group[r], name) for r in runs]
        sample = np.stack([draw.sample for draw in draws])
        data = [self.data[r] for r in runs]
        x, y = gather_runs(data, sample.reshape(len(runs), -1))
        shape = (sample.shape[0] * sample.shape[1], sample.shape[2])
        mask = torch.from_numpy(np.stack([draw.mask for draw in draws]).reshape(shape)).to(x)
        return Batch(x.view(*shape, *data[0].sample_shape), y.view(shape), mask)

    @staticmethod
    def _each_loss(output: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(output.flatten(0, 1), label.flatten()).view(label.shape)


def _some(piece: Piece, ranks: slice, num_ue: int) -> Piece:
    """The UEs of these ranks out of num_ue; a run of fewer UEs lacks the lowest ranks."""
    missing = num_ue - len(piece.ue)
    some = slice(max(ranks.start - missing, 0), max(ranks.stop - missing, 0))
    adapt, train, test = (Draw(d.sample[some], d.mask[some]) for d in (piece.adapt, piece.train, piece.test))
    return Piece(piece.ue[some], adapt, train, test)


def _same_shape(pieces: list[Piece], num_ue: int) -> tuple[Piece, ...]:
    """The same pieces cut or padded to (num_ue, longest)."""

    def padded(draws: list[Draw]) -> list[Draw]:
        longest = max(int(draw.mask.sum(axis=1).max(initial=0)) for draw in draws)
        same = []
        for sample, mask in draws:
            grown = ((0, num_ue - len(mask)), (0, max(longest - mask.shape[1], 0)))
            same.append(Draw(np.pad(sample[:, :longest], grown), np.pad(mask[:, :longest], grown)))
        return same

    drawn = (padded([getattr(piece, name) for piece in pieces]) for name in ("adapt", "train", "test"))
    return tuple(Piece(piece.ue, *draws) for piece, *draws in zip(pieces, *drawn, strict=True))
