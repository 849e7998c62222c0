"""The client updates of a round in low-rank form."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from autofl.algorithms.base import shrinkage
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg
from autofl.data.batch import Batch, Batches, Columns, MetaBatch
from autofl.engines.low_rank.factors import HESS, INNER, OUTER, Factors, Gradient
from autofl.engines.low_rank.images import Conv
from autofl.engines.low_rank.layers import Linear
from autofl.engines.low_rank.network import Network
from autofl.engines.low_rank.recognise import Layer
from autofl.engines.updates import Summed
from autofl.models import Params
from autofl.units import Array, IntArray

ROWS = 800
"""Samples of one batch role in a chunk: large enough for fast products, small enough to stay in the
cache.
"""
GPU_ROWS = 65_536
"""The same where memory is fast and calls are slow."""
IMAGES = 240
"""Samples of one pass in a chunk for a model with convolutions, whose values take some 100 KB a
sample.
"""
GPU_IMAGES = 16_384
"""The same on a GPU."""


def num_images(layers: tuple[Layer, ...], params: Params) -> int:
    """Samples in a chunk for a model with convolutions; 0 for any other model."""
    if not any(isinstance(layer, Conv) for layer in layers):
        return 0
    return IMAGES if _on_cpu(params) else GPU_IMAGES


def _on_cpu(params: Params) -> bool:
    return next(iter(params.values())).device.type == "cpu"


def sample_weight(mask: Tensor) -> Tensor:
    """1 / (number of samples) for a sample, 0 for padding: the loss is the mean over the UE's
    batch.
    """
    return mask / mask.sum(dim=-1, keepdim=True).clamp_(min=1.0)


def _meta_gradient(
    network: Network, batch: Batch, algorithm: PerFedAvg
) -> tuple[Gradient, Tensor | None]:
    """Eq. (7) in factors and where the guard acted, the same steps as `PerFedAvg.guarded_grad`.

    The batch's leading axis is its role.
    """
    weight = sample_weight(batch.mask)
    first = network.first_product(batch.x)

    def part(role: int) -> Batch:
        return Batch(batch.x[role], batch.y[role], batch.mask[role])

    def gradient(at: Network, role: int, keep: bool = False) -> Gradient:
        shared = None if first is None else first[role].clone() if keep else first[role]
        return at.run(part(role), weight[role], role, shared).gradient

    shrunk: bool | Tensor = False
    inner = gradient(network, INNER)
    outer = gradient(network.moved(-algorithm.inner_lr, inner), OUTER)
    if algorithm.variant == "first-order":
        return _clipped(outer, network, algorithm)

    # H v as a difference of two gradients; where the step is too short for it, it is nonsense.
    if algorithm.variant == "finite-difference":
        length = _norm(outer, network.layers)
        s = (algorithm.difference / length.clamp(min=1e-12))[:, None, None]
        ahead = gradient(network.moved(s, outer), HESS, keep=True)
        behind = gradient(network.moved(-s, outer), HESS)
        # In double precision: the squares that Gram matrices give cancel.
        apart = _norm(ahead.plus(-1.0, behind), network.layers, torch.float64)
        sane = algorithm.inner_lr * apart / (2 * s[:, 0, 0]) <= length
        scale = sane.to(s)[:, None, None] * algorithm.inner_lr / (2 * s)
        if algorithm.guard > 0.0:
            moved_by = sane * algorithm.inner_lr * apart / (2 * s[:, 0, 0])
            shrink = shrinkage(algorithm.guard * length, moved_by).to(s)
            shrunk = shrink < 1.0
            scale = shrink[:, None, None] * scale
        difference = outer.plus(-scale, ahead).plus(scale, behind)
        return _clipped(difference, network, algorithm, shrunk)

    product = network.hessian_times(
        part(HESS), weight[HESS], outer, HESS, None if first is None else first[HESS]
    )
    step: float | Tensor = algorithm.inner_lr
    if algorithm.guard > 0.0:
        moved_by = algorithm.inner_lr * _norm(product, network.layers)
        shrink = shrinkage(algorithm.guard * _norm(outer, network.layers), moved_by)
        shrunk = shrink < 1.0
        step = (algorithm.inner_lr * shrink)[:, None, None]
    return _clipped(outer.plus(-step, product), network, algorithm, shrunk)


def _clipped(
    gradient: Gradient,
    network: Network,
    algorithm: FedAvg | PerFedAvg,
    shrunk: bool | Tensor = False,
) -> tuple[Gradient, Tensor | None]:
    """Each UE's gradient as it is followed, and where it was cut, here or before: `Stepping.tamed`."""
    if not algorithm.is_guarded:
        return gradient, None
    length = _norm(gradient, network.layers)
    factor = algorithm.factor(length)
    fine = torch.isfinite(length)
    if algorithm.unit:
        return gradient.only(fine, factor), ~fine | shrunk
    acted = (factor < 1.0) | ~fine | shrunk
    if bool(acted.any()):
        gradient = gradient.only(fine, factor)
    return gradient, acted


def _norm(
    gradient: Gradient, layers: tuple[Layer, ...], dtype: torch.dtype | None = None
) -> Tensor:
    """Length of each UE's gradient; of factors from Gram matrices alone: |sum l r^T|^2 = sum
    (l.l')(r.r' + 1).
    """
    total: Tensor | float = 0.0
    for kernels in gradient.conv:
        assert kernels is not None
        for part in kernels:
            total = total if part is None else total + part.to(dtype).square().flatten(1).sum(dim=1)
    linear = [layer for layer in layers if isinstance(layer, Linear)]
    for layer, parts in zip(linear, gradient.linear, strict=True):
        left = torch.cat([part.scale * part.left for part in parts], dim=1).to(dtype)
        right = torch.cat([part.right for part in parts], dim=1).to(dtype)
        gram = torch.bmm(right, right.mT)
        if layer.bias is not None:
            has = torch.cat(
                [torch.full_like(part.left[0, :, 0], float(part.biased)) for part in parts]
            ).to(dtype)
            gram += has[:, None] * has[None, :]
        total = total + (torch.bmm(left, left.mT) * gram).sum(dim=(1, 2))
    assert isinstance(total, Tensor)
    return total.clamp(min=0.0).sqrt()


def some_runs(params: Params, num_ue: int, at_once: int) -> Iterator[tuple[slice, slice]]:
    """A few runs at a time, with about `at_once` UEs in all, and the UEs of these runs."""
    num_runs = len(next(iter(params.values())))
    num_per_run = num_ue // num_runs
    step = max(1, at_once // num_per_run)
    for begin in range(0, num_runs, step):
        yield slice(begin, begin + step), slice(begin * num_per_run, (begin + step) * num_per_run)


@dataclass(frozen=True)
class LowRankUpdates(Summed):
    """Client updates of which only the sum of the gradients is formed.

    sum_i weight_i w_i / sum_i weight_i = w - beta sum_i share_i (sum of the gradients of UE i's
    steps)
    """

    ue: IntArray
    batches: Batches
    sent: Params
    layers: tuple[Layer, ...]
    algorithm: FedAvg | PerFedAvg

    @property
    def local_steps(self) -> IntArray:
        return self.batches.local_steps

    def num_in_chunk(self) -> int:
        images = num_images(self.layers, self.sent)
        at_once = (
            3 if images and isinstance(self.algorithm, FedAvg) else 1
        )  # FedAvg takes all batches in one pass
        most = images or (ROWS if _on_cpu(self.sent) else GPU_ROWS)
        return max(1, most // max(at_once * self.batches.width, 1))

    @cached_property
    def _narrow(self) -> tuple[Batches, Network, Columns | None]:
        """Batches and network without the inputs that are always 0, where the first layer is
        linear.
        """
        first = self.layers[0]
        batches = self.batches
        columns = None
        if isinstance(first, Linear):
            batches, columns = self.batches.narrowed()
        return (
            batches,
            Network.shared(self.layers, narrow_params(self.layers, self.sent, columns)),
            columns,
        )

    def part(self, rows: IntArray, share: Array) -> Params:
        batches, network, _ = self._narrow
        gradients, self.guarded[rows] = _gradients(
            network, self.algorithm, batches.take(rows), share
        )
        return gradients

    def whole(self, total: Params) -> Params:
        first = self.layers[0]
        columns = self._narrow[2]
        if isinstance(first, Linear) and columns is not None:  # the gradient of a zero input is 0
            total = {**total, first.weight: total[first.weight].index_select(-1, columns.back)}
        return {
            name: p.add(total[name], alpha=-self.algorithm.outer_lr)
            for name, p in self.sent.items()
        }

    def changes(self, rows: IntArray) -> Params:
        """-beta (sum of the gradients of UE i's steps), each UE's formed; with all inputs, as it is
        sent.
        """
        network = Network.shared(self.layers, self.sent)
        own, self.guarded[rows] = _own_gradients(network, self.algorithm, self.batches.take(rows))
        return {name: own[name].mul_(-self.algorithm.outer_lr) for name in self.sent}


def narrow_params(layers: tuple[Layer, ...], params: Params, columns: Columns | None) -> Params:
    """The parameters for inputs of which these columns are left."""
    first = layers[0]
    if columns is None or not isinstance(first, Linear):
        return params
    return {**params, first.weight: params[first.weight].index_select(-1, columns.kept)}


def mean_of_runs(
    layers: tuple[Layer, ...],
    params: Params,
    algorithm: FedAvg | PerFedAvg,
    batch: Batch,
    share: Array,
) -> tuple[Params, IntArray]:
    """The averaged parameters of several independent runs in one batch, and each UE's guarded
    steps.

    Args:
        params: with a leading run axis.
        batch: leading axes (3, num_runs * num_ue, tau), one run's UEs after another's.
        share: each UE's share of its run's average, shape (num_runs * num_ue,); 0 for a UE that is
            padding.
    """
    parts: list[Params] = []
    guarded = np.zeros(batch.y.shape[1], dtype=np.int64)
    num_ue = batch.y.shape[1]
    width = max(batch.y.shape[-1], 1)
    images = num_images(layers, params)
    for runs, ues in some_runs(params, num_ue, images // width if images else num_ue):
        some = Batch(*(part[:, ues] for part in batch))
        network = Network.shared(layers, {name: p[runs] for name, p in params.items()})
        part_sum, guarded[ues] = _gradients(network, algorithm, some, share[ues])
        parts.append(part_sum)
    lr = algorithm.outer_lr
    return {
        name: p.sub(torch.cat([part[name] for part in parts]), alpha=lr)
        for name, p in params.items()
    }, guarded


def _own_gradients(
    network: Network, algorithm: FedAvg | PerFedAvg, batch: Batch
) -> tuple[Params, IntArray]:
    """Each UE's gradient, summed over all steps, stacked along a leading axis, and its guarded
    steps.
    """
    total: Params = {}
    guarded = np.zeros(batch.y.shape[1], dtype=np.int64)
    for gradient, _ in _steps(network, algorithm, batch, guarded):
        linear = [layer for layer in network.layers if isinstance(layer, Linear)]
        for layer, parts in zip(linear, gradient.linear, strict=True):
            for part in parts:
                out = total.get(layer.weight)
                if out is None:
                    out = total[layer.weight] = torch.bmm(part.left.mT, part.right)
                    out *= part.scale
                else:
                    out.baddbmm_(part.left.mT, part.right, alpha=part.scale)
                if layer.bias is not None and part.biased:
                    _add_to(total, layer.bias, part.scale * part.left.sum(dim=1))
        convs = [layer for layer in network.layers if isinstance(layer, Conv)]
        for conv, kernels in zip(convs, gradient.conv, strict=True):
            assert kernels is not None
            _add_to(
                total,
                conv.weight,
                conv.parameter(kernels.weight, like=network.params[conv.weight]).contiguous(),
            )
            if conv.bias is not None and kernels.bias is not None:
                _add_to(total, conv.bias, kernels.bias.clone())
    return total, guarded


def _steps(
    network: Network, algorithm: FedAvg | PerFedAvg, batch: Batch, guarded: IntArray
) -> Iterator[tuple[Gradient, Tensor]]:
    """The gradients of all UEs in each local step, and the step's samples; where the guard acted is
    added up.
    """
    num_steps = batch.y.shape[2]
    for t in range(num_steps):
        step_batch = Batch(batch.x[:, :, t], batch.y[:, :, t], batch.mask[:, :, t])
        if isinstance(algorithm, PerFedAvg):
            gradient, acted = _meta_gradient(network, step_batch, algorithm)
        else:
            joined = MetaBatch.of(step_batch).joined()
            plain = network.run(joined, sample_weight(joined.mask)).gradient
            gradient, acted = _clipped(plain, network, algorithm)
        if acted is not None:
            guarded += acted.cpu().numpy()
        yield gradient, step_batch.x
        if t + 1 < num_steps:
            network = network.moved(-algorithm.outer_lr, gradient)


def _gradients(
    network: Network, algorithm: FedAvg | PerFedAvg, batch: Batch, share: Array
) -> tuple[Params, IntArray]:
    """The sum of these UEs' gradients by their shares, over all steps, and each one's guarded
    steps.
    """
    total: Params = {}
    guarded = np.zeros(batch.y.shape[1], dtype=np.int64)
    is_plain = isinstance(algorithm, FedAvg) and not algorithm.is_guarded
    if is_plain and batch.y.shape[2] == 1 and not network.has_runs:
        # One plain step: no UE has weights of its own, so each of its three parts may pass as a UE.
        parts = Batch(*(part.flatten(0, 2) for part in batch))
        weight = batch.mask / batch.mask.sum(dim=(0, 3), keepdim=True).clamp_(min=1.0)
        gradient = network.run(parts, weight.flatten(0, 2)).gradient
        _add(total, network, gradient, np.tile(share, 3), parts.x)
        return total, guarded
    for gradient, x in _steps(network, algorithm, batch, guarded):
        _add(total, network, gradient, share, x)
    return total, guarded


def _add(total: Params, network: Network, gradient: Gradient, share: Array, x: Tensor) -> None:
    """Add these gradients by their shares to the total, which begins empty."""
    _add_kernels(total, network, gradient, share)
    linear = [layer for layer in network.layers if isinstance(layer, Linear)]
    equal = float(share[0]) if (share == share[0]).all() else None
    ue_share = None if equal is not None else torch.from_numpy(share).to(x)[:, None, None]
    scale = 1.0 if equal is None else equal
    for layer, parts in zip(linear, gradient.linear, strict=True):
        if ue_share is not None:
            parts = [part.scaled(ue_share) for part in parts]
        weight = network.params[layer.weight]
        for left, right, biased in _merged(parts, x, len(weight) if weight.ndim == 3 else None):
            product = torch.baddbmm if weight.ndim == 3 else torch.addmm
            if layer.weight in total:
                product(total[layer.weight], left.mT, right, alpha=scale, out=total[layer.weight])
            else:
                total[layer.weight] = product(weight, left.mT, right, beta=0, alpha=scale)
            if layer.bias is not None and biased:
                _add_to(total, layer.bias, scale * left.sum(dim=-2))


def _add_to(total: Params, name: str, value: Tensor) -> None:
    total[name] = total[name].add_(value) if name in total else value


def _add_kernels(total: Params, network: Network, gradient: Gradient, share: Array) -> None:
    """The same for convolutions, whose gradients are numbers."""
    convs = [layer for layer in network.layers if isinstance(layer, Conv)]
    for layer, kernels in zip(convs, gradient.conv, strict=True):
        assert kernels is not None
        weight = network.params[layer.weight]
        ue_share = (
            torch.from_numpy(share).to(weight).view(len(weight) if weight.ndim == 5 else 1, -1)
        )

        def summed(own: Tensor, ue_share: Tensor = ue_share) -> Tensor:
            return torch.einsum(
                "ru,ru...->r...", ue_share, own.view(*ue_share.shape, *own.shape[1:])
            )

        _add_to(
            total,
            layer.weight,
            layer.parameter(summed(kernels.weight), like=weight).reshape(weight.shape),
        )
        if layer.bias is not None and kernels.bias is not None:
            _add_to(total, layer.bias, summed(kernels.bias).view_as(network.params[layer.bias]))


def _merged(
    parts: list[Factors], x: Tensor, num_runs: int | None
) -> list[tuple[Tensor, Tensor, bool]]:
    """Factors as flat matrices, or one for each run; those on the input become one product over
    adjacent batches.
    """
    on_input: dict[int, Tensor] = {}
    flat: list[tuple[Tensor, Tensor, bool]] = []

    def flattened(factor: Tensor) -> Tensor:
        return factor.reshape(*([] if num_runs is None else [num_runs]), -1, factor.shape[-1])

    for part in parts:
        left = part.left if part.scale == 1.0 else part.scale * part.left
        if part.role is None or len(parts) == 1 or num_runs is not None:
            flat.append((flattened(left), flattened(part.right), part.biased))
        else:
            on_input[part.role] = on_input[part.role] + left if part.role in on_input else left
    if on_input:  # the outer and the Hessian batch lie side by side
        left = torch.cat([flattened(on_input[role]) for role in sorted(on_input)])
        flat.append((left, flattened(x[min(on_input) : max(on_input) + 1]), True))
    return flat
