"""Arrays of a message: parameters, packed updates, sums of pixels. Nothing is used unchecked, and
nothing is allocated for what an array only claims to hold.
"""

import hashlib
import io
import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from autofl.compressors import Compressor
from autofl.data.federated import PixelSums
from autofl.deploy.messages import MOST_SAMPLES, SMALL, RefusedError, shown
from autofl.errors import AutoFLError
from autofl.models import Params, num_weights

HEADER = 4096
"""Bytes that the description of an array may take, in addition to its values."""


def params_record(params: Params) -> ArrayRecord:
    return ArrayRecord({name: Array(p.detach().cpu().numpy()) for name, p in params.items()})


def params_of(record: ArrayRecord) -> Params:
    """Parameters as they are, unchecked: what a device does with its own."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}


def checked_params(content: RecordDict, like: Params) -> Params:
    """The parameters of a message, if they are those of `like` in name, shape and type, and finite."""
    arrays = _arrays(content, "params")
    if set(arrays) != set(like):
        odd = min(set(arrays) ^ set(like))
        raise RefusedError(
            f"wrong keys: {shown(odd[:200])} is {'missing' if odd in like else 'unknown'}"
        )
    params: Params = {}
    for name, expected in like.items():
        wanted = expected.detach().cpu().numpy()
        array = _values(arrays[name], name, wanted.dtype, wanted.shape)
        if not np.isfinite(array).all():
            raise RefusedError(f"{name}: not finite")
        params[name] = torch.from_numpy(array.copy())
    return params


def params_bytes(like: Params) -> float:
    """The most bytes that a message with such parameters has."""
    return sum(p.numel() * p.element_size() + HEADER for p in like.values()) + SMALL


def packed_record(payload: bytes) -> ConfigRecord:
    return ConfigRecord({"update": payload})


def packed_payload(content: RecordDict, most_bits: float) -> bytes:
    """The bytes of a compressed update, if they are no more than was planned for."""
    packed = content.config_records.get("packed", ConfigRecord())
    payload = packed.get("update")
    if not isinstance(payload, bytes) or len(packed) > 1:
        raise RefusedError("packed update: missing, or not alone")
    if 8 * len(payload) > most_bits:
        raise RefusedError(f"packed update: {len(payload)} bytes, planned {most_bits / 8:g}")
    return payload


def unpacked_change(payload: bytes, compressor: Compressor, like: Params) -> torch.Tensor:
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


def digest_of(values: Params) -> bytes:
    """SHA-256 of the numbers themselves: a device can write the same ones with other headers, types
    and orders of axes.
    """
    made = hashlib.sha256()
    for name, p in sorted(values.items()):
        made.update(f"{name}:{tuple(p.shape)}:".encode())
        made.update(np.ascontiguousarray(p.detach().cpu().numpy()).data)
    return made.digest()


def pixels_record(sums: PixelSums) -> ArrayRecord:
    parts = {"num": np.array(sums.num), "total": sums.total, "squares": sums.squares}
    return ArrayRecord({name: Array(array) for name, array in parts.items()})


def pixels_of(
    content: RecordDict, sample_shape: tuple[int, ...], most: int = MOST_SAMPLES
) -> PixelSums | None:
    """The pixel sums of a message, of at most `most` samples; None if it has none."""
    if "pixels" not in content:
        return None
    arrays = _arrays(content, "pixels")
    if set(arrays) != {"num", "total", "squares"}:
        raise RefusedError("pixels: not num, total and squares of a sample")
    kind = np.dtype(np.int64)
    num = _values(arrays["num"], "num", kind, ())
    total = _values(arrays["total"], "total", kind, sample_shape)
    squares = _values(arrays["squares"], "squares", kind, sample_shape)
    if not 1 <= num <= most:
        raise RefusedError(f"pixels: of {int(num)} samples; 1 to {most} can be")

    # For bytes x over n samples: 0 <= sum x <= 255 n, sum x <= sum x^2 <= 255 sum x, and
    # (sum x)^2 <= n sum x^2, in which no side overflows once the others hold.
    in_range = (total >= 0) & (total <= 255 * num) & (squares >= total) & (squares <= 255 * total)
    if not in_range.all() or (squares * num < total**2).any():
        raise RefusedError("pixels: sums that no images have")
    return PixelSums(int(num), total, squares)


def _arrays(content: RecordDict, part: str) -> ArrayRecord:
    if part not in content.array_records:
        raise RefusedError(f"{part} is missing")
    return content.array_records[part]


def _values(
    array: Array, name: str, kind: np.dtype[np.generic], shape: tuple[int, ...]
) -> NDArray[Any]:
    """The values of an array of this type and shape, by its bytes alone: what its message says of
    it is not looked at.
    """
    label = shown(name[:200])
    stream = io.BytesIO(array.data)
    try:
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        own_shape, fortran, own_kind = readers[np.lib.format.read_magic(stream)](stream)
        said = {"type": str(own_kind), "shape": str(own_shape)}
    except Exception as error:  # bytes from outside: anything may be wrong with them
        raise RefusedError(f"{label}: not a readable array ({type(error).__name__})") from None
    if own_kind != kind:
        raise RefusedError(f"{label}: type {shown(said['type'][:200])}, not {kind}")
    if own_shape != shape:
        raise RefusedError(f"{label}: shape {shown(said['shape'][:200])}, not {shape}")
    size = math.prod(shape) * kind.itemsize
    values = array.data[stream.tell() :]
    if len(values) != size:
        raise RefusedError(f"{label}: {len(values)} bytes, not {size}")
    return np.frombuffer(values, dtype=kind).reshape(shape, order="F" if fortran else "C")
