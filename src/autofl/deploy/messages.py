"""What travels between server and devices, and what is refused.

Down: {"params", "order", "model"} and, where pixels are standardised by all devices' statistics,
{"pixels"}. Up: {"params", "measured"}, with a compressor {"packed", "measured"}, {"quality"} or
{"device"}. Each message has a stamp that its reply repeats. What comes from another machine is
checked before use, by `schema` and here.
"""

import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from numpy.typing import NDArray

from autofl.compressors import Compressor
from autofl.data.federated import PixelSums
from autofl.deploy.schema import (
    FIELDS,
    MOST_PIXELS,
    MOST_SAMPLES,
    SMALL,
    RefusedError,
    read,
    shown,
    told,
)
from autofl.errors import AutoFLError
from autofl.models import Params, num_weights

NAN = float("nan")
HEADER = 4096
"""Bytes that the description of an array may take, in addition to its values."""


def params_record(params: Params) -> ArrayRecord:
    return ArrayRecord({name: Array(p.detach().cpu().numpy()) for name, p in params.items()})


def params_of(record: RecordDict) -> Params:
    """Parameters as they are, unchecked: what a device does with its own."""
    return {
        name: torch.from_numpy(array.numpy().copy())
        for name, array in _arrays(record, "params").items()
    }


def checked_params(record: RecordDict, like: Params) -> Params:
    """The parameters of a message, if they are those of `like` in name, shape and type, and finite."""
    arrays = _arrays(record, "params")
    if set(arrays) != set(like):
        odd = sorted(set(arrays) ^ set(like))
        raise RefusedError(
            f"wrong keys: {shown(odd[0][:200])} is {'missing' if odd[0] in like else 'unknown'}"
        )
    params: Params = {}
    for name, expected in like.items():
        wanted = expected.detach().cpu().numpy()
        array = _decoded(arrays[name], name, wanted.dtype, wanted.shape)
        if not np.isfinite(array).all():
            raise RefusedError(f"{name}: not finite")
        params[name] = torch.from_numpy(array.copy())
    return params


def params_bytes(like: Params) -> float:
    """The most bytes that a message with such parameters has."""
    return sum(p.numel() * p.element_size() + HEADER for p in like.values()) + SMALL


def packed_record(payload: bytes) -> ConfigRecord:
    return ConfigRecord({"update": payload})


def checked_payload(record: RecordDict, most_bits: float) -> bytes:
    """The bytes of a compressed update, if they are no more than was planned for."""
    packed = record.config_records.get("packed", ConfigRecord())
    payload = packed.get("update")
    if not isinstance(payload, bytes):
        raise RefusedError("packed update: missing")
    if len(packed) > 1:
        raise RefusedError("packed update: there is more than one")
    if 8 * len(payload) > most_bits:
        raise RefusedError(f"packed update: {len(payload)} bytes, planned {most_bits / 8:g}")
    return payload


def unpacked(payload: bytes, compressor: Compressor, like: Params) -> torch.Tensor:
    """w_i - w in one row, of the type of `like`, if the compressor can read it and it is finite.

    An update near the largest number of its type (3.4e38) overflows on the way through a
    compressor: the device must be told that its values are too large, not that its bytes were
    damaged.
    """
    num = num_weights(like)
    kind = next(iter(like.values()))
    try:
        row = compressor.unpack(payload, num)
    except AutoFLError as error:
        raise RefusedError(shown(str(error)[:200])) from None
    except Exception as error:  # a user's own compressor, and bytes from outside
        raise RefusedError(f"packed update: not readable ({type(error).__name__})") from None
    if row.shape != (num,):
        raise RefusedError(f"packed update: shape {tuple(row.shape)}, not ({num},)")
    if not torch.isfinite(row).all() or not torch.isfinite(row.to(kind)).all():
        raise RefusedError(
            "packed update: not finite; values near 3.4e38 overflow in the compressor"
        )
    return row.to(kind)


def digest_of(record: RecordDict) -> bytes:
    """SHA-256 of a record as it is written: the same for the same values only if we have written it
    ourselves.
    """
    made = hashlib.sha256()
    for group in ("params", "packed"):
        for name, array in sorted(record.array_records.get(group, ArrayRecord()).items()):
            made.update(f"{group}.{name}:{array.dtype}:{array.shape}:".encode() + array.data)
        for name, value in sorted(record.config_records.get(group, ConfigRecord()).items()):
            made.update(f"{group}.{name}:".encode() + (value if isinstance(value, bytes) else b""))
    return made.digest()


def pixels_record(sums: PixelSums) -> ArrayRecord:
    parts = {"num": np.array(sums.num), "total": sums.total, "squares": sums.squares}
    return ArrayRecord({name: Array(array) for name, array in parts.items()})


def pixels_of(
    record: RecordDict, sample_shape: tuple[int, ...], most: int = MOST_SAMPLES
) -> PixelSums | None:
    """The pixel sums of a message, of at most `most` samples; None if it has none."""
    if "pixels" not in record.array_records:
        return None
    arrays = _arrays(record, "pixels")
    if set(arrays) != {"num", "total", "squares"} or math.prod(sample_shape) > MOST_PIXELS:
        raise RefusedError("pixels: not num, total and squares of a sample")
    kind = np.dtype(np.int64)
    shapes = {"num": (), "total": sample_shape, "squares": sample_shape}
    num, total, squares = (
        _decoded(arrays[name], name, kind, shape) for name, shape in shapes.items()
    )
    # For bytes x over n samples: 0 <= sum x <= 255 n, sum x <= sum x^2 <= 255 sum x, (sum x)^2 <= n
    # sum x^2.
    if not 1 <= num <= most:
        raise RefusedError(f"pixels: of {int(num)} samples; 1 to {most} can be")
    if (
        (total < 0).any()
        or (total > 255 * num).any()
        or (squares < total).any()
        or (squares > 255 * total).any()
    ):
        raise RefusedError("pixels: sums that no images have")
    if (
        squares * num < total**2
    ).any():  # neither side overflows: num, total and squares are bounded by now
        raise RefusedError("pixels: sums that no images have")
    return PixelSums(int(num), total, squares)


@dataclass(frozen=True)
class Order:
    """What one device is told in a round: its part of the plan, as far as it can act on it."""

    round: int
    ue: int  # whom it is for
    num_samples: int  # d_k^i
    local_steps: int  # tau_k^i
    tx_power: float  # p_k^i [W], for a device that can set it
    bits_per_weight: float  # of the update it sends
    compute_time: float  # [s] and
    upload_rate: float  # [bit/s] as modelled, for a device on a testbed

    def record(self) -> ConfigRecord:
        return ConfigRecord(
            {name.replace("_", "-"): value for name, value in self.__dict__.items()}
        )

    @classmethod
    def of(cls, record: RecordDict) -> "Order":
        values = read(record, "order", FIELDS["order"])
        return cls(**{field.name: values[field.name.replace("_", "-")] for field in fields(cls)})


UNDELIVERED = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
"""Errors that come from the SuperLink; the others are the device's."""


def content_of(reply: Message) -> RecordDict:
    """The content of a reply that is no error."""
    if reply.has_error():
        reason = str(reply.error.reason or "no reason given")[:400]
        text = f"error {reply.error.code}: {reason}"
        raise RefusedError(shown(text) if reply.error.code in UNDELIVERED else told(text))
    return reply.content


def _arrays(record: RecordDict, name: str) -> ArrayRecord:
    if name not in record.array_records:
        raise RefusedError(f"{name} is missing")
    return record.array_records[name]


@lru_cache(maxsize=1024)
def _head(kind: str, shape: tuple[int, ...]) -> bytes:
    """How NumPy describes an array of this type and shape, in C order."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.empty(shape, kind))
    return stream.getvalue()[: -math.prod(shape) * np.dtype(kind).itemsize or None]


def _extents(shape: Sequence[object]) -> str:
    """A shape from another machine in a few words: Python does not even write a number of 5,000
    digits.
    """
    if all(isinstance(extent, int) and extent.bit_length() <= 64 for extent in shape[:8]):
        return f"shape {tuple(shape[:8])}"
    return "a shape that no array has"


def _decoded(
    array: Array, name: str, kind: np.dtype[np.generic], shape: tuple[int, ...]
) -> NDArray[Any]:
    """The array of this type and shape. Both are read from its bytes before anything is allocated
    for its values.
    """
    size = math.prod(shape) * kind.itemsize
    label = shown(name[:200])
    if len(array.data) > size + HEADER:
        same = tuple(array.shape) == shape
        raise RefusedError(
            f"{label}: {'too many bytes' if same else f'{_extents(array.shape)}, not {shape}'}"
        )
    usual = _head(kind.str, shape)
    if (
        array.data.startswith(usual) and len(array.data) == len(usual) + size
    ):  # as everybody writes it
        return np.frombuffer(array.data, kind, offset=len(usual)).reshape(shape)
    try:
        stream = io.BytesIO(array.data)
        version = np.lib.format.read_magic(stream)
        reads = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        own_shape, fortran, own_kind = reads[version](stream)
    except Exception as error:  # bytes from outside: anything may be wrong with them
        raise RefusedError(f"{label}: not a readable array ({type(error).__name__})") from None
    if own_kind != kind:
        raise RefusedError(f"{label}: type {shown(str(own_kind)[:200])}, not {kind}")
    if own_shape != shape:
        raise RefusedError(f"{label}: {_extents(own_shape)}, not {shape}")
    values = array.data[stream.tell() :]
    if len(values) != size:
        raise RefusedError(f"{label}: {len(values)} bytes, not {size}")
    return np.frombuffer(values, dtype=kind).reshape(shape, order="F" if fortran else "C")
