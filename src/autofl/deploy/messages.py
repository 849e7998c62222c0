"""What travels between server and devices, and which replies are refused.

Down: {"params", "order", "model"} and, where pixels are standardised by all devices' statistics, {"pixels"}. Up:
{"params", "measured"}, with a compressor {"packed", "measured"}, {"quality"} or {"device"}. A device's reply is
data from outside: every value is checked before use.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from autofl.compressors import Compressor
from autofl.data.federated import PixelSums
from autofl.errors import AutoFLError
from autofl.models import Params, num_weights

NAN = float("nan")


class RefusedError(Exception):
    """A reply that is not used; the text says why."""


def params_record(params: Params) -> ArrayRecord:
    return ArrayRecord({name: Array(p.detach().cpu().numpy()) for name, p in params.items()})


def params_of(record: RecordDict) -> Params:
    """Parameters as they came, unchecked: what a device does with its server's."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in _arrays(record, "params").items()}


def checked_params(record: RecordDict, like: Params) -> Params:
    """The parameters of a reply, if they are those of `like` in name, shape and type, and finite."""
    arrays = _arrays(record, "params")
    if set(arrays) != set(like):
        odd = sorted(set(arrays) ^ set(like))
        raise RefusedError(f"wrong keys: {_shown(odd[0])} is {'missing' if odd[0] in like else 'unknown'}")
    params: Params = {}
    for name, expected in like.items():
        wanted = expected.detach().cpu().numpy()
        array = _decoded(arrays[name], name)
        if array.dtype != wanted.dtype:
            raise RefusedError(f"{name}: type {array.dtype}, not {wanted.dtype}")
        if array.shape != wanted.shape:
            raise RefusedError(f"{name}: shape {array.shape}, not {wanted.shape}")
        if not np.isfinite(array).all():
            raise RefusedError(f"{name}: not finite")
        params[name] = torch.from_numpy(array.copy())
    return params


def packed_record(payload: bytes) -> ConfigRecord:
    return ConfigRecord({"update": payload})


def checked_payload(record: RecordDict, most_bits: float) -> bytes:
    """The bytes of a compressed update, if they are no more than was planned for."""
    payload = record.config_records.get("packed", ConfigRecord()).get("update")
    if not isinstance(payload, bytes):
        raise RefusedError("packed update: missing")
    if 8 * len(payload) > most_bits:
        raise RefusedError(f"packed update: {len(payload)} bytes, planned {most_bits / 8:g}")
    return payload


def unpacked(payload: bytes, compressor: Compressor, like: Params) -> torch.Tensor:
    """w_i - w in one row, of the type of `like`, if the compressor can read it and it is finite."""
    num, kind = num_weights(like), next(iter(like.values()))
    try:
        row = compressor.unpack(payload, num)
    except AutoFLError as error:
        raise RefusedError(_shown(str(error))) from None
    except Exception as error:  # a user's own compressor, and bytes from outside
        raise RefusedError(f"packed update: not readable ({type(error).__name__})") from None
    if row.shape != (num,):
        raise RefusedError(f"packed update: shape {tuple(row.shape)}, not ({num},)")
    if not torch.isfinite(row).all():
        raise RefusedError("packed update: not finite")
    return row.to(kind)


def pixels_record(sums: PixelSums) -> ArrayRecord:
    parts = {"num": np.array(sums.num), "total": sums.total, "squares": sums.squares}
    return ArrayRecord({name: Array(array) for name, array in parts.items()})


def pixels_of(record: RecordDict, sample_shape: tuple[int, ...]) -> PixelSums | None:
    """The pixel sums of a message, None if it has none."""
    if "pixels" not in record.array_records:
        return None
    arrays = _arrays(record, "pixels")
    try:
        sums = [_decoded(arrays[name], name) for name in ("num", "total", "squares")]
    except KeyError as error:
        raise RefusedError(f"pixels: {error.args[0]} is missing") from None
    if [part.shape for part in sums] != [(), sample_shape, sample_shape] or {p.dtype.kind for p in sums} != {"i"}:
        raise RefusedError("pixels: not whole numbers of the shape of a sample")
    num, total, squares = (part.astype(np.int64) for part in sums)
    # Sums of bytes over n samples: n s^2 >= (sum)^2 holds for any real data, 0 <= sum <= 255 n.
    if num < 1 or (total < 0).any() or (total > 255 * num).any() or (squares * num < total**2).any():
        raise RefusedError("pixels: sums that no images have")
    return PixelSums(int(num), total, squares)


@dataclass(frozen=True)
class Order:
    """What one device is told in a round: its part of the plan, as far as it can act on it."""

    round: int
    num_samples: int  # d_k^i
    local_steps: int  # tau_k^i
    tx_power: float  # p_k^i [W], for a device that can set it
    bits_per_weight: float  # of the update it sends

    def record(self) -> ConfigRecord:
        return ConfigRecord({name.replace("_", "-"): value for name, value in self.__dict__.items()})

    @classmethod
    def of(cls, record: RecordDict) -> "Order":
        values = record.config_records["order"]
        made = {field.name: _typed(field.type, str(values[field.name.replace("_", "-")])) for field in fields(cls)}
        return cls(**made)


def _typed(kind: object, text: str) -> Any:
    return int(text) if kind in (int, "int") else float(text)


def measured(record: RecordDict, name: str) -> float:
    """A number a device says it measured; NaN for what is missing or cannot be."""
    return _number(record, "measured", name)


def whole(record: RecordDict | None, name: str) -> int:
    """A count that a device says it made; 0 for what is missing or cannot be."""
    value = NAN if record is None else measured(record, name)
    return 0 if math.isnan(value) else int(min(value, 2**31))


def quality(record: RecordDict, name: str) -> float:
    """A number of a device's evaluation."""
    value = _number(record, "quality", name)
    if math.isnan(value):
        raise RefusedError(f"{name}: missing or not a number >= 0")
    return value


def _number(record: RecordDict, group: str, name: str) -> float:
    value = record.metric_records.get(group, MetricRecord()).get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value >= 0 else NAN


def size_of(record: RecordDict) -> int:
    """Bytes of a message's records."""
    return sum(part.count_bytes() for part in record.values())


def content_of(reply: Message) -> RecordDict:
    """The content of a reply that is no error."""
    if reply.has_error():
        raise RefusedError(_shown(f"error {reply.error.code}: {reply.error.reason or 'no reason given'}"))
    return reply.content


def _arrays(record: RecordDict, name: str) -> ArrayRecord:
    if name not in record.array_records:
        raise RefusedError(f"{name} is missing")
    return record.array_records[name]


def _decoded(array: Array, name: str) -> NDArray[np.generic]:
    try:
        return array.numpy()
    except Exception as error:  # bytes from outside: anything may be wrong with them
        raise RefusedError(f"{_shown(name)}: not a readable array ({type(error).__name__})") from None


def _shown(text: str) -> str:
    """One short line, whatever a device wrote."""
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:157] + "..."
