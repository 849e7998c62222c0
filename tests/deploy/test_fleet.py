"""Server and devices in one process, message by message: what is refused, what is counted, what
stays the same.
"""

import hashlib
import math
import re
import time
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)

from autofl.config import dump_settings, load_settings, parse_settings
from autofl.core.simulation import simulate
from autofl.data import Dataset
from autofl.deploy import client, fleet, server
from autofl.deploy.folder import Deployment
from autofl.deploy.messages import SMALL, checked_host, size_of
from autofl.deploy.server import serve
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.records import read_run, read_weights
from autofl.report.about import title_of
from autofl.report.runs import unheard_words
from deploy.loopback import Lines, Loopback, make_nodes, node_of

pytestmark = pytest.mark.slow

NUM_UE = 4
TABLE = {
    "cell": {"num_ue": NUM_UE},
    "simulation": {"num_selected": 3},
    "stop": {"rounds": 3},
    "evaluation": {"every": 2},
    "deploy": {"deadline": 0.1, "join": 0.0},
}


both = pytest.mark.parametrize("transport", ["messages", "stream"])


@pytest.fixture(scope="module")
def nodes(few_digits: Dataset, tmp_path_factory):
    return make_nodes(few_digits, tmp_path_factory.mktemp("nodes"), NUM_UE)


def settings_of(**sections):
    return parse_settings(
        {**TABLE, **{name: {**TABLE.get(name, {}), **more} for name, more in sections.items()}}
    )


def config_of(settings, folder, resume=False):
    return {
        "settings": dump_settings(settings.resolved()),
        "folder": str(folder),
        "resume": resume,
        "attempt": "1",
    }


def deployed(
    nodes,
    folder,
    settings=None,
    resume=False,
    transport="messages",
    lines=Lines,
    port=0,
    form=None,
    **grid,
):
    settings = settings or settings_of()
    if transport == "messages":
        config = config_of(settings, folder, resume) | ({} if form is None else {"form": form})
        loopback = Loopback(nodes, config, **grid)
        serve(loopback, Context(1, 1, {}, RecordDict(), config))
        return read_run(folder), loopback
    config = config_of(patient(settings), folder, resume) | {
        "site": next(node["folder"] for node in nodes.values()),
        "stream": f"127.0.0.1 {port}",
        "nodes": " ".join(f"{ue}={node_of(ue)}" for ue in range(NUM_UE)),
    }
    loopback = lines(nodes, config, **grid)
    with (
        patch.dict(client.ASKED, loopback.asked()),
        patch.object(server.RunConfig, "watch", loopback.watch),
        patch.object(fleet, "LOOK", 0.1),
    ):
        try:
            serve(loopback, Context(1, 1, {}, RecordDict(), config))
        finally:
            loopback.is_over.set()
    return read_run(folder), loopback


def patient(settings):
    """Streams take time to open, and devices that are threads of one process time to train."""
    given = {name: getattr(settings.deploy, name) for name, value in TABLE["deploy"].items()}
    waits = {name: 20.0 for name, value in TABLE["deploy"].items() if given[name] == value}
    return settings.model_copy(update={"deploy": settings.deploy.model_copy(update=waits)})


def digest(folder):
    names = ("config.toml", "rounds.csv", "ues.csv", "weights.safetensors")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def changed(reply, **arrays):
    """A reply with other arrays in its update; None takes one away."""
    kept = {
        name: array.numpy() for name, array in reply.content.array_records["params"].items()
    } | arrays
    content = RecordDict({**reply.content})
    content["params"] = ArrayRecord(
        {name: Array(array) for name, array in kept.items() if array is not None}
    )
    reply.content = content
    return reply


def at_training(node, do):
    """What to do with the updates of one node, and with nothing else."""

    def spoil(who, message, reply):
        return do(reply) if who == node and message.metadata.message_type == "train" else reply

    return spoil


STEADY = {
    "local_steps": 3,
    "lr_decay": 1.0,
    "split": [0.1, 0.8, 0.1],
    "guard": 0.2,
    "grad_clip": 1.0,
}


@both
@pytest.mark.parametrize("learning", [{}, STEADY], ids=["as the paper", "steady"])
def test_devices_with_their_own_files_learn_what_the_simulator_learns(
    nodes, few_digits, tmp_path, learning, transport
):
    settings = settings_of(learning=learning, cell={"max_energy": 0.01})
    run, _ = deployed(nodes, tmp_path, settings, transport=transport)
    assert {one["transport"] for one in run.manifest["devices"].values()} == {transport}
    records = list(simulate(build_simulation(settings, dataset=few_digits)))
    assert (run.ues["guarded"].sum() > 0) == bool(learning)
    for record, _ in records[1:]:
        row = run.ues["round"] == record.k
        for name, column in record.ue_columns().items():
            np.testing.assert_array_equal(run.ues[name][row], column, err_msg=name)
    # float32, three updates of weights below 1 summed in another grouping
    state = records[-1][1]
    for name, array in read_weights(tmp_path).items():
        np.testing.assert_allclose(array, state.params[name].numpy(), rtol=1e-5, atol=5e-7)


@both
@pytest.mark.parametrize("compressor", ["entropy", "ternary", "quantise", "top-k"])
def test_packed_updates_of_devices_are_those_of_the_simulator_to_the_bit(
    nodes, few_digits, tmp_path, compressor, transport
):
    replies = {}

    def spoil(node, message, reply):
        if message.metadata.message_type == "train":
            k = int(message.content.config_records["order"]["round"])
            replies[k, nodes[node]["ue"]] = reply.content
        return reply

    sections = {"compressor": {"name": compressor}, "learning": {"local_steps": 2}}
    run, _ = deployed(nodes, tmp_path, settings_of(**sections), transport=transport, spoil=spoil)
    assert {one["transport"] for one in run.manifest["devices"].values()} == {transport}
    records = list(simulate(build_simulation(settings_of(**sections), dataset=few_digits)))
    for record, _ in records[1:]:
        row = run.ues["round"] == record.k
        for name, column in record.ue_columns().items():
            np.testing.assert_array_equal(run.ues[name][row], column, err_msg=name)
    assert run.rounds["sim_time"].tolist() == [record.sim_time for record, _ in records]
    # The same updates, added up in the same order. top-k sends single-precision values, of which a
    # device that trains
    # alone may have another last digit than a group of UEs; the others round that away.
    last_digits = (
        {"rtol": 1e-5, "atol": 5e-7} if compressor == "top-k" else {"rtol": 0.0, "atol": 0.0}
    )
    for name, array in read_weights(tmp_path).items():
        np.testing.assert_allclose(array, records[-1][1].params[name].numpy(), **last_digits)
    assert len(replies) == run.ues["decoded"].sum() > 6
    for (k, ue), content in replies.items():
        assert not content.array_records  # bytes instead of weights
        payload = content.config_records["packed"]["update"]
        [there] = run.ues["bytes_up"][(run.ues["round"] == k) & (run.ues["ue"] == ue)]
        assert len(payload) == there
        assert size_of(content) < there + 500
    paid = run.ues["bits_per_weight"] * run.manifest["num_weights"] / 8
    sent = run.ues["decoded"] == 1
    assert (run.ues["bytes_up"][sent] <= paid[sent] * (1 + 1e-9)).all()
    assert (run.ues["bytes_up"][sent] >= 0.985 * paid[sent]).all()


def spoiled(reply, payload):
    reply.content = RecordDict({**reply.content, "packed": ConfigRecord({"update": payload})})
    return reply


@both
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda payload: payload[:-100], "packed update: it ends too early"),
        (lambda payload: payload[:3], "packed update: 3 bytes; its header has 5"),
        (lambda payload: bytes(10**6), "bytes; it can have 75475"),
        (
            lambda payload: b"\x00\x00\xc0\x7f" + payload[4:],
            "packed update: not finite; values near 3.4e38 overflow in the compressor",
        ),
        (lambda payload: "text", "packed update: missing, or not alone"),
    ],
    ids=["short", "shorter", "long", "nan", "text"],
)
def test_bytes_that_no_device_makes_are_left_out_and_the_others_count(
    nodes, tmp_path, change, why, transport
):
    bad = 9000 - 7 * 1

    def do(reply):
        return spoiled(reply, change(reply.content.config_records["packed"]["update"]))

    every = settings_of(
        simulation={"num_selected": NUM_UE}, stop={"rounds": 1}, compressor={"name": "entropy"}
    )
    run, _ = deployed(
        nodes, tmp_path / "bad", every, transport=transport, spoil=at_training(bad, do)
    )
    if transport == "stream" and "75475" in why:  # the length of the whole reply, by its head
        why = why.replace("75475", str(75_475 + SMALL))
    outcome = dict(
        list(zip(run.devices["ue"].tolist(), run.devices["outcome"].tolist(), strict=True))[:NUM_UE]
    )
    assert outcome[0] == outcome[2] == outcome[3] == "ok"
    assert outcome[1].endswith(why)
    assert run.ues["decoded"].tolist() == [1, 0, 1, 1]
    assert run.ues["bytes_up"][1] == 0.0
    without, _ = deployed(
        nodes, tmp_path / "gone", every, spoil=at_training(bad, lambda reply: None)
    )
    for name, array in read_weights(without.folder).items():
        np.testing.assert_array_equal(read_weights(run.folder)[name], array)


def test_noise_comes_before_the_compressor(nodes, tmp_path):
    from autofl.compressors.quantise import Quantise

    norms = []

    def spoil(node, message, reply):
        if message.metadata.message_type == "train":
            assert not reply.content.array_records
            payload = reply.content.config_records["packed"]["update"]
            norms.append(float(Quantise(16).unpack(payload, 79_510).norm()))
        return reply

    private = {"clip": 0.05, "noise_multiplier": 0.0, "statistics": "own"}
    sections = {
        "deploy": private,
        "compressor": {"name": "quantise", "bits": 16},
        "stop": {"rounds": 1},
    }
    run, _ = deployed(nodes, tmp_path, settings_of(**sections), spoil=spoil)
    assert len(norms) == 3
    assert norms == pytest.approx([0.05] * 3, rel=1e-3)
    assert set(run.devices["outcome"].tolist()) == {"ok"}


def test_the_order_of_replies_does_not_change_a_bit(nodes, tmp_path):
    patiently = settings_of(deploy={"deadline": 20.0})
    deployed(nodes, tmp_path / "one", patiently)
    deployed(dict(reversed(nodes.items())), tmp_path / "two", patiently, backwards=True)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_no_sample_leaves_a_device(nodes, tmp_path):
    seen = []

    def spoil(node, message, reply):
        seen.append((message.metadata.message_type, reply.content))
        return reply

    run, _ = deployed(nodes, tmp_path, spoil=spoil)
    weights = 4 * run.manifest["num_weights"]
    for kind, content in seen:
        # An update is as large as the model; introductions are sums over all samples; evaluations
        # four numbers.
        most = {"train": weights + 2000, "evaluate": 500, "query.introduce": 2 * 8 * 784 + 2000}
        assert size_of(content) < most[kind], kind


@both
@pytest.mark.parametrize(
    ("do", "why"),
    [
        (
            lambda reply: changed(reply, **{"2.bias": np.full(10, np.nan, np.float32)}),
            "2.bias: not finite",
        ),
        (
            lambda reply: changed(reply, **{"2.bias": np.zeros(9, np.float32)}),
            "2.bias: shape (9,), not (10,)",
        ),
        (
            lambda reply: changed(reply, **{"2.bias": np.zeros(10)}),
            "2.bias: type float64, not float32",
        ),
        (lambda reply: changed(reply, **{"2.bias": None}), "wrong keys: 2.bias is missing"),
        (
            lambda reply: changed(reply, extra=np.zeros(1, np.float32)),
            "wrong keys: extra is unknown",
        ),
        (lambda reply: None, "no reply within {deadline:g} s"),
    ],
    ids=["nan", "shape", "type", "missing", "unknown", "silent"],
)
def test_a_bad_update_is_left_out_and_the_others_count(nodes, tmp_path, do, why, transport):
    bad, deadline = 9000 - 7 * 1, 3.0 if transport == "stream" and "no reply" in why else 0.1
    every = settings_of(
        simulation={"num_selected": NUM_UE}, stop={"rounds": 1}, deploy={"deadline": deadline}
    )
    run, _ = deployed(
        nodes, tmp_path / "bad", every, transport=transport, spoil=at_training(bad, do)
    )
    updates = list(zip(run.devices["ue"].tolist(), run.devices["outcome"].tolist(), strict=True))[
        :NUM_UE
    ]
    assert dict(updates) == {
        0: "ok", 1: why.format(deadline=deadline), 2: "ok", 3: "ok",
    }  # fmt: skip
    assert run.ues["decoded"].tolist() == [1, 0, 1, 1]
    # The average is that of the other three, whatever the bad one says of itself.
    soon = settings_of(simulation={"num_selected": NUM_UE}, stop={"rounds": 1})
    without, _ = deployed(
        nodes, tmp_path / "gone", soon, spoil=at_training(bad, lambda reply: None)
    )
    for name, array in read_weights(without.folder).items():
        np.testing.assert_array_equal(read_weights(run.folder)[name], array)


@both
@pytest.mark.parametrize(
    "way", [{}, {"compressor": {"name": "quantise"}}, {"downlink": {"name": "quantise"}}]
)
def test_a_run_that_breaks_off_goes_on_to_the_same_bytes(nodes, tmp_path, way, transport):
    settings = settings_of(**way, cell={"downlink_power": 1.0})
    deployed(nodes, tmp_path / "whole", settings, transport=transport)
    asked = []

    def dies(node, message, reply):
        if message.metadata.message_type == "train":
            asked.append(node)
            if len(asked) > 4:
                raise KeyboardInterrupt
        return reply

    with pytest.raises(KeyboardInterrupt):
        deployed(nodes, tmp_path / "broken", settings, transport=transport, spoil=dies)
    assert read_run(tmp_path / "broken").manifest["rounds"] == 1
    deployed(nodes, tmp_path / "broken", settings, resume=True, transport=transport)
    assert digest(tmp_path / "whole") == digest(tmp_path / "broken")


def test_devices_train_from_what_a_compressed_downlink_gave_them(nodes, few_digits, tmp_path):
    settings = settings_of(downlink={"name": "quantise", "bits": 3}, cell={"downlink_power": 1.0})
    run, loopback = deployed(nodes, tmp_path, settings)
    records = list(simulate(build_simulation(settings, dataset=few_digits)))
    # float32: sums in another grouping may round a quantised weight to the next of its 7 levels,
    # here and there
    for name, p in records[-1][1].params.items():
        away = np.abs(read_weights(tmp_path)[name] - p.numpy())
        assert np.mean(away > 1e-6) < 0.01, name
    expected = [float(record.cost.downlink_time) for record, _ in records]
    assert run.rounds["downlink_time"].tolist() == expected
    assert run.rounds["sim_time"].tolist() == [record.sim_time for record, _ in records]
    assert min(expected[1:]) > 0.0
    sent = [
        message.content for _, message in loopback.sent if message.metadata.message_type == "train"
    ]
    final = sent[-1].array_records["params"]
    assert any(
        (final[name].numpy() != array).any() for name, array in read_weights(tmp_path).items()
    )


QUALITY = {
    "train_loss": 1e9,
    "adapted_train_loss": 1e9,
    "global_accuracy": 1.0,
    "adapted_accuracy": 1.0,
    "adapt_lr": 1e3,
}


def test_what_devices_bring_along_is_not_called_by_the_name_of_a_data_set(nodes, tmp_path):
    """Manifest and titles said MNIST-5k, l = 5, of whatever the devices had."""
    run, _ = deployed(nodes, tmp_path / "brought", settings_of(stop={"rounds": 1}))
    assert run.manifest["data"] == "the devices' own data"
    assert not {"data", "partition"} & set(run.manifest["parts"])
    assert title_of([run]) == "the devices' own data, 4 UEs, 3 a round, 1 seed"

    dealt, _ = deployed(nodes, tmp_path / "dealt", settings_of(stop={"rounds": 1}), form="784 10")
    assert dealt.manifest["data"] == "mnist5k"
    assert title_of([dealt]) == "MNIST-5k, l = 5, 4 UEs, 3 a round, 1 seed"


def test_a_device_that_lies_about_the_model_moves_the_evaluation_no_further_than_an_honest_one(
    nodes, few_digits, tmp_path
):
    """The mean of ten fell from 90 to 80 % by one that said 0, and three that said 1 ended a run."""
    honest, settings = [], settings_of(stop={"rounds": 1})

    def spoil(node, message, reply):
        if message.metadata.message_type == "evaluate" and node == node_of(1):
            reply.content["quality"] = MetricRecord(QUALITY)
        elif message.metadata.message_type == "evaluate":
            honest.append(dict(reply.content["quality"]))
        return reply

    run, _ = deployed(nodes, tmp_path / "lied", settings, spoil=spoil)
    for name in QUALITY:
        said = [one[name] for one in honest[: NUM_UE - 1]]
        assert min(said) <= run.rounds[name][0] <= max(said), name

    # Where nobody lies, each says what the simulator finds on its samples.
    told = []

    def hear(node, message, reply):
        if message.metadata.message_type == "evaluate":
            told.append(dict(reply.content["quality"]))
        return reply

    deployed(nodes, tmp_path / "honest", settings, spoil=hear)
    first = next(simulate(build_simulation(settings, dataset=few_digits)))[0].evaluation
    for name in QUALITY:
        mean = np.mean([one[name] for one in told[:NUM_UE]])
        assert mean == pytest.approx(getattr(first, name), rel=1e-5), (
            name
        )  # float32 sums in another grouping


def test_two_nodes_of_one_number_an_unknown_number_and_a_missing_device_do_not_stop_a_run(
    nodes, tmp_path
):
    odd = {**{node: config for node, config in nodes.items() if config["ue"] != 3}}
    odd[9500] = {"ue": 0, "data": nodes[9000]["data"]}  # a second UE 0, seen after the first
    odd[9501] = {"ue": 17, "data": nodes[9000]["data"]}
    odd[9502] = {"ue": 2, "data": "nowhere.npz"}
    run, loopback = deployed(odd, tmp_path, settings_of(simulation={"num_selected": NUM_UE}))
    trained = {node for node, message in loopback.sent if message.metadata.message_type == "train"}
    assert trained == {9000, 8993, 8986}
    assert set(run.ues["status"][run.ues["ue"] == 3].tolist()) == {"infeasible"}
    assert run.manifest["status"] == "finished"
    outcomes = run.devices["outcome"].tolist()
    for why in (
        "it calls itself UE 17; the cell has UEs 0 to 3",
        "it calls itself UE 0, which node 9000 is already",
    ):
        assert (
            outcomes.count(f"introduction: {why}") == 1
        )  # though it was asked in rounds 1 and 2 too
        assert sum(why in line for line in run.manifest["notes"]) == 1
    # 9502 does not say its number
    perhaps = "not here yet, unless it is a node that takes no part because of an error"
    assert run.manifest["notes"][-1] == f"round 0: UE 3: {perhaps}"


def test_a_device_that_cannot_read_its_data_is_not_waited_for_and_takes_part_once_it_can(
    nodes, tmp_path, monkeypatch
):
    """It cost the whole of `deploy.join`, and was said to be not here yet."""
    monkeypatch.chdir(tmp_path)
    path = Path("own.npz")
    path.write_text("damaged")
    odd = {
        node: {**config, "data": str(path)} if config["ue"] == 2 else config
        for node, config in nodes.items()
    }

    def mended(node, message, reply):
        if message.metadata.message_type == "evaluate":
            path.write_bytes(Path(nodes[node_of(2)]["data"]).read_bytes())
        return reply

    settings = settings_of(
        simulation={"num_selected": NUM_UE}, deploy={"join": 600.0}, stop={"rounds": 6}
    )
    begin = time.monotonic()
    run, _ = deployed(odd, tmp_path / "run", settings, spoil=mended)
    assert time.monotonic() - begin < 60.0
    assert run.ues["decoded"][run.ues["ue"] == 2].tolist()[-1] == 1
    [refused, absent, back] = run.manifest["notes"]
    assert back.endswith(": UE 2: here now")
    assert "takes no part: it says: UE 2: own.npz: not a readable .npz file (" in refused
    assert (
        "UE 2: not here yet, unless it is a node that takes no part because of an error" in absent
    )


class Restarting(Loopback):
    """After its orders of these rounds a node is started again with another configuration, and is
    away for a moment.

    Where `is_seen` is not set, that moment is too short to be noticed.
    """

    def __init__(self, *words, node, restarts, is_seen=True):
        super().__init__(*words)
        self.node, self.restarts, self.is_seen, self.is_away = node, dict(restarts), is_seen, False

    def get_node_ids(self):
        is_away, self.is_away = self.is_away, False
        return [node for node in super().get_node_ids() if not (is_away and node == self.node)]

    def push_messages(self, messages):
        numbers = super().push_messages(messages)
        for message in messages:
            k = (
                message.content.config_records["order"]["round"]
                if "order" in message.content
                else None
            )
            if message.metadata.dst_node_id == self.node and k in self.restarts:
                self.nodes[self.node] |= self.restarts.pop(k)
                self.is_away = self.is_seen
        return numbers


def restarted(nodes, folder, restarts, rounds=6, **more):
    """A run in which every UE is asked in every round, and the node of UE 2 is started again."""
    settings = settings_of(simulation={"num_selected": NUM_UE}, stop={"rounds": rounds})
    config, copies = config_of(settings, folder), {node: dict(own) for node, own in nodes.items()}
    grid = Restarting(copies, config, node=node_of(2), restarts=restarts, **more)
    serve(grid, Context(1, 1, {}, RecordDict(), config))
    run = read_run(folder)
    used = {ue: run.ues["decoded"][run.ues["ue"] == ue].tolist() for ue in range(NUM_UE)}
    asked = [
        int(message.content.config_records["order"]["round"])
        for node, message in grid.sent
        if node == node_of(2) and "order" in message.content
    ]
    return run, used, asked


@pytest.mark.parametrize(
    ("ue", "why"),
    [
        (7, "it calls itself UE 7; the cell has UEs 0 to 3"),
        (1, "it calls itself UE 1, which node 8993 is already"),
    ],
)
def test_a_node_that_comes_back_as_somebody_else_gets_no_orders_as_who_it_was(
    nodes, tmp_path, ue, why
):
    """It was said to take no part, and its updates went on counting as those of UE 2."""
    run, used, asked = restarted(nodes, tmp_path, {1: {"ue": ue}})
    assert (asked, used[2]) == ([1], [1, 0, 0, 0, 0, 0])
    assert used[0] == used[1] == used[3] == [1] * 6
    refused = f"UE 2 (node {node_of(2)}): takes no part: {why}"
    away = "UE 2: away; if it was started again, the SuperLink lets it in after up to a minute"
    assert [line for line in run.manifest["notes"] if "no update" not in line] == [
        f"round 2: {away}",
        f"round 3: {refused}",
    ]


def test_a_node_that_comes_back_as_itself_at_last_gets_orders_again(nodes, tmp_path):
    odd = {node: {**own} for node, own in nodes.items()}

    class Mended(Restarting):
        def push_messages(self, messages):
            kinds = [(m.metadata.dst_node_id, m.metadata.message_type) for m in messages]
            numbers = super().push_messages(messages)
            if (self.node, "query.introduce") in kinds and self.nodes[self.node]["ue"] == 7:
                self.nodes[self.node]["ue"] = 2  # its keeper has looked at what it said
            return numbers

    settings = settings_of(simulation={"num_selected": NUM_UE}, stop={"rounds": 5})
    config = config_of(settings, tmp_path)
    serve(
        Mended(odd, config, node=node_of(2), restarts={1: {"ue": 7}}),
        Context(1, 1, {}, RecordDict(), config),
    )
    run = read_run(tmp_path)
    assert run.ues["decoded"][run.ues["ue"] == 2].tolist() == [1, 0, 0, 1, 1]


def test_a_node_that_comes_back_as_a_ue_that_is_free_is_that_one_alone(nodes, tmp_path):
    few = {node: own for node, own in nodes.items() if own["ue"] != 3}
    run, used, asked = restarted(few, tmp_path, {1: {"ue": 3}})
    later = (run.devices["ue"] == 2) & (run.devices["round"] > 2)
    assert run.devices["outcome"][later].tolist() == ["not connected"] * 4
    assert asked == [1, 3, 4, 5, 6]
    assert (used[2], used[3]) == ([1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1])


def test_a_node_that_became_somebody_else_unseen_refuses_the_orders_of_who_it_was(nodes, tmp_path):
    run, used, asked = restarted(nodes, tmp_path, {1: {"ue": 7}}, rounds=3, is_seen=False)
    assert (asked, used[2]) == ([1, 2, 3], [1, 0, 0])
    outcomes = run.devices["outcome"][
        (run.devices["ue"] == 2) & (run.devices["round"] > 1)
    ].tolist()
    assert all("an order for UE 2; this is UE 7" in outcome for outcome in outcomes)


MANY = "12 classes, not 10; to begin a run for all of them, set deploy.sample_shape=[784] and deploy.num_classes=12"


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"num_classes": 12}, MANY),
        ({"sample_shape": [20]}, "samples of shape (20,), not (784,)"),
        ({"data_size": 10**6}, "1000000 samples, the median of the devices is"),
    ],
    ids=["classes", "shape", "size"],
)
def test_a_device_refused_at_the_start_for_form_or_size_is_asked_again_and_named_in_one_line(
    nodes, tmp_path, lie, why
):
    """It was left out to the end, and called "not here yet" in a second line."""
    lies = [lie]

    def spoil(node, message, reply):
        if message.metadata.message_type == "query.introduce" and node == node_of(1) and lies:
            reply.content["device"] = ConfigRecord({**reply.content["device"], **lies.pop()})
        return reply

    settings = settings_of(simulation={"num_selected": NUM_UE}, deploy={"statistics": "own"})
    run, _ = deployed(nodes, tmp_path, settings, spoil=spoil)
    [line] = run.manifest["notes"]
    assert line.startswith(f"round 0: UE 1 (node {node_of(1)}): takes no part: {why}")
    assert run.ues["decoded"][run.ues["ue"] == 1].tolist() == [1, 1, 1]


def test_the_advice_for_more_classes_is_taken_as_it_stands():
    given = dict(word.split("=") for word in MANY.partition(", set ")[2].split(" and "))
    settings = load_settings(None, [f"{key}={value}" for key, value in given.items()])
    assert (settings.deploy.sample_shape, settings.deploy.num_classes) == ([784], 12)


def test_a_device_whose_pixel_sums_were_refused_is_not_asked_again(nodes, tmp_path):
    """Sums are compared at the start alone."""
    asked = []

    def spoil(node, message, reply):
        if message.metadata.message_type == "query.introduce" and node == node_of(1):
            asked.append(node)
            sums = {
                name: array.numpy() for name, array in reply.content.array_records["pixels"].items()
            }
            bright = {"total": 255 * sums["num"], "squares": 255**2 * sums["num"]}
            white = {name: np.full_like(sums[name], value) for name, value in bright.items()}
            reply.content["pixels"] = ArrayRecord(
                {name: Array(array) for name, array in (sums | white).items()}
            )
        return reply

    run, _ = deployed(
        nodes, tmp_path, settings_of(simulation={"num_selected": NUM_UE}), spoil=spoil
    )
    assert len(asked) == 1
    [line] = run.manifest["notes"]
    assert line.startswith(
        f"round 0: UE 1 (node {node_of(1)}): takes no part: pixels: mean pixel 255"
    )


def broken(nodes_that_are, why=np.nan):
    """Updates of these nodes are not finite."""

    def spoil(node, message, reply):
        is_update = message.metadata.message_type == "train" and node in nodes_that_are
        return changed(reply, **{"2.bias": np.full(10, why, np.float32)}) if is_update else reply

    return spoil


@both
def test_a_run_in_which_no_update_is_used_says_so_once_and_ends_as_failed_and_can_be_resumed(
    nodes, tmp_path, transport
):
    """It went on for thousands of rounds, told the last good accuracy, and ended as finished."""
    settings = settings_of(stop={"rounds": 12}, simulation={"num_selected": NUM_UE})
    why = "UE 0, UE 1, UE 2, UE 3: 2.bias: not finite"
    with pytest.raises(AutoFLError, match=f"no update was used in 10 rounds in a row .{why}"):
        deployed(nodes, tmp_path, settings, transport=transport, spoil=broken(nodes))
    run = read_run(tmp_path)
    assert (run.manifest["status"], run.manifest["rounds"], run.manifest["stop"]) == (
        "failed",
        10,
        None,
    )
    assert run.manifest["notes"] == [f"round 1: no update was used: {why}"]
    run, _ = deployed(nodes, tmp_path, settings, resume=True, transport=transport)
    assert (run.manifest["status"], run.manifest["rounds"], run.manifest["notes"]) == (
        "finished",
        12,
        [],
    )
    assert (run.devices["outcome"][run.devices["round"] > 10] == "ok").all()


@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_a_short_run_in_which_no_update_is_used_ends_as_failed_and_is_not_finished_by_a_resume(
    nodes, tmp_path, rounds
):
    """It ended as finished, and its report blamed the radio."""
    settings = settings_of(
        stop={"rounds": rounds}, simulation={"num_selected": 1}, deploy={"join": 20.0}
    )

    def fails(node, message, reply):
        framed = (
            "<class 'autofl.errors.AutoFLError'>:<'model mymodel:sensor: no module 'mymodel' here'>"
        )
        is_update = message.metadata.message_type == "train"
        return Message(Error(code=1, reason=framed), reply_to=message) if is_update else reply

    for resume in (False, True):
        why = r"UE \d: it says: model mymodel:sensor: no module 'mymodel' here"
        with pytest.raises(
            AutoFLError, match=rf"no update was used in the whole run \({why}\).*begin a new run"
        ):
            deployed(nodes, tmp_path, settings, resume=resume, spoil=fails)
        run = read_run(tmp_path)
        assert (run.manifest["status"], run.manifest["rounds"]) == ("failed", rounds)
    assert "mymodel" in unheard_words([run])


def test_a_run_of_which_one_update_was_used_is_finished(nodes, tmp_path):
    settings = settings_of(stop={"rounds": 3}, simulation={"num_selected": NUM_UE})
    late = {2, 3}

    def spoil(node, message, reply):
        k = message.content.config_records["order"]["round"] if "order" in message.content else None
        return changed(reply, **{"2.bias": np.full(10, np.nan, np.float32)}) if k in late else reply

    run, _ = deployed(nodes, tmp_path, settings, spoil=spoil)
    assert run.manifest["status"] == "finished"


def test_rounds_in_which_the_network_lets_nobody_send_are_no_failure(nodes, tmp_path):
    far = settings_of(stop={"rounds": 12}, cell={"distance": 5000.0})
    run, _ = deployed(nodes, tmp_path, far)
    assert run.ues["decoded"].sum() == 0
    assert (run.manifest["status"], run.manifest["rounds"], run.manifest["notes"]) == (
        "finished",
        12,
        [],
    )


@pytest.mark.parametrize("channel", ["emulated", "reported"])
def test_while_all_devices_are_away_the_server_waits_for_them_instead_of_counting_rounds(
    nodes, tmp_path, monkeypatch, channel
):
    """Twelve looks at an empty network would be more than ten lost rounds."""
    looks = []

    class Gone(Loopback):
        def get_node_ids(self):
            looks.append(len(self.sent))
            return [] if 3 < len(looks) < 16 else super().get_node_ids()

    own = {
        node: {**config, "channel": f"{__name__}:channel_of_a_test"}
        for node, config in nodes.items()
    }
    settings = settings_of(deploy={"deadline": 20.0, "channel": channel}, stop={"rounds": 6})
    config = config_of(settings, tmp_path)
    monkeypatch.setattr(fleet, "LOOK", 0.01)
    serve(Gone(own, config), Context(1, 1, {}, RecordDict(), config))
    run = read_run(tmp_path)
    heard = [run.ues["decoded"][run.ues["round"] == k].any() for k in range(1, 7)]
    assert heard.count(False) == 1
    assert sum("no update was used" in line for line in run.manifest["notes"]) == 1


def test_a_resume_is_refused_where_the_devices_samples_do_not_fit_the_model(nodes, tmp_path):
    """Every device refused the model of the run in every round, to the end."""
    settings = settings_of(stop={"rounds": 3})
    with pytest.raises(KeyboardInterrupt):
        deployed(nodes, tmp_path / "run", settings, spoil=at_training(node_of(1), interrupt))
    before = read_run(tmp_path / "run").rounds["round"].tolist()
    other = {}
    for node, config in nodes.items():
        path = tmp_path / f"{node}.npz"
        np.savez(
            path,
            x=np.random.default_rng(node).normal(size=(30, 20)).astype(np.float32),
            y=np.arange(30) % 4,
        )
        other[node] = {**config, "data": str(path)}
    with pytest.raises(
        AutoFLError, match=r"another model than one for samples of shape \(20,\) in 4 classes"
    ):
        deployed(other, tmp_path / "run", settings, resume=True)
    assert read_run(tmp_path / "run").rounds["round"].tolist() == before
    run, _ = deployed(nodes, tmp_path / "run", settings, resume=True)
    assert run.manifest["status"] == "finished"


def interrupt(reply):
    raise KeyboardInterrupt


def test_nobody_there_is_said_in_the_manifest_with_the_version_of_flower(tmp_path):
    """It advised `deploy status`, which repeats this very line, and knows nothing of runs of `flwr
    run`.
    """
    advice = r"no device came within 0 s; look at the logs of the devices.*deploy\.join.*deploy\.deadline"
    with pytest.raises(AutoFLError, match=advice) as refused:
        deployed({}, tmp_path)
    assert "deploy status" not in str(refused.value)
    assert str(refused.value) == read_run(tmp_path).manifest["problem"]
    assert read_run(tmp_path).manifest["flower"] == version("flwr")


def channel_of_a_test():
    return 3e-9


def test_devices_report_their_channel_and_their_own_values(nodes, tmp_path):
    own = {
        node: {
            **config,
            "channel": f"{__name__}:channel_of_a_test",
            "max_energy": 0.002,
            "max_power": 0.004,
        }
        for node, config in nodes.items()
        if config["ue"] != 3
    }
    own[9000 - 21] = nodes[9000 - 21]  # tells no channel: cannot be heard
    settings = settings_of(
        deploy={"channel": "reported"}, simulation={"num_selected": NUM_UE}, stop={"rounds": 1}
    )
    run, _ = deployed(own, tmp_path, settings)
    assert run.ues["channel_gain"].tolist() == [3e-9, 3e-9, 3e-9, 0.0]
    assert run.ues["status"].tolist()[3] == "infeasible"
    assert (run.ues["energy"] <= 0.002 * (1 + 1e-9)).all()
    assert (run.ues["tx_power"] <= 0.004).all()
    assert run.ues["decoded"].tolist() == [1, 1, 1, 0]


def test_noise_and_clipping_are_the_devices_and_epsilon_is_that_of_the_exact_mechanism(
    nodes, tmp_path
):
    from scipy.optimize import brentq
    from scipy.stats import norm

    clip, multiplier, sent = 0.05, 3.0, []

    def spoil(node, message, reply):
        if message.metadata.message_type == "train":
            pair = (message.content, reply.content)
            old, new = ([a.numpy() for a in each.array_records["params"].values()] for each in pair)
            sent.append(np.concatenate([(b - a).ravel() for a, b in zip(old, new, strict=True)]))
        return reply

    private = {"clip": clip, "noise_multiplier": multiplier, "statistics": "own", "delta": 1e-5}
    every = {"simulation": {"num_selected": NUM_UE}, "deploy": private}
    run, _ = deployed(nodes, tmp_path, settings_of(**every), spoil=spoil)
    assert len(sent) == 12
    # 79,510 weights: the deviation of noise is known to 1/sqrt(2 * 79510) = 0.25 %; clip adds 1e-8
    for update in sent:
        assert update.std() == pytest.approx(multiplier * clip, rel=0.015)
    said = run.manifest["privacy"]
    assert said["releases"] == 3

    def delta(epsilon):
        """Of three releases, exactly: one Gaussian mechanism with noise s of the sensitivity (Balle
        and Wang 2018).
        """
        s = multiplier / 2 / math.sqrt(3)
        return norm.cdf(0.5 / s - epsilon * s) - math.exp(epsilon) * norm.cdf(
            -0.5 / s - epsilon * s
        )

    exact = brentq(lambda epsilon: delta(epsilon) - 1e-5, 0.1, 50)
    assert (
        exact <= said["epsilon"] <= 1.15 * exact
    )  # Renyi accounting is an upper bound, some percent above

    plain, _ = deployed(
        nodes,
        tmp_path / "clipped",
        settings_of(deploy={**private, "noise_multiplier": 0.0}),
        spoil=spoil,
    )
    norms = [float(np.linalg.norm(update)) for update in sent[12:]]
    assert max(norms) == pytest.approx(clip, rel=1e-4)  # beta g is longer than the clip: cut to it
    assert "privacy" not in plain.manifest


def test_clipping_with_shared_pixel_sums_is_refused():
    with pytest.raises(AutoFLError, match="statistics"):
        settings_of(deploy={"clip": 1.0})
    with pytest.raises(AutoFLError, match="needs clip"):
        settings_of(deploy={"noise_multiplier": 1.0, "statistics": "own"})


def test_certificates_verify_for_their_host_only_and_keys_are_private(tmp_path):
    import ssl
    import subprocess

    from autofl.deploy.certificates import make_certificates, make_node_key

    make_certificates(tmp_path, ["server.example", "127.0.0.1"])
    make_node_key(tmp_path / "nodes" / "ue0")
    assert ssl.create_default_context(cafile=str(tmp_path / "ca.pem")).get_ca_certs()
    verify = ["openssl", "verify", "-CAfile", str(tmp_path / "ca.pem"), "-purpose", "sslserver"]
    for host, good in (("server.example", True), ("other.example", False)):
        done = subprocess.run(
            [*verify, "-verify_hostname", host, str(tmp_path / "server.pem")], capture_output=True
        )
        assert (done.returncode == 0) == good, host
    for secret in (tmp_path / "server.key", tmp_path / "nodes" / "ue0"):
        assert secret.stat().st_mode & 0o077 == 0
    assert (tmp_path / "nodes" / "ue0.pub").read_text().startswith("ecdsa-sha2-nistp384 ")


def test_the_commands_for_several_machines_are_printed_and_a_certificate_is_for_one_server(
    tmp_path,
):
    from autofl.deploy.several import prepare

    text = prepare(settings_of(), tmp_path, "server.example", 8000)
    assert text.count("flower-superlink") == 1
    assert text.count("flower-supernode") == text.count("supernode register") == NUM_UE
    assert text.count("--enable-supernode-auth") == 1
    for ue in range(NUM_UE):
        assert f"--auth-supernode-private-key nodes/ue{ue} " in text
        assert (tmp_path / "nodes" / f"ue{ue}").is_file()
    again = (tmp_path / "ca.pem").read_bytes()
    prepare(settings_of(), tmp_path, "server.example", 8000)
    assert (tmp_path / "ca.pem").read_bytes() == again
    with pytest.raises(AutoFLError, match=r"not for other\.example"):
        prepare(settings_of(), tmp_path, "other.example", 8000)


def test_certificates_are_renewed_by_prepare_and_a_key_that_went_to_its_device_stays_the_same(
    tmp_path,
):
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    from autofl.deploy.several import prepare

    prepare(settings_of(), tmp_path, "server.example", 8000)
    public = (tmp_path / "nodes" / "ue0.pub").read_bytes()
    before = {
        name: (tmp_path / name).read_bytes()
        for name in ("ca.pem", "server.pem", "devices.pem", "nodes/ue0.pem")
    }
    for name in (
        "server.pem",
        "devices.key",
        *(f"nodes/ue{ue}.pem" for ue in range(NUM_UE)),
        "nodes/ue0",
    ):
        (tmp_path / name).unlink()
    prepare(settings_of(), tmp_path, "server.example", 8000)
    assert (tmp_path / "nodes" / "ue0.pub").read_bytes() == public
    assert not (tmp_path / "nodes" / "ue0").exists()
    assert all((tmp_path / name).read_bytes() != old for name, old in before.items())
    renewed = x509.load_pem_x509_certificate((tmp_path / "nodes" / "ue0.pem").read_bytes())
    assert renewed.public_key() == load_ssh_public_key(public)
    renewed.verify_directly_issued_by(
        x509.load_pem_x509_certificate((tmp_path / "devices.pem").read_bytes())
    )


@pytest.mark.parametrize(
    ("host", "port", "stream", "why"),
    [
        ("", 8000, 0, "--host: '' is not the name or address of a machine"),
        ("a b", 8000, 0, "--host: 'a b' is not the name"),
        ("server.example:8000", 8000, 0, "--host: 'server.example:8000' is not the name"),
        ("server.example", 0, 0, "--port: 0 is not from 1 to 65535"),
        ("server.example", 70_000, 0, "--port: 70000 is not from 1 to 65535"),
        (
            "server.example",
            65_535,
            0,
            "--port: 65535 is the last one, and streams need another: set deploy.port",
        ),
        (
            "server.example",
            8000,
            8000,
            "deploy.port: 8000 is the SuperLink's own port; choose another one",
        ),
    ],
)
def test_a_host_or_a_port_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path, host, port, stream, why
):
    from autofl.deploy.several import prepare

    folder = tmp_path / "site"
    with pytest.raises(AutoFLError, match=re.escape(why)):
        prepare(settings_of(deploy={"port": stream}), folder, host, port)
    assert not folder.exists()


@pytest.mark.parametrize("host", ["my_host", "[2001:db8::1]", "2001:db8::1"])
def test_an_underscore_and_an_ipv6_address_are_told_to_devices_as_they_take_them(tmp_path, host):
    from autofl.deploy.certificates import certified_hosts
    from autofl.deploy.several import prepare

    text = prepare(settings_of(), tmp_path, host, 65_534)
    plain = host.strip("[]")
    assert certified_hosts(tmp_path)[0] == plain
    assert Deployment(tmp_path).link() == (plain, 65_534)
    assert checked_host(plain) == plain
    assert f"[{plain}]:65534" in text if ":" in plain else f"{plain}:65534" in text
    assert f"ports 65534 and 65535 of {plain}" in text
    for bad in ("", "a b", "[::1]", "server:8000", "1:2:3", "a" * 254):
        with pytest.raises(ValueError, match=r"."):
            checked_host(bad)


def test_programs_that_were_noted_and_are_gone_are_not_alive_and_nothing_is_to_end(tmp_path):
    site = Deployment(tmp_path)
    site.note(programs=["ue0"])
    assert site.alive() == {"ue0": False}
    assert site.stop() == []


def test_streams_do_not_share_the_superlinks_port(tmp_path):
    from autofl.deploy.commands import config_of as told_of

    site = Deployment(tmp_path)
    site.point_to("127.0.0.1:9100")
    site.note(port=9100)  # all on one machine
    places = (tmp_path / "out", "1", tmp_path / "lease")
    for port, stream in ((0, "127.0.0.1 0"), (9101, "127.0.0.1 9101")):
        assert told_of(settings_of(deploy={"port": port}), site, *places).stream == stream
    with pytest.raises(AutoFLError, match="9100 is the SuperLink's own port"):
        told_of(settings_of(deploy={"port": 9100}), site, *places)
