"""How good a model is: on each UE's own test data, as it is and adapted by one step, and how far
from stationary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from autofl.algorithms import PerFedAvg, minus
from autofl.data.batch import Batch, Columns, Draw, MetaBatch, draw_positions
from autofl.data.federated import FederatedData
from autofl.engines import ClientMemory
from autofl.engines.low_rank import (
    Layer,
    Linear,
    adapted_outputs,
    input_gram,
    low_rank_layers,
    narrow_params,
    outputs_by_rate,
)
from autofl.evaluation.personal import PersonalModels
from autofl.models import Loss, Params, cross_entropy, loss_of, outputs
from autofl.quality import Evaluation
from autofl.rng import stream
from autofl.units import Array, IntArray

RATES = tuple(0.0125 * 2.0**j for j in range(8))
"""Step sizes that a UE tries where it measures its own."""
ROWS = 4096
"""Samples, padding included, in one piece of an evaluation: its memory does not grow with the data.
"""
MOST_KEPT = 2**26
"""Elements of samples and Gram matrices that are kept from one evaluation to the next: 256 MB."""


@dataclass(frozen=True)
class Evaluator:
    """Settings of an evaluation; `prepare` draws the samples once and returns what evaluates models
    on them.

    Fields:
        inner_lr: alpha of the adaptation step.
        measured: each UE takes instead the step of `RATES` after which its loss is least, on the
            samples of the training loss that it does not adapt with. No test sample is used.
        adapt_samples: training samples of that step at each UE, the same for every algorithm.
        train_samples: training samples of each UE on which the training loss is measured.
        test_samples: test samples of each UE, None for all.
        num_ue: UEs judged, drawn once, None for all.
        gradient_norm: whether to measure ||grad F||^2 over all training samples too (slow).
    """

    inner_lr: float
    adapt_samples: int = 50
    train_samples: int = 100
    test_samples: int | None = None
    num_ue: int | None = None
    gradient_norm: bool = False
    measured: bool = False

    def prepare(
        self,
        model: nn.Module,
        data: FederatedData,
        seed: int,
        personal: PersonalModels | None = None,
        fast: bool = True,
    ) -> "PreparedEvaluator":
        """What evaluates this model on this data; the samples depend on the seed alone.

        `personal` says which model is meant by "adapted" where an algorithm has its own. `fast`
        takes the low-rank form of adaptation where the model allows it; without it each UE's
        weights are formed, the slow reference.
        """
        layers = low_rank_layers(model) if fast and personal is None else None
        inputs, _, first = _inputs(data, layers)
        return PreparedEvaluator(
            self, model, data, tuple(_pieces(self, inputs, seed, first)), layers, personal
        )


class Samples(NamedTuple):
    """The samples some UEs are judged on, and the Gram matrices of train and test with adapt, where
    they are known.
    """

    adapt: Batch
    train: Batch
    test: Batch
    grams: tuple[Tensor | None, Tensor | None] = (None, None)


@dataclass(frozen=True)
class Piece:
    """Some UEs and which samples they are judged on, shapes (num_ue, num); `kept` are the samples,
    if in memory.
    """

    ue: IntArray
    adapt: Draw
    train: Draw
    test: Draw
    kept: Samples | None = None


@dataclass(frozen=True)
class PreparedEvaluator:
    """Evaluates parameters: means over UEs.

    Accuracy counts argmax(output) == label on the UE's own test samples. "Adapted" is w - alpha
    g(w; D_a) with D_a drawn from the UE's training samples. Losses are f(w) and F(w), Eq. (1) and
    (3), on training samples.
    """

    evaluator: Evaluator
    model: nn.Module
    data: FederatedData
    pieces: tuple[Piece, ...]
    layers: tuple[Layer, ...] | None  # of the low-rank form; None forms each UE's weights
    personal: PersonalModels | None = None

    def __call__(self, params: Params, memory: ClientMemory | None = None) -> Evaluation:
        values, adapt_lr = self.by_ue(params, memory)
        gradient = float("nan")
        if self.evaluator.gradient_norm:
            loss = loss_of(self.model)
            gradient = gradient_norm_sq(loss, params, self.data, self.evaluator.inner_lr)
        means = Evaluation(*values.mean(axis=1).tolist())
        return replace(means, gradient_norm_sq=gradient, adapt_lr=adapt_lr)

    def by_ue(self, params: Params, memory: ClientMemory | None = None) -> tuple[Array, float]:
        """What `judged` says of each UE, in the order of their numbers, shape (4, num_ue), and
        alpha: the mean of those that they measure.
        """
        measures = self.evaluator.measured and self.personal is None
        values: list[Array] = []
        rates: list[Array] = []

        # Where the first layer is linear, inputs that are always 0 are left out.
        data, columns, _ = _inputs(self.data, self.layers)
        if self.layers is not None:
            params = narrow_params(self.layers, params, columns)
        for piece in self.pieces:
            adapt, train, test, grams = piece.kept or _gathered(piece, data)
            rate: float | Tensor = self.evaluator.inner_lr
            if measures:
                best = self._measured_rate(params, piece, adapt, train, grams[0])
                rate = torch.tensor(RATES).to(train.mask)[best]
                rates.append(np.array(RATES)[best.cpu().numpy()])
            on_both = self._outputs(params, adapt, (train, test), grams, piece.ue, memory, rate)
            values.append(judged(on_both, train, test).cpu().numpy())

        # Pieces have UEs of like numbers of samples; means are summed in the order of the UEs.
        order = np.argsort(np.concatenate([piece.ue for piece in self.pieces]))
        alpha = self.evaluator.inner_lr
        if measures:
            alpha = float(np.concatenate(rates)[order].mean())
        return np.concatenate(values, axis=1)[:, order], alpha

    def _measured_rate(
        self, params: Params, piece: Piece, adapt: Batch, train: Batch, gram: Tensor | None
    ) -> Tensor:
        """Which of `RATES` leaves each UE the least loss, on training samples that it has not
        adapted with.

        A UE that has no others is judged on those. Shape (num_ue,).
        """
        adapted_with = np.where(piece.adapt.mask, piece.adapt.sample, -1)
        is_used = (piece.train.sample[:, :, None] == adapted_with[:, None]).any(-1)
        fresh = train.mask * torch.from_numpy(~is_used).to(train.mask)
        mask = torch.where(fresh.sum(dim=-1, keepdim=True) > 0.0, fresh, train.mask)

        if self.layers is not None:
            tried = outputs_by_rate(self.layers, params, adapt, RATES, train.x, gram)
        else:
            gradients = self._gradients(params, adapt)
            tried = (self._own_outputs(_moved(params, r, gradients), train) for r in RATES)
        losses = [mean_of(each_loss(output, train.y), mask) for output in tried]
        return torch.stack(losses).nan_to_num(nan=torch.inf).argmin(dim=0)

    def _outputs(
        self,
        params: Params,
        adapt: Batch,
        on: tuple[Batch, Batch],
        grams: tuple[Tensor | None, Tensor | None],
        ue: IntArray,
        memory: ClientMemory | None,
        rate: float | Tensor,
    ) -> list[tuple[Tensor, Tensor]]:
        """For each batch the outputs of the global and of the adapted model, shapes (num_ue, num,
        num_classes).
        """
        if self.layers is not None:
            inputs = [batch.x for batch in on]
            return adapted_outputs(self.layers, params, adapt, rate, inputs, list(grams))
        own = self._adapted(params, adapt, ue, memory, rate)
        both = []
        for batch in on:
            flat = outputs(self.model, params, batch.x.flatten(0, 1))
            shared = flat.view(*batch.y.shape, flat.shape[-1])
            both.append((shared, self._own_outputs(own, batch)))
        return both

    def _own_outputs(self, own: Params, batch: Batch) -> Tensor:
        """Outputs of each UE's own model, shape (num_ue, num, num_classes)."""
        rows = [
            outputs(self.model, {name: stack[row] for name, stack in own.items()}, batch.x[row])
            for row in range(len(batch.x))
        ]
        return torch.stack(rows)

    def _gradients(self, params: Params, adapt: Batch) -> Params:
        """Each UE's gradient on its adaptation samples, stacked."""
        loss = loss_of(self.model)
        return vmap(lambda mine: grad(loss)(params, mine))(adapt)

    def _adapted(
        self,
        params: Params,
        adapt: Batch,
        ue: IntArray,
        memory: ClientMemory | None,
        rate: float | Tensor,
    ) -> Params:
        """Each UE's own model, stacked: one step from the global one, or what the algorithm says."""
        if self.personal is not None:
            of, first = self.personal
            remembered = (memory or ClientMemory()).read_all("client", ue, first)
            if not first:
                return vmap(lambda mine: of(params, mine, {}))(adapt)
            return vmap(lambda mine, own: of(params, mine, own))(adapt, remembered)
        return _moved(params, rate, self._gradients(params, adapt))


def _moved(params: Params, rate: float | Tensor, gradients: Params) -> Params:
    """Each UE's model after a step, stacked; UEs may have rates of their own, shape (num_ue,)."""
    if isinstance(rate, Tensor):
        gradients = {name: rate.view(-1, *[1] * (g.ndim - 1)) * g for name, g in gradients.items()}
        rate = 1.0
    return minus(params, rate, gradients)


def _inputs(
    data: FederatedData, layers: tuple[Layer, ...] | None
) -> tuple[FederatedData, Columns | None, Linear | None]:
    """The data as this form of an evaluation takes them, which inputs these are, the first layer
    where it is linear.
    """
    first = layers[0] if layers is not None else None
    return (data.narrow, data.columns, first) if isinstance(first, Linear) else (data, None, None)


def judged(on_both: Sequence[tuple[Tensor, Tensor]], train: Batch, test: Batch) -> Tensor:
    """Training loss and test accuracy of each UE, shape (4, num_ue): the loss of the global and of
    the adapted model, then the accuracy of both, from the outputs of both on `train` and on `test`.
    """
    on_train, on_test = on_both
    loss = [mean_of(each_loss(output, train.y), train.mask) for output in on_train]
    accuracy = [mean_of(output.argmax(dim=-1) == test.y, test.mask) for output in on_test]
    return torch.stack([*loss, *accuracy])


def each_loss(output: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of each sample, shape (num_ue, num)."""
    return cross_entropy(output.flatten(0, 1), label.flatten()).view(label.shape)


def mean_of(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the unmasked samples of each UE, float64."""
    weighted = (values.to(mask.dtype) * mask).sum(dim=-1) / mask.sum(dim=-1)
    return weighted.double()


def _pieces(
    evaluator: Evaluator, data: FederatedData, seed: int, first: Linear | None
) -> Iterator[Piece]:
    """The pieces of an evaluation; those of a network whose first layer is linear keep their
    samples in memory.
    """
    kept = 0
    order, num_test = by_test_size(evaluator, data, seed)
    for some in groups_of_like_size(num_test, small=512, most=ROWS):
        piece = draw_piece(evaluator, data, seed, order[some])
        judged = piece.train.sample.size + piece.test.sample.size
        adapt = piece.adapt.sample
        kept += (judged + adapt.size) * math.prod(data.sample_shape) + judged * adapt.shape[-1]
        keep = first is not None and kept <= MOST_KEPT
        yield replace(piece, kept=_gathered(piece, data, first)) if keep else piece


def by_test_size(evaluator: Evaluator, data: FederatedData, seed: int) -> tuple[IntArray, IntArray]:
    """The UEs that are judged and their numbers of test samples, ascending."""
    size = data.partition.test_size
    num_test = size if evaluator.test_samples is None else np.minimum(size, evaluator.test_samples)
    judged = evaluated_ues(evaluator, data.partition.num_ue, seed)
    order = judged[np.argsort(num_test[judged], kind="stable")]
    return order, num_test[order]


def groups_of_like_size(size: IntArray, small: int, most: int | None = None) -> Iterator[slice]:
    """Neighbours among ascending sizes, so that little is padded when each is filled up to the
    largest of them.

    At most a tenth is padding, unless there are no more than `small` in all; at most `most` in all,
    but at least one.
    """
    begin = 0
    while begin < len(size):
        rest = size[begin:]
        padded = np.arange(1, len(rest) + 1) * rest
        real = np.cumsum(rest)
        fits = padded <= np.maximum(1.1 * real, small)
        if most is not None:
            fits &= padded <= most
        num = max(int(np.argmin(fits)) if not fits.all() else len(rest), 1)
        yield slice(begin, begin + num)
        begin += num


def evaluated_ues(evaluator: Evaluator, num_ue: int, seed: int) -> IntArray:
    """The UEs that are judged: all, or `num_ue` of them, drawn once."""
    if evaluator.num_ue is None or evaluator.num_ue >= num_ue:
        return np.arange(num_ue)
    return stream(seed, "judged").choice(num_ue, evaluator.num_ue, replace=False)


def draw_piece(evaluator: Evaluator, data: FederatedData, seed: int, ue: IntArray) -> Piece:
    """The samples on which these UEs are judged."""
    part = data.partition
    most = evaluator.test_samples
    if most is None:
        most = int(part.test_size.max())
    train = (part.train, part.train_start, part.train_size)
    test = (part.test, part.test_start, part.test_size)
    return Piece(
        ue=ue,
        adapt=_draw(*train, ue, evaluator.adapt_samples, seed, "adapt"),
        train=_draw(*train, ue, evaluator.train_samples, seed, "train-loss"),
        test=_draw(*test, ue, most, seed, "test"),
    )


def _gathered(piece: Piece, data: FederatedData, first: Linear | None = None) -> Samples:
    """The samples of a piece: to use once or, where the first layer is given, to keep with their
    Gram matrices.
    """
    if first is None:  # in memory that the next piece uses again
        return Samples(
            data.batch(piece.adapt, "adapt"),
            data.batch(piece.train, "train"),
            data.batch(piece.test, "test"),
        )
    adapt, train, test = (data.batch(draw) for draw in (piece.adapt, piece.train, piece.test))
    grams = (input_gram(first, train.x, adapt.x), input_gram(first, test.x, adapt.x))
    return Samples(adapt, train, test, grams)


def _draw(
    samples: IntArray,
    start: IntArray,
    size: IntArray,
    ue: IntArray,
    at_most: int,
    seed: int,
    purpose: str,
) -> Draw:
    """At most `at_most` samples of each UE, without replacement: all of them, in order, where there
    are no more.
    """
    num = np.minimum(size[ue], at_most)
    slot = np.arange(int(num.max(initial=0)))
    if (size[ue] <= at_most).all():
        positions = np.minimum(slot, num[:, None] - 1)
    else:
        positions = draw_positions(size[ue], num, ue, 1, seed, purpose, 0)[:, 0]
    return Draw(samples[start[ue][:, None] + positions], slot < num[:, None])


def gradient_norm_sq(loss: Loss, params: Params, data: FederatedData, inner_lr: float) -> float:
    """||grad F(w)||^2, F as in Eq. (3), over all training samples of all UEs: what (C1.1) bounds."""
    exact = PerFedAvg(inner_lr=inner_lr, outer_lr=1.0)
    total: dict[str, Tensor] = {name: torch.zeros_like(p) for name, p in params.items()}
    for u in range(data.partition.num_ue):
        own = _owned(data, u)
        total = minus(
            total,
            -1.0 / data.partition.num_ue,
            exact.meta_grad(loss, params, MetaBatch(own, own, own)),
        )
    return float(torch.stack([(g.double() ** 2).sum() for g in total.values()]).sum())


def objective(loss: Loss, params: Params, data: FederatedData, inner_lr: float) -> float:
    """F(w) = (1/n) sum_i f_i(w - alpha grad f_i(w)), Eq. (3), over all training samples of all UEs."""
    losses = []
    for u in range(data.partition.num_ue):
        own = _owned(data, u)
        losses.append(float(loss(minus(params, inner_lr, grad(loss)(params, own)), own)))
    return sum(losses) / len(losses)


def _owned(data: FederatedData, ue: int) -> Batch:
    """All training samples of a UE."""
    x, y = data.gather(data.partition.train_of(ue), "gradient")
    return Batch(x, y, torch.ones(len(y), dtype=data.dtype, device=x.device))
