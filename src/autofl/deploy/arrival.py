"""An update as it arrives: read, measured and checked by itself, while others are still on their
way.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from flwr.app import RecordDict

from autofl.compressors import Compressor
from autofl.compressors.base import whole_bytes
from autofl.deploy.messages import (
    checked_params,
    checked_payload,
    digest_of,
    params_record,
    unpacked,
)
from autofl.deploy.schema import RefusedError, read
from autofl.engines import flat, shaped
from autofl.models import Params
from autofl.rounds.checks import NO_CHANGE


class Packed(NamedTuple):
    """A compressed update as received: w_i - w in one row, and its bits."""

    change: torch.Tensor
    bits: float


@dataclass(frozen=True)
class Arrival:
    """What a device sent in a round as far as it could be read, and why the rest could not."""

    measured: dict[str, Any] = field(default_factory=dict)
    update: Params | Packed | None = None
    norm: float = 0.0  # |w_i - w|
    digest: bytes | None = None  # of an update that must not come again
    problem: str = ""

    def change(self, sent: Params) -> torch.Tensor:
        """w_i - w in one row."""
        if isinstance(self.update, Packed):
            return self.update.change
        assert self.update is not None
        return flat(self.update) - flat(sent)

    def moved(self, change: torch.Tensor, sent: Params) -> "Arrival":
        """The same with this added to its update."""
        if isinstance(self.update, Packed):
            return replace(self, update=self.update._replace(change=self.update.change + change))
        assert self.update is not None
        parts = shaped(change, sent)
        return replace(
            self, update={name: self.update[name] + part for name, part in parts.items()}
        )


class Reader:
    """Reads the updates of a round, in which `sent` was sent down."""

    def __init__(self, sent: Params, compressor: Compressor | None) -> None:
        self._sent = sent
        self._compressor = compressor
        self._from = flat(sent).double()

    def __call__(self, content: RecordDict, bits_per_weight: float) -> Arrival:
        said: dict[str, Any] = {}
        try:
            said = read(content, "measured", ("train-time", "guarded"), ("energy",))
            if self._compressor is None:
                return self._plain(said, content)
            return self._packed(said, content, self._compressor, bits_per_weight)
        except RefusedError as error:
            return Arrival(said, problem=str(error))

    def _plain(self, said: dict[str, Any], content: RecordDict) -> Arrival:
        update = checked_params(content, self._sent)
        norm = length(flat(update).double() - self._from)
        if norm == 0.0:
            raise RefusedError(NO_CHANGE)
        return Arrival(said, update, norm, _digest(update))

    def _packed(
        self,
        said: dict[str, Any],
        content: RecordDict,
        compressor: Compressor,
        bits_per_weight: float,
    ) -> Arrival:
        payload = checked_payload(
            content, whole_bytes(compressor.update_bits(len(self._from), bits_per_weight))
        )
        update = Packed(unpacked(payload, compressor, self._sent), 8.0 * len(payload))
        norm = length(update.change.double())
        # With few bits, several updates may be all zeros.
        return Arrival(
            said, update, norm, None if norm == 0.0 else _digest({"change": update.change})
        )


def _digest(values: Params) -> bytes:
    """Of the numbers that were read: a device can write the same ones with other headers, types and
    orders of axes.

    Without a compressor these are w_i. The same w_i - w from another w is not recognised: w + (w_i
    - w) is rounded, so what the server gets back has other last digits each round.
    """
    return digest_of(RecordDict({"params": params_record(values)}))


def length(change: torch.Tensor) -> float:
    """The Euclidean norm of a row in double precision: the square of a large float32 is no float32."""
    return math.sqrt(float(change.square().sum()))
