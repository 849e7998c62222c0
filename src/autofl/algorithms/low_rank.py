"""The fast exact engine: no UE's weights are ever formed.

A linear layer's gradient on a batch is delta^T x, of rank at most the batch's size. So a UE's weights are the shared
ones plus a few outer products, and everything a meta-gradient needs is a product of tall matrices with the shared
weights (one for all UEs) plus small products with Gram matrices (one a UE):

- forward under weights W + L^T R:  x W^T + (x R^T) L;
- backward:                         delta W + (delta L^T) R;
- the tangent along a gradient v = delta_o^T a_o:  (x a_o^T) delta_o, then the usual forward-over-reverse rules;
- the average over UEs of v - alpha H v: a sum of large products (delta)^T (input), UEs side by side.

Exact Per-FedAvg costs 3 forward and 2 weight-gradient products, plain SGD on the same samples 3 and 3. The `loop`
engine is the slow, obvious reference.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from autofl.algorithms.base import Algorithm
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg
from autofl.data.batch import Batch, Batches, MetaBatch
from autofl.models import Params, SampleLoss, cross_entropy
from autofl.units import Array, IntArray

ROWS = 800
"""Samples of one batch role in a chunk: large enough for fast products, small enough to stay in the cache."""
GPU_ROWS = 65_536
"""The same where memory is fast and calls are slow."""


# --- layers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear:
    """y = x W^T + b, by the names of its parameters."""

    weight: str
    bias: str | None


@dataclass(frozen=True)
class Activation:
    """y = f(x) with f' and, where it is not zero, f''."""

    f: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    bend: Callable[[Tensor], Tensor] | None = None

    def pull(self, delta: Tensor, x: Tensor) -> Tensor:
        """delta f'(x)."""
        return delta * self.slope(x)


@dataclass(frozen=True)
class Relu(Activation):
    """The rectifier; PyTorch multiplies by its slope in one pass."""

    f: Callable[[Tensor], Tensor] = torch.relu
    slope: Callable[[Tensor], Tensor] = torch.sign  # not used: `pull` is
    bend: None = None

    def pull(self, delta: Tensor, x: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(delta, x, 0)


@dataclass(frozen=True)
class Reshape:
    """Flattening of the trailing axes: batches come with leading axes (num_ue, num)."""


Layer = Linear | Activation | Reshape

INNER, OUTER, HESS = range(3)
"""The role of a batch, its place on the leading axis."""


def _sigmoid_slope(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1 - s)


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _activation(module: nn.Module) -> Activation | None:
    """The activation of a module; None where it is not one we know."""
    if isinstance(module, nn.ReLU):
        return Relu()
    if isinstance(module, nn.LeakyReLU):
        leak = module.negative_slope
        return Activation(
            lambda x: torch.where(x > 0, x, leak * x), lambda x: torch.where(x > 0, torch.ones_like(x), leak)
        )
    if isinstance(module, nn.Tanh):
        return Activation(
            torch.tanh, lambda x: 1 - torch.tanh(x) ** 2, lambda x: -2 * torch.tanh(x) * (1 - torch.tanh(x) ** 2)
        )
    if isinstance(module, nn.Sigmoid):
        return Activation(torch.sigmoid, _sigmoid_slope, lambda x: _sigmoid_slope(x) * (1 - 2 * torch.sigmoid(x)))
    if isinstance(module, nn.Softplus) and module.beta == 1:
        return Activation(module, torch.sigmoid, _sigmoid_slope)
    if isinstance(module, nn.SiLU):
        return Activation(
            nn.functional.silu,
            lambda x: torch.sigmoid(x) + x * _sigmoid_slope(x),
            lambda x: _sigmoid_slope(x) * (2 + x * (1 - 2 * torch.sigmoid(x))),
        )
    if isinstance(module, nn.GELU) and module.approximate == "none":
        return Activation(
            nn.functional.gelu,
            lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * _normal_density(x),
            lambda x: (2 - x * x) * _normal_density(x),
        )
    if isinstance(module, nn.ELU):
        height = module.alpha
        return Activation(
            lambda x: nn.functional.elu(x, height),
            lambda x: torch.where(x > 0, torch.ones_like(x), height * torch.exp(torch.clamp(x, max=0.0))),
            lambda x: torch.where(x > 0, torch.zeros_like(x), height * torch.exp(torch.clamp(x, max=0.0))),
        )
    return None


@cache
def low_rank_layers(model: nn.Module) -> tuple[Layer, ...] | None:
    """The layers of a model made of linear layers and activations in sequence; None for any other model."""
    layers: list[Layer] = []
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Sequential | nn.Identity | nn.Dropout):
            continue  # evaluation mode: dropout does nothing
        if isinstance(module, nn.Linear):
            prefix = f"{name}." if name else ""
            layers.append(Linear(f"{prefix}weight", f"{prefix}bias" if module.bias is not None else None))
        elif isinstance(module, nn.Flatten):
            layers.append(Reshape())
        elif (activation := _activation(module)) is not None:
            layers.append(activation)
        else:
            return None
    linear = [layer for layer in layers if isinstance(layer, Linear)]
    shared = len(list(model.parameters())) < sum(2 if layer.bias else 1 for layer in linear)  # tied weights
    ends_linear = bool(layers) and isinstance(layers[-1], Linear)
    return tuple(layers) if ends_linear and not shared else None


def low_rank_serves(model: nn.Module, algorithm: Algorithm, sample_loss: SampleLoss) -> bool:
    """Whether the engine is exact for this model, client update and loss."""
    kind = type(algorithm)
    known = getattr(kind, "client_update", None) is FedAvg.client_update or (
        issubclass(kind, PerFedAvg)
        and kind.client_update is PerFedAvg.client_update
        and kind.meta_grad is PerFedAvg.meta_grad
    )
    return known and sample_loss is cross_entropy and low_rank_layers(model) is not None


# --- weights and gradients in factored form --------------------------------------------------------------------------


class Factors(NamedTuple):
    """scale * sum over rows r of left_r right_r^T for each UE, and scale * sum_r left_r as its bias.

    left (num_ue, num_rows, out), right (num_ue, num_rows, in); `biased` is False for a part without a bias term;
    `role` says which of the three batches `right` is, where it is the model's input.
    """

    left: Tensor
    right: Tensor
    scale: float = 1.0
    biased: bool = True
    role: int | None = None

    def scaled(self, scale: float | Tensor) -> "Factors":
        if isinstance(scale, Tensor):  # one for each UE
            return Factors(scale * self.left, self.right, self.scale, self.biased, self.role)
        return Factors(self.left, self.right, scale * self.scale, self.biased, self.role)


Gradient = list[list[Factors]]
"""For each linear layer the factors whose sum is its gradient, all UEs at once."""


def _plus(a: Gradient, scale: float | Tensor, b: Gradient) -> Gradient:
    """a + scale * b."""
    return [[*left, *(part.scaled(scale) for part in right)] for left, right in zip(a, b, strict=True)]


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass over one batch, with what a Hessian product on it needs."""

    gradient: Gradient
    values: list[Tensor]  # the input of each layer and the output, leading axes (num_ue, num)
    probability: Tensor  # softmax of the output
    deltas: list[Tensor]  # the derivative of the loss behind each layer, the last layer's first


@dataclass(frozen=True)
class Network:
    """The layers under shared parameters plus each UE's own factors.

    Parameters may have a leading run axis: the UEs then are those of all runs, one run's after another's.
    """

    layers: tuple[Layer, ...]
    params: Params
    own: Gradient

    def moved(self, scale: float | Tensor, direction: Gradient) -> "Network":
        return Network(self.layers, self.params, _plus(self.own, scale, direction))

    def first_product(self, x: Tensor) -> Tensor | None:
        """The first layer's shared product for all three batches at once, where the first layer is linear."""
        layer = self.layers[0]
        return self._shared(layer, x) if isinstance(layer, Linear) else None

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

    def forward(self, x: Tensor, first: Tensor | None, gram: Tensor | None = None) -> list[Tensor]:
        """The input of each layer and the output.

        Args:
            first: `first_product` of x, overwritten.
            gram: Gram matrix of x with the one own factor of the first layer, where it is known already.
        """
        values = [x]
        own = iter(self.own)
        for layer in self.layers:
            x = values[-1]
            if isinstance(layer, Linear):
                mine = next(own)
                y = self._shared(layer, x) if first is None or len(values) > 1 else first
                if gram is not None and len(values) == 1:
                    values.append(y.baddbmm_(gram, mine[0].left, alpha=mine[0].scale))
                else:
                    values.append(_add_own(y, x, mine, layer.bias is not None))
            elif isinstance(layer, Activation):
                values.append(layer.f(x))
            else:
                values.append(x.flatten(2))
        return values

    def run(self, batch: Batch, weight: Tensor, role: int | None, first: Tensor | None) -> Pass:
        """Forward and backward, the loss being sum(weight * cross-entropy); `first` is `first_product` of the batch."""
        values = self.forward(batch.x, first)
        probability = torch.softmax(values[-1], dim=-1)
        delta = probability.scatter_add(
            -1, batch.y[..., None], weight.new_full((1, 1, 1), -1.0).expand(*batch.y.shape, 1)
        )
        delta *= weight[..., None]
        gradient: Gradient = []
        deltas: list[Tensor] = []
        remaining = list(self.own)
        for place in range(len(self.layers) - 1, -1, -1):
            layer, x = self.layers[place], values[place]
            deltas.append(delta)
            if isinstance(layer, Linear):
                mine = remaining.pop()
                gradient.insert(0, [Factors(delta, x, role=role if place == 0 else None)])
                if not remaining:  # the first linear layer: nothing below has parameters
                    break
                delta = _add_back(_product(delta, self.params[layer.weight]), delta, mine)
            elif isinstance(layer, Activation):
                delta = layer.pull(delta, x)
            else:
                delta = delta.reshape(x.shape)
        return Pass(gradient, values, probability, deltas)

    def hessian_times(self, done: Pass, weight: Tensor, v: Gradient, role: int) -> Gradient:
        """H v in factors, by the derivative of the passes along v (forward over reverse)."""
        tangents: list[Tensor | None] = [None]
        direction, own = iter(v), iter(self.own)
        for layer, x in zip(self.layers, done.values, strict=False):
            t = tangents[-1]
            if isinstance(layer, Linear):
                out = _own_product(x, next(direction), layer.bias is not None)
                mine = next(own)
                if t is not None:
                    out += _product(t, self.params[layer.weight].mT)
                    out = _add_own(out, t, mine, has_bias=False)
                tangents.append(out)
            elif isinstance(layer, Activation):
                tangents.append(None if t is None else layer.pull(t, x))
            else:
                tangents.append(None if t is None else t.flatten(2))
        # The delta at the output is weight (p - onehot); its tangent is weight (p t - p (p.t)).
        assert tangents[-1] is not None
        spread = done.probability * tangents[-1]
        t_delta = spread.addcmul_(done.probability, spread.sum(dim=-1, keepdim=True), value=-1.0)
        t_delta *= weight[..., None]
        product: Gradient = []
        remaining = list(zip(self.own, v, strict=True))
        for place, delta in zip(range(len(self.layers) - 1, -1, -1), done.deltas, strict=False):
            layer, x, t = self.layers[place], done.values[place], tangents[place]
            if isinstance(layer, Linear):
                parts = [Factors(t_delta, x, role=role if place == 0 else None)]
                if t is not None:
                    parts.append(Factors(delta, t, biased=False))
                product.insert(0, parts)
                mine, along = remaining.pop()
                if not remaining:
                    break
                t_delta = _add_back(_product(t_delta, self.params[layer.weight]), t_delta, mine)
                t_delta = _add_back(t_delta, delta, along)
            elif isinstance(layer, Activation):
                t_delta = layer.pull(t_delta, x)
                if layer.bend is not None and t is not None:
                    t_delta = t_delta.addcmul_(delta * layer.bend(x), t)
            else:
                t_delta = t_delta.reshape(x.shape)
        return product


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """x @ matrix for all UEs in one large product; a matrix with a run axis gives one product a run."""
    if matrix.ndim == 2:
        return (x.reshape(-1, x.shape[-1]) @ matrix).view(*x.shape[:-1], matrix.shape[-1])
    rows = x.reshape(*x.shape[:-3], len(matrix), -1, x.shape[-1])
    return (rows @ matrix).view(*x.shape[:-1], matrix.shape[-1])


def _gram(x: Tensor, part: Factors, has_bias: bool) -> Tensor:
    """x right^T, plus the 1 that stands for the bias."""
    num = part.right.shape[1]
    gram = torch.bmm(x, _widened(part).mT)[..., :num]
    return gram.add_(1.0) if has_bias and part.biased else gram


def _widened(part: Factors) -> Tensor:
    """`right`, or a view of it that reads on to 16 rows where it has 9 to 15 and other samples follow in memory.

    MKL's batched product with 16 columns takes half the time of one with 13; what the extra rows give is cut off.
    """
    num_ue, num, width = part.right.shape
    row_by_row = part.right.stride() == (num * width, width, 1)
    if part.role not in (INNER, OUTER) or not 8 < num < 16 or not row_by_row:
        return part.right  # behind the Hessian batch nothing may follow
    return part.right.as_strided((num_ue, 16, width), part.right.stride())


def _add_own(y: Tensor, x: Tensor, own: list[Factors], has_bias: bool) -> Tensor:
    """y + sum over own factors of scale (x right^T + 1) left, in place."""
    for part in own:
        y = y.baddbmm_(_gram(x, part, has_bias), part.left, alpha=part.scale)
    return y


def _own_product(x: Tensor, own: list[Factors], has_bias: bool) -> Tensor:
    """The same without a y to begin with."""
    first, *rest = own
    y = torch.bmm(_gram(x, first, has_bias), first.left)
    return _add_own(y if first.scale == 1.0 else y.mul_(first.scale), x, rest, has_bias)


def _add_back(y: Tensor, delta: Tensor, own: list[Factors]) -> Tensor:
    """y + sum over own factors of scale (delta left^T) right, in place."""
    for part in own:
        y = y.baddbmm_(torch.bmm(delta, part.left.mT), part.right, alpha=part.scale)
    return y


# --- the client updates ----------------------------------------------------------------------------------------------


def _sample_weight(mask: Tensor) -> Tensor:
    """1 / (number of samples) for a sample, 0 for padding: the loss is the mean over the UE's batch."""
    return mask / mask.sum(dim=-1, keepdim=True).clamp_(min=1.0)


def _meta_gradient(network: Network, batch: Batch, algorithm: PerFedAvg) -> Gradient:
    """Eq. (7) in factors, the same steps as `PerFedAvg.meta_grad`; the batch's leading axis is its role."""
    weight, first = _sample_weight(batch.mask), network.first_product(batch.x)

    def run(role: int, scale: float | Tensor = 0.0, direction: Gradient | None = None, keep: bool = False) -> Pass:
        at = network if direction is None else network.moved(scale, direction)
        one = Batch(batch.x[role], batch.y[role], batch.mask[role])
        shared = None if first is None else first[role]
        return at.run(one, weight[role], role, shared.clone() if keep and shared is not None else shared)

    inner = run(INNER)
    outer = run(OUTER, -algorithm.inner_lr, inner.gradient).gradient
    if algorithm.variant == "first-order":
        return outer
    if algorithm.variant == "finite-difference":
        s = (algorithm.difference / _norm(outer, network).clamp(min=1e-12))[:, None, None]
        ahead = run(HESS, s, outer, keep=True).gradient
        behind = run(HESS, -s, outer).gradient
        return _plus(_plus(outer, -algorithm.inner_lr / (2 * s), ahead), algorithm.inner_lr / (2 * s), behind)
    product = network.hessian_times(run(HESS), weight[HESS], outer, HESS)
    return _plus(outer, -algorithm.inner_lr, product)


def _norm(gradient: Gradient, network: Network) -> Tensor:
    """Length of each UE's gradient, from Gram matrices alone: |sum l r^T|^2 = sum (l.l')(r.r' + 1)."""
    total: Tensor | float = 0.0
    linear = [layer for layer in network.layers if isinstance(layer, Linear)]
    for layer, parts in zip(linear, gradient, strict=True):
        left = torch.cat([part.scale * part.left for part in parts], dim=1)
        right = torch.cat([part.right for part in parts], dim=1)
        gram = torch.bmm(right, right.mT)
        if layer.bias is not None:
            has = torch.cat([torch.full_like(part.left[0, :, 0], float(part.biased)) for part in parts])
            gram += has[:, None] * has[None, :]
        total = total + (torch.bmm(left, left.mT) * gram).sum(dim=(1, 2))
    assert isinstance(total, Tensor)
    return total.clamp(min=0.0).sqrt()


def _shared_network(layers: tuple[Layer, ...], params: Params) -> Network:
    """The layers under the shared parameters alone."""
    return Network(layers, params, [[] for layer in layers if isinstance(layer, Linear)])


def input_gram(layers: tuple[Layer, ...], x: Tensor, adapt: Tensor) -> Tensor | None:
    """Gram matrix of inputs with adaptation samples, (num_ue, num, num_adapt); None if the first layer is not linear.

    It does not depend on the parameters: evaluations on the same samples need it once.
    """
    layer = layers[0]
    if not isinstance(layer, Linear):
        return None
    gram = torch.bmm(x, adapt.mT)
    return gram.add_(1.0) if layer.bias is not None else gram


def adapted_outputs(
    layers: tuple[Layer, ...],
    params: Params,
    adapt: Batch,
    inner_lr: float,
    inputs: list[Tensor],
    grams: list[Tensor | None],
) -> list[tuple[Tensor, Tensor]]:
    """Outputs of the global model and of each UE's model after one step on `adapt`, for each of the inputs.

    Both share the first layer's product, by far the largest.

    Args:
        adapt: leading axes (num_ue, num).
        inputs: each of shape (num_ue, any number, *sample_shape).
        grams: `input_gram` of each of the inputs, or None to have it computed.
    """
    network = _shared_network(layers, params)
    step = network.run(adapt, _sample_weight(adapt.mask), None, None).gradient
    moved = network.moved(-inner_lr, step)
    results = []
    for x, gram in zip(inputs, grams, strict=True):
        first = network.first_product(x)
        plain = network.forward(x, None if first is None else first.clone())[-1]
        results.append((plain, moved.forward(x, first, gram)[-1]))
    return results


@dataclass(frozen=True)
class LowRankUpdates:
    """Client updates that are only ever summed, a chunk of UEs at a time."""

    ue: IntArray
    batches: Batches
    params: Params
    layers: tuple[Layer, ...]
    algorithm: FedAvg | PerFedAvg

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i = w - beta sum_i share_i (sum of the gradients of UE i's steps)."""
        order = np.argsort(self.ue, kind="stable")
        share = weight / weight.sum()
        on_cpu = next(iter(self.params.values())).device.type == "cpu"
        num = max(1, (ROWS if on_cpu else GPU_ROWS) // max(self.batches.width, 1))
        total = {name: torch.zeros_like(p) for name, p in self.params.items()}
        for begin in range(0, len(order), num):
            rows = order[begin : begin + num]
            _add_gradients(total, self.layers, self.params, self.algorithm, self.batches.take(rows), share[rows])
        return {name: p.add(total[name], alpha=-self.algorithm.outer_lr) for name, p in self.params.items()}


def mean_of_runs(
    layers: tuple[Layer, ...], params: Params, algorithm: FedAvg | PerFedAvg, batch: Batch, share: Array
) -> Params:
    """The averaged parameters of several independent runs in one batch.

    Args:
        params: with a leading run axis.
        batch: leading axes (3, num_runs * num_ue, tau), one run's UEs after another's.
        share: each UE's share of its run's average, shape (num_runs * num_ue,); 0 for a UE that only fills up.
    """
    total = {name: torch.zeros_like(p) for name, p in params.items()}
    _add_gradients(total, layers, params, algorithm, batch, share)
    return {name: p.add(total[name], alpha=-algorithm.outer_lr) for name, p in params.items()}


def _add_gradients(
    total: Params,
    layers: tuple[Layer, ...],
    params: Params,
    algorithm: FedAvg | PerFedAvg,
    batch: Batch,
    share: Array,
) -> None:
    """Add the share of these UEs' gradients, step by step."""
    network = _shared_network(layers, params)
    num_steps = batch.y.shape[2]
    one_run = next(iter(params.values())).ndim <= 2
    if isinstance(algorithm, FedAvg) and num_steps == 1 and one_run:
        # One plain step: no UE has weights of its own, so each of its three parts may pass as a UE.
        parts = Batch(*(each.flatten(0, 2) for each in batch))
        weight = batch.mask / batch.mask.sum(dim=(0, 3), keepdim=True).clamp_(min=1.0)
        gradient = network.run(parts, weight.flatten(0, 2), None, None).gradient
        _add(total, layers, gradient, np.tile(share, 3), parts.x)
        return
    for t in range(num_steps):
        now = Batch(batch.x[:, :, t], batch.y[:, :, t], batch.mask[:, :, t])
        if isinstance(algorithm, PerFedAvg):
            gradient = _meta_gradient(network, now, algorithm)
        else:
            joined = MetaBatch.of(now).joined()
            gradient = network.run(joined, _sample_weight(joined.mask), None, None).gradient
        _add(total, layers, gradient, share, now.x)
        if t + 1 < num_steps:
            network = network.moved(-algorithm.outer_lr, gradient)


def _add(total: Params, layers: tuple[Layer, ...], gradient: Gradient, share: Array, x: Tensor) -> None:
    linear = [layer for layer in layers if isinstance(layer, Linear)]
    equal = float(share[0]) if (share == share[0]).all() else None
    each = None if equal is not None else torch.from_numpy(share).to(x)[:, None, None]
    scale = 1.0 if equal is None else equal
    for layer, parts in zip(linear, gradient, strict=True):
        if each is not None:
            parts = [part.scaled(each) for part in parts]
        weight = total[layer.weight]
        if weight.ndim == 3:
            for part in parts:
                left = (part.scale * part.left).reshape(len(weight), -1, part.left.shape[-1])
                weight.baddbmm_(left.mT, part.right.reshape(len(weight), -1, part.right.shape[-1]), alpha=scale)
                if layer.bias is not None and part.biased:
                    total[layer.bias].add_(left.sum(dim=1), alpha=scale)
            continue
        for left, right, biased in _merged(parts, x):
            weight.addmm_(left.T, right, alpha=scale)
            if layer.bias is not None and biased:
                total[layer.bias].add_(left.sum(dim=0), alpha=scale)


def _merged(parts: list[Factors], x: Tensor) -> list[tuple[Tensor, Tensor, bool]]:
    """Factors as flat matrices; those on the model's input become one product over adjacent batches of x."""
    on_input: dict[int, Tensor] = {}
    flat: list[tuple[Tensor, Tensor, bool]] = []
    for part in parts:
        left = part.left if part.scale == 1.0 else part.scale * part.left
        if part.role is None or len(parts) == 1:
            flat.append((left.reshape(-1, left.shape[-1]), part.right.reshape(-1, part.right.shape[-1]), part.biased))
        else:
            on_input[part.role] = on_input[part.role] + left if part.role in on_input else left
    if on_input:  # the outer and the Hessian batch lie side by side
        left = torch.cat([on_input[role].reshape(-1, on_input[role].shape[-1]) for role in sorted(on_input)])
        right = x[min(on_input) : max(on_input) + 1]
        flat.append((left, right.reshape(-1, right.shape[-1]), True))
    return flat
