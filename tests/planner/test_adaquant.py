"""AdaQuantFL's bits by hand, and in a run against its own tables."""

import math

import numpy as np
import pytest

from autofl.algorithms import FedAvg
from autofl.compressors.quantise import Quantise
from autofl.config import load_settings
from autofl.core.arm import Arm
from autofl.errors import AutoFLError
from autofl.jobs.run import run
from autofl.network import Cell
from autofl.planner import FixedPlanner
from autofl.planner.adaquant import AdaQuantPlanner
from autofl.quality import Evaluation


def bits_after(planner, *losses):
    memory = planner.init(Cell(distance=np.array([100.0])))
    for loss in losses:
        memory = planner.observe(memory, Evaluation(train_loss=loss, adapted_train_loss=loss / 2.0))
    return float(planner.whole_bits(memory)[0])


@pytest.mark.parametrize(
    ("levels", "losses", "bits"),
    [
        (2, (), 3.0),  # nothing is known yet: s = 2, and 0, 1, 2 with a sign need 3 bits
        (2, (2.3,), 3.0),
        (2, (2.3, 0.575), 4.0),  # sqrt(4) 2 = 4 levels: 5 values take 3 bits, and the sign
        (2, (2.3, 0.575, 2.3), 3.0),  # it may go down again
        (1, (2.0, 2.0), 2.0),
        (1, (2.0, 0.02), 5.0),  # sqrt(100) = 10
        (1, (2.0, 8.0), 2.0),  # a loss above the first one: half a level is one
        (3, (2.0, float("nan")), 3.0),
        (3, (2.0, 1e-12), 16.0),
    ],
)
def test_bits_by_hand(levels, losses, bits):
    assert bits_after(AdaQuantPlanner(levels=levels), *losses) == bits


def test_the_loss_after_adaptation_may_decide():
    planner = AdaQuantPlanner(loss="adapted")
    memory = planner.observe(planner.init(Cell(distance=np.array([1.0]))), Evaluation(1.0, 2.0))
    assert planner.observe(memory, Evaluation(1.0, 0.5))["loss"].tolist() == [0.5]


def test_bits_of_a_run_follow_the_loss_in_its_table(tmp_path):
    changes = [
        'planner.name="adaquantfl"',
        "planner.levels=1",
        'compressor.name="quantise"',
        "stop.rounds=24",
        "evaluation.every=4",
        "evaluation.test_samples=20",
        "learning.outer_lr=0.3",
        "cell.cpu_frequency=0.6e9",
    ]
    done = run(load_settings(overrides=changes), tmp_path / "run")
    loss, known = {}, None
    for k, train_loss in zip(
        done.rounds["round"].tolist(), done.rounds["train_loss"].tolist(), strict=True
    ):
        loss[k + 1] = known = known if math.isnan(train_loss) else train_loss
    num_weights = 79_510
    bits = []
    for k, decided in zip(
        done.ues["round"].tolist(), done.ues["bits_per_weight"].tolist(), strict=True
    ):
        levels = math.ceil(math.sqrt(loss[1] / loss[k]))
        bits.append(1 + math.ceil(math.log2(levels + 1)))
        assert Quantise().whole_bits(num_weights, decided) == bits[-1]
        in_bytes = math.ceil(bits[-1] * num_weights / 8) + 2 * math.ceil(
            num_weights / 256
        )  # the weights, the scales
        assert decided * num_weights == pytest.approx(8 * in_bytes, rel=1e-12)
    assert bits[0] == 2
    assert len(set(bits)) > 1
    sent = done.ues["decoded"] == 1
    rate = 1e6 * np.log2(1.0 + done.ues["snr"][sent])
    np.testing.assert_allclose(
        done.ues["upload_time"][sent],
        done.ues["bits_per_weight"][sent] * num_weights / rate,
        rtol=1e-9,
    )


@pytest.mark.parametrize("num_weights", [79_510, 1_001])
@pytest.mark.parametrize("levels", [1, 2, 4, 100, 2**15 - 1])
def test_the_quantiser_gets_the_bits_that_were_decided_and_no_byte_more(num_weights, levels):
    packed = Quantise(bits=3).update_bits(num_weights)
    cell = Cell(
        distance=np.array([100.0]), update_bits=np.array(packed), num_weights=float(num_weights)
    )
    planner = AdaQuantPlanner(levels=levels)
    plan, _ = planner(cell, np.array([1e-6]), planner.init(cell))
    decided = float(plan.bits_per_weight[0])
    assert Quantise().whole_bits(num_weights, decided) == 1 + math.ceil(math.log2(levels + 1))
    assert Quantise().update_bits(num_weights, decided) == pytest.approx(
        decided * num_weights, rel=1e-12
    )


def test_bits_need_a_compressor():
    for planner in (AdaQuantPlanner(), FixedPlanner(bits_per_weight=4.0)):
        with pytest.raises(AutoFLError, match="needs a compressor"):
            Arm(FedAvg(0.03), planner)
        Arm(FedAvg(0.03), planner, compressor=Quantise())
    Arm(FedAvg(0.03), FixedPlanner())


def test_fixed_local_steps_and_bits_are_those_of_a_cell_that_has_them():
    cell = Cell.disc(8, 200.0, seed=1)
    gain = 40.0 * cell.distance**-3.8
    plan, _ = FixedPlanner(20, local_steps=3, bits_per_weight=5.0)(cell, gain, {})
    other = Cell.disc(
        8, 200.0, seed=1, local_steps=np.array(3.0), update_bits=np.array(5.0 * 79_510)
    )
    same, _ = FixedPlanner(20)(other, gain, {})
    assert (plan.local_steps == 3).all()
    np.testing.assert_allclose(plan.bits_per_weight, 5.0, rtol=1e-12)
    np.testing.assert_array_equal(plan.tx_power, same.tx_power)
    np.testing.assert_array_equal(plan.num_samples, same.num_samples)


def test_a_share_of_the_frequency_slows_the_cpu_down_to_its_least_and_leaves_energy_for_power():
    cell = Cell.disc(8, 200.0, seed=1, min_cpu_frequency=np.array(4e8))
    gain = 40.0 * cell.distance**-3.8
    fast, _ = FixedPlanner(50)(cell, gain, {})
    slow, _ = FixedPlanner(50, frequency=0.5)(cell, gain, {})
    least, _ = FixedPlanner(50, frequency=0.1)(cell, gain, {})
    assert (fast.cpu_frequency == 1e9).all()
    assert (slow.cpu_frequency == 5e8).all()
    assert (least.cpu_frequency == 4e8).all()
    used = (
        0.5e-27 * cell.cycles_per_sample * 50 * 5e8**2
    )  # a quarter of what computing costs at full speed
    upload = (
        slow.tx_power
        * 32
        * 79_510
        / (1e6 * np.log2(1.0 + slow.tx_power * gain / (10.0**-20.4 * 1e6)))
    )
    assert (slow.tx_power >= fast.tx_power).all()
    np.testing.assert_allclose(
        np.where(slow.tx_power < 0.01, used + upload, 3e-3)[slow.feasible], 3e-3, rtol=1e-6
    )
