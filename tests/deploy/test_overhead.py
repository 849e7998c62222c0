"""What a round takes beside computing and sending: measured, told, and planned with."""

import math

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from autofl.config import load_settings
from autofl.core.simulation import simulate
from autofl.data import Dataset
from autofl.deploy import server
from autofl.deploy.overhead import LAST, Overheads
from autofl.experiments.build import build_simulation
from autofl.records import DeviceRecord
from deploy.test_fleet import deployed, nodes, settings_of

pytestmark = pytest.mark.slow

__all__ = ["nodes"]


def record(ue, reply, train, send=math.nan, outcome="ok"):
    return DeviceRecord(
        ue, outcome, reply_time=reply, train_time=train, bytes_down=1.0, send_time=send
    )


def test_a_devices_overhead_is_reply_less_work_and_a_rounds_that_of_the_slowest():
    overheads = Overheads()
    assert overheads.of_round is None
    assert overheads.of_ue(0) is None
    overheads.add([record(0, 1.0, 0.5, 0.25), record(1, 0.5, 0.125)], round_time=2.0)
    assert (overheads.of_ue(0), overheads.of_ue(1)) == (0.25, 0.375)
    assert overheads.of_round == 2.0 - 0.75
    overheads.add(
        [record(0, math.nan, math.nan, outcome="no reply within 60 s"), record(1, 0.5, 0.125)], 60.0
    )
    assert overheads.of_round == 1.25  # it waited in vain: that says nothing
    for _ in range(LAST):
        overheads.add([record(0, 9.0, 1.0, 1.0)], 10.0)
    assert (overheads.of_ue(0), overheads.of_round) == (7.0, 8.0)


def test_a_device_that_says_it_computed_longer_than_its_reply_took_does_not_make_the_overhead_0():
    overheads = Overheads()
    overheads.add([record(0, 0.5, 1e6), record(1, 1.0, 0.5, 0.25)], round_time=2.0)
    assert overheads.of_round == 2.0 - 0.75
    assert (overheads.of_ue(0), overheads.of_ue(1)) == (0.0, 0.25)


def test_a_device_that_replies_late_and_says_it_hardly_computed_does_not_raise_the_overhead_of_the_round():
    overheads, honest = Overheads(), Overheads()
    others = [record(1, 1.0, 0.5, 0.25), record(2, 0.75, 0.25, 0.25)]
    honest.add([record(0, 0.5, 0.25), *others], round_time=1.5)
    overheads.add(
        [record(0, 59.0, 0.0), *others], round_time=59.5
    )  # the server took 0.5 s, as before
    assert honest.of_round == overheads.of_round == 1.5 - 0.75
    assert overheads.of_ue(0) == 59.0  # which the status shows


def test_whether_a_device_was_asked_is_not_read_from_its_words():
    """A round in which the server waited in vain says nothing; one without a device that was away
    does.
    """
    overheads, words = Overheads(), "not connected"
    overheads.add([record(0, math.nan, math.nan, outcome=words), record(1, 0.5, 0.125)], 60.0)
    assert overheads.of_round is None
    overheads.add([DeviceRecord(0, words), record(1, 0.5, 0.125)], 1.0)
    assert overheads.of_round == 0.875
    liar, away = record(0, 1.0, math.nan, outcome=words), DeviceRecord(1, words)
    assert server.counted({}, (liar, away), 2) == {0: 1, 1: 0}


def test_devices_that_wait_for_the_same_processor_count_in_full():
    overheads = Overheads()
    overheads.add([record(ue, 0.25 * (ue + 1), 0.25) for ue in range(8)], round_time=2.5)
    assert overheads.of_round == 2.25


def test_rounds_are_planned_with_what_was_measured_where_settings_say_so(nodes, tmp_path):
    plain, _ = deployed(nodes, tmp_path / "set")
    measured, _ = deployed(
        nodes, tmp_path / "measured", settings_of(deploy={"overhead": "measured"})
    )
    longer = measured.rounds["round_time"] - plain.rounds["round_time"]
    assert longer[1] == 0.0  # nothing is known yet
    assert (longer[2:] > 0.0).all()
    first = plain.devices["round"] == 1
    assert plain.manifest["overhead"] > 0.0
    assert longer[2] <= measured.devices["round_time"][measured.devices["round"] == 1][0]
    assert first.any()


def test_joint_does_far_more_in_a_round_that_costs_10_s_than_in_one_of_10_ms(few_digits: Dataset):
    steps = {}
    for overhead in (0.01, 10.0):
        words = [
            "arm=autofl-j",
            "cell.num_ue=10",
            "stop.rounds=4",
            "evaluation.every=10",
            "preset=paper",
        ]
        settings = load_settings(None, [*words, f"cell.overhead={overhead}"])
        records = [one for one, _ in simulate(build_simulation(settings, dataset=few_digits))][1:]
        heard = [one.plan.local_steps[one.decoded] for one in records]
        steps[overhead] = sum(part.sum() for part in heard) / sum(len(part) for part in heard)
    assert steps[10.0] >= 3.0 * steps[0.01]
