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
from autofl.evaluation import Evaluator, Piece, draw_piece, judged_ues, mean_of
from autofl.models import Params, cross_entropy
from autofl.records import Evaluation

MOST_VALUES = 2**30
"""Pixels, padding included, that are judged at a time: 4 GB."""


@dataclass(frozen=True)
class JointJudge:
    """Evaluates the parameters of several runs at once; one piece a run, padded to the same shapes."""

    evaluator: Evaluator
    data: tuple[FederatedData, ...]
    pieces: tuple[Piece, ...]
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, runs: Sequence[tuple[Evaluator, FederatedData, int]], layers: tuple[Layer, ...]) -> "JointJudge":
        """The judge of these runs: evaluator, data and seed of each."""
        evaluator = runs[0][0]
        if any(each != evaluator for each, _, _ in runs) or evaluator.gradient_norm:
            raise AutoFLError("runs in one batch need the same evaluation, without ||grad F||^2; run them one by one")
        pieces = [
            draw_piece(evaluator, data, seed, np.sort(judged_ues(evaluator, data.partition.num_ue, seed)))
            for _, data, seed in runs
        ]
        num_ue = max(len(piece.ue) for piece in pieces)
        adapt, train, test = (
            _same_shape([getattr(piece, name) for piece in pieces], num_ue) for name in ("adapt", "train", "test")
        )
        same = tuple(Piece(piece.ue, a, b, c) for piece, a, b, c in zip(pieces, adapt, train, test, strict=True))
        return cls(evaluator, tuple(data for _, data, _ in runs), same, layers)

    def __call__(self, params: Params, runs: list[int]) -> list[Evaluation]:
        """Evaluations of these runs, whose parameters have a leading run axis in the same order."""
        rows = max(piece.test.sample.size + piece.train.sample.size for piece in self.pieces)
        step = max(1, MOST_VALUES // (rows * math.prod(self.data[0].sample_shape)))
        found: list[Evaluation] = []
        for begin in range(0, len(runs), step):
            part = {name: p[begin : begin + step] for name, p in params.items()}
            found += self._judge(part, runs[begin : begin + step])
        return found

    def _judge(self, params: Params, runs: list[int]) -> list[Evaluation]:
        adapt, train, test = (self._gathered(name, runs) for name in ("adapt", "train", "test"))
        on_train, on_test = adapted_outputs(
            self.layers, params, adapt, self.evaluator.inner_lr, [train.x, test.x], [None, None]
        )
        loss = [mean_of(self._each_loss(output, train.y), train.mask) for output in on_train]
        accuracy = [mean_of(output.argmax(dim=-1) == test.y, test.mask) for output in on_test]
        evaluations = []
        num_ue = len(self.pieces[0].test.sample)
        for place, r in enumerate(runs):
            mine = slice(place * num_ue, place * num_ue + len(self.pieces[r].ue))
            means = [float(values[mine].mean()) for values in (*loss, *accuracy)]
            evaluations.append(Evaluation(means[0], means[1], means[2], means[3], float("nan")))
        return evaluations

    def _gathered(self, name: str, runs: list[int]) -> Batch:
        draws: list[Draw] = [getattr(self.pieces[r], name) for r in runs]
        sample = np.stack([draw.sample for draw in draws])
        data = [self.data[r] for r in runs]
        x, y = gather_runs(data, sample.reshape(len(runs), -1))
        shape = (sample.shape[0] * sample.shape[1], sample.shape[2])
        mask = torch.from_numpy(np.stack([draw.mask for draw in draws]).reshape(shape)).to(x)
        return Batch(x.view(*shape, *data[0].sample_shape), y.view(shape), mask)

    @staticmethod
    def _each_loss(output: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(output.flatten(0, 1), label.flatten()).view(label.shape)


def _same_shape(draws: list[Draw], num_ue: int) -> list[Draw]:
    """The same draws with rows and columns of padding, all (num_ue, longest)."""
    longest = max(draw.sample.shape[1] for draw in draws)
    grown = [((0, num_ue - draw.sample.shape[0]), (0, longest - draw.sample.shape[1])) for draw in draws]
    return [Draw(np.pad(draw.sample, by), np.pad(draw.mask, by)) for draw, by in zip(draws, grown, strict=True)]
