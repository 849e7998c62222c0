"""The way down: what the base station sends of its model, and what the UEs have of it."""

import numpy as np
import torch

from autofl.algorithms.base import minus
from autofl.compressors import Compressor
from autofl.compressors.downlink import FACTOR_BITS
from autofl.core.round import Round
from autofl.engines import flat, shaped
from autofl.engines.compressed import is_sent
from autofl.errors import AutoFLError
from autofl.models import Params
from autofl.planner.downlink import WHOLE, Offer, best_message, offer_of
from autofl.rng import stream
from autofl.units import Array

SAMPLED = 4096
"""Weights of a difference on which it is measured what a message would lose. Its error is about
0.02, and neighbouring messages differ by 0.1 where the choice is close.
"""


def received_model(
    compressor: Compressor,
    model: Params,
    held: Params,
    seed: int,
    k: int,
    bits_per_weight: float | None = None,
) -> tuple[Params, float]:
    """What the UEs have after the base station has sent the difference between its model and
    theirs, in the form of `State.sent`, and Z_down [bit] of that message.

        r_{k+1} = r_k + s C(x),    x = w_{k+1} - r_k,    s = <x, C(x)> / |C(x)|^2

    The next difference contains what this one lost, so nothing is lost for good: EF21-P
    (Gruntkowska, Tyurin and Richtarik, ICML 2023) and MCM (Philippenko and Dieuleveut, NeurIPS
    2021), whose server keeps a model of its own too. The factor s brings r closest to w, |x - s
    C(x)| <= |x| for any C. Without it an unbiased C of few bits, whose noise exceeds what it
    carries, can leave r farther from w than it was. It stands in for MCM's 1/(1 + omega).

    Args:
        bits_per_weight: of this message, where they are decided; WHOLE sends the model as it is.
    Note:
        A compressor that remembers what it lost is asked with an empty memory: the difference holds
            that already.
    """
    difference = flat(minus(model, 1.0, held))
    num_weights = len(difference)
    if bits_per_weight == WHOLE:
        return dict(model), WHOLE * num_weights
    budget = compressor.update_bits(num_weights, bits_per_weight) / num_weights
    first = compressor.init(num_weights)
    answer = compressor(difference, budget, lambda: stream(seed, "downlink", k), first)
    if not is_sent(answer, difference):
        raise AutoFLError(
            f"downlink {type(compressor).__name__}: it must give a Sent, with the {num_weights} weights that are"
            " received in one row and their bits, and a memory"
        )
    sent = answer[0]
    received = answer[0].received.to(difference)
    change = shaped(_factor(difference, received) * received, model)
    return minus(held, -1.0, change), sent.bits + FACTOR_BITS


def decided_bits(
    compressor: Compressor, model: Params, reference: Params, this_round: Round, seed: int
) -> float:
    """Bits per weight of the next message: those worth their time in a round like this one.

    What a message would lose is measured on some weights of the very difference that is to be sent.
    """
    difference = flat(minus(model, 1.0, reference))
    offer = offer_of(compressor, len(difference))
    offer = offer.having(_losses(compressor, difference, offer, seed, this_round.k))
    return float(
        offer.bits_per_weight[best_message(offer, this_round.cost, this_round.cell.downlink_bits)]
    )


def _losses(
    compressor: Compressor, difference: torch.Tensor, offer: Offer, seed: int, k: int
) -> Array:
    """1 - <x, C(x)>^2 / (|x| |C(x)|)^2 with each message but the last, the model as it is."""
    exact = difference.detach().cpu()
    if len(exact) > SAMPLED:
        exact = exact[
            torch.from_numpy(stream(seed, "downlink.sample", k).integers(len(exact), size=SAMPLED))
        ]
    first = compressor.init(len(exact))
    power = float(exact.double() @ exact.double())
    lost = []
    for bits in offer.bits_per_weight[:-1].tolist():
        budget = compressor.update_bits(len(exact), bits) / len(exact)
        sent, _ = compressor(exact, budget, lambda: stream(seed, "downlink.trial", k), first)
        received = sent.received.double()
        carried = float(received @ exact.double())
        own = float(received @ received)
        if own > 0.0 and power > 0.0:
            lost.append(1.0 - carried**2 / (own * power))
        else:  # all of what there is, if there is anything
            lost.append(float(power > 0.0))
    return np.array(lost)


def _factor(difference: torch.Tensor, received: torch.Tensor) -> float:
    """s, in double precision and rounded to what travels; 0 where nothing is received."""
    exact = difference.double()
    rough = received.double()
    power = float(rough @ rough)
    if not power > 0.0:  # nor where it is not a number
        return 0.0
    return float(torch.tensor(float(exact @ rough) / power, dtype=torch.float32))
