"""A device that lies, in one process through the server's own functions: refused, named, and the
honest go on.
"""

import copy
import io
import logging
import math
import re
import tracemalloc

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

from autofl.compressors.quantise import Quantise
from autofl.data import Dataset
from autofl.deploy import arrival, fleet, session, world
from autofl.deploy.app import client_app
from autofl.deploy.arrays import checked_params, digest_of, params_of
from autofl.deploy.fleet import introduced
from autofl.deploy.messages import Form, RefusedError, refusing
from autofl.deploy.server import serve
from autofl.deploy.status import progress
from autofl.experiments.cell import build_cell
from autofl.records import read_run, read_weights
from autofl.registry import PARTS, find
from autofl.rng import stream
from deploy.loopback import Loopback, make_nodes
from deploy.test_fleet import NUM_UE, at_training, both, changed, config_of, deployed, settings_of

pytestmark = pytest.mark.slow

LIAR, LIES = 1, 9000 - 7  # UE and node


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def nodes(few_digits: Dataset, tmp_path_factory):
    return make_nodes(few_digits, tmp_path_factory.mktemp("liars"), NUM_UE)


@pytest.fixture
def exchanges(nodes, honest):
    """The liar's messages and honest replies of a run, fresh copies: {kind: (message, reply)}."""
    return copy.deepcopy({kind: honest[kind] for kind in ("query.introduce", "train")})


@pytest.fixture(scope="module")
def honest(nodes, tmp_path_factory):
    seen = {}

    def see(node, message, reply):
        if node == LIES:
            seen.setdefault(
                message.metadata.message_type, (copy.deepcopy(message), copy.deepcopy(reply))
            )
        return reply

    deployed(nodes, tmp_path_factory.mktemp("honest"), everybody(stop={"rounds": 1}), spoil=see)
    return seen


def everybody(**sections):
    more = {
        "simulation": {"num_selected": NUM_UE},
        "stop": {"rounds": 2},
        "evaluation": {"every": 100},
    }
    return settings_of(**{**more, **sections})


@pytest.fixture(scope="module")
def without(nodes, tmp_path_factory):
    """The weights after two rounds in which the liar's updates never came."""
    silent = at_training(LIES, lambda reply: None)
    return read_weights(
        deployed(nodes, tmp_path_factory.mktemp("silent"), everybody(), spoil=silent)[0].folder
    )


def outcomes(run, ue=LIAR):
    return run.devices["outcome"][run.devices["ue"].astype(int) == ue].tolist()


def finished(run):
    return run.manifest["status"] == "finished" and run.manifest["stop"] == "rounds"


def lies(do):
    """A liar's update, from the model that was sent and its own honest weights."""

    def spoil(node, message, reply):
        if node == LIES and message.metadata.message_type == "train":
            sent, own = (
                {name: array.numpy() for name, array in part.array_records["params"].items()}
                for part in (message.content, reply.content)
            )
            return changed(
                reply, **{name: do(sent[name], own[name]).astype(np.float32) for name in own}
            )
        return reply

    return spoil


@both
@pytest.mark.parametrize(
    ("do", "why"),
    [
        (lambda sent, own: sent + 1e30, "too long: |w_i - w| = 2.82e+32"),
        (lambda sent, own: np.full_like(sent, 3.4e38), "too long: |w_i - w| = 9.59e+40"),
        (lambda sent, own: sent + 1e3 * (own - sent), "too long"),
        (lambda sent, own: sent - 10 * (own - sent), "too long"),
        (lambda sent, own: 0 * sent, "too long"),
        (lambda sent, own: sent, "no change: it has not trained"),
    ],
    ids=["1e30", "3.4e38", "x1000", "flip x10", "zeros", "unchanged"],
)
def test_an_update_that_no_honest_device_makes_is_named_and_left_out(
    nodes, tmp_path, without, do, why, transport
):
    run, _ = deployed(nodes, tmp_path, everybody(), transport=transport, spoil=lies(do))
    assert finished(run)
    first, second = outcomes(run)
    assert first.startswith(why)
    assert second.startswith((why, "the update of UE 1 in round 1 again"))
    assert all(outcomes(run, ue) == ["ok", "ok"] for ue in range(NUM_UE) if ue != LIAR)
    for name, array in read_weights(
        run.folder
    ).items():  # the run is that of the honest, to the bit
        np.testing.assert_array_equal(array, without[name])


def test_an_old_reply_is_refused_by_its_stamp_and_an_old_update_under_a_new_stamp_by_its_digest(
    nodes, tmp_path
):
    for stamped in (False, True):
        first = {}

        def again(node, message, reply, first=first, stamped=stamped):
            if node == LIES and message.metadata.message_type == "train":
                old = first.setdefault("content", reply.content)
                reply.content = (
                    RecordDict({**old, "stamp": message.content["stamp"]}) if stamped else old
                )
            return reply

        run, _ = deployed(nodes, tmp_path / str(stamped), everybody(), spoil=again)
        old = (
            "the update of UE 1 in round 1 again"
            if stamped
            else "a reply to another message: its stamp is old"
        )
        assert outcomes(run) == ["ok", old]
        assert finished(run)


def written_otherwise(array, k):
    """The same values, written in another way each round."""
    values = array.numpy()
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asfortranarray(values) if k % 2 else values, (2, 0))
    return Array(f"float32 {k}", array.shape, array.stype, stream.getvalue())


@pytest.mark.parametrize("compressor", ["none", "top-k"])
def test_the_same_numbers_are_the_same_update_however_they_are_written(nodes, tmp_path, compressor):
    first = {}

    def again(node, message, reply):
        if node == LIES and message.metadata.message_type == "train":
            old, k = (
                first.setdefault("content", reply.content),
                int(message.content["order"]["round"]),
            )
            parts = dict(old)
            if compressor == "none":
                parts["params"] = ArrayRecord(
                    {name: written_otherwise(a, k) for name, a in old["params"].items()}
                )
            reply.content = RecordDict({**parts, "stamp": message.content["stamp"]})
        return reply

    settings = everybody(stop={"rounds": 3}, compressor={"name": compressor})
    run, _ = deployed(nodes, tmp_path, settings, spoil=again)
    assert outcomes(run) == ["ok", *["the update of UE 1 in round 1 again"] * 2]
    assert finished(run)


WORDS = {
    "empty": (b"", "an error without a reason"),
    "blank": (b" \n\t ", "an error without a reason"),
    "unprintable": (b"\n\x1b\x00\n", "an error without a reason"),
    "ok": (b"ok", "it says: ok"),
    "away": (b"not connected", "it says: not connected"),
    "formula": (b'=HYPERLINK("http://x")', 'it says: =HYPERLINK("http://x")'),
    "other": (b"introduction: no", "it says: introduction: no"),
}


@pytest.fixture
def errors_as_told(monkeypatch):
    """A device's error is, byte for byte, what stands between two marks in it."""

    def frames_of(parcel, write=session.frames_of):
        mark = re.search(rb"MARK:([0-9a-f]*):", parcel.body) if parcel.kind == "error" else None
        return write(parcel._replace(body=bytes.fromhex(mark[1].decode())) if mark else parcel)

    monkeypatch.setattr(session, "frames_of", frames_of)


@pytest.mark.parametrize("case", list(WORDS))
def test_an_error_that_a_device_words_itself_is_its_refusal_and_nothing_else(
    nodes, tmp_path, errors_as_told, case
):
    body, why = WORDS[case]

    def fails(node, message, reply):
        if node == LIES and message.metadata.message_type == "train":
            raise RuntimeError(f"MARK:{body.hex()}:")
        return reply

    run, _ = deployed(nodes, tmp_path, everybody(), transport="stream", spoil=fails)
    assert finished(run)
    assert outcomes(run) == [why, why]
    assert all(outcomes(run, ue) == ["ok", "ok"] for ue in (0, 2, 3))
    assert progress(run)["devices"][LIAR] == {"used": 0, "left_out": 2, "last": why}


@pytest.mark.parametrize("kind", ["query.introduce", "evaluate"])
def test_an_empty_error_instead_of_an_introduction_or_an_evaluation_has_a_reason(
    nodes, tmp_path, errors_as_told, kind
):
    def fails(node, message, reply):
        if node == LIES and message.metadata.message_type == kind:
            raise RuntimeError("MARK::")
        return reply

    settings = everybody(stop={"rounds": 1}, deploy={"join": 3.0})
    run, _ = deployed(nodes, tmp_path, settings, transport="stream", spoil=fails)
    assert finished(run)
    assert (
        f"{'evaluation' if kind == 'evaluate' else 'introduction'}: an error without a reason"
        in outcomes(run)
    )


def headed(array, shape):
    """An array whose header has this as its shape."""
    kind = "<i8" if array.dtype == "int64" else "<f4"
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
    text = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + b"\n"
    return Array(
        array.dtype,
        array.shape,
        array.stype,
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text,
    )


@both
@pytest.mark.parametrize(
    ("kind", "group", "name"), [("train", "params", "2.bias"), ("query.introduce", "pixels", "num")]
)
def test_a_shape_of_5000_digits_is_refused_in_a_few_words(
    nodes, tmp_path, kind, group, name, transport
):
    def endless(node, message, reply):
        if node == LIES and message.metadata.message_type == kind:
            arrays = reply.content[group]
            bad = ArrayRecord({**arrays, name: headed(arrays[name], f"(0x{'f' * 3700},)")})
            reply.content = RecordDict({**reply.content, group: bad})
        return reply

    settings = everybody(stop={"rounds": 1}, deploy={"join": 3.0 if transport == "stream" else 0.0})
    run, _ = deployed(nodes, tmp_path, settings, transport=transport, spoil=endless)
    assert finished(run)
    why = f"{name}: not a readable array (ValueError)"
    assert outcomes(run)[0] == (why if kind == "train" else f"introduction: {why}")
    assert all(outcomes(run, ue) == ["ok"] for ue in (0, 2, 3))


def test_a_type_of_many_words_is_refused_in_few():
    descr = [("A\x1b[31m" * 200, "<f4")]
    head = repr({"descr": descr, "fortran_order": False, "shape": (3,)}).encode()
    data = b"\x93NUMPY\x01\x00" + (len(head) + 1).to_bytes(2, "little") + head + b"\n" + bytes(12)
    record = RecordDict(
        {"params": ArrayRecord({"b": Array("float32", (3,), "numpy.ndarray", data)})}
    )
    with pytest.raises(RefusedError, match=r"^b: type .{1,160}, not float32$"):
        checked_params(record, {"b": torch.zeros(3)})


@both
@pytest.mark.parametrize("where", ["introduction", "update", "evaluation"])
def test_an_error_nobody_thought_of_is_the_refusal_of_the_reply_it_was_in(
    nodes, tmp_path, monkeypatch, where, transport
):
    """The second line of defence: our own code fails on one device's reply."""

    def fails(real, is_it):
        def call(*words):
            if is_it(*words):
                raise ZeroDivisionError
            return real(*words)

        return call

    liars = []
    if where == "introduction":
        monkeypatch.setattr(
            fleet, "introduced", fails(fleet.introduced, lambda node, *_: node == LIES)
        )
    elif where == "update":
        monkeypatch.setattr(
            arrival, "length", fails(arrival.length, lambda row: liars.append(0) or len(liars) == 1)
        )
    else:
        monkeypatch.setattr(
            world.Judged,
            "of",
            fails(world.Judged.of, lambda content: liars.append(0) or len(liars) == 1),
        )
    settings = everybody(stop={"rounds": 1}, deploy={"join": 3.0 if transport == "stream" else 0.0})
    run, _ = deployed(nodes, tmp_path, settings, transport=transport)
    assert finished(run)
    said = [why for why in run.devices["outcome"].tolist() if why != "ok"]
    assert said
    assert {why.split(": ")[-1] for why in said} == {
        "a reply that cannot be read (ZeroDivisionError)"
    }


def test_what_ends_a_run_is_no_refusal():
    with pytest.raises(KeyboardInterrupt), refusing():
        raise KeyboardInterrupt


def test_two_devices_that_send_the_same_update_count_once(nodes, tmp_path):
    first = {}

    def same(node, message, reply):
        if message.metadata.message_type == "train" and node in (9000, LIES):
            content = first.setdefault(int(message.content["order"]["round"]), reply.content)
            reply.content = RecordDict({**content, "stamp": message.content["stamp"]})
        return reply

    run, _ = deployed(nodes, tmp_path, everybody(), spoil=same)
    assert sorted(outcomes(run, 0) + outcomes(run)) == [
        "ok",
        "ok",
        *(f"the update of UE 0 in round {k} again" for k in (1, 2)),
    ]


def told(kind, group, **values):
    """A liar whose replies of a kind hold other values; arrays are filled with one."""

    def spoil(node, message, reply):
        if node == LIES and message.metadata.message_type == kind and not reply.has_error():
            record = reply.content[group]
            if isinstance(record, ArrayRecord):
                arrays = {name: array.numpy() for name, array in record.items()}
                arrays |= {
                    name: np.full_like(arrays[name], value) for name, value in values.items()
                }
                record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
            else:
                record = type(record)({**record, **values})
            reply.content = RecordDict({**reply.content, group: record})
        return reply

    return spoil


INTRODUCTIONS = {
    "squares": ("pixels", {"squares": 2**50}, "pixels: sums that no images have"),
    "num": ("pixels", {"num": 2**40}, "pixels: of 1099511627776 samples; 1 to "),
    "white": (
        "pixels",
        {"total": 255 * 180, "squares": 255**2 * 180},
        "pixels: sums that no images have",
    ),
    "size": (
        "device",
        {"data_size": "9" * 400},
        "data_size: '999999999999...9999999999999'; it should be a valid integer",
    ),
    "shape": ("device", {"sample_shape": [28, 28]}, "total: shape (784,), not (28, 28)"),
    "extents": (
        "device",
        {"sample_shape": [10**9]},
        "sample_shape.0: 1000000000; it should be less than or equal to 10000",
    ),
    "classes": (
        "device",
        {"num_classes": 100_000},
        "num_classes: 100000; it should be less than or equal to 10000",
    ),
    "more": ("device", {"num_classes": 9_999}, "9999 classes, not 10"),
    "cpu": (
        "device",
        {"cpu_frequency": 1e-300},
        "cpu_frequency: 1e-300; it should be greater than or equal to 1000",
    ),
    "slow": ("device", {"cpu_frequency": 1e4}, "cpu_frequency: 10000 is not from 1e+07 to 1e+11"),
    "nan": ("device", {"max_energy": math.nan}, "max_energy: nan; it should be a finite number"),
    "unknown": ("device", {"root": 1}, "device: root is unknown"),
}


@pytest.mark.parametrize(
    ("case", "transport"),
    [*((case, "messages") for case in ("num", "size", "classes", "cpu")), ("more", "stream")],
)
def test_a_device_that_introduces_itself_with_lies_is_named_and_the_others_go_on(
    nodes, tmp_path, case, transport
):
    group, values, why = INTRODUCTIONS[case]
    spoil, settings = told("query.introduce", group, **values), everybody(stop={"rounds": 1})
    run, _ = deployed(nodes, tmp_path, settings, transport=transport, spoil=spoil)
    assert finished(run)
    assert run.manifest["num_weights"] == 79_510
    assert outcomes(run)[0].startswith(f"introduction: {why}"), outcomes(run)
    assert all(said.startswith("introduction: ") for said in outcomes(run))
    assert all(outcomes(run, ue) == ["ok"] for ue in (0, 2, 3))
    assert float(run.rounds["sim_time"][-1]) < 10.0
    assert 0.0 <= float(run.rounds["adapted_accuracy"][-1]) <= 1.0


@pytest.mark.parametrize("case", list(INTRODUCTIONS))
def test_every_lie_in_an_introduction_is_seen(exchanges, case):
    group, values, why = INTRODUCTIONS[case]
    message, reply = exchanges["query.introduce"]
    content = told("query.introduce", group, **values)(LIES, message, reply).content
    cell = build_cell(everybody().resolved(), np.zeros(NUM_UE, dtype=np.int64), 1)
    with pytest.raises(RefusedError) as refusal:
        Form(sample_shape=(784,), num_classes=10).check(introduced(LIES, content, cell).said)
    assert str(refusal.value).startswith(why)


def claims(most, heard=1):
    """A liar that says it has up to `most` samples, its own many times over; only from its answer
    `heard` on.
    """
    asked = []

    def spoil(node, message, reply):
        if (
            node == LIES
            and message.metadata.message_type == "query.introduce"
            and not reply.has_error()
        ):
            asked.append(node)
            if len(asked) < heard:
                return None
            device = reply.content["device"]
            times = most // device["data_size"]
            parts = {"device": ConfigRecord({**device, "data_size": times * device["data_size"]})}
            if "pixels" in reply.content:
                sums = {
                    name: times * array.numpy() for name, array in reply.content["pixels"].items()
                }
                parts["pixels"] = ArrayRecord(
                    {name: Array(np.asarray(part)) for name, part in sums.items()}
                )
            reply.content = RecordDict({**reply.content, **parts})
        return reply

    return spoil


@pytest.mark.parametrize("statistics", ["shared", "own"])
@pytest.mark.parametrize("heard", [1, 2], ids=["at the start", "in a later round"])
def test_a_device_that_claims_ten_million_samples_is_named_and_the_others_go_on(
    nodes, tmp_path, statistics, heard
):
    settings = everybody(deploy={"statistics": statistics}, stop={"rounds": 3})
    run, _ = deployed(nodes, tmp_path, settings, spoil=claims(10_000_000, heard))
    assert finished(run)
    assert any(" samples, the median of the devices is " in said for said in outcomes(run)), (
        outcomes(run)
    )
    assert "ok" not in outcomes(run)
    assert all(outcomes(run, ue) == ["ok"] * 3 for ue in (0, 2, 3))
    assert float(run.rounds["sim_time"][-1]) < 10.0


def test_of_two_devices_the_one_whose_sums_do_not_fit_is_left_out_and_not_the_run(nodes, tmp_path):
    two = {node: config for node, config in nodes.items() if config["ue"] < 2}
    settings = everybody(cell={"num_ue": 2}, simulation={"num_selected": 2})
    run, _ = deployed(two, tmp_path, settings, spoil=claims(10_000_000))
    assert finished(run)
    assert outcomes(run, 0) == ["ok", "ok"]
    assert outcomes(run)[0].endswith(
        " samples; all sums may have 10000000 (deploy.statistics=own: any)"
    )


def test_plausible_sums_of_other_images_are_found_among_those_of_the_others(nodes, tmp_path):
    """All pixels white: no single check of the sums can know, the other devices' do."""

    def white(node, message, reply):
        if node == LIES and message.metadata.message_type == "query.introduce":
            num = reply.content["device"]["data_size"]
            sums = {
                "num": num,
                "total": np.full(784, 255 * num),
                "squares": np.full(784, 255**2 * num),
            }
            pixels = ArrayRecord(
                {name: Array(np.asarray(part, dtype=np.int64)) for name, part in sums.items()}
            )
            reply.content = RecordDict({**reply.content, "pixels": pixels})
        return reply

    run, _ = deployed(nodes, tmp_path, everybody(stop={"rounds": 1}), spoil=white)
    assert finished(run)
    assert outcomes(run)[0].startswith(
        "introduction: pixels: mean pixel 255, the median of the devices is "
    )
    assert float(run.rounds["adapted_accuracy"][-1]) > float(run.rounds["adapted_accuracy"][0])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"adapted_accuracy": 5.0}, "adapted_accuracy: 5.0; it should be less than or equal to 1"),
        ({"train_loss": math.nan}, "train_loss: nan; it should be a finite number"),
        (
            {"global_accuracy": [0.1, 0.2]},
            "global_accuracy: [0.1, 0.2]; it should be a valid number",
        ),
    ],
)
def test_an_evaluation_that_cannot_be_is_named_and_not_averaged(nodes, tmp_path, values, why):
    settings = everybody(stop={"rounds": 2, "target_accuracy": 0.99})
    run, _ = deployed(nodes, tmp_path, settings, spoil=told("evaluate", "quality", **values))
    assert finished(run)
    assert f"evaluation: {why}" in outcomes(run)
    assert float(np.max(run.rounds["adapted_accuracy"][[0, -1]])) <= 1.0


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"train_time": -1.0}, "train_time: -1.0; it should be greater than or equal to 0"),
        ({"guarded": 10**6}, "guarded: 1000000; it should be less than or equal to 1000"),
        ({"junk": 1}, "measured: junk is unknown"),
    ],
)
def test_what_a_device_measured_has_bounds_too(nodes, tmp_path, values, why):
    run, _ = deployed(
        nodes, tmp_path, everybody(stop={"rounds": 1}), spoil=told("train", "measured", **values)
    )
    assert outcomes(run) == [why]


def test_a_reply_with_more_in_it_or_larger_than_can_be_is_not_even_decoded(nodes, tmp_path):
    extra = {"junk": MetricRecord({"x": 1.0}), "params": None}

    def large(node, message, reply):
        if node == LIES and message.metadata.message_type == "train":
            if int(message.content["order"]["round"]) == 1:
                reply.content = RecordDict({**reply.content, "junk": extra["junk"]})
            else:
                return changed(reply, more=np.zeros(2_000_000, np.float32))
        return reply

    run, _ = deployed(nodes, tmp_path, everybody(), spoil=large)
    assert outcomes(run)[0] == "an unknown part of a message: junk"
    assert outcomes(run)[1].startswith("8318")
    assert finished(run)


def test_an_array_whose_header_claims_terabytes_allocates_nothing():
    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    )
    array = Array("float32", (10,), "numpy.ndarray", header.ljust(127) + b"\n" + bytes(40))
    tracemalloc.start()
    with pytest.raises(RefusedError, match=r"b: shape \(1000000000000,\), not \(10,\)"):
        checked_params(RecordDict({"params": ArrayRecord({"b": array})}), {"b": torch.zeros(10)})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1e6


@pytest.mark.parametrize("name", PARTS["compressor"])
def test_a_packed_update_near_the_largest_number_is_refused_with_a_reason(nodes, tmp_path, name):
    def huge(node, message, reply):
        if node == LIES and message.metadata.message_type == "train":
            compressor = find("compressor", name).build({})
            change = torch.full((79_510,), 3e38) * torch.tensor([1.0, -1.0]).repeat(39_755)
            bits = float(message.content["order"]["bits_per_weight"])
            sent, _ = compressor(change, bits, lambda: stream(1, "test"), compressor.init(79_510))
            packed = ConfigRecord({"update": sent.pack()})
            reply.content = RecordDict({**reply.content, "packed": packed})
        return reply

    run, _ = deployed(
        nodes, tmp_path, everybody(stop={"rounds": 1}, compressor={"name": name}), spoil=huge
    )
    assert finished(run)
    [why] = outcomes(run)
    assert why.startswith(
        ("packed update: not finite; values near 3.4e38", "too long: |w_i - w| = ")
    ), why
    assert all(np.isfinite(array).all() for array in read_weights(run.folder).values())


def test_a_packed_liar_is_as_long_as_its_change(nodes, tmp_path):
    def flip(node, message, reply):
        if node == LIES and message.metadata.message_type == "train":
            change = -20 * Quantise(8).unpack(reply.content["packed"]["update"], 79_510)
            sent, _ = Quantise(8)(change, 8.0, lambda: stream(1, "test"), {})
            reply.content = RecordDict(
                {**reply.content, "packed": ConfigRecord({"update": sent.pack()})}
            )
        return reply

    settings = everybody(stop={"rounds": 1}, compressor={"name": "quantise", "bits": 8})
    [why] = outcomes(deployed(nodes, tmp_path, settings, spoil=flip)[0])
    assert why.startswith("too long")


def test_a_node_whose_first_replies_are_lost_is_asked_again_and_has_rows(nodes, tmp_path):
    lost = []

    def loses(node, message, reply):
        if node == LIES and message.metadata.message_type == "query.introduce" and len(lost) < 2:
            lost.append(reply)
            return None
        return reply

    run, loopback = deployed(nodes, tmp_path, everybody(stop={"rounds": 4}), spoil=loses)
    said = run.devices["outcome"].tolist()
    assert said.count("introduction: no reply within 0.1 s") == 1  # the same again says nothing new
    assert outcomes(run) == ["ok"] * len(outcomes(run))
    assert len(outcomes(run)) >= 2  # it takes part once it has answered
    asked = [
        node
        for node, message in loopback.sent
        if message.metadata.message_type == "query.introduce"
    ]
    assert asked.count(LIES) == 3
    assert len(asked) == 3 + NUM_UE - 1


def test_a_key_is_bound_to_its_ue(nodes, tmp_path):
    """Node 8993 has the key of UE 1 and says it is UE 0; node 9000 is nobody's."""
    odd = {**nodes, LIES: {**nodes[LIES], "ue": 0}}
    config = config_of(everybody(), tmp_path) | {
        "nodes": " ".join(f"{ue}={9000 - 7 * ue}" for ue in (1, 2, 3))
    }
    serve(Loopback(odd, config), Context(1, 1, {}, RecordDict(), config))
    run = read_run(tmp_path)
    assert outcomes(run)[0] == "introduction: it calls itself UE 0; its key is that of UE 1"
    assert (
        outcomes(run, -1)[0]
        == "introduction: it calls itself UE 0; its key is that of no UE of this deployment"
    )
    assert outcomes(run, 2) == outcomes(run, 3) == ["ok", "ok"]


def test_where_nobody_lies_the_bound_changes_no_bit(nodes, tmp_path):
    runs = [
        deployed(nodes, tmp_path / str(bound), everybody(checks={"norm_bound": bound}))[0]
        for bound in (0.0, 5.0)
    ]
    off, on = (read_weights(run.folder) for run in runs)
    for name, array in off.items():
        np.testing.assert_array_equal(array, on[name])
    assert set(runs[1].devices["outcome"].tolist()) == {"ok"}


def test_by_default_a_deployment_takes_a_long_lie_for_one_of_the_usual_length(nodes, tmp_path):
    """The lie is as long as 4 honest updates and passes; 1.5 medians of it count, whoever sends it."""
    lengths, flip = [], {}

    def see(node, message, reply):
        if message.metadata.message_type == "train":
            sent, own = (
                {name: array.numpy() for name, array in part.array_records["params"].items()}
                for part in (message.content, reply.content)
            )
            factor = -4.0 if node == LIES else 1.0
            told = {name: factor * (own[name] - sent[name]) for name in own}
            lengths.append(
                math.sqrt(sum(float((array.astype(float) ** 2).sum()) for array in told.values()))
            )
            if node == LIES:
                flip.update(told, length=lengths[-1])
                return changed(reply, **{name: sent[name] + told[name] for name in own})
        return reply

    whole, usual = (
        deployed(
            nodes, tmp_path / str(more), everybody(stop={"rounds": 1}, checks=more), spoil=see
        )[0]
        for more in ({"shorten": 0.0}, {})
    )
    assert outcomes(whole) == outcomes(usual) == ["ok"]
    part = 1.5 * np.median(lengths[:NUM_UE]) / flip["length"]
    assert part < 0.9
    before, after = read_weights(whole.folder), read_weights(usual.folder)
    for name in before:
        np.testing.assert_allclose(
            after[name] - before[name], (part - 1.0) / NUM_UE * flip[name], atol=2e-6
        )


# ---- the other way: what a device refuses of its server ----


def device_context(nodes, state=None):
    config = config_of(everybody(), "nowhere")
    return Context(1, LIES, nodes[LIES], state or RecordDict(), config)


@pytest.mark.parametrize(
    ("group", "values", "why"),
    [
        ("order", {"num_samples": 10**9}, "num_samples: 1000000000; it should be less"),
        ("order", {"local_steps": 10**6}, "local_steps: 1000000; it should be less"),
        ("order", {"tx_power": math.inf}, "tx_power: inf; it should be a finite number"),
        ("order", {"round": "2"}, "round: '2'; it should be a valid integer"),
        ("model", {"num_classes": 10**6}, "num_classes: 1000000; it should be less"),
        ("model", {"num_classes": 3}, "a model of 3 classes; the samples here have 10"),
        ("model", {"num_classes": 11}, r"2.weight: shape \(10, 100\), not \(11, 100\)"),
        ("stamp", {"nonce": "short"}, "nonce: 'short'; String should match pattern"),
        ("shell", {"command": "ls"}, "an unknown part of a message: shell"),
    ],
)
def test_a_device_checks_what_its_server_says(nodes, exchanges, group, values, why):
    message, _ = exchanges["train"]
    message.content[group] = ConfigRecord(
        {**message.content.config_records.get(group, {}), **values}
    )
    with pytest.raises(RefusedError, match=why):
        client_app(message, device_context(nodes))


def test_a_device_refuses_a_model_that_is_not_finite_and_a_second_order_of_a_round(
    nodes, exchanges
):
    message, reply = exchanges["train"]
    context = device_context(nodes)
    again = client_app(message, context)
    assert digest_of(params_of(again.content["params"])) == digest_of(
        params_of(reply.content["params"])
    )
    with pytest.raises(RefusedError, match="an order of round 1 after one of round 1"):
        client_app(message, context)
    message.content["params"]["2.bias"] = Array(np.full(10, np.nan, np.float32))
    with pytest.raises(RefusedError, match=r"2.bias: not finite"):
        client_app(message, device_context(nodes))
