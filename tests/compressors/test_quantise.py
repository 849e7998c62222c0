"""b-bit quantisation: by hand, its error, its bits."""

import numpy as np
import pytest
import torch

from autofl.compressors.quantise import Quantise


class Fixed:
    """A generator whose uniform numbers are given."""

    def __init__(self, numbers):
        self.numbers = np.array(numbers, dtype=np.float32)

    def random(self, num, dtype):
        return self.numbers[:num]


def received(compressor, change, uniforms):
    bits = compressor.update_bits(len(change)) / len(change)
    return compressor(torch.tensor(change), bits, lambda: Fixed(uniforms), {})[0].received.tolist()


def test_by_hand():
    # Three bits: levels -3 to 3. The first block's scale is 3, so its steps are 1; the second's is
    # 1.5, steps 0.5.
    change = [3.0, -1.25, 0.5, 0.0, 1.5, -0.75, 0.25, -1.5]
    low, high = (
        received(Quantise(bits=3, block=4), change, [0.0] * 8),
        received(Quantise(3, 4), change, [0.999] * 8),
    )
    assert low == [3.0, -2.0, 0.0, 0.0, 1.5, -1.0, 0.0, -1.5]
    assert high == [3.0, -1.0, 1.0, 0.0, 1.5, -0.5, 0.5, -1.5]


def test_two_bits_are_three_values():
    torch.manual_seed(1)
    change = torch.randn(1000)
    sent, _ = Quantise(bits=2, block=1000)(change, 2.1, lambda: np.random.default_rng(1), {})
    assert len(sent.received.unique()) == 3


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_error_is_below_a_step_and_its_variance_as_theory_says(bits):
    torch.manual_seed(2)
    change, compressor = torch.randn(256, dtype=torch.float64), Quantise(bits, 256)
    budget = compressor.update_bits(256) / 256
    rng = np.random.default_rng(3)
    many = torch.stack(
        [compressor(change, budget, lambda: rng, {})[0].received for _ in range(3000)]
    )
    step = float(np.nextafter(np.float16(change.abs().max()), np.float16(np.inf))) / (
        2 ** (bits - 1) - 1
    )
    assert float((many - change).abs().max()) <= step * (1 + 1e-6)
    place = (
        change / step
    ) % 1.0  # between two levels x is rounded up with this probability: variance p (1 - p)
    expected = float((place * (1 - place)).mean()) * step**2
    assert float(((many - change) ** 2).mean()) == pytest.approx(expected, rel=0.05)


def test_a_scale_is_rounded_up_to_half_precision_so_that_the_largest_weight_fits():
    change = [
        1.0001,
        -1.0001,
        0.1,
        0.0,
    ]  # 1.0001 lies between two half-precision numbers, 1 and 1.0009765625
    out = received(Quantise(bits=2, block=4), change, [0.0, 0.0, 0.0, 0.0])
    assert out == [0.0, -1.0009765625, 0.0, 0.0]  # at 1 it would have been 1 or -2, never unbiased
    assert received(Quantise(bits=2, block=4), change, [0.9999] * 4)[0] == 1.0009765625


def test_bits_are_those_of_the_weights_and_of_a_scale_for_each_block():
    assert Quantise(4, 256).update_bits(79_510) == 4 * 79_510 + 16 * 311
    assert Quantise(4, 256).update_bits(256) == 4 * 256 + 16
    # A planner that pays for 8 bits and the scales gets 8, one that pays a little less gets 7.
    whole = 8 + 16 * 311 / 79_510
    assert Quantise().update_bits(79_510, whole) == 8 * 79_510 + 16 * 311
    assert (
        Quantise().update_bits(79_510, whole - 0.01) == 7 * 79_510 + 6 + 16 * 311
    )  # 6 fill a byte
