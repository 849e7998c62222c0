"""Broken messages of devices through everything the server reads them with: used or refused, never
anything else.

python benchmarks/fault_messages.py [--num 2000]     # writes docs/results/faults/messages.json
"""

import argparse
import copy
import math
import random
import resource
from collections.abc import Callable

import numpy as np
import torch
from fault_processes import Row, keep_rows
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto

from autofl.compressors.quantise import Quantise
from autofl.config import parse_settings
from autofl.deploy.arrays import (
    checked_params,
    digest_of,
    packed_payload,
    params_bytes,
    params_record,
    unpacked_change,
)
from autofl.deploy.fleet import introduced
from autofl.deploy.messages import (
    MOST_PIXELS,
    SMALL,
    Form,
    Gain,
    Judged,
    RefusedError,
    Stamp,
    Trained,
    check_parts,
)
from autofl.experiments.cell import build_cell
from autofl.rng import stream
from faults import draw_page

LIKE = {"0.weight": torch.zeros(20, 30), "0.bias": torch.zeros(20), "2.weight": torch.zeros(4, 20)}
NUM_WEIGHTS = sum(p.numel() for p in LIKE.values())
BITS = 8.0
MEMORY = 300e6
"""Bytes that reading hostile messages may take beyond what was taken before."""
HOSTILE = (
    *(
        math.nan,
        math.inf,
        -math.inf,
        -1,
        0,
        2**63 - 1,
        1e300,
        1e-300,
        True,
        "",
        "7",
        "a" * 5000,
        b"",
        b"\0" * 9,
    ),
    *([], [1] * 5000, [0, -1], [1e9, 1e9], ["x"], [28, 28]),
)


def honest(dice: random.Random) -> dict[str, RecordDict]:
    """A good reply of each kind."""
    rng = np.random.default_rng(dice.getrandbits(32))
    change = {
        name: torch.tensor(rng.normal(size=tuple(p.shape)), dtype=torch.float32)
        for name, p in LIKE.items()
    }
    row = torch.cat([p.flatten() for p in change.values()])
    packed, _ = Quantise(8)(row, BITS, lambda: stream(1, "test"), {})
    pixels = rng.integers(0, 256, (10, 16))
    sums = {"num": np.array(10), "total": pixels.sum(axis=0), "squares": (pixels**2).sum(axis=0)}
    quality = {
        "train_loss": 1.0,
        "adapted_train_loss": 0.5,
        "global_accuracy": 0.5,
        "adapted_accuracy": 0.75,
        "adapt_lr": 0.1,
    }
    device = {
        "ue": 1,
        "data_size": 10,
        "num_classes": 10,
        "sample_shape": [16],
        "cpu_frequency": 1e9,
    }
    measured = ConfigRecord({"train_time": 0.5, "guarded": 0})
    replies = {
        "introduction": RecordDict(
            {
                "device": ConfigRecord(device),
                "pixels": ArrayRecord(
                    {name: Array(np.asarray(part, np.int64)) for name, part in sums.items()}
                ),
            }
        ),
        "update": RecordDict({"params": params_record(change), "measured": measured}),
        "compressed update": RecordDict(
            {"packed": ConfigRecord({"update": packed.pack()}), "measured": measured}
        ),
        "evaluation": RecordDict({"quality": MetricRecord(quality)}),
        "channel": RecordDict({Gain.part: ConfigRecord({"gain": 1e-9})}),
    }
    for reply in replies.values():
        reply[Stamp.part] = ConfigRecord({"nonce": "0" * 32})
    return replies


def use(kind: str, content: RecordDict) -> None:
    """What the server does with a reply of this kind, up to the point where its numbers are used."""
    parts = {
        "introduction": ("device", "pixels"),
        "update": ("params", "measured"),
        "evaluation": ("quality",),
    }
    parts |= {"compressed update": ("packed", "measured"), "channel": (Gain.part,)}
    most = {"introduction": 16.0 * MOST_PIXELS + SMALL, "update": params_bytes(LIKE)}
    check_parts(content, parts[kind], most.get(kind, SMALL))
    if Stamp.of(content).nonce != "0" * 32:
        raise RefusedError("a reply to another message: its stamp is old")
    if kind == "introduction":
        cell = build_cell(
            parse_settings({"cell": {"num_ue": 4}}).resolved(), np.zeros(4, dtype=np.int64), 1
        )
        Form(sample_shape=(16,), num_classes=10).check(introduced(7, content, cell).said)
    elif kind == "evaluation":
        said = Judged.of(content)
        assert all(math.isfinite(value) for value in said.model_dump().values())
    elif kind == "channel":
        assert Gain.of(content).gain >= 0.0
    else:
        Trained.of(content)
        if kind == "update":
            params = checked_params(content, LIKE)
            assert all(bool(torch.isfinite(p).all()) for p in params.values())
        else:
            payload = packed_payload(content, BITS * NUM_WEIGHTS + 8 * SMALL)
            params = {"change": unpacked_change(payload, Quantise(8), LIKE)}
            assert bool(torch.isfinite(params["change"]).all())
        assert len(digest_of(params)) == 32


def broken(content: RecordDict, dice: random.Random) -> RecordDict:
    """One to three things of a reply made wrong."""
    for _ in range(dice.randint(1, 3)):
        content = dice.choice((_values, _records, _arrays, _arrays, _bytes))(content, dice)
    return content


def _values(content: RecordDict, dice: random.Random) -> RecordDict:
    """A field with a hostile value, one too many, or one less."""
    name = dice.choice(list(content))
    record = content[name]
    if isinstance(record, ArrayRecord):
        return content
    fields, hostile = dict(record), dice.choice(HOSTILE)
    key = dice.choice([*fields, "junk", "x" * 3000])
    if dice.random() < 0.2:
        fields.pop(key, None)
    else:
        fields[key] = hostile
    try:
        content[name] = (MetricRecord if dice.random() < 0.3 else ConfigRecord)(fields)
    except (TypeError, ValueError):  # Flower itself does not send it
        content[name] = ConfigRecord({key: 1})
    return content


def _records(content: RecordDict, dice: random.Random) -> RecordDict:
    """A record less, one too many, one of another kind, or two that have changed places."""
    name = dice.choice(list(content))
    other = dice.choice(
        (ConfigRecord({"a": 1}), MetricRecord({"a": 1.0}), ArrayRecord({"a": Array(np.zeros(3))}))
    )
    way = dice.randrange(4)
    if way == 0:
        del content[name]
        content.setdefault("left", other)
    elif way == 1:
        content[dice.choice(("junk", "\n\x1b[31m", "é" * 900))] = other
    elif way == 2:
        content[name] = other
    else:
        second = dice.choice(list(content))
        content[name], content[second] = content[second], content[name]
    return content


def _arrays(content: RecordDict, dice: random.Random) -> RecordDict:
    """An array of other values, shape or type, a lie about what it is, a pickle, or bytes cut
    short.
    """
    names = [name for name, record in content.items() if isinstance(record, ArrayRecord) and record]
    if not names:
        return _values(content, dice)
    record = dict(content[names[0]])
    key = dice.choice(list(record))
    array: Array = record[key]
    good = np.zeros(8)
    try:
        good = array.numpy()
    except Exception:  # it was broken before
        return content
    ways: list[Callable[[], Array]] = [
        lambda: Array(np.full(good.shape, dice.choice((np.nan, np.inf, 1e38, 0.0)), np.float32)),
        lambda: Array(good.reshape(-1)[: good.size // 2].copy()),
        lambda: Array(good.astype(dice.choice((np.float64, np.int8, np.complex64)))),
        lambda: Array(np.zeros((0,))),
        lambda: Array("float32", (2**40,), "numpy.ndarray", array.data),
        lambda: Array(
            "object", array.shape, "numpy.ndarray", b"\x80\x04cos\nsystem\n(S'true'\ntR."
        ),
        lambda: Array(array.dtype, array.shape, "torch.tensor", array.data),
        lambda: Array(
            array.dtype, array.shape, array.stype, array.data[: dice.randrange(len(array.data) + 1)]
        ),
        lambda: Array(array.dtype, array.shape, array.stype, _flipped(array.data, dice)),
    ]
    record[dice.choice((key, key, "more"))] = dice.choice(ways)()
    content[names[0]] = ArrayRecord(record)
    return content


def _bytes(content: RecordDict, dice: random.Random) -> RecordDict:
    """Bits flipped in the message as it travels; what Flower cannot read is not a message."""
    try:
        data = recorddict_to_proto(content).SerializeToString()
        return recorddict_from_proto(Proto.FromString(_flipped(data, dice)))
    except Exception:
        return content


def _flipped(data: bytes, dice: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        if spoiled:
            spoiled[dice.randrange(len(spoiled))] ^= 1 << dice.randrange(8)
    return bytes(spoiled)


def fuzz(num: int, dice: random.Random) -> list[Row]:
    """So many broken messages, in turn of each kind: each is used or refused with one short line."""
    replies, rows = honest(dice), []
    for kind, reply in replies.items():
        use(kind, reply)  # the good one is used
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind, reply in replies.items():
        held = refused = 0
        for _ in range(num // len(replies)):
            try:
                use(kind, broken(copy.deepcopy(reply), dice))
                held += 1
            except RefusedError as error:
                refused += 1
                held += len(str(error).splitlines()) == 1 and len(str(error)) < 400
        rows.append(
            Row(
                f"{kind}: broken messages",
                num // len(replies),
                held,
                f"refused with one line ({refused}), or valid",
            )
        )
    grown = 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    rows.append(
        Row(
            "memory while all of them are read",
            1,
            int(grown < MEMORY),
            f"{grown / 1e6:.0f} MB, at most 300",
        )
    )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=2000, help="how many messages")
    rows = fuzz(parser.parse_args().num, random.Random(15))
    for row in rows:
        print(row)
    keep_rows("messages", "messages", rows, {})
    draw_page()
