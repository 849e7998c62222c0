"""A GPU takes the products of all UEs in one call, a CPU one UE after another: the same numbers."""

import pytest
import torch

from autofl.algorithms.low_rank.images import Conv, products_in_one_call


@pytest.mark.parametrize("num_groups", [1, 2, 6])
@pytest.mark.parametrize("num_out", [4, 16])
def test_products_in_one_call_are_the_convolution(num_groups, num_out):
    generator = torch.Generator().manual_seed(1)
    num_ue, height, kh, kw, channel, places, num = 6, 9, 3, 2, 3, 5, 4
    conv = Conv("w", None, kh, 1)
    x1 = torch.randn(num_ue, height, kw, channel, places, num, generator=generator, dtype=torch.float64)
    weight = torch.randn(num_groups, num_out, kh * kw * channel, generator=generator, dtype=torch.float64)
    rows = height - kh + 1
    windows = torch.stack([x1[:, y : y + kh].flatten(1, 3).flatten(2) for y in range(rows)], dim=1)
    found = products_in_one_call(weight, windows).view(num_ue, rows, num_out, places, num)
    torch.testing.assert_close(found, conv.forward(weight, x1), rtol=1e-12, atol=1e-12)
