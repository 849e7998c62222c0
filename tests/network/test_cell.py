import dataclasses

import numpy as np
import pytest
from scipy import stats

from autofl.errors import AutoFLError
from autofl.network import Cell, channel_gain, drop_in_disc, path_gain
from reference.cells import cell_at


def test_one_number_serves_all_ues():
    cell = cell_at(np.array([10.0, 20.0, 30.0]), max_power=[0.1, 0.2, 0.3])
    assert cell.num_ue == 3
    np.testing.assert_array_equal(cell.distance, [10.0, 20.0, 30.0])
    np.testing.assert_array_equal(cell.max_power, [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(cell.bandwidth, [1e6, 1e6, 1e6])
    np.testing.assert_array_equal(cell.data_size, [3834.0, 3834.0, 3834.0])


def test_the_noise_in_one_megahertz_is_four_femtowatt():
    # -174 dBm/Hz + 60 dB Hz = -114 dBm
    np.testing.assert_allclose(cell_at(10.0).noise_power, [3.9810717055349725e-15], rtol=1e-13)


def test_noise_power_grows_with_each_ues_own_bandwidth():
    cell = cell_at([1.0, 1.0], bandwidth=[1e6, 3e6], noise_psd=2e-21)
    np.testing.assert_allclose(cell.noise_power, [2e-15, 6e-15], rtol=1e-14)


def test_a_sample_costs_fifty_microjoule():
    # 0.5 * 1e-27 * 1e5 * (1e9)^2
    np.testing.assert_allclose(cell_at(10.0).energy_per_sample, [5e-5], rtol=1e-14)


def test_energy_per_sample_grows_with_cycles_and_the_square_of_frequency():
    cell = cell_at(
        [1.0, 1.0, 1.0],
        cycles_per_sample=[1e5, 3e5, 1e5],
        cpu_frequency=[1e9, 1e9, 2e9],
        capacitance=2e-27,
    )
    np.testing.assert_allclose(cell.energy_per_sample, [1e-4, 3e-4, 4e-4], rtol=1e-14)


def test_take_keeps_these_ues_in_this_order_and_everything_else():
    rng = np.random.default_rng(0)
    full = cell_at(
        np.arange(1.0, 6.0),
        **{name: rng.uniform(1.0, 2.0, 5) for name in Cell.PER_UE if name != "distance"},
        noise_psd=1e-20,
        path_loss_exponent=3.0,
        snr_threshold=7.0,
        capacitance=3e-27,
        min_distance=2.0,
        num_weights=5.0,
    )
    ue = np.array([4, 0, 4])
    taken = full.take(ue)
    assert taken.num_ue == 3
    for field in dataclasses.fields(Cell):
        whole, part = getattr(full, field.name), getattr(taken, field.name)
        per_ue = field.name in (*Cell.PER_UE, "ue")
        np.testing.assert_array_equal(part, whole[ue] if per_ue else whole, err_msg=field.name)
    np.testing.assert_array_equal(taken.distance, [5.0, 1.0, 5.0])
    np.testing.assert_array_equal(taken.ue, [4, 0, 4])


def test_a_changed_part_of_a_cell_keeps_the_numbers_of_its_ues():
    some = cell_at(np.arange(1.0, 6.0)).take(np.array([4, 0]))
    np.testing.assert_array_equal(dataclasses.replace(some, max_power=0.1).ue, [4, 0])
    with pytest.raises(AutoFLError, match=r"cell\.ue: 2 values for 3 UEs"):
        cell_at(np.ones(3), ue=np.array([0, 1]))


def test_a_weight_of_the_update_takes_thirty_two_bits_unless_its_number_is_given():
    np.testing.assert_array_equal(
        cell_at([1.0, 2.0], update_bits=320.0).bits_per_weight, [32.0, 32.0]
    )
    other = cell_at([1.0, 2.0], update_bits=[320.0, 160.0], num_weights=20.0)
    np.testing.assert_array_equal(other.bits_per_weight, [16.0, 8.0])


def test_a_cell_cannot_be_changed_from_outside():
    distance = np.array([10.0, 20.0])
    cell = cell_at(distance)
    distance[0] = 99.0
    assert cell.distance[0] == 10.0
    with pytest.raises(ValueError, match="read-only"):
        cell.distance[0] = 99.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        cell.update_bits = 1.0


VALUES = [
    field.name
    for field in dataclasses.fields(Cell)
    if field.name not in ("ue", "link", "downlink_mode")
]


ENDLESS = [(field, value) for field in VALUES for value in (-1.0, np.nan, np.inf, -np.inf)]
UNKNOWN = [("num_weights", np.nan), ("downlink_bits", np.nan)]  # follow from Z
UNKNOWN += [("angle", -1.0)]  # a direction


@pytest.mark.parametrize(("field", "value"), [each for each in ENDLESS if each not in UNKNOWN])
def test_a_negative_or_endless_value_is_refused_by_name(field, value):
    with pytest.raises(AutoFLError, match=rf"Cell: {field}: must be .* .got {value}."):
        cell_at(**({"distance": 10.0} | {field: value}))


def test_one_bad_ue_among_many_is_found():
    with pytest.raises(AutoFLError, match=r"Cell: max_energy: must be >= 0 .got -0\.5."):
        cell_at(np.ones(4), max_energy=[1.0, 1.0, -0.5, 1.0])


@pytest.mark.parametrize("field", ["distance", "data_size", "max_energy"])
def test_a_ue_may_stand_at_the_antenna_or_own_no_data_or_have_no_energy(field):
    assert getattr(cell_at(**({"distance": 10.0} | {field: 0.0})), field) == 0.0


MAY_BE_ZERO = ("distance", "data_size", "max_energy", "overhead", "circuit_power", "receive_power")


@pytest.mark.parametrize("field", [name for name in VALUES if name not in (*MAY_BE_ZERO, "angle")])
def test_zero_is_refused_where_something_is_divided_by_it(field):
    with pytest.raises(AutoFLError, match=rf"Cell: {field}: must be (> 0|>= 1)"):
        cell_at(distance=10.0, **{field: 0.0})


@pytest.mark.parametrize("field", [name for name in Cell.PER_UE if name != "distance"])
def test_a_wrong_number_of_values_is_refused_with_both_numbers(field):
    with pytest.raises(AutoFLError, match=rf"cell\.{field}: 2 values for 3 UEs"):
        cell_at(np.ones(3), **{field: [1.0, 1.0]})


def test_path_gain_falls_with_the_power_kappa_of_distance():
    cell = cell_at([10.0, 100.0, 200.0], path_loss_exponent=3.8)
    np.testing.assert_allclose(
        path_gain(cell), [10.0**-3.8, 10.0**-7.6, 2.0**-3.8 * 10.0**-7.6], rtol=1e-13
    )


def test_within_the_least_distance_path_gain_stops_growing():
    cell = cell_at([0.0, 1.0, 2.0, 4.0], path_loss_exponent=2.0, min_distance=2.0)
    np.testing.assert_allclose(path_gain(cell), [0.25, 0.25, 0.25, 0.0625], rtol=1e-14)


def test_channel_gain_is_small_scale_gain_times_path_gain():
    cell = cell_at([10.0, 100.0], path_loss_exponent=2.0)
    small_scale_gain = np.array([[1.0, 1.0], [3.0, 5.0]])
    np.testing.assert_allclose(
        channel_gain(cell, small_scale_gain), [[1e-2, 1e-4], [3e-2, 5e-4]], rtol=1e-14
    )


NUM_DROPS = 100_000


@pytest.fixture(scope="module")
def drops():
    return drop_in_disc(np.random.default_rng(1), NUM_DROPS, 200.0)


def test_a_quarter_of_the_ues_stand_within_half_the_radius(drops):
    assert drops.shape == (NUM_DROPS, 2)
    inner = np.hypot(drops[:, 0], drops[:, 1]) <= 100.0
    assert inner.mean() == pytest.approx(
        0.25, abs=5.0 * np.sqrt(0.25 * 0.75 / NUM_DROPS)
    )  # 5 standard errors


def test_ues_are_dropped_uniformly_in_area_and_in_angle(drops):
    squared_distance = (drops**2).sum(axis=-1)
    angle = np.arctan2(drops[:, 1], drops[:, 0])
    # The seed is fixed, so a pass stays a pass; a drop uniform in distance fails with p < 1e-300.
    assert stats.kstest(squared_distance / 200.0**2, "uniform").pvalue > 1e-3
    assert stats.kstest(angle / (2.0 * np.pi) + 0.5, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(squared_distance, angle)[0, 1]) < 5.0 / np.sqrt(NUM_DROPS)


def test_no_ue_is_dropped_outside_the_disc_and_the_rim_is_reached(drops):
    farthest = np.hypot(drops[:, 0], drops[:, 1]).max()
    # Of n uniform areas the largest misses 1 by 1/n on average; 20/n happens once in e^20 trials.
    assert 200.0 * np.sqrt(1.0 - 20.0 / NUM_DROPS) < farthest <= 200.0 * (1.0 + 1e-15)
