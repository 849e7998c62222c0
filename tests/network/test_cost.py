import numpy as np
import pytest

from autofl.network import (
    RoundCost,
    compute_cost,
    decoded,
    longest_upload,
    make_plan,
    rate,
    round_cost,
    snr,
    upload_cost,
)
from reference.cells import UPDATE_BITS, paper_cell


def gain_for_snr(cell, ratio, power=1e-2):
    """The gain that makes the SNR at this power the given ratio."""
    return np.asarray(ratio) * cell.noise_psd * 1e6 / power


def cost_of(cell, gain, num_samples, power, **others):
    """What a round costs in which so many samples and this power are planned, and nothing else is."""
    return round_cost(
        cell, gain, make_plan(cell, num_samples=num_samples, tx_power=power), **others
    )


def test_at_unit_snr_each_hertz_carries_one_bit_per_second():
    cell = paper_cell(2, bandwidth=[1e6, 5e6], update_bits=1e6)
    gain = cell.noise_power  # makes the SNR at 1 W exactly 1
    np.testing.assert_allclose(rate(cell, gain, np.ones(2)), [1e6, 5e6], rtol=1e-14)
    np.testing.assert_allclose(upload_cost(cell, gain, np.ones(2)).time, [1.0, 0.2], rtol=1e-14)


def test_snr_worked_by_hand():
    # 10 mW * 1e-9 over -174 dBm/Hz * 1 MHz: 1e-11 / 3.981e-15
    cell = paper_cell(1)
    np.testing.assert_allclose(
        snr(cell, np.array([1e-9]), np.array([1e-2])), 2511.886431509580, rtol=1e-12
    )


def test_upload_time_and_energy_worked_by_hand():
    # SNR 2^10 - 1 and 2^14 - 1 carry 10 and 14 bit/s/Hz: 2.54432 Mbit take 0.254432 and
    # 0.181737142857 s.
    cell = paper_cell(2)
    cost = upload_cost(cell, gain_for_snr(cell, [1023.0, 16383.0]), np.array([1e-2, 1e-2]))
    np.testing.assert_allclose(cost.time, [0.254432, 2.54432 / 14.0], rtol=1e-12)
    np.testing.assert_allclose(cost.energy, [2.54432e-3, 2.54432e-2 / 14.0], rtol=1e-12)


def test_compute_time_and_energy_worked_by_hand():
    # A sample takes 1e5 / 1e9 = 1e-4 s and 0.5 * 1e-27 * 1e5 * 1e18 = 5e-5 J.
    cost = compute_cost(paper_cell(3), np.array([1, 50, 0]))
    np.testing.assert_allclose(cost.time, [1e-4, 5e-3, 0.0], rtol=1e-14)
    np.testing.assert_allclose(cost.energy, [5e-5, 2.5e-3, 0.0], rtol=1e-14)


def test_each_local_step_computes_on_samples_of_its_own():
    cost = compute_cost(paper_cell(1, local_steps=4), np.array([50]))
    np.testing.assert_allclose(cost.time, [2e-2], rtol=1e-14)
    np.testing.assert_allclose(cost.energy, [1e-2], rtol=1e-14)


def test_a_faster_processor_saves_time_and_spends_energy_with_its_square():
    cost = compute_cost(paper_cell(2, cpu_frequency=[1e9, 3e9]), np.array([10, 10]))
    np.testing.assert_allclose(cost.time[0] / cost.time[1], 3.0, rtol=1e-14)
    np.testing.assert_allclose(cost.energy[1] / cost.energy[0], 9.0, rtol=1e-14)


def test_a_tiny_snr_still_carries_bits():
    # log2(1 + x) is x / ln 2 to first order; adding 1e-18 to 1 in float64 would lose it.
    cell = paper_cell(1)
    np.testing.assert_allclose(
        rate(cell, gain_for_snr(cell, [1e-18]), np.array([1e-2])),
        1e6 * 1e-18 / 0.6931471805599453,
        rtol=1e-12,
    )


def test_with_no_power_an_upload_takes_forever_and_no_energy():
    cell = paper_cell(2)
    cost = upload_cost(cell, gain_for_snr(cell, [1e4, 1e4]), np.array([0.0, 1e-2]))
    assert cost.time[0] == np.inf
    assert cost.energy[0] == 0.0
    assert np.isfinite(cost.time[1])
    assert cost.energy[1] > 0.0


def test_more_power_sends_faster_and_costs_more_energy():
    cell = paper_cell(1)
    power = np.geomspace(1e-9, 1e3, 200)[:, None]
    cost = upload_cost(cell, gain_for_snr(cell, [1e4]), power)
    assert (np.diff(cost.time[:, 0]) < 0.0).all()
    assert (np.diff(cost.energy[:, 0]) > 0.0).all()


def test_an_update_is_decoded_from_the_threshold_on():
    # The slack of 1e-12 lets a power pass that was computed to reach the threshold, and nothing
    # anybody could mean.
    cell = paper_cell(5)
    ratio = 1000.0 * np.array([1.0 - 1e-9, 1.0 - 1e-13, 1.0, 1.0 + 1e-9, 2.0])
    assert decoded(cell, gain_for_snr(cell, ratio), cell.max_power).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_the_longest_upload_is_the_one_at_the_threshold():
    cell = paper_cell(2, snr_threshold=1023.0, bandwidth=[1e6, 2e6])
    np.testing.assert_allclose(longest_upload(cell), [0.254432, 0.127216], rtol=1e-14)


def three_ues(**changes):
    """SNR 2^10 - 1, 2^12 - 1, 2^14 - 1 at 10 mW; the threshold 2^10 - 1 makes the longest upload
    0.254432 s.
    """
    cell = paper_cell(3, snr_threshold=1023.0, **changes)
    return cell, gain_for_snr(cell, [1023.0, 4095.0, 16383.0])


def test_a_round_ends_with_its_slowest_sender():
    cell, gain = three_ues()
    cost = cost_of(cell, gain, np.array([10, 1000, 20]), cell.max_power)
    upload_time = 2.54432 / np.array([10.0, 12.0, 14.0])
    np.testing.assert_allclose(cost.upload_time, upload_time, rtol=1e-12)
    np.testing.assert_allclose(cost.compute_time, [1e-3, 1e-1, 2e-3], rtol=1e-12)
    np.testing.assert_allclose(cost.energy, 1e-2 * upload_time + [5e-4, 5e-2, 1e-3], rtol=1e-12)
    # The second UE: neither the slowest upload nor alone in the slowest computing, but the largest
    # sum.
    np.testing.assert_allclose(cost.time, 2.54432 / 12.0 + 0.1, rtol=1e-12)


def test_local_steps_lengthen_computing_and_leave_the_upload():
    cell, gain = three_ues()
    once = cost_of(cell, gain, np.array([10, 20, 30]), cell.max_power)
    thrice = cost_of(three_ues(local_steps=3)[0], gain, np.array([10, 20, 30]), cell.max_power)
    np.testing.assert_array_equal(thrice.upload_time, once.upload_time)
    np.testing.assert_allclose(thrice.compute_time, [3e-3, 6e-3, 9e-3], rtol=1e-12)
    np.testing.assert_allclose(
        thrice.energy - once.energy, [1e-3, 2e-3, 3e-3], rtol=1e-9
    )  # a difference of mJ


@pytest.mark.parametrize(("num_samples", "power"), [(0, 1e-2), (10, 0.0), (0, 0.0)])
def test_a_ue_without_samples_or_without_power_costs_nothing(num_samples, power):
    cell, gain = three_ues()
    cost = cost_of(cell, gain, np.array([num_samples, 10, 10]), np.array([power, 1e-2, 1e-2]))
    assert (cost.upload_time[0], cost.compute_time[0], cost.energy[0]) == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(
        cost.time, 2.54432 / 12.0 + 1e-3, rtol=1e-12
    )  # the slowest of the other two
    assert (cost.energy[1:] > 0.0).all()


def test_waiting_for_a_silent_ue_takes_the_longest_upload_and_skipping_it_takes_none():
    cell, gain = three_ues()
    num_samples, power = np.array([0, 10, 10]), np.array([0.0, 1e-2, 1e-2])
    skip = cost_of(cell, gain, num_samples, power, outage="skip")
    wait = cost_of(cell, gain, num_samples, power, outage="wait")
    np.testing.assert_allclose(skip.time, 2.54432 / 12.0 + 1e-3, rtol=1e-12)
    np.testing.assert_allclose(wait.time, 0.254432, rtol=1e-12)
    np.testing.assert_array_equal(wait.energy, skip.energy)
    np.testing.assert_array_equal(wait.upload_time, skip.upload_time)


def test_waiting_never_shortens_a_round_and_costs_nothing_when_all_send():
    cell, gain = three_ues()
    slow = np.array([0, 10_000, 10])  # one second of computing outlasts the wait
    expected = 2.54432 / 12.0 + 1.0
    np.testing.assert_allclose(
        cost_of(cell, gain, slow, cell.max_power, outage="wait").time, expected, rtol=1e-12
    )
    two, samples = cell.take(np.array([1, 2])), np.array([10, 10])
    both_send = cost_of(two, gain[1:], samples, two.max_power, outage="wait")
    np.testing.assert_allclose(both_send.time, 2.54432 / 12.0 + 1e-3, rtol=1e-12)


@pytest.mark.parametrize("outage", ["skip", "wait"])
def test_a_round_in_which_nobody_sends_takes_the_longest_upload_and_no_energy(outage):
    cell, gain = three_ues(bandwidth=[1e6, 1e6, 5e5])  # the third would take longest
    cost = cost_of(cell, gain, np.zeros(3, dtype=int), np.zeros(3), outage=outage)
    np.testing.assert_allclose(cost.time, 2.0 * 0.254432, rtol=1e-12)
    np.testing.assert_array_equal(cost.energy, 0.0)
    np.testing.assert_array_equal(cost.upload_time + cost.compute_time, 0.0)


@pytest.mark.parametrize("outage", ["skip", "wait"])
def test_one_call_for_many_rounds_equals_a_loop_over_rounds_and_ues(outage):
    rng = np.random.default_rng(1)
    num_ue, rounds = 4, (5, 6)
    cell = paper_cell(
        num_ue,
        cycles_per_sample=rng.uniform(1e5, 1e6, num_ue),
        cpu_frequency=rng.uniform(1e9, 2e9, num_ue),
        bandwidth=rng.uniform(1e6, 2e6, num_ue),
        local_steps=2,
    )
    gain = 10.0 ** rng.uniform(-10.0, -7.0, (*rounds, num_ue))
    power = rng.choice([0.0, 1e-3, 1e-2], (*rounds, num_ue))
    num_samples = rng.choice([0, 5, 500], (*rounds, num_ue))
    num_samples[0, 0] = 0  # a round in which nobody sends
    cost = cost_of(cell, gain, num_samples, power, outage=outage)
    assert cost.time.shape == rounds
    for k in np.ndindex(*rounds):
        times = []
        for i in range(num_ue):
            upload_time = compute_time = energy = waiting = 0.0
            if num_samples[k][i] > 0 and power[k][i] > 0.0:
                ratio = power[k][i] * gain[k][i] / (10.0**-20.4 * cell.bandwidth[i])
                upload_time = UPDATE_BITS / (cell.bandwidth[i] * np.log2(1.0 + ratio))
                compute_time = (
                    2 * num_samples[k][i] * cell.cycles_per_sample[i] / cell.cpu_frequency[i]
                )
                energy = (
                    power[k][i] * upload_time + 0.5e-27 * cell.cpu_frequency[i] ** 3 * compute_time
                )
            elif outage == "wait" or not ((num_samples[k] > 0) & (power[k] > 0.0)).any():
                waiting = UPDATE_BITS / (cell.bandwidth[i] * np.log2(1001.0))
            times.append(max(upload_time + compute_time, waiting))
            ours = (cost.upload_time[k][i], cost.compute_time[k][i], cost.energy[k][i])
            np.testing.assert_allclose(ours, (upload_time, compute_time, energy), rtol=1e-11)
        np.testing.assert_allclose(cost.time[k], max(times), rtol=1e-11)


def test_one_plan_serves_many_channel_draws():
    cell, gain = three_ues()
    draws = gain * np.array([[1.0], [2.0], [4.0]])
    cost = cost_of(cell, draws, np.array([10, 20, 30]), cell.max_power)
    alone = [cost_of(cell, row, np.array([10, 20, 30]), cell.max_power) for row in draws]
    assert isinstance(cost, RoundCost)
    np.testing.assert_array_equal(cost.time, [one.time for one in alone])
    np.testing.assert_array_equal(cost.energy, [one.energy for one in alone])


def test_what_a_plan_decides_takes_the_place_of_what_the_cell_has():
    cell, gain = three_ues()
    decided = {
        "local_steps": np.array([2, 3, 4]),
        "cpu_frequency": np.array([1e9, 2e9, 5e8]),
        "bandwidth": np.array([2e6, 1e6, 3e6]),
        "bits_per_weight": np.array([32.0, 8.0, 16.0]),
    }
    planned = make_plan(
        cell, num_samples=np.array([10, 20, 30]), tx_power=cell.max_power, **decided
    )
    own = {name: value for name, value in decided.items() if name != "bits_per_weight"}
    other, _ = three_ues(
        **own, update_bits=UPDATE_BITS * decided["bits_per_weight"] / 32.0, num_weights=79510
    )
    ours, theirs = (
        round_cost(cell, gain, planned),
        cost_of(other, gain, np.array([10, 20, 30]), cell.max_power),
    )
    for name in ("upload_time", "compute_time", "energy", "time"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-14, err_msg=name
        )


def test_a_plan_in_which_some_take_no_part_costs_them_nothing():
    cell, gain = three_ues()
    planned = make_plan(cell, num_samples=np.array([10, 1000, 20]), tx_power=cell.max_power)
    cost = round_cost(cell, gain, planned.only(np.array([True, False, True])))
    assert (cost.upload_time[1], cost.compute_time[1], cost.energy[1]) == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(cost.time, 0.254432 + 1e-3, rtol=1e-12)
