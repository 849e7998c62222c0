"""The way down: what the base station sends of its model, and what the UEs have of it."""

from dataclasses import dataclass

import torch

from autofl.algorithms.base import minus
from autofl.compressors import Compressor
from autofl.compressors.downlink import FACTOR_BITS
from autofl.engines.compressed import flat, is_sent, shaped
from autofl.errors import AutoFLError
from autofl.models import Params
from autofl.rng import stream


@dataclass(frozen=True)
class Reference:
    """The model as every UE has it, where the base station sends only compressed differences."""

    params: Params  # r_k, in the form of State.sent
    bits: float  # Z_down [bit] of the message that makes it


def next_reference(compressor: Compressor, model: Params, reference: Params, seed: int, k: int) -> Reference:
    """What the UEs have after the base station has sent the difference between its model and theirs.

        r_{k+1} = r_k + s C(x),    x = w_{k+1} - r_k,    s = <x, C(x)> / |C(x)|^2

    The next difference contains what this one lost, so nothing is lost for good: EF21-P (Gruntkowska, Tyurin and
    Richtarik, ICML 2023) and MCM (Philippenko and Dieuleveut, NeurIPS 2021), whose server keeps a model of its own too.
    The factor s brings r closest to w, |x - s C(x)| <= |x| for any C. Without it an unbiased C of few bits, whose noise
    exceeds what it carries, can leave r farther from w than it was. It stands in for MCM's 1/(1 + omega).

    Note:
        A compressor that remembers what it lost is asked with an empty memory: the difference holds that already.
    """
    difference = flat(minus(model, 1.0, reference))
    num_weights = len(difference)
    budget, first = compressor.update_bits(num_weights) / num_weights, compressor.init(num_weights)
    answer = compressor(difference, budget, lambda: stream(seed, "downlink", k), first)
    if not is_sent(answer, difference):
        raise AutoFLError(
            f"downlink {type(compressor).__name__}: it must give a Sent, with the {num_weights} weights that are"
            " received in one row and their bits, and a memory"
        )
    sent, received = answer[0], answer[0].received.to(difference)
    change = shaped(_factor(difference, received) * received, model)
    return Reference(minus(reference, -1.0, change), sent.bits + FACTOR_BITS)


def _factor(difference: torch.Tensor, received: torch.Tensor) -> float:
    """s, in double precision and rounded to what travels; 0 where nothing is received."""
    exact, rough = difference.double(), received.double()
    power = float(rough @ rough)
    return float(torch.tensor(float(exact @ rough) / power, dtype=torch.float32)) if power > 0.0 else 0.0
