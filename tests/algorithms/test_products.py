"""A GPU takes the products of all UEs row by row, a CPU one UE after another: the same numbers."""

import pytest
import torch

from autofl.algorithms.low_rank.images import Conv, gradient_by_row, products_by_row

NUM_UE, HEIGHT, KH, KW, CHANNEL, PLACES, NUM = 6, 9, 3, 2, 3, 5, 4
ROWS = HEIGHT - KH + 1


def _random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


def _windows(x1):
    return torch.stack([x1[:, y : y + KH].flatten(1, 3).flatten(2) for y in range(ROWS)], dim=1)


@pytest.mark.parametrize("num_out", [4, 16])
@pytest.mark.parametrize("add", [False, True])
def test_products_by_row_are_the_convolution(num_out, add):
    x1, weight = _random(NUM_UE, HEIGHT, KW, CHANNEL, PLACES, NUM), _random(NUM_UE, num_out, KH * KW * CHANNEL)
    found = torch.ones(NUM_UE, ROWS, num_out, PLACES * NUM, dtype=torch.float64)
    products_by_row(weight, _windows(x1), found, add)
    expected = Conv("w", None, KH, 1).forward(weight, x1).flatten(3) + float(add)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_gradient_by_row_is_the_one_of_the_convolution():
    x1, delta = _random(NUM_UE, HEIGHT, KW, CHANNEL, PLACES, NUM), _random(NUM_UE, ROWS, 16, PLACES, NUM)
    found = gradient_by_row(delta.flatten(3), _windows(x1))
    torch.testing.assert_close(found, Conv("w", None, KH, 1).weight_gradient(delta, x1), rtol=1e-12, atol=1e-12)
