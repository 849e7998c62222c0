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

import numpy as np
import torch
from torch import Tensor, nn

from autofl.algorithms.base import Algorithm
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg
from autofl.data.batch import Batch, Batches, MetaBatch
from autofl.models import Params, SampleLoss, cross_entropy
from autofl.units import Array, IntArray

ROWS = 400
"""Samples of one batch role in a chunk: large enough for fast products, small enough to stay in the cache."""


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


@dataclass(frozen=True)
class Reshape:
    """Flattening of the trailing axes: batches come with leading axes (num_ue, num)."""


Layer = Linear | Activation | Reshape


def _sigmoid_slope(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s * (1 - s)


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _activation(module: nn.Module) -> Activation | None:
    """The activation of a module; None where it is not one we know."""
    if isinstance(module, nn.ReLU):
        return Activation(torch.relu, lambda x: (x > 0).to(x.dtype))
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
    update = getattr(type(algorithm), "client_update", None)
    known = update in (FedAvg.client_update, PerFedAvg.client_update)
    return known and sample_loss is cross_entropy and low_rank_layers(model) is not None


# --- weights and gradients in factored form --------------------------------------------------------------------------


@dataclass(frozen=True)
class Factors:
    """sum over rows r of left_r right_r^T for each UE, and its bias sum_r left_r where the layer has one.

    left (num_ue, num_rows, out), right (num_ue, num_rows, in); `biased` is False for a part that has no bias term.
    """

    left: Tensor
    right: Tensor
    biased: bool = True

    def scaled(self, scale: float | Tensor) -> "Factors":
        return Factors(scale * self.left, self.right, self.biased)


Gradient = list[list[Factors]]
"""For each linear layer the factors whose sum is its gradient, all UEs at once."""


def _plus(a: Gradient, scale: float | Tensor, b: Gradient) -> Gradient:
    """a + scale * b."""
    return [[*left, *(part.scaled(scale) for part in right)] for left, right in zip(a, b, strict=True)]


@dataclass(frozen=True)
class Network:
    """The layers under shared parameters plus each UE's own factors."""

    layers: tuple[Layer, ...]
    params: Params
    own: Gradient

    def moved(self, scale: float | Tensor, direction: Gradient) -> "Network":
        return Network(self.layers, self.params, _plus(self.own, scale, direction))

    def forward(self, x: Tensor) -> list[Tensor]:
        """The input of each layer and the output, leading axes (num_ue, num)."""
        values = [x]
        own = iter(self.own)
        for layer in self.layers:
            x = values[-1]
            if isinstance(layer, Linear):
                y = _shared_product(x, self.params[layer.weight].T)
                if layer.bias is not None:
                    y += self.params[layer.bias]
                values.append(_add_own(y, x, next(own), layer.bias is not None))
            elif isinstance(layer, Activation):
                values.append(layer.f(x))
            else:
                values.append(x.flatten(2))
        return values

    def backward(self, values: list[Tensor], delta: Tensor) -> tuple[Gradient, list[Tensor | None]]:
        """The gradient in factors, and the delta behind each layer, from the delta at the output."""
        gradient: Gradient = []
        deltas: list[Tensor | None] = [None] * len(self.layers)
        own = list(self.own)
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            deltas[place] = delta
            if isinstance(layer, Linear):
                gradient.insert(0, [Factors(delta, values[place])])
                mine = own.pop()
                if not own:  # the first linear layer: nothing below has parameters
                    break
                delta = _add_back(_shared_product(delta, self.params[layer.weight]), delta, mine)
            elif isinstance(layer, Activation):
                delta = delta * layer.slope(values[place])
            else:
                delta = delta.reshape(values[place].shape)
        return gradient, deltas

    def hessian_times(
        self, values: list[Tensor], probability: Tensor, weight: Tensor, deltas: list[Tensor | None], v: Gradient
    ) -> Gradient:
        """H v in factors, by the derivative of the backward pass along v (forward over reverse)."""
        tangents: list[Tensor | None] = [None]
        direction = iter(v)
        own = iter(self.own)
        for place, layer in enumerate(self.layers):
            t, x = tangents[-1], values[place]
            if isinstance(layer, Linear):
                out = _own_product(x, next(direction), layer.bias is not None)
                mine = next(own)
                if t is not None:
                    out += _shared_product(t, self.params[layer.weight].T)
                    out = _add_own(out, t, mine, has_bias=False)
                tangents.append(out)
            elif isinstance(layer, Activation):
                tangents.append(None if t is None else t * layer.slope(x))
            else:
                tangents.append(None if t is None else t.flatten(2))
        # softmax and cross-entropy: the delta is weight (p - onehot), its tangent weight (p t - p (p.t))
        out_tangent = tangents[-1]
        assert out_tangent is not None
        spread = probability * out_tangent
        t_delta = (spread - probability * spread.sum(dim=-1, keepdim=True)) * weight[..., None]
        product: Gradient = []
        remaining = list(zip(self.own, v, strict=True))
        for place in range(len(self.layers) - 1, -1, -1):
            layer, delta, x, t = self.layers[place], deltas[place], values[place], tangents[place]
            assert delta is not None
            if isinstance(layer, Linear):
                parts = [Factors(t_delta, x)]
                if t is not None:
                    parts.append(Factors(delta, t, biased=False))
                product.insert(0, parts)
                mine, along = remaining.pop()
                if not remaining:
                    break
                t_delta = _add_back(_shared_product(t_delta, self.params[layer.weight]), t_delta, mine)
                t_delta = _add_back(t_delta, delta, along)
            elif isinstance(layer, Activation):
                t_delta = t_delta * layer.slope(x)
                if layer.bend is not None and t is not None:
                    t_delta = t_delta + delta * layer.bend(x) * t
            else:
                t_delta = t_delta.reshape(x.shape)
        return product


def _shared_product(x: Tensor, matrix: Tensor) -> Tensor:
    """x @ matrix for all UEs in one large product."""
    return (x.reshape(-1, x.shape[-1]) @ matrix).view(*x.shape[:-1], matrix.shape[-1])


def _add_own(y: Tensor, x: Tensor, own: list[Factors], has_bias: bool) -> Tensor:
    """y + sum over own factors of (x right^T + 1) left; the 1 is the bias."""
    for part in own:
        gram = torch.bmm(x, part.right.mT)
        if has_bias and part.biased:
            gram += 1.0
        y = torch.baddbmm(y, gram, part.left)
    return y


def _own_product(x: Tensor, own: list[Factors], has_bias: bool) -> Tensor:
    first, *rest = own
    gram = torch.bmm(x, first.right.mT)
    if has_bias and first.biased:
        gram += 1.0
    return _add_own(torch.bmm(gram, first.left), x, rest, has_bias)


def _add_back(y: Tensor, delta: Tensor, own: list[Factors]) -> Tensor:
    """y + sum over own factors of (delta left^T) right."""
    for part in own:
        y = torch.baddbmm(y, torch.bmm(delta, part.left.mT), part.right)
    return y


# --- the client updates ----------------------------------------------------------------------------------------------


def _sample_weight(batch: Batch) -> Tensor:
    """1 / (number of samples) for a sample, 0 for padding: the loss is the mean over the UE's batch."""
    return batch.mask / batch.mask.sum(dim=-1, keepdim=True).clamp(min=1.0)


def _gradient(
    network: Network, batch: Batch, weight: Tensor
) -> tuple[Gradient, list[Tensor], Tensor, list[Tensor | None]]:
    """Gradient in factors, and what a Hessian product on the same batch needs: values, probabilities, deltas."""
    values = network.forward(batch.x)
    probability = torch.softmax(values[-1], dim=-1)
    delta = probability.clone()
    delta.scatter_add_(-1, batch.y[..., None], torch.full_like(batch.mask, -1.0)[..., None])
    delta *= weight[..., None]
    gradient, deltas = network.backward(values, delta)
    return gradient, values, probability, deltas


def _meta_gradient(network: Network, batch: MetaBatch, algorithm: PerFedAvg) -> Gradient:
    """Eq. (7) in factors, the same steps as `PerFedAvg.meta_grad`."""
    inner = _gradient(network, batch.inner, _sample_weight(batch.inner))[0]
    outer = _gradient(network.moved(-algorithm.inner_lr, inner), batch.outer, _sample_weight(batch.outer))[0]
    if algorithm.variant == "first-order":
        return outer
    weight = _sample_weight(batch.hess)
    if algorithm.variant == "finite-difference":
        s = (algorithm.difference / _norm(outer, network).clamp(min=1e-12))[:, None, None]
        ahead = _gradient(network.moved(s, outer), batch.hess, weight)[0]
        behind = _gradient(network.moved(-s, outer), batch.hess, weight)[0]
        return _plus(_plus(outer, -algorithm.inner_lr / (2 * s), ahead), algorithm.inner_lr / (2 * s), behind)
    _, values, probability, deltas = _gradient(network, batch.hess, weight)
    product = network.hessian_times(values, probability, weight, deltas, outer)
    return _plus(outer, -algorithm.inner_lr, product)


def _norm(gradient: Gradient, network: Network) -> Tensor:
    """Length of each UE's gradient, from Gram matrices alone: |sum l r^T|^2 = sum (l.l')(r.r' + 1)."""
    total: Tensor | float = 0.0
    linear = [layer for layer in network.layers if isinstance(layer, Linear)]
    for layer, parts in zip(linear, gradient, strict=True):
        left, right = (torch.cat([getattr(part, side) for part in parts], dim=1) for side in ("left", "right"))
        gram = torch.bmm(right, right.mT)
        if layer.bias is not None:
            has = torch.cat([torch.full_like(part.left[0, :, 0], float(part.biased)) for part in parts])
            gram += has[:, None] * has[None, :]
        total = total + (torch.bmm(left, left.mT) * gram).sum(dim=(1, 2))
    assert isinstance(total, Tensor)
    return total.clamp(min=0.0).sqrt()


@dataclass(frozen=True)
class LowRankUpdates:
    """Client updates that are only ever summed, a chunk of UEs at a time."""

    ue: IntArray
    batches: Batches
    params: Params
    layers: tuple[Layer, ...] | None
    algorithm: Algorithm

    def mean(self, weight: Array) -> Params:
        """sum_i weight_i w_i / sum_i weight_i = w - beta sum_i share_i (gradients of UE i)."""
        assert self.layers is not None
        order = np.argsort(self.ue, kind="stable")
        share = weight / weight.sum()
        total = {name: torch.zeros_like(p) for name, p in self.params.items()}
        for rows in self._chunks(order):
            batch = self.batches.take(rows)
            own = torch.from_numpy(share[rows]).to(batch.inner.x.dtype)[:, None, None]
            for gradient in self._steps(batch):
                self._add(total, own, gradient)
        step = self.algorithm.outer_lr  # type: ignore[attr-defined]
        return {name: p - step * total[name] for name, p in self.params.items()}

    def _chunks(self, order: IntArray) -> list[IntArray]:
        probe = self.batches.take(order[:1]).inner.y.shape[-1]
        num = max(1, ROWS // max(probe, 1))
        return [order[begin : begin + num] for begin in range(0, len(order), num)]

    def _steps(self, batch: MetaBatch) -> list[Gradient]:
        """The gradient of each local step of these UEs."""
        assert self.layers is not None
        linear = sum(isinstance(layer, Linear) for layer in self.layers)
        network = Network(self.layers, self.params, [[] for _ in range(linear)])
        steps: list[Gradient] = []
        for t in range(batch.inner.y.shape[1]):
            now = MetaBatch(*(Batch(part.x[:, t], part.y[:, t], part.mask[:, t]) for part in batch))
            if isinstance(self.algorithm, PerFedAvg):
                gradient = _meta_gradient(network, now, self.algorithm)
            else:
                joined = now.joined()
                gradient = _gradient(network, joined, _sample_weight(joined))[0]
            steps.append(gradient)
            network = network.moved(-self.algorithm.outer_lr, gradient)  # type: ignore[attr-defined]
        return steps

    def _add(self, total: Params, share: Tensor, gradient: Gradient) -> None:
        assert self.layers is not None
        linear = [layer for layer in self.layers if isinstance(layer, Linear)]
        for layer, parts in zip(linear, gradient, strict=True):
            for part in parts:
                left = (share * part.left).reshape(-1, part.left.shape[-1])
                total[layer.weight].addmm_(left.T, part.right.reshape(-1, part.right.shape[-1]))
                if layer.bias is not None and part.biased:
                    total[layer.bias] += left.sum(dim=0)
