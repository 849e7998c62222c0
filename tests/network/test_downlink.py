"""What the paper leaves out of a round's time: an overhead, and sending the model down."""

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.network import downlink_time, fixed_time, make_plan, round_cost, stacked
from reference.cells import UPDATE_BITS, paper_cell

NOISE = 10.0**-20.4 * 3e6  # N0 B in the whole band of three UEs


def three_ues(**changes):
    """At 1 W in 3 MHz the base station is heard at SNR 2^4 - 1, 2^6 - 1 and 2^10 - 1: at least 12
    Mbit/s.
    """
    cell = paper_cell(3, **{"downlink_power": 1.0, "snr_threshold": 0.1, **changes})
    return cell, np.array([15.0, 63.0, 1023.0]) * NOISE


def cost_of(cell, gain, num_samples, outage="skip"):
    plan = make_plan(cell, num_samples=np.array(num_samples), tx_power=cell.max_power)
    return round_cost(cell, gain, plan, outage)


def test_the_model_goes_down_in_the_whole_band_at_the_rate_of_the_weakest():
    cell, gain = three_ues()
    np.testing.assert_allclose(downlink_time(cell, gain), 2.54432 / 12.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("takes_part", "bits_per_hertz"),
    [([True, True, True], 4), ([False, True, True], 6), ([False, False, True], 10)],
)
def test_who_takes_no_part_does_not_slow_the_downlink(takes_part, bits_per_hertz):
    cell, gain = three_ues()
    time = downlink_time(cell, gain, np.array(takes_part))
    np.testing.assert_allclose(time, 2.54432 / (3.0 * bits_per_hertz), rtol=1e-12)
    planned = cost_of(cell, gain, 10 * np.array(takes_part)).downlink_time
    assert planned == time


def test_a_band_of_its_own_serves_the_downlink_alone():
    cell, gain = three_ues(
        downlink_bandwidth=1.5e6
    )  # half the band, half the noise: SNR 30, 126 and 2046
    np.testing.assert_allclose(
        downlink_time(cell, gain), 2.54432 / (1.5 * np.log2(31.0)), rtol=1e-12
    )
    full, _ = three_ues()
    np.testing.assert_array_equal(
        cost_of(cell, gain, [10] * 3).upload_time, cost_of(full, gain, [10] * 3).upload_time
    )
    with pytest.raises(AutoFLError, match=r"Cell: downlink_bandwidth: must be > 0"):
        three_ues(downlink_bandwidth=0.0)


def test_fewer_bits_go_down_faster_and_leave_the_upload():
    cell, gain = three_ues(downlink_bits=UPDATE_BITS / 8)
    full, _ = three_ues()
    ours, theirs = cost_of(cell, gain, [10, 10, 10]), cost_of(full, gain, [10, 10, 10])
    np.testing.assert_allclose(ours.downlink_time, theirs.downlink_time / 8, rtol=1e-12)
    np.testing.assert_array_equal(ours.upload_time, theirs.upload_time)


def test_by_default_32_bits_a_weight_go_down_whatever_goes_up():
    cell, _ = three_ues(update_bits=4.0 * 79_510, num_weights=79_510)
    assert cell.downlink_bits == UPDATE_BITS


def test_a_round_is_overhead_downlink_and_slowest_ue():
    cell, gain = three_ues(overhead=0.1)
    free, _ = three_ues(downlink_power=None)
    cost, printed = cost_of(cell, gain, [10, 10, 10]), cost_of(free, gain, [10, 10, 10])
    np.testing.assert_allclose(cost.time, 0.1 + 2.54432 / 12.0 + printed.time, rtol=1e-12)
    np.testing.assert_allclose(fixed_time(cell, gain), 0.1 + 2.54432 / 12.0, rtol=1e-12)
    assert (cost.overhead, printed.overhead, printed.downlink_time, fixed_time(free, gain)) == (
        0.1,
        0.0,
        0.0,
        0.0,
    )
    np.testing.assert_array_equal(cost.energy, printed.energy)  # listening costs none


def test_a_plan_that_moves_bands_leaves_the_downlink_the_whole():
    cell, gain = three_ues()
    bands = np.array([1e5, 2e5, 2.7e6])
    plan = make_plan(
        cell, num_samples=np.array([10, 10, 10]), tx_power=cell.max_power, bandwidth=bands
    )
    np.testing.assert_allclose(
        round_cost(cell, gain, plan).downlink_time, 2.54432 / 12.0, rtol=1e-12
    )


@pytest.mark.parametrize("outage", ["skip", "wait"])
def test_a_round_in_which_nobody_sends_takes_the_longest_upload_and_the_overhead(outage):
    cell, gain = three_ues(overhead=0.1, snr_threshold=1023.0)
    cost = cost_of(cell, gain, [0, 0, 0], outage)
    np.testing.assert_allclose(cost.time, 0.1 + 0.254432, rtol=1e-12)
    assert cost.downlink_time == 0.0


def test_many_rounds_and_cells_at_once_equal_a_loop_over_them():
    rng = np.random.default_rng(1)
    cells = [
        paper_cell(4, downlink_power=2.0, overhead=0.01, bandwidth=rng.uniform(1e6, 2e6, 4))
        for _ in range(3)
    ]
    gain, samples = 10.0 ** rng.uniform(-10.0, -7.0, (3, 4)), rng.choice([0, 10], (3, 4))
    samples[0] = 0
    cost = cost_of(stacked(cells), gain, samples)
    assert cost.time.shape == cost.downlink_time.shape == cost.overhead.shape == (3,)
    for k, cell in enumerate(cells):
        weakest = min((g for g, d in zip(gain[k], samples[k], strict=True) if d > 0), default=None)
        band = sum(cell.bandwidth)
        ratio = None if weakest is None else 2.0 * weakest / (10.0**-20.4 * band)
        expected = 0.0 if ratio is None else UPDATE_BITS / (band * np.log2(1.0 + ratio))
        np.testing.assert_allclose(cost.downlink_time[k], expected, rtol=1e-12)
        np.testing.assert_allclose(
            cost.time[k], cost_of(cell, gain[k], samples[k]).time, rtol=1e-14
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"overhead": -1.0}, "Cell: overhead: must be >= 0 .got -1.0."),
        ({"downlink_power": 0.0}, "Cell: downlink_power: must be > 0 .got 0.0."),
        ({"downlink_bits": -5.0}, "Cell: downlink_bits: must be > 0 .got -5.0."),
        (
            {"overhead": np.array([0.1, 0.2])},
            "cell.overhead: give one number for the whole cell",
        ),
    ],
)
def test_nonsense_is_refused(changes, words):
    with pytest.raises(AutoFLError, match=words):
        three_ues(**changes)
