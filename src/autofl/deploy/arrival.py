"""An update as it arrives: read, measured and checked by itself, while others are still on their
way.
"""

import math
from dataclasses import dataclass, replace

import torch
from flwr.app import RecordDict

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.deploy.arrays import checked_params, digest_of, packed_payload, unpacked_change
from autofl.deploy.messages import RefusedError, Trained
from autofl.engines.compressed import flat, shaped
from autofl.models import Params, num_weights
from autofl.rounds.checks import NO_CHANGE


@dataclass(frozen=True)
class Arrival:
    """What a device sent in a round as far as it could be read, and why the rest could not."""

    measured: Trained | None = None
    update: Params | torch.Tensor | None = None
    """w_i, or w_i - w in one row where it came packed."""
    bits: float = math.nan  # of a packed one
    norm: float = 0.0  # |w_i - w|
    digest: bytes | None = None  # of an update that must not come again
    problem: str = ""

    def change(self, sent: Params) -> torch.Tensor:
        """w_i - w in one row."""
        if isinstance(self.update, torch.Tensor):
            return self.update
        assert self.update is not None
        return flat(self.update) - flat(sent)

    def moved(self, change: torch.Tensor, sent: Params) -> "Arrival":
        """The same with this added to its update."""
        if isinstance(self.update, torch.Tensor):
            return replace(self, update=self.update + change)
        assert self.update is not None
        parts = shaped(change, sent)
        return replace(
            self, update={name: self.update[name] + part for name, part in parts.items()}
        )


def arrival_of(
    content: RecordDict, sent: Params, compressor: Compressor | None, bits_per_weight: float
) -> Arrival:
    """What came in reply to `sent`."""
    measured = None
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
    return Arrival(measured, update, norm=norm, digest=digest_of(update))


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
