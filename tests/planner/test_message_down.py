"""How many bits a weight of the broadcast are worth their time."""

import numpy as np
import pytest

from autofl.compressors.nearest import Nearest
from autofl.network import RoundCost
from autofl.planner.downlink import DELAYED, WHOLE, Offer, best_message, offer_of, speed

NOBODY = np.empty(0)


def cost_of(time, down):
    return RoundCost(NOBODY, NOBODY, NOBODY, np.array(time), np.array(down))


def test_the_sum_worked_by_hand():
    # 10 ms beside the downlink, 1 us a bit. 4,000 bits that lose a half: (1 - 3/4 1/2)/(10 + 4) ms
    # = 0.625/0.014;
    # 10,000 bits that lose a tenth: 0.925/0.020; the model in 32,000 bits: 1/0.042.
    assert DELAYED == 0.75
    offer = Offer(
        np.array([4.0, 10.0, 32.0]), np.array([4e3, 1e4, 3.2e4]), np.array([0.5, 0.1, 0.0])
    )
    np.testing.assert_allclose(speed(offer, 0.010, 1e-6), [44.642857, 46.25, 23.809524], rtol=1e-7)
    assert best_message(offer, cost_of(0.013, 0.003), sent=3e3) == 1
    assert (
        best_message(offer, cost_of(0.008, 0.003), sent=3e3) == 0
    )  # with 5 ms beside it: 69.4 against 61.7


def test_the_best_message_maximises_progress_minus_lambda_times_time():
    offer = offer_of(Nearest(), 79_510)
    for per_bit in 10.0 ** np.arange(-10.0, -4.0):
        scores = speed(offer, 0.02, per_bit)
        sums = (1.0 - DELAYED * offer.lost) - scores.max() * (0.02 + per_bit * offer.size)
        assert sums.argmax() == scores.argmax()
        assert sums.max() == pytest.approx(0.0, abs=1e-12)


def test_a_free_broadcast_is_not_compressed():
    offer = offer_of(Nearest(), 79_510)
    assert offer.bits_per_weight[best_message(offer, cost_of(0.02, 0.0), sent=79_510.0)] == WHOLE
    lossless = offer.having(np.zeros(len(offer.lost) - 1))
    assert (
        lossless.bits_per_weight[best_message(lossless, cost_of(0.02, 0.0), sent=79_510.0)] == WHOLE
    )
    # 32 bits a weight take 10 us beside 20 ms: 8 bits save 7.5 us, 0.04 %, and lose 3/4 of 0.1 %.
    short = best_message(
        offer.having(offer.lost[:-1] + 1e-3), cost_of(0.02001, 1e-5), sent=32.0 * 79_510
    )
    assert offer.bits_per_weight[short] == WHOLE


def test_a_cheaper_broadcast_gets_finer_bits():
    offer, sent = offer_of(Nearest(), 79_510), 79_510.0
    chosen = [
        offer.bits_per_weight[best_message(offer, cost_of(0.02 + down, down), sent)]
        for down in 10.0 ** np.linspace(1.0, -9.0, 60)
    ]
    assert (np.diff(chosen) >= 0.0).all()
    assert (chosen[0], chosen[-1]) == (0.1, WHOLE)
    assert len(set(chosen)) >= 8


def test_a_difference_that_loses_more_gets_finer_bits():
    offer = offer_of(Nearest(), 79_510)
    cost, sent = cost_of(0.05, 0.03), 79_510.0
    noisy = offer.having(np.minimum(2.0 * offer.lost[:-1], 0.95))
    usual = offer.bits_per_weight[best_message(offer, cost, sent)]
    assert noisy.bits_per_weight[best_message(noisy, cost, sent)] > usual


def test_no_message_is_offered_that_is_longer_than_the_model():
    offer = offer_of(Nearest(), 2)  # the least message of a coder has more than 64 bits
    assert (offer.bits_per_weight.tolist(), offer.size.tolist()) == ([WHOLE], [64.0])
