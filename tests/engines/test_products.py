"""The same products in the order that is fastest: row by row or UE by UE, with factors or with
their product.
"""

import pytest
import torch
from torch import nn

from autofl.data.batch import Batch
from autofl.engines.low_rank import adapted_outputs, low_rank_layers
from autofl.engines.low_rank.factors import Factors
from autofl.engines.low_rank.images import Conv, gradient_by_row, products_by_row
from autofl.models import params_of

NUM_UE, HEIGHT, KH, KW, CHANNEL, PLACES, NUM = 6, 9, 3, 2, 3, 5, 4
ROWS = HEIGHT - KH + 1


def _random(*shape):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64
    )


def _windows(x1):
    return torch.stack([x1[:, y : y + KH].flatten(1, 3).flatten(2) for y in range(ROWS)], dim=1)


@pytest.mark.parametrize("num_out", [4, 16])
@pytest.mark.parametrize("add", [False, True])
def test_products_by_row_are_the_convolution(num_out, add):
    x1, weight = (
        _random(NUM_UE, HEIGHT, KW, CHANNEL, PLACES, NUM),
        _random(NUM_UE, num_out, KH * KW * CHANNEL),
    )
    found = torch.ones(NUM_UE, ROWS, num_out, PLACES * NUM, dtype=torch.float64)
    products_by_row(weight, _windows(x1), found, add)
    expected = Conv("w", None, KH, 1).forward(weight, x1).flatten(3) + float(add)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_gradient_by_row_is_the_one_of_the_convolution():
    x1, delta = (
        _random(NUM_UE, HEIGHT, KW, CHANNEL, PLACES, NUM),
        _random(NUM_UE, ROWS, 16, PLACES, NUM),
    )
    found = gradient_by_row(delta.flatten(3), _windows(x1))
    torch.testing.assert_close(
        found, Conv("w", None, KH, 1).weight_gradient(delta, x1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("num", "is_formed"), [(3, False), (6, False), (7, True), (40, True)])
@pytest.mark.parametrize("biased", [False, True])
def test_products_with_factors_are_those_with_the_weights_they_stand_for(num, is_formed, biased):
    out, width = 4, 12  # 2 * 4 * 12 / (4 + 12) = 6: with up to six rows the factors are cheaper
    left, right = _random(NUM_UE, num, out), _random(NUM_UE, num, width)
    part = Factors(left, right, scale=-0.3, biased=biased)
    assert (part.product is not None) == is_formed
    weight, bias = -0.3 * torch.einsum("uro,uri->uoi", left, right), -0.3 * biased * left.sum(dim=1)
    x, delta = _random(NUM_UE, 7, width), _random(NUM_UE, 7, out)
    forward = 1.0 + torch.einsum("uni,uoi->uno", x, weight) + bias[:, None]
    torch.testing.assert_close(
        part.add_product(torch.ones(NUM_UE, 7, out).double(), x, has_bias=True), forward
    )
    backward = 1.0 + torch.einsum("uno,uoi->uni", delta, weight)
    torch.testing.assert_close(
        part.add_back(torch.ones(NUM_UE, 7, width).double(), delta), backward
    )


def test_the_global_outputs_are_not_overwritten_by_the_adapted_ones():
    model = nn.Sequential(nn.Linear(5, 3)).double()
    layers = low_rank_layers(model)
    assert layers is not None
    x, params = _random(2, 4, 5), params_of(model, torch.float64)
    adapt = Batch(
        _random(2, 6, 5), torch.arange(12).view(2, 6) % 3, torch.ones(2, 6, dtype=torch.float64)
    )
    ((plain, own),) = adapted_outputs(layers, params, adapt, 0.5, [x], [None])
    torch.testing.assert_close(plain, model(x).detach())
    assert not torch.allclose(own, plain)
