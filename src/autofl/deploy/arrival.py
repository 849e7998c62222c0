"""An update as it arrives: read, measured and checked by itself, while others are still on their
way.
"""

import math
from dataclasses import dataclass

import torch
from flwr.app import RecordDict

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.deploy.arrays import checked_params, digest_of, packed_payload, unpacked_change
from autofl.deploy.messages import RefusedError, Trained
from autofl.engines import flat
from autofl.models import Params, num_weights
from autofl.robust.checks import NO_CHANGE

NO_UPDATE = torch.empty(0)
NOT_MEASURED = Trained.saying(train_time=math.nan, guarded=0)


@dataclass(frozen=True, eq=False)
class Arrival:
    """What a device sent in a round as far as it could be read, and why the rest could not."""

    measured: Trained = NOT_MEASURED
    change: torch.Tensor = NO_UPDATE  # w_i - w in one row
    bits: float = math.nan  # of one that came packed
    norm: float = 0.0  # |w_i - w|
    digest: bytes | None = None  # of an update that must not come again
    problem: str = ""


def arrival_of(
    content: RecordDict, sent: Params, compressor: Compressor | None, bits_per_weight: float
) -> Arrival:
    """What came in reply to `sent`."""
    measured = NOT_MEASURED
    try:
        measured = Trained.of(content)
        if compressor is None:
            return _plain(content, sent, measured)
        return _packed(content, sent, measured, compressor, bits_per_weight)
    except RefusedError as error:
        return Arrival(measured, problem=str(error))


def _plain(content: RecordDict, sent: Params, measured: Trained) -> Arrival:
    """Its digest is that of w_i. The same w_i - w from another w is not recognised: w + (w_i - w) is
    rounded, so what the server gets back has other last digits each round.
    """
    update = checked_params(content, sent)
    norm = length(flat(update).double() - flat(sent).double())
    if norm == 0.0:
        raise RefusedError(NO_CHANGE)
    change = flat(update) - flat(sent)
    return Arrival(measured, change, norm=norm, digest=digest_of(update))


def _packed(
    content: RecordDict,
    sent: Params,
    measured: Trained,
    compressor: Compressor,
    bits_per_weight: float,
) -> Arrival:
    most_bits = whole_bytes(compressor.update_bits(num_weights(sent), bits_per_weight))
    payload = packed_payload(content, most_bits)
    change = unpacked_change(payload, compressor, sent)
    norm = length(change.double())
    # With few bits, several updates may be all zeros.
    digest = None if norm == 0.0 else digest_of({"change": change})
    return Arrival(measured, change, 8.0 * len(payload), norm, digest)


def length(change: torch.Tensor) -> float:
    """The Euclidean norm of a row in double precision: the square of a large float32 is no float32."""
    return math.sqrt(float(change.square().sum()))
