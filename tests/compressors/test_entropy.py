"""Entropy-coded updates: by hand, the coder against all strings and against the entropy, the step,
no bias.
"""

import itertools
import math

import numpy as np
import pytest

from autofl.compressors import enumerative
from autofl.compressors.entropy import Entropy, code_size, fitted, packed, unpacked
from autofl.errors import AutoFLError


def empirical_entropy(values):
    """Bits of a memoryless source with the frequencies of these values, for all of them."""
    count = np.unique(values, return_counts=True)[1]
    return float(-(count * np.log2(count / len(values))).sum())


def laplace(num, scale, seed=1):
    return np.random.default_rng(seed).laplace(0.0, scale, num).astype(np.float32)


def uniforms(num, seed=2):
    return np.random.default_rng(seed).random(num, dtype=np.float32)


def test_a_code_by_hand():
    # q = 0 2 0 -1 0 0, no low bits. First string 010100: parameter 0 (000), two ones of six as 110,
    # rank
    # C(1,1) + C(3,2) = 4 of 15 in four bits. Second string 10 (is it 2 or more?): 000, one as 10,
    # rank C(0,1) = 0 of 2
    # in one bit. Third string 0 (3 or more?): 000, none as 0, rank in no bits. Signs + -: 01.
    whole = np.array([0, 2, 0, -1, 0, 0], dtype=np.float32)
    text = "0001100100" + "000100" + "0000" + "01"
    assert code_size(whole) == 40 + len(text)
    payload = packed(np.float32(0.5), whole)
    assert payload == bytes([0, 0, 0, 0x3F, 0]) + int(text.ljust(24, "0"), 2).to_bytes(3, "big")
    step, again = unpacked(payload, 6)
    assert step == 0.5
    assert again.tolist() == whole.tolist()


def test_every_short_string_has_a_code_of_its_own_of_the_length_foretold():
    for length in range(1, 11):
        codes = set()
        for digits in itertools.product([False, True], repeat=length):
            text = np.array(digits)
            code = enumerative.coded(text)
            assert len(code) == enumerative.coded_size(text)
            payload = np.packbits(np.frombuffer(code.encode(), np.uint8) - 48).tobytes()
            assert enumerative.Reader(payload).string(length).tolist() == list(digits)
            codes.add(code)
        assert len(codes) == 2**length
        assert not any(
            a != b and b.startswith(a) for a, b in itertools.pairwise(sorted(codes))
        )  # none begins another


def test_binomials_are_those_of_the_standard_library():
    column, rank_bits = enumerative.tables()
    for n, k in itertools.product(range(0, enumerative.BLOCK + 1, 7), repeat=2):
        assert column[k][n] == math.comb(n, k)
        assert rank_bits[n, k] == (math.ceil(math.log2(math.comb(n, k))) if 0 < k < n else 0)


def test_ones_are_counted_as_one_by_one():
    rng = np.random.default_rng(3)
    for length in (0, 1, 127, 128, 129, 1000, 4096):
        text = rng.random(length) < 0.9
        slow = [
            sum(text[begin : begin + enumerative.BLOCK])
            for begin in range(0, length, enumerative.BLOCK)
        ]
        assert enumerative.ones_of(text).tolist() == slow


@pytest.mark.parametrize("bits", [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 5.0, 8.0])
def test_the_code_is_within_a_few_percent_of_the_entropy_and_fills_the_budget(bits):
    values = laplace(80_000, 0.01)
    step, whole, size = fitted(values, uniforms(80_000), bits * 80_000)
    assert 0.985 * bits * 80_000 <= size <= bits * 80_000
    assert whole.tolist() == np.floor(values / step + uniforms(80_000)).tolist()
    # Memoryless data: no coder can do better. Rounding the ranks up and telling k cost 5 to 6 bits
    # of 128 weights.
    assert size <= 1.05 * empirical_entropy(whole) + 6 * len(whole) / enumerative.BLOCK
    assert size >= 0.99 * empirical_entropy(whole)


def test_a_smaller_step_that_is_much_smaller_does_not_fit():
    values, uniform = laplace(20_000, 1.0), uniforms(20_000)
    for bits in (0.1, 1.0, 4.0):
        step, _, _ = fitted(values, uniform, bits * 20_000)
        assert code_size(np.floor(values / (0.97 * step) + uniform)) > bits * 20_000


@pytest.mark.parametrize("bits", [0.2, 1.0, 4.0])
def test_the_mean_of_many_is_the_update(bits):
    change, rounds = np.random.default_rng(5).normal(size=4000).astype(np.float32) ** 3, 500
    total, squares, steps, num = np.zeros(4000), np.zeros(4000), 0.0, 0
    for seed in range(rounds):
        step, whole, _ = fitted(change, uniforms(4000, seed), bits * 4000)
        off = whole.astype(np.float64) * step - change
        total, squares, steps, num = (
            total + off,
            squares + off**2,
            steps + step,
            num + np.count_nonzero(whole),
        )
    often = (
        np.abs(change) * rounds**2 / steps > 20.0
    )  # rounded away from zero in so many rounds, at least
    z = total[often] / np.sqrt(squares[often])  # standard normal without bias
    assert (z**2).mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / often.sum()))
    # Along the update, where a step that depends on the roundings shows: a part in the number of
    # non-zeros.
    length = (change.astype(np.float64) ** 2).sum()
    deviation = np.sqrt(squares @ change.astype(np.float64) ** 2) / (rounds * length)
    assert abs(total @ change) / (rounds * length) < 4 * deviation + 2 * rounds / num


def test_bits_are_those_of_the_plan_with_a_least_for_small_updates():
    assert Entropy().update_bits(79_510) == 79_512  # whole bytes
    assert Entropy(0.4).update_bits(79_510) == 8 * 3976
    assert Entropy().update_bits(79_510, 2.0) == 159_016  # as many whole bytes as the plan pays for
    assert Entropy().update_bits(1) == 136
    assert Entropy().update_bits(1000, 99.0) == 12_000


def test_payloads_out_of_range_are_refused_by_name():
    good = packed(np.float32(0.5), np.array([0, 2, 0, -1, 0, 0], dtype=np.float32))
    for payload, why in (
        (good[:4], "4 bytes; its header has 5"),
        (good[:4] + bytes([200]) + good[5:], "200 low bits"),
        (good[:-1], "ends too early"),
        (good + bytes(1), "9 bytes, not 8"),
        (good + bytes(10**6), "more than 6 weights can take"),
        (good[:5] + bytes([0b00011111, 0b11000000]), "a number out of range"),  # seven ones of six
        (good[:5] + bytes([0b00011011, 0b11000000]), "rank of a block out of range"),  # 15 of 15
    ):
        with pytest.raises(AutoFLError, match=why):
            Entropy().unpack(payload, 6)
