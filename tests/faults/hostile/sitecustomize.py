"""Makes UE 1 of a deployment a liar: Python imports this file by its name where its folder is on
PYTHONPATH.

The processes in which SuperNodes run the client app hold UE 1's stream by `hold` instead of
`hold_session`: the real certificate, the real token, the real port. Its first introduction and then
one update after another are lies, in the order of `lies`; after them it is honest.
"""

import os
import queue
import sys
import time
from pathlib import Path

LIAR = 1
BYTE, NUM_BYTES = 0.3, 20
"""Seconds between the bytes of a device that sends one at a time, and how many it sends: beyond the
deadline.
"""


def play() -> None:
    import grpc
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

    from autofl.deploy import client
    from autofl.deploy.frames import (
        METHOD,
        REPLY,
        SERVICE,
        Parcel,
        frames_of,
        packed,
        parcels,
        unpacked,
    )
    from autofl.deploy.stream import options

    honest_hold, honest_read = client.hold_session, client.keys_of_device
    own: dict[str, object] = {}

    def said(line: str) -> None:
        with Path(os.environ["HOSTILE_LOG"]).open("a") as log:
            log.write(line + "\n")

    def read(folder, ue):
        own.update(folder=folder, ue=ue)
        return honest_read(folder, ue)

    def changed(content, change):
        arrays = {
            name: change(name, array.numpy())
            for name, array in content.array_records["params"].items()
        }
        record = ArrayRecord(
            {name: Array(array.astype(np.float32)) for name, array in arrays.items()}
        )
        return RecordDict({**content, "params": record})

    def body(do):
        """A reply that is well-formed on the stream, with another content."""
        return lambda parcel: frames_of(
            Parcel(parcel.number, REPLY, packed(do(unpacked(parcel.body))))
        )

    def of_all(do):
        return body(lambda content: changed(content, lambda name, array: do(array)))

    def reshaped(name, array):
        return array.reshape(-1) if name == "0.weight" else array

    def byte_by_byte(parcel):
        head, *_ = frames_of(parcel)
        yield head
        for number in range(NUM_BYTES):
            time.sleep(BYTE)
            yield parcel.body[number : number + 1]

    lies = {
        "no head": lambda parcel: [b"x" * 5],
        "a head of 1 GB": lambda parcel: [
            parcel.number.to_bytes(4, "big") + (2**30).to_bytes(8, "big") + b"reply"
        ],
        "more than told": lambda parcel: [
            next(iter(frames_of(Parcel(parcel.number, REPLY, b"abc")))),
            b"abcd",
        ],
        "a frame of 64 MB": lambda parcel: [b"x" * 2**26],
        "no protobuf": lambda parcel: frames_of(Parcel(parcel.number, REPLY, b"\xff" * 100)),
        "wrong shape": body(lambda content: changed(content, reshaped)),
        "NaN": of_all(lambda array: array * np.nan),
        "1e30": of_all(lambda array: array + 1e30),
        "old stamp": body(
            lambda content: RecordDict({**content, "stamp": ConfigRecord({"nonce": "0" * 32})})
        ),
        "extra part": body(
            lambda content: RecordDict({**content, "junk": MetricRecord({"x": 1.0})})
        ),
        "byte by byte": byte_by_byte,
    }

    def another(parcel):
        """An introduction as UE 0."""
        content = unpacked(parcel.body)
        device = ConfigRecord({**content.config_records["device"], "ue": 0})
        return frames_of(
            Parcel(parcel.number, REPLY, packed(RecordDict({**content, "device": device})))
        )

    def hold(host, port, token, keys, answer):
        if own["ue"] != LIAR:
            return honest_hold(host, port, token, keys, answer)
        stolen = honest_read(own["folder"], 0)
        said(f"with the certificate of UE 0: {speak(host, port, token, stolen, answer, {})}")
        said(f"with a token of nobody: {speak(host, port, '0' * 32, keys, answer, {})}")
        left = {"query.introduce": [another], "train": list(lies.values())}
        while True:
            ended = speak(host, port, token, keys, answer, left)
            said(ended)
            if ended == "over":
                return ended
            time.sleep(0.05)

    def speak(host, port, token, keys, answer, left):
        """One stream; how it ended."""
        credentials = grpc.ssl_channel_credentials(keys.authority, keys.key, keys.certificate)
        frames = queue.SimpleQueue()
        with grpc.secure_channel(f"{host}:{port}", credentials, options()) as channel:
            call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(
                iter(frames.get, None), metadata=(("token", token),)
            )
            try:
                for parcel in parcels(call):
                    todo, reply = left.get(parcel.kind, []), answer(parcel)
                    lie = todo.pop(0) if todo else frames_of
                    for piece in lie(reply):
                        frames.put(piece)
                    if lie is byte_by_byte:
                        return "it gave up"
            except grpc.RpcError as error:
                return f"{error.code().name}: {error.details()}"
            else:
                return "over"
            finally:
                frames.put(None)
                call.cancel()

    client.keys_of_device = read
    client.hold_session = hold


if any("flwr-clientapp" in word for word in sys.orig_argv):
    play()
