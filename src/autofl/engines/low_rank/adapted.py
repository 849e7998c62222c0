"""The adapted evaluation in low-rank form: what each UE's model gives after one step from the
global one.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autofl.data.batch import Batch
from autofl.engines.low_rank.layers import Linear
from autofl.engines.low_rank.network import Network
from autofl.engines.low_rank.recognise import Layer
from autofl.engines.low_rank.updates import num_images, sample_weight, some_runs
from autofl.models import Params


def input_gram(first: Linear, x: Tensor, adapt: Tensor) -> Tensor:
    """Gram matrix of the first layer's inputs with the adaptation samples, (num_ue, num,
    num_adapt).

    It does not depend on the parameters: evaluations on the same samples need it once.
    """
    gram = torch.bmm(x, adapt.mT)
    return gram.add_(1.0) if first.bias is not None else gram


def adapted_outputs(
    layers: tuple[Layer, ...],
    params: Params,
    adapt: Batch,
    inner_lr: float | Tensor,
    inputs: list[Tensor],
    grams: list[Tensor | None],
) -> list[tuple[Tensor, Tensor]]:
    """Outputs of the global model and of each UE's model after one step on `adapt`, for each of the
    inputs.

    Both share the first linear layer's product, by far the largest, or the copies a first
    convolution works on.

    Args:
        adapt: leading axes (num_ue, num).
        inner_lr: alpha, one for all or each UE's own, shape (num_ue,).
        inputs: each of shape (num_ue, any number, *sample_shape).
        grams: `input_gram` of each of the inputs, or None to have it computed.
    """
    if num_images(layers, params):
        return _adapted_images(layers, params, adapt, inner_lr, inputs)
    network = Network.shared(layers, params)
    moved = network.moved(-_each(inner_lr), network.run(adapt, sample_weight(adapt.mask)).gradient)
    results = []
    for x, gram in zip(inputs, grams, strict=True):
        first = network.first_product(x)
        begin = network.before_weights(x)
        plain = network.forward(begin, first)[0][-1]
        if (
            first is not None and plain.data_ptr() == first.data_ptr()
        ):  # which the next pass overwrites
            plain = plain.clone()
        results.append((plain, moved.forward(begin, first, gram)[0][-1]))
    return results


def outputs_by_rate(
    layers: tuple[Layer, ...],
    params: Params,
    adapt: Batch,
    rates: Sequence[float],
    x: Tensor,
    gram: Tensor | None,
) -> Iterator[Tensor]:
    """Outputs on `x` of each UE's model after one step on `adapt`, for one step size after another."""
    if num_images(layers, params):
        for rate in rates:
            yield _adapted_images(layers, params, adapt, rate, [x])[0][1]
        return
    network = Network.shared(layers, params)
    direction = network.run(adapt, sample_weight(adapt.mask)).gradient
    first = network.first_product(x)
    begin = network.before_weights(x)
    for rate in rates:
        product = None if first is None else first.clone()  # a pass works on it in place
        yield network.moved(-rate, direction).forward(begin, product, gram)[0][-1]


def _each(inner_lr: float | Tensor) -> float | Tensor:
    """Each UE's step as it multiplies the factors of a gradient, (num_ue, 1, 1)."""
    return inner_lr if isinstance(inner_lr, float) else inner_lr[:, None, None]


def _adapted_images(
    layers: tuple[Layer, ...],
    params: Params,
    adapt: Batch,
    inner_lr: float | Tensor,
    inputs: list[Tensor],
) -> list[tuple[Tensor, Tensor]]:
    """`adapted_outputs` of a model with convolutions, a few UEs, or the UEs of a few runs, and
    samples at a time.
    """
    most = num_images(layers, params)
    outputs_by_input: list[list[Tensor]] = [[] for _ in inputs]
    for network, ues in _some_ues(
        Network.shared(layers, params), len(adapt.y), max(1, most // max(adapt.y.shape[1], 1))
    ):
        some = Batch(*(part[ues] for part in adapt))
        own = inner_lr if isinstance(inner_lr, float) else inner_lr[ues]
        moved = network.moved(-_each(own), network.run(some, sample_weight(some.mask)).gradient)
        for x, outputs in zip(inputs, outputs_by_input, strict=True):
            pieces = []
            for samples in torch.split(x[ues], max(1, most // len(some.y)), dim=1):
                values = network.before_weights(samples)
                firsts = network.first_pair(values[-1], moved.kernels[0])
                both = zip((network, moved), firsts, strict=True)
                pieces.append(torch.stack([at.forward(values, first)[0][-1] for at, first in both]))
            outputs.append(torch.cat(pieces, dim=2))
    whole = [torch.cat(outputs, dim=1) for outputs in outputs_by_input]
    return [(plain, own) for plain, own in whole]


def _some_ues(network: Network, num_ue: int, at_once: int) -> Iterator[tuple[Network, slice]]:
    """About `at_once` UEs at a time with the network they share; where there are runs, the UEs of
    whole runs.
    """
    if not network.has_runs:
        for begin in range(0, num_ue, at_once):
            yield network, slice(begin, begin + at_once)
        return
    for runs, ues in some_runs(network.params, num_ue, at_once):
        yield (
            Network.shared(network.layers, {name: p[runs] for name, p in network.params.items()}),
            ues,
        )
