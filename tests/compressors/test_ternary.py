"""Ternary updates: by hand, their variance, their bytes."""

import numpy as np
import pytest
import torch

from autofl.compressors.ternary import Ternary
from autofl.errors import AutoFLError
from compressors.test_quantise import Fixed


def sent_of(change, uniforms, block=256):
    return Ternary(block)(torch.tensor(change), 1.0, lambda: Fixed(uniforms), {})[0]


def test_by_hand():
    # The first block's scale is 2, the second's 0.5. x/s + u: 1.5, -0.25, 0.75; -0.5 and 1.
    sent = sent_of([2.0, -1.0, 0.5, -0.5, 0.25], [0.5, 0.25, 0.5, 0.5, 0.5], block=3)
    assert sent.received.tolist() == [2.0, -2.0, 0.0, -0.5, 0.5]
    # Half precision 2 is 0x4000 and 0.5 is 0x3800, little-endian; the trits 2 0 1 0 2 are 2 + 9 + 2
    # * 81 = 173.
    assert sent.pack() == bytes([0x00, 0x40, 0x00, 0x38, 173])
    assert sent.bits == 40


def test_each_weight_has_the_variance_of_a_coin():
    torch.manual_seed(2)
    change, rng = torch.randn(256, dtype=torch.float64), np.random.default_rng(3)
    many = torch.stack([Ternary()(change, 1.6, lambda: rng, {})[0].received for _ in range(3000)])
    scale = float(many.abs().max())
    chance = change.abs() / scale
    expected = scale**2 * (chance * (1 - chance)).mean()
    assert float(((many - change) ** 2).mean()) == pytest.approx(float(expected), rel=0.03)


def test_bits():
    assert Ternary().update_bits(79_510) == 8 * 15_902 + 16 * 311
    assert Ternary().update_bits(79_510, 8.0) == Ternary().update_bits(79_510)
    assert Ternary().update_bits(1) == 24


def test_nonsense_is_refused():
    with pytest.raises(AutoFLError, match="a byte of 243; five trits make at most 242"):
        Ternary().unpack(bytes([0x00, 0x40, 243]), 5)
    with pytest.raises(AutoFLError, match="4 bytes, not 3"):
        Ternary().unpack(bytes(4), 5)
