"""What is booked is what was really sent: bits, time and energy of a round; the plan stays what it
was.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import autofl as fl
from autofl.compressors.quantise import Quantise
from autofl.core.decide import with_bits
from autofl.core.simulation import simulate
from autofl.engines import moved
from autofl.network import rate, round_cost
from autofl.records import read_run


@dataclass(frozen=True)
class Half:
    """Plans for 8 bits a weight; UE i sends 4 + i / 10 of them, in single precision all the same."""

    sizes: dict

    def update_bits(self, num_weights, bits_per_weight=None):
        return 8.0 * num_weights

    def init(self, num_weights):
        return {}

    def __call__(self, change, bits_per_weight, randomness, own):
        self.sizes.setdefault("calls", []).append(len(change))
        bits = (4.0 + 0.1 * (len(self.sizes["calls"]) % 5)) * len(change)
        return fl.Sent(change.clone(), bits, lambda: b""), own

    def unpack(self, payload, num_weights):
        raise AssertionError("a simulation unpacks nothing")


@dataclass(frozen=True)
class First:
    """Takes the first update and looks at no other."""

    def __call__(self, sent, arrived):
        _, change = next(iter(arrived.updates))
        return moved(sent, change)


def played(data, compressor, aggregator=None, rounds=2):
    arm = fl.Arm(
        fl.FedAvg(0.07),
        fl.FixedPlanner(10, "max"),
        fl.Uniform(4),
        compressor,
        aggregator or fl.Mean(),
    )
    sim = fl.simulation_of(arm, fl.Cell.disc(), data, fl.mlp, stop=fl.Stop(rounds))
    return sim, [record for record, _ in simulate(sim)]


@pytest.fixture(scope="module")
def data():
    return fl.load("mnist5k").federate(fl.by_labels(5), num_ue=20, seed=1)


@pytest.mark.parametrize("aggregator", [fl.Mean(), First()], ids=["all", "one"])
def test_time_and_energy_are_those_of_the_bits_really_sent(data, aggregator):
    sim, records = played(data, Half({}), aggregator)
    time = 0.0
    for record in records[1:]:
        heard = record.arrived
        assert heard.sum() >= 2
        bits = 8.0 * record.bytes_up
        assert (bits[heard] >= 4.0 * 79_510).all()
        assert (bits[heard] <= 4.5 * 79_510).all()
        assert len(set(bits[heard].tolist())) > 1
        np.testing.assert_array_equal(record.plan.bits_per_weight, 8.0)
        cell = sim.cell.take(record.ue)
        upload = bits / rate(cell, record.gain, record.plan.tx_power)
        np.testing.assert_allclose(record.cost.upload_time[heard], upload[heard], rtol=1e-12)
        planned = round_cost(cell, record.gain, record.plan)
        saved = record.plan.tx_power * (planned.upload_time - upload)
        np.testing.assert_allclose(
            record.cost.energy[heard], (planned.energy - saved)[heard], rtol=1e-9
        )
        assert float(record.cost.time) == (record.cost.upload_time + record.cost.compute_time).max()
        time += float(record.cost.time)
        assert record.sim_time == time


def test_where_bits_are_as_planned_nothing_changes_by_a_bit(data):
    sim, records = played(data, Quantise(4))
    for record in records[1:]:
        planned = round_cost(sim.cell.take(record.ue), record.gain, record.plan)
        for name in ("upload_time", "compute_time", "energy", "time"):
            np.testing.assert_array_equal(getattr(record.cost, name), getattr(planned, name))
        np.testing.assert_array_equal(record.bytes_up, np.where(record.arrived, 40_377.0, 0.0))


def test_without_a_compressor_four_bytes_a_weight(data):
    _, records = played(data, None)
    for record in records[1:]:
        np.testing.assert_array_equal(record.bytes_up, np.where(record.arrived, 4.0 * 79_510, 0.0))


def test_of_an_update_that_was_lost_the_planned_size_is_booked(data):
    from reference.networks import decided

    sim, _ = played(data, None, rounds=1)
    this_round, _ = decided(sim)
    bits = np.full(4, 0.25 * 32 * 79_510)
    arrived = this_round.sends & (np.arange(4) != 2)
    after = with_bits(this_round, arrived, bits, "skip")
    assert this_round.sends.all()
    share = after.cost.upload_time / this_round.cost.upload_time
    np.testing.assert_allclose(share, [0.25, 0.25, 1.0, 0.25], rtol=1e-12)
    assert after.plan is this_round.plan


def test_a_run_folder_tells_the_bytes(data, tmp_path):
    arms = {
        "mine": fl.Arm(
            fl.FedAvg(0.07),
            fl.FixedPlanner(10, "max"),
            fl.Uniform(4),
            fl.part("compressor", "entropy"),
        )
    }
    [run] = fl.compare(
        arms, fl.Cell.disc(), data, fl.mlp, rounds=2, seeds=1, folder=tmp_path, progress=False
    )
    run = read_run(run.folder)
    sent = run.ues["decoded"] == 1
    assert (run.ues["bytes_up"][sent] <= 79_512 / 8).all()
    assert (run.ues["bytes_up"][sent] >= 0.985 * 79_512 / 8).all()
    assert torch.isfinite(torch.tensor(run.rounds["sim_time"])).all()
