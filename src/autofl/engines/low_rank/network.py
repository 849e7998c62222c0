"""Passes over all UEs at once under shared weights plus each UE's own change of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from autofl.data.batch import Batch
from autofl.engines.low_rank.factors import Factors, Gradient, Kernels
from autofl.engines.low_rank.images import Conv
from autofl.engines.low_rank.layers import Activation, Linear
from autofl.engines.low_rank.recognise import Layer
from autofl.models import Params


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass over one batch, with what a Hessian product on it needs."""

    gradient: Gradient
    values: list[Tensor]  # the input of each layer and the output
    kept: list[Any]  # what each layer without parameters keeps besides
    probability: Tensor  # softmax of the output, (num_ue, num, num_classes)
    deltas: list[Tensor]  # the derivative of the loss after each layer, the last layer's first


@dataclass(frozen=True)
class Network:
    """The layers under shared parameters plus each UE's own change.

    Parameters may have a leading run axis: the UEs then are those of all runs, one run's after
        another's.
    """

    layers: tuple[Layer, ...]
    params: Params
    own: Gradient

    @classmethod
    def shared(cls, layers: tuple[Layer, ...], params: Params) -> "Network":
        """The layers under the shared parameters alone."""
        return cls(layers, params, Gradient.zero(layers))

    @property
    def has_runs(self) -> bool:
        """Whether the parameters have a leading run axis."""
        layer = next(layer for layer in self.layers if isinstance(layer, Linear | Conv))
        return self.params[layer.weight].ndim > (2 if isinstance(layer, Linear) else 4)

    def moved(self, scale: float | Tensor, direction: Gradient) -> "Network":
        return Network(self.layers, self.params, self.own.plus(scale, direction))

    def first_product(self, x: Tensor) -> Tensor | None:
        """The first layer's shared product for all three batches at once, where the first layer is
        linear.
        """
        layer = self.layers[0]
        return self._shared(layer, x) if isinstance(layer, Linear) else None

    def before_weights(self, x: Tensor) -> list[Tensor]:
        """The input of each layer up to the first with parameters: the same whatever the parameters
        are.
        """
        values = [x]
        for layer in self.layers:
            if isinstance(layer, Linear | Conv):
                break
            values.append(layer.forward(values[-1])[0])
        return values

    def _shared(self, layer: Linear, x: Tensor) -> Tensor:
        """x W^T + b for all UEs in one large product."""
        weight = self.params[layer.weight]
        if layer.bias is None:
            return _product(x, weight.mT)
        bias = self.params[layer.bias]
        if weight.ndim == 2:
            y = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight.T)
            return y.view(*x.shape[:-1], len(weight))
        y = _product(x, weight.mT)
        y.view(*x.shape[:-3], len(bias), -1, bias.shape[-1]).add_(bias[:, None])
        return y

    @cached_property
    def kernels(self) -> list[Kernels]:
        """The weights of each convolution: one for all UEs, one a run, or where UEs have their own,
        one each.
        """
        convs = [layer for layer in self.layers if isinstance(layer, Conv)]
        return [self._kernels(layer, own) for layer, own in zip(convs, self.own.conv, strict=True)]

    def _kernels(self, layer: Conv, own: Kernels | None) -> Kernels:
        weight = layer.matrix(self.params[layer.weight])
        bias = None if layer.bias is None else self.params[layer.bias].view(len(weight), -1)
        shared = Kernels(weight, bias)
        if own is None:
            return shared
        return (
            shared if len(weight) == 1 else shared.for_each(len(own.weight) // len(weight))
        ).plus(own)

    def forward(
        self, begin: list[Tensor], first: Tensor | None = None, gram: Tensor | None = None
    ) -> tuple[list[Tensor], list[Any]]:
        """The input of each layer and the output, and what the layers without parameters keep.

        Args:
            begin: `before_weights` of the samples.
            first: `first_product` of the samples, overwritten, or what `first_pair` says.
            gram: Gram matrix of them with the one own factor of the first layer, where it is known
                already.
        """
        values = list(begin)
        kept: list[Any] = [None] * (len(begin) - 1)  # no derivative is needed there
        linear = iter(self.own.linear)
        conv = iter(self.kernels)
        for layer in self.layers[len(begin) - 1 :]:
            x = values[-1]
            keep = None
            if isinstance(layer, Linear):
                mine = next(linear)
                y = self._shared(layer, x) if first is None or len(values) > 1 else first
                if gram is not None and len(values) == 1:
                    y = y.baddbmm_(gram, mine[0].left, alpha=mine[0].scale)
                else:
                    y = _add_own(y, x, mine, layer.bias is not None)
            elif isinstance(layer, Conv):
                kernels = next(conv)
                if first is not None and len(values) == len(begin):
                    y = first
                else:
                    y = _add_bias(layer.forward(kernels.weight, x), kernels.bias)
            else:
                y, keep = layer.forward(x)
            values.append(y)
            kept.append(keep)
        return values, kept

    def run(
        self,
        batch: Batch,
        weight: Tensor,
        role: int | None = None,
        first: Tensor | None = None,
        begin: list[Tensor] | None = None,
        deltas_only: bool = False,
    ) -> Pass:
        """Forward and backward, the loss being sum(weight * cross-entropy).

        `first` and `begin` are `first_product` and `before_weights` of the batch, where they are
        known already. With `deltas_only` the gradient of a convolution is left out: a Hessian
        product does not need it.
        """
        values, kept = self.forward(self.before_weights(batch.x) if begin is None else begin, first)
        probability = _softmax(values[-1])
        delta = probability.scatter_add(
            -1, batch.y[..., None], weight.new_full((1, 1, 1), -1.0).expand(*batch.y.shape, 1)
        )
        delta *= weight[..., None]
        gradient = Gradient([], [])
        deltas: list[Tensor] = []
        own = _Backwards(self.own.linear, self.kernels)
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            x = values[place]
            deltas.append(delta)
            if isinstance(layer, Linear):
                mine = own.linear()
                gradient.linear.insert(0, [Factors(delta, x, role=role if place == 0 else None)])
                if own.all_done():  # the first layer with parameters: nothing below has any
                    break
                delta = _add_back(_product(delta, self.params[layer.weight]), delta, mine)
            elif isinstance(layer, Conv):
                kernels = own.conv()
                gradient.conv.insert(0, None if deltas_only else _kernel_gradient(layer, delta, x))
                if own.all_done():
                    break
                delta = layer.backward(kernels.weight, delta, x)
            else:
                delta = layer.pull(delta, x, kept[place])
        return Pass(gradient, values, kept, probability, deltas)

    def first_pair(self, x: Tensor, other: Kernels) -> tuple[Tensor, Tensor]:
        """What the first layer, a convolution, makes of x under these weights and under others, in
        one product.
        """
        layer = next(layer for layer in self.layers if isinstance(layer, Conv))
        mine = self.kernels[0]
        weight = torch.cat([mine.for_each(len(x) // len(mine.weight)).weight, other.weight], dim=1)
        one, two = layer.forward(weight, x).chunk(2, dim=2)
        return _add_bias(one, mine.bias), _add_bias(two, other.bias)

    def hessian_times(
        self, batch: Batch, weight: Tensor, v: Gradient, role: int, first: Tensor | None = None
    ) -> Gradient:
        """H v, by the derivative of the passes along v (forward over reverse)."""
        begin = self.before_weights(batch.x)
        first_tangent = None
        if v.conv and v.conv[0] is not None:
            first, first_tangent = self.first_pair(begin[-1], v.conv[0])
        done = self.run(batch, weight, role, first, begin, deltas_only=True)
        output, tangents = self._push(done, v, first_tangent)
        # The delta at the output is weight (p - onehot); its tangent is weight (p t - p (p.t)).
        spread = done.probability * output
        t_delta = spread.addcmul_(done.probability, spread.sum(dim=-1, keepdim=True), value=-1.0)
        t_delta *= weight[..., None]
        product = Gradient([], [])
        own = _Backwards(self.own.linear, self.kernels)
        along = _Backwards(v.linear, v.conv)
        for place, delta in zip(range(len(self.layers) - 1, -1, -1), done.deltas, strict=False):
            layer = self.layers[place]
            x = done.values[place]
            t = tangents[place]
            if isinstance(layer, Linear):
                parts = [Factors(t_delta, x, role=role if place == 0 else None)]
                if t is not None:
                    parts.append(Factors(delta, t, biased=False))
                product.linear.insert(0, parts)
                mine = own.linear()
                way = along.linear()
                if own.all_done():
                    break
                t_delta = _add_back(_product(t_delta, self.params[layer.weight]), t_delta, mine)
                t_delta = _add_back(t_delta, delta, way)
            elif isinstance(layer, Conv):
                kernels = own.conv()
                turn = along.conv()
                change = _kernel_gradient(layer, t_delta, x)
                if t is not None:
                    change = Kernels(change.weight + layer.weight_gradient(delta, t), change.bias)
                product.conv.insert(0, change)
                if own.all_done():
                    break
                t_delta = layer.backward(kernels.weight, t_delta, x)
                t_delta = layer.backward(turn.weight, delta, x, onto=t_delta)
            else:
                t_delta = layer.pull(t_delta, x, done.kept[place])
                if isinstance(layer, Activation) and layer.bend is not None and t is not None:
                    t_delta = t_delta.addcmul_(delta * layer.bend(x), t)
        return product

    def _push(
        self, done: Pass, v: Gradient, first: Tensor | None
    ) -> tuple[Tensor, list[Tensor | None]]:
        """The tangent of the output along v, and of each layer's input; None stands for zero."""
        tangents: list[Tensor | None] = []
        t: Tensor | None = None
        linear = zip(v.linear, self.own.linear, strict=True)
        conv = zip(v.conv, self.kernels, strict=True)
        for layer, x, keep in zip(self.layers, done.values, done.kept, strict=False):
            tangents.append(t)
            if isinstance(layer, Linear):
                way, mine = next(linear)
                if t is None:
                    out = x.new_zeros(*x.shape[:-1], self.params[layer.weight].shape[-2])
                else:
                    out = _add_own(
                        _product(t, self.params[layer.weight].mT), t, mine, has_bias=False
                    )
                t = _add_own(out, x, way, layer.bias is not None)
            elif isinstance(layer, Conv):
                turn, kernels = next(conv)
                assert turn is not None
                if t is None and first is not None:
                    t = first
                    continue
                out = _add_bias(layer.forward(turn.weight, x), turn.bias)
                t = out if t is None else layer.forward(kernels.weight, t, onto=out)
            elif t is not None:
                t = layer.push(t, x, keep)
        assert t is not None
        return t, tangents


class _Backwards:
    """Each layer's weights or changes, the last layer's first."""

    def __init__(
        self, linear: list[list[Factors]], conv: list[Kernels] | list[Kernels | None]
    ) -> None:
        self._linear = list(linear)
        self._conv = list(conv)

    def linear(self) -> list[Factors]:
        return self._linear.pop()

    def conv(self) -> Kernels:
        kernels = self._conv.pop()
        assert kernels is not None
        return kernels

    def all_done(self) -> bool:
        return not self._linear and not self._conv


def _softmax(x: Tensor) -> Tensor:
    """Softmax over the last axis; PyTorch's own takes four times as long where that axis is short."""
    exponential = (x - x.amax(dim=-1, keepdim=True)).exp_()
    return exponential.div_(exponential.sum(dim=-1, keepdim=True))


def _kernel_gradient(layer: Conv, delta: Tensor, x: Tensor) -> Kernels:
    """Each UE's gradient of a convolution; delta (num_ue, rows, out, places, num)."""
    bias = None if layer.bias is None else delta.flatten(3).sum(dim=(1, 3))
    return Kernels(layer.weight_gradient(delta, x), bias)


def _add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """y plus the bias of each group of UEs and channel, in place."""
    if bias is not None:
        y.view(len(bias), len(y) // len(bias), *y.shape[1:]).add_(
            bias[:, None, None, :, None, None]
        )
    return y


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """x @ matrix for all UEs in one large product; a matrix with a run axis gives one product a
    run.
    """
    if matrix.ndim == 2:
        return (x.reshape(-1, x.shape[-1]) @ matrix).view(*x.shape[:-1], matrix.shape[-1])
    rows = x.reshape(*x.shape[:-3], len(matrix), -1, x.shape[-1])
    return (rows @ matrix).view(*x.shape[:-1], matrix.shape[-1])


def _add_own(y: Tensor, x: Tensor, own: list[Factors], has_bias: bool) -> Tensor:
    """y + x times the own weights, transposed, in place."""
    for part in own:
        y = part.add_product(y, x, has_bias)
    return y


def _add_back(y: Tensor, delta: Tensor, own: list[Factors]) -> Tensor:
    """y + delta times the own weights, in place."""
    for part in own:
        y = part.add_back(y, delta)
    return y
