"""Streams in one process: real TLS on the loopback, real frames, the server's and the devices' own
functions.
"""

import asyncio
import contextlib
import math
import socket
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

import grpc
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from autofl.data import Dataset
from autofl.deploy import invitations as inviting
from autofl.deploy import server as serving
from autofl.deploy import session as device_side
from autofl.deploy import stream as server_side
from autofl.deploy.certificates import Keys, keys_of_device, keys_of_server
from autofl.deploy.folder import Deployment
from autofl.deploy.frames import (
    ERROR,
    METHOD,
    PIECE,
    REPLY,
    SERVICE,
    Parcel,
    all_packed,
    frames_of,
    packed,
    parcels,
    unpacked,
)
from autofl.deploy.messages import RefusedError
from autofl.deploy.post import Expected, Post
from autofl.deploy.session import hold_session
from autofl.deploy.stream import Streams, options
from deploy.loopback import Lines, Loopback, make_nodes, node_of
from deploy.test_fleet import NUM_UE, deployed, digest, settings_of
from reference.waiting import PATIENCE

pytestmark = pytest.mark.slow

NODES = {ue: node_of(ue) for ue in range(NUM_UE)}


@pytest.fixture(scope="module")
def nodes(few_digits: Dataset, tmp_path_factory):
    return make_nodes(few_digits, tmp_path_factory.mktemp("site"), NUM_UE)


@pytest.fixture(scope="module")
def site(nodes):
    """Keys, certificates and data of four devices."""
    return Deployment(Path(nodes[NODES[0]]["folder"]))


def streamed(nodes, folder, settings=None, **more):
    return deployed(nodes, folder, settings, transport="stream", **more)


@pytest.mark.parametrize("compressor", [None, "entropy"])
def test_a_run_over_streams_is_that_over_messages_to_the_bit(site, nodes, tmp_path, compressor):
    sections = {"deploy": {"deadline": 20.0, "join": 20.0}}
    if compressor:
        sections["compressor"] = {"name": compressor}
    run, lines = streamed(nodes, tmp_path / "stream", settings_of(**sections))
    other, _ = deployed(nodes, tmp_path / "messages", settings_of(**sections))
    assert digest(tmp_path / "stream") == digest(tmp_path / "messages")
    assert lines.sent == []  # nothing but invitations went by messages
    assert {one["transport"] for one in run.manifest["devices"].values()} == {"stream"}
    assert {one["transport"] for one in other.manifest["devices"].values()} == {"messages"}
    assert run.devices["outcome"].tolist() == other.devices["outcome"].tolist()
    assert run.manifest["overhead"] > 0.0
    busy = run.devices["train_time"] + run.devices["send_time"]
    assert (run.devices["reply_time"] > busy).all()
    assert (run.devices["round_time"] >= run.devices["reply_time"]).all()


def test_a_node_without_a_certificate_is_asked_by_messages_and_the_bits_are_the_same(
    site, nodes, tmp_path
):
    poor = NODES[2]
    mixed = {node: {name: value for name, value in config.items() if node != poor or name != "folder"}
             for node, config in nodes.items()}  # fmt: skip
    run, lines = streamed(mixed, tmp_path / "mixed")
    deployed(nodes, tmp_path / "messages", settings_of(deploy={"deadline": 20.0, "join": 20.0}))
    assert {node for node, _ in lines.sent} == {poor}
    assert run.manifest["devices"]["2"]["transport"].startswith(
        "messages (the node has no certificate"
    )
    assert run.manifest["devices"]["1"]["transport"] == "stream"
    names = ("rounds.csv", "ues.csv", "weights.safetensors")
    assert [digest(tmp_path / "mixed")[name] for name in names] == [
        digest(tmp_path / "messages")[name] for name in names
    ]


def test_a_certificate_that_is_missing_is_not_taken_for_a_folder_that_is_not_named(
    site, nodes, tmp_path
):
    """It advised to name the folder, which was named."""
    (tmp_path / "own" / "nodes").mkdir(parents=True)
    (tmp_path / "own" / "nodes" / "ue2").write_bytes(site.node(2).read_bytes())
    lacking = {node: {**config, "folder": str(tmp_path / "own")} if node == NODES[2] else config
               for node, config in nodes.items()}  # fmt: skip
    run, _ = streamed(lacking, tmp_path / "run")
    why = "messages (ca.pem, nodes/ueN or nodes/ueN.pem is missing in its folder or cannot be read;"
    assert run.manifest["devices"]["2"]["transport"].startswith(why)
    assert run.manifest["devices"]["1"]["transport"] == "stream"


@pytest.mark.parametrize("case", ["refused", "raised"])
def test_a_node_whose_sessions_fail_is_asked_by_messages_and_the_reason_is_told(
    site, nodes, tmp_path, monkeypatch, case
):
    monkeypatch.setattr(inviting, "PAUSE", 0.1)
    monkeypatch.setattr(inviting, "LOOK", 0.1)
    odd, invited = NODES[2], []

    class Odd(Lines):
        def _stay(self, number, message):
            if message.metadata.dst_node_id != odd:
                return super()._stay(number, message)
            invited.append(number)
            content = RecordDict({"ended": ConfigRecord({"outcome": "refused"})})
            error = Error(
                code=1, reason="RefusedError: host: 7 letters is not the name of a machine"
            )
            reply = Message(content if case == "refused" else error, reply_to=message)
            self._replies[number] = reply
            return None

    run, lines = streamed(nodes, tmp_path, lines=Odd)
    assert len(invited) == inviting.MOST_FAILURES == 2
    assert {node for node, _ in lines.sent} == {odd}
    told = (
        "refused"
        if case == "refused"
        else "it says: error 1: RefusedError: host: 7 letters is not the name of a machine"
    )
    assert (
        run.manifest["devices"]["2"]["transport"] == f"messages (its session ended 2 times: {told})"
    )
    assert run.manifest["devices"]["1"]["transport"] == "stream"
    assert (run.devices["outcome"] == "ok").all()


def test_a_device_with_anothers_certificate_is_named_with_what_the_server_says_of_it(
    site, nodes, tmp_path, monkeypatch
):
    monkeypatch.setattr(inviting, "PAUSE", 0.1)
    monkeypatch.setattr(inviting, "LOOK", 0.1)
    wrong = Deployment(tmp_path / "device")
    wrong.node(2).parent.mkdir(parents=True)
    for ending in ("", ".pem"):
        wrong.node(2, ending).write_bytes(site.node(1, ending).read_bytes())
    (wrong.folder / "ca.pem").write_bytes((site.folder / "ca.pem").read_bytes())
    mixed = {**nodes, NODES[2]: {**nodes[NODES[2]], "folder": str(wrong.folder)}}
    run, _ = streamed(mixed, tmp_path / "run")
    why = "its session ended 2 times: the certificate of UE 1 from the node of UE 2"
    assert run.manifest["devices"]["2"]["transport"] == f"messages ({why})"
    assert run.manifest["notes"] == [
        f"round 0: UE 2: asked by messages ({why}), so a round takes seconds"
    ]


def test_a_certificate_that_does_not_fit_is_not_taken_for_a_port_that_cannot_be_reached(
    site, nodes, tmp_path, monkeypatch
):
    monkeypatch.setattr(device_side, "REACH", 0.5)
    other = Deployment(tmp_path)
    other.prepare(["127.0.0.1"], 1)
    own, foreign = keys_of_device(site.folder, 0), keys_of_device(tmp_path, 0)
    of_another_key = Keys(own.key, keys_of_device(site.folder, 1).certificate, own.authority)
    of_another_authority = Keys(foreign.key, foreign.certificate, own.authority)
    with door(site, nodes) as (streams, tokens):
        for keys in (of_another_key, of_another_authority, foreign):
            assert (
                hold_session("127.0.0.1", streams.port, tokens[NODES[0]], keys, parrot)
                == "untrusted"
            )
        port = streams.port
    assert hold_session("127.0.0.1", port, "", own, parrot) == "unreachable"


def threads_of_streams():
    return {thread for thread in threading.enumerate() if thread.name == "streams"}


def test_where_the_port_of_streams_is_taken_the_run_goes_by_messages_and_no_thread_stays(
    site, nodes, tmp_path
):
    before = threads_of_streams()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run, _ = streamed(nodes, tmp_path, port=port)
    (way,) = {one["transport"] for one in run.manifest["devices"].values()}
    assert way.startswith(f"messages (port {port} cannot be listened on")
    assert run.manifest["notes"] == [
        f"round 0: UE 0, UE 1, UE 2, UE 3: asked by {way}, so a round takes seconds"
    ]
    assert (run.devices["outcome"] == "ok").all()
    assert threads_of_streams() <= before


def test_a_run_that_is_over_is_finished_though_its_streams_do_not_close(
    site, nodes, tmp_path, monkeypatch
):
    class Stuck(Streams):
        async def _listen(self, *words):
            port, stop = await super()._listen(*words), self._server.stop

            async def stuck(grace):
                await stop(grace)
                await asyncio.sleep(60.0)

            self._server = type("Server", (), {"stop": staticmethod(stuck)})()
            return port

    monkeypatch.setattr(server_side, "CLOSE", 2.0)
    monkeypatch.setattr(serving, "Streams", Stuck)
    run, _ = streamed(nodes, tmp_path)
    assert run.manifest["status"] == "finished"
    assert {one["transport"] for one in run.manifest["devices"].values()} == {"stream"}
    assert not threads_of_streams()


class Door(Loopback):
    """Nodes that are invited and whose devices are the test's own."""

    def __init__(self, nodes):
        super().__init__(nodes, {})
        self.tokens = {}

    def push_messages(self, messages):
        for message in messages:
            self.tokens[message.metadata.dst_node_id] = message.content.config_records["session"][
                "token"
            ]
        return [f"m{next(self._number)}" for _ in messages]


@contextlib.contextmanager
def door(site, nodes, deadline=10.0, bound=True):
    grid, owners = Door(nodes), {node: ue for ue, node in NODES.items()} if bound else {}
    streams = Streams(
        grid, Post(grid, deadline), keys_of_server(site.folder), "127.0.0.1", 0, owners
    )
    try:
        until(lambda: set(grid.tokens) == set(nodes))
        yield streams, grid.tokens
    finally:
        streams.close()


def until(is_so, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def parrot(parcel):
    """A device that sends back what it was sent."""
    return Parcel(parcel.number, REPLY, parcel.body)


@contextlib.contextmanager
def present(streams, tokens, ues, site, answer=parrot, port=None):
    """Devices that answer so; their sessions' outcomes, once they have ended."""
    outcomes = {}

    def stay(ue):
        keys = keys_of_device(site.folder, ue)
        outcomes[ue] = hold_session(
            "127.0.0.1", port or streams.port, tokens[NODES[ue]], keys, answer
        )

    threads = [threading.Thread(target=stay, args=(ue,), daemon=True) for ue in ues]
    for thread in threads:
        thread.start()
    until(lambda: {NODES[ue] for ue in ues} <= streams.nodes())
    yield outcomes


def ask(streams, ues, content=None, most=1e7):
    answers = streams(
        dict.fromkeys((NODES[ue] for ue in ues), content or RecordDict()),
        "train",
        "1",
        Expected(("x",), lambda *_: None, most),
    )
    return {ue: answers[NODES[ue]] for ue in ues}


def of_size(num):
    return RecordDict({"x": ArrayRecord({"w": Array(np.arange(num, dtype=np.uint8))})})


def call(streams, keys, token, *, certified=True, frames=()):
    """A stream opened by hand: the status it ends with."""
    shown = (keys.key, keys.certificate) if certified else (None, None)
    with grpc.secure_channel(
        f"127.0.0.1:{streams.port}",
        grpc.ssl_channel_credentials(keys.authority, *shown),
        options(2**31 - 1),
    ) as channel:
        try:
            list(
                channel.stream_stream(f"/{SERVICE}/{METHOD}")(
                    iter(frames), metadata=(("token", token),), timeout=20.0
                )
            )
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def test_who_has_no_certificate_a_wrong_one_or_another_devices_is_refused_and_the_others_go_on(
    site, nodes, tmp_path
):
    stranger = Deployment(tmp_path)
    stranger.prepare(["127.0.0.1"], 1)
    own, other = keys_of_device(site.folder, 0), keys_of_device(site.folder, 1)
    foreign = Keys(
        *((getattr(keys_of_device(tmp_path, 0), name)) for name in ("key", "certificate")),
        own.authority,
    )
    server_as_device = Keys(
        (site.folder / "server.key").read_bytes(),
        (site.folder / "server.pem").read_bytes(),
        own.authority,
    )
    denied, gone = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE
    with door(site, nodes) as (streams, tokens), present(streams, tokens, (1, 2), site):
        token = tokens[NODES[0]]
        assert call(streams, own, token, certified=False)[0] is gone
        assert call(streams, foreign, token)[0] is gone
        assert call(streams, server_as_device, token)[0] is gone
        assert (
            call(streams, keys_of_device(tmp_path, 0), token)[0] is gone
        )  # it does not trust our server either
        assert call(streams, other, token) == (
            denied,
            "the certificate of UE 1 from the node of UE 0",
        )
        assert call(streams, own, "0" * 32) == (denied, "no such session")
        assert streams.nodes() == {NODES[1], NODES[2]}
        assert {ue: answer.problem for ue, answer in ask(streams, (1, 2), of_size(10)).items()} == {
            1: "",
            2: "",
        }
        assert streams.owner(NODES[1]) == 1


def test_where_nobody_says_whose_a_node_is_the_first_certificate_keeps_it(site, nodes):
    own, other = keys_of_device(site.folder, 0), keys_of_device(site.folder, 1)
    denied = grpc.StatusCode.PERMISSION_DENIED, "the certificate of UE 1 from the node of UE 0"
    wait = threading.Event()
    with door(site, nodes, bound=False) as (streams, tokens), present(streams, tokens, (0,), site):
        assert call(streams, other, tokens[NODES[0]]) == denied
        assert streams.owner(NODES[0]) == 0
        assert ask(streams, (0,), of_size(10))[0].problem == ""
        streams._loop.call_soon_threadsafe(streams._close, streams._open[NODES[0]], "it goes")
        until(lambda: NODES[0] not in streams.nodes())
        assert (
            call(streams, other, tokens[NODES[0]]) == denied
        )  # nor is it free when its owner is away
        with by_hand(streams, tokens[NODES[0]], own, iter(wait.wait, True)):
            assert streams.owner(NODES[0]) == 0
            wait.set()


@pytest.mark.parametrize(
    ("frames", "status", "why"),
    [
        (
            [b"\0\0\0\0" + (2**30).to_bytes(8, "big") + b"reply"],
            grpc.StatusCode.INVALID_ARGUMENT,
            "nobody asked for",
        ),
        ([b"x" * 10], grpc.StatusCode.INVALID_ARGUMENT, "does not begin with a head"),
        ([b"x" * 2**26], grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
    ],
    ids=["a head of 1 GB", "no head", "a frame of 64 MB"],
)
def test_what_nobody_asked_for_ends_a_stream(site, nodes, frames, status, why):
    with door(site, nodes) as (streams, tokens), present(streams, tokens, (1,), site):
        code, details = call(
            streams, keys_of_device(site.folder, 0), tokens[NODES[0]], frames=frames
        )
        assert code in (status, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        assert why in details or code is not status
        until(lambda: streams.nodes() == {NODES[1]})
        assert ask(streams, (1,), of_size(10))[1].problem == ""


def test_a_record_that_several_messages_share_is_packed_once_and_each_reads_as_if_packed_alone():
    shared = ArrayRecord({"w": Array(np.arange(1000, dtype=np.float32))})
    contents = {
        n: RecordDict({"x": shared, "own": ConfigRecord({"number": n, "word": "a" * n})})
        for n in (1, 2, 3)
    }
    together = all_packed(contents)
    for number, content in contents.items():
        assert unpacked(together[number]) == unpacked(packed(content)) == content
    alone = RecordDict({"own": ConfigRecord({"number": 4})})
    assert (
        unpacked(all_packed({**contents, 4: alone})[2]) == contents[2]
    )  # nothing is shared by all
    assert unpacked(all_packed({4: alone})[4]) == alone
    assert all_packed({}) == {}


def test_a_reply_is_taken_while_another_device_still_works(site, nodes):
    taken, may_go_on = [], threading.Event()

    def slow(parcel):
        assert may_go_on.wait(20.0)
        return parrot(parcel)

    def take(node, content):
        taken.append(node)
        may_go_on.set()  # the second device answers only when the first reply was read
        return node

    with (
        door(site, nodes) as (streams, tokens),
        present(streams, tokens, [0], site),
        present(streams, tokens, [1], site, slow),
    ):
        asked = {NODES[ue]: of_size(10) for ue in (0, 1)}
        answers = streams(asked, "train", "1", Expected(("x",), take, 1e7))
    assert taken == [NODES[0], NODES[1]]
    assert [answers[NODES[ue]].value for ue in (0, 1)] == taken


def test_frames_are_put_together_again_and_what_is_cut_off_is_no_message():
    body = bytes(range(256)) * (PIECE // 100)
    long, empty = Parcel(7, "train", body), Parcel(8, ERROR, b"")
    frames = [*frames_of(long), *frames_of(empty)]
    assert max(map(len, frames)) == PIECE
    assert list(parcels(iter(frames))) == [long, empty]
    assert list(parcels(iter(frames[:-2]))) == []
    content = of_size(1000)
    assert unpacked(packed(content)) == content
    with pytest.raises(RefusedError, match="does not begin with a head"):
        list(parcels(iter([b"x" * 10])))


def test_what_is_no_message_is_refused():
    content = RecordDict({**of_size(100_000), "measured": MetricRecord({"a": 1.5, "b": 7})})
    body = packed(content)
    for broken in (body[:-1], b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x7f"):
        with pytest.raises(RefusedError, match="a message that cannot be read"):
            unpacked(broken)


@contextlib.contextmanager
def by_hand(streams, token, keys, frames):
    """The stream of a device that reads nothing and sends these frames."""
    credentials = grpc.ssl_channel_credentials(keys.authority, keys.key, keys.certificate)
    with grpc.secure_channel(f"127.0.0.1:{streams.port}", credentials, options()) as channel:
        spoken = channel.stream_stream(f"/{SERVICE}/{METHOD}")(frames, metadata=(("token", token),))
        until(lambda: NODES[0] in streams.nodes())
        yield
        spoken.cancel()


def test_one_byte_a_second_a_device_that_never_answers_and_a_late_one_hold_nobody_up(site, nodes):
    asked, over, in_time = threading.Event(), threading.Event(), threading.Event()

    def late(parcel):
        time.sleep(0.0 if in_time.is_set() else 3.0)
        return parrot(parcel)

    def byte_by_byte():
        asked.wait()
        yield next(iter(frames_of(Parcel(1, REPLY, b"x" * 1000))))
        while not over.wait(0.3):
            yield b"x"

    with contextlib.ExitStack() as stack:
        streams, tokens = stack.enter_context(door(site, nodes, deadline=2.0))
        stack.enter_context(present(streams, tokens, (1, 2), site))
        stack.enter_context(present(streams, tokens, (3,), site, late))
        stack.enter_context(
            by_hand(streams, tokens[NODES[0]], keys_of_device(site.folder, 0), byte_by_byte())
        )
        threading.Timer(0.1, asked.set).start()
        problems = {
            ue: answer.problem for ue, answer in ask(streams, (0, 1, 2, 3), of_size(10)).items()
        }
        assert problems == {0: "no reply within 2 s", 1: "", 2: "", 3: "no reply within 2 s"}
        in_time.set()
        time.sleep(1.5)  # the late reply to the first question comes, and is let go
        second = ask(streams, (1, 3), of_size(20))
        assert {ue: answer.problem for ue, answer in second.items()} == {1: "", 3: ""}
        over.set()


@pytest.mark.parametrize(
    ("announced", "sent", "why"),
    [(2**30, 0, f"{2**30} bytes; it can have "), (3, 4, "more than the 3 bytes")],
    ids=["1 GB", "more than told"],
)
def test_a_reply_that_is_longer_than_it_can_be_or_was_announced_ends_its_stream(
    site, nodes, announced, sent, why
):
    asked, over = threading.Event(), threading.Event()

    def frames():
        asked.wait()
        yield b"\0\0\0\1" + announced.to_bytes(8, "big") + b"reply"
        yield bytes(sent)
        over.wait()

    keys = keys_of_device(site.folder, 0)
    with contextlib.ExitStack() as stack:
        streams, tokens = stack.enter_context(door(site, nodes, deadline=5.0))
        stack.enter_context(present(streams, tokens, (1,), site))
        stack.enter_context(by_hand(streams, tokens[NODES[0]], keys, frames()))
        threading.Timer(0.1, asked.set).start()
        problems = {ue: one.problem for ue, one in ask(streams, (0, 1), of_size(10)).items()}
        assert problems[0].startswith(why)
        assert problems[1] == ""
        assert streams.nodes() == {NODES[1]}
        over.set()


def test_of_a_late_reply_nothing_is_kept_and_the_next_one_counts(site, nodes):
    """Its rest comes during the next question."""
    asked, again, over = threading.Event(), threading.Event(), threading.Event()
    late, own = Parcel(1, REPLY, packed(of_size(4 * PIECE))), Parcel(2, ERROR, b"the second")

    def frames():
        asked.wait()
        head, first, *rest = frames_of(late)
        yield from (head, first)
        again.wait()
        yield from (*rest, *frames_of(own))
        over.wait()

    keys = keys_of_device(site.folder, 0)
    with contextlib.ExitStack() as stack:
        streams, tokens = stack.enter_context(door(site, nodes, deadline=2.0))
        stack.enter_context(by_hand(streams, tokens[NODES[0]], keys, frames()))
        threading.Timer(0.1, asked.set).start()
        assert ask(streams, (0,), of_size(10))[0].problem == "no reply within 2 s"
        threading.Timer(0.1, again.set).start()
        assert ask(streams, (0,), of_size(10))[0].problem == "it says: the second"
        over.set()


def test_a_device_that_does_not_read_is_let_go_at_the_next_order(site, nodes):
    wait = threading.Event()
    with contextlib.ExitStack() as stack:
        streams, tokens = stack.enter_context(door(site, nodes, deadline=2.0))
        stack.enter_context(present(streams, tokens, (1,), site))
        stack.enter_context(
            by_hand(
                streams, tokens[NODES[0]], keys_of_device(site.folder, 0), iter(wait.wait, True)
            )
        )
        large = of_size(64_000_000)  # more than gRPC takes on behalf of somebody who does not read
        assert ask(streams, (0,), large, 1e7)[0].problem == "no reply within 2 s"
        assert ask(streams, (0,), large, 1e7)[0].problem == "it does not read what it is sent"
        assert NODES[0] not in streams.nodes()
        assert ask(streams, (1,), of_size(10))[1].problem == ""
        wait.set()


def test_streams_that_are_closed_leave_no_thread_and_no_loop(site, nodes):
    with door(site, nodes) as (streams, tokens), present(streams, tokens, (0, 1), site):
        assert not streams._loop.is_closed()
    assert streams._loop.is_closed()
    assert not streams._thread.is_alive()


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("192.0.2.1", "0.0.0.0"),  # addresses for documentation: of nobody
        ("2001:db8::1", "[::]"),
        ("server.example.org", "0.0.0.0"),
    ],
)
def test_streams_listen_at_the_address_that_devices_are_told_if_it_is_this_machines(host, place):
    assert server_side.listening_at(host) == place


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere 127.0.0.2 is no address of the machine"
)
def test_at_another_address_of_this_machine_nobody_listens(site, nodes):
    grid = Door(nodes)
    streams = Streams(grid, Post(grid, 1.0), keys_of_server(site.folder), "127.0.0.2", 0, {})
    try:
        socket.create_connection(("127.0.0.2", streams.port), timeout=5.0).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", streams.port), timeout=5.0)
    finally:
        streams.close()


def greeting():
    """The first words of a TLS client."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()


def admitted(site, ue, plain):
    """A connection whose TLS is complete, with the certificate of this UE."""
    keys = keys_of_device(site.folder, ue)
    context = ssl.create_default_context(cadata=keys.authority.decode())
    context.set_alpn_protocols(["h2"])
    with tempfile.NamedTemporaryFile() as both:
        both.write(keys.key + keys.certificate)
        both.flush()
        context.load_cert_chain(both.name)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_connections_that_say_nothing_or_stop_in_the_middle_hold_nobody_up_and_are_closed(
    site, nodes, monkeypatch
):
    monkeypatch.setattr(server_side, "BEAT", 0.5)  # two beats for the handshake
    with (
        door(site, nodes) as (streams, tokens),
        present(streams, tokens, (1,), site),
        contextlib.ExitStack() as stack,
    ):
        open_ = [
            stack.enter_context(socket.create_connection(("127.0.0.1", streams.port), timeout=10.0))
            for _ in range(33)
        ]
        first_words = greeting()
        open_[0].sendall(first_words[: len(first_words) // 2])
        open_[1].sendall(first_words)  # it is answered, and does not go on
        open_[2] = stack.enter_context(
            admitted(site, 0, open_[2])
        )  # TLS is complete, and nothing follows
        assert ask(streams, (1,), of_size(10))[1].problem == ""
        begin = time.monotonic()
        for connection in open_:
            with contextlib.suppress(ConnectionResetError, ssl.SSLError):
                while connection.recv(4096):
                    pass
        assert time.monotonic() - begin < 8.0  # less than they would wait
        assert ask(streams, (1,), of_size(10))[1].problem == ""
        assert streams.nodes() == {NODES[1]}


class Wire:
    """A wire between device and server that can be cut, be slow, or go dead without a word."""

    def __init__(self, port):
        self._to, self.dead, self._pairs = port, threading.Event(), []
        self.rate = math.inf  # bytes a second, from the device to the server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = (
                    self._listener.accept()[0],
                    socket.create_connection(("127.0.0.1", self._to)),
                )
                self._pairs.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, source is near), daemon=True
                    ).start()

    def _pump(self, source, sink, is_slow):
        with contextlib.suppress(OSError):
            while data := source.recv(8_192):
                if is_slow:
                    time.sleep(len(data) / self.rate)
                if not self.dead.is_set():
                    sink.sendall(data)

    def cut(self):
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.cut()
        self._listener.close()


def test_a_stream_that_breaks_comes_back_by_itself_and_ends_with_the_run(site, nodes):
    with door(site, nodes) as (streams, tokens):
        wire = Wire(streams.port)
        with (
            present(streams, tokens, (0,), site, port=wire.port) as outcomes,
            present(streams, tokens, (1,), site),
        ):
            assert ask(streams, (0, 1), of_size(10))[0].problem == ""
            wire.cut()
            until(lambda: NODES[0] not in streams.nodes())
            until(lambda: NODES[0] in streams.nodes())
            assert {
                ue: answer.problem for ue, answer in ask(streams, (0, 1), of_size(10)).items()
            } == {0: "", 1: ""}
    until(lambda: outcomes == {0: "over"})
    wire.close()


def test_a_device_whose_stream_broke_is_soon_invited_again_and_may_come_back_until_its_new_process_does(
    site, nodes, monkeypatch
):
    """The invitation of a process that was killed is answered late; one that was only cut off may
    still come back.
    """
    monkeypatch.setattr(inviting, "PAUSE", 0.2)
    monkeypatch.setattr(inviting, "LOOK", 0.05)
    wait, keys = threading.Event(), keys_of_device(site.folder, 0)
    with door(site, nodes) as (streams, tokens):
        old = tokens[NODES[0]]
        for _ in range(2):
            with by_hand(streams, old, keys, iter(wait.wait, True)):
                pass
            until(lambda: NODES[0] not in streams.nodes())
            until(lambda: tokens[NODES[0]] != old, 10.0)  # less than RENEW
        new = tokens[NODES[0]]
        with (
            by_hand(streams, old, keys, iter(wait.wait, True)),
            by_hand(streams, new, keys, iter(wait.wait, True)),
        ):
            until(lambda: streams._invitations._of_node[NODES[0]].has_come)
            assert tokens[NODES[0]] == new  # one invitation was enough
            assert call(streams, keys, old) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "no such session",
            )
            assert streams.nodes() == {NODES[0]}
            wait.set()


def test_a_session_that_ends_while_another_holds_the_stream_does_not_count_as_a_failure(
    site, nodes
):
    """Flower tells of a killed process a minute later, and then takes every session of the node for
    it.
    """
    wait, keys = threading.Event(), keys_of_device(site.folder, 0)
    with (
        door(site, nodes) as (streams, tokens),
        by_hand(streams, tokens[NODES[0]], keys, iter(wait.wait, True)),
    ):
        invitation = streams._invitations._of_node[NODES[0]]
        crashed = Message(
            Error(code=3, reason="ClientApp crashed"),
            reply_to=Message(RecordDict(), NODES[0], "query"),
        )
        crashed.metadata.__dict__["_reply_to_message_id"] = invitation.message
        streams._invitations._grid._replies[invitation.message] = crashed
        until(lambda: invitation.message == "")
        assert (invitation.failures, streams.nodes()) == (0, {NODES[0]})
        wait.set()


def test_an_update_may_take_longer_than_a_heartbeat(site, nodes, monkeypatch):
    """Answers to heartbeats wait behind the update: 400 kB at 200 kB/s take 2 s, four times a beat."""
    monkeypatch.setattr(server_side, "BEAT", 0.5)
    with door(site, nodes) as (streams, tokens):
        wire = Wire(streams.port)
        with present(streams, tokens, (0,), site, port=wire.port):
            wire.rate = 2e5
            assert ask(streams, (0,), of_size(400_000))[0].problem == ""
        wire.close()


def test_a_wire_that_goes_dead_without_a_word_is_a_device_that_is_away(site, nodes, monkeypatch):
    monkeypatch.setattr(server_side, "BEAT", 0.5)
    monkeypatch.setattr(server_side, "PATIENCE", 0.5)
    monkeypatch.setattr(device_side, "RETURN", 1.0)
    with door(site, nodes) as (streams, tokens):
        wire = Wire(streams.port)
        with (
            present(streams, tokens, (0,), site, port=wire.port) as outcomes,
            present(streams, tokens, (1,), site),
        ):
            wire.dead.set()
            answers = ask(streams, (0, 1), of_size(10))
            assert (answers[0].problem, answers[1].problem) == ("the stream broke", "")
            assert streams.nodes() == {NODES[1]}
            until(lambda: outcomes == {0: "lost"})
        wire.close()


def test_a_device_that_comes_again_loses_the_order_it_had_at_once_and_its_old_stream_spoils_no_later_one(
    site, nodes
):
    asked, wait = threading.Event(), threading.Event()

    def slow(parcel):
        asked.set()
        time.sleep(1.0)
        return parrot(parcel)

    with contextlib.ExitStack() as stack:
        streams, tokens = stack.enter_context(door(site, nodes))
        stack.enter_context(
            by_hand(
                streams, tokens[NODES[0]], keys_of_device(site.folder, 0), iter(wait.wait, True)
            )
        )
        old = streams._open[NODES[0]]
        threading.Timer(
            0.5, lambda: stack.enter_context(present(streams, tokens, (0,), site, slow))
        ).start()
        answer = ask(streams, (0,), of_size(10))[0]
        assert answer.problem == "it came again"
        assert answer.seconds < 5.0  # half of the deadline

        def end_old():
            assert asked.wait(5.0)
            streams._loop.call_soon_threadsafe(
                streams._lose, old
            )  # as the end of its call does, however late

        threading.Thread(target=end_old, daemon=True).start()
        assert ask(streams, (0,), of_size(10))[0].problem == ""
        assert streams._open[NODES[0]] is not old
        wait.set()
