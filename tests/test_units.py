import pytest

from autofl.network import Cell
from autofl.units import db_to_ratio, dbm_to_watt


@pytest.mark.parametrize(
    ("power_dbm", "power"),
    [
        (0.0, 1e-3),
        (10.0, 1e-2),
        (30.0, 1.0),
        (-30.0, 1e-6),
        (46.0, 39.810717055349725),
        (-174.0, 3.9810717055349725e-21),
    ],
)
def test_dbm_counts_tenfold_powers_from_one_milliwatt(power_dbm, power):
    assert dbm_to_watt(power_dbm) == pytest.approx(
        power, rel=1e-13
    )  # 10^x multiplies the rounding of x by x ln 10


@pytest.mark.parametrize(
    ("ratio_db", "ratio"), [(0.0, 1.0), (10.0, 10.0), (30.0, 1000.0), (-20.0, 0.01)]
)
def test_ten_decibels_are_a_factor_of_ten(ratio_db, ratio):
    assert db_to_ratio(ratio_db) == pytest.approx(ratio, rel=1e-14)


def test_three_decibels_are_almost_a_doubling_of_power_and_not_of_amplitude():
    assert db_to_ratio(3.0) == pytest.approx(1.9952623149688795, rel=1e-14)


def test_the_defaults_of_a_cell_are_the_decibels_of_table_one():
    cell = Cell(
        distance=1.0,
        cycles_per_sample=1.0,
        cpu_frequency=1.0,
        data_size=1.0,
        max_energy=1.0,
        max_power=1.0,
        bandwidth=1.0,
        update_bits=1.0,
    )
    assert cell.noise_psd == pytest.approx(dbm_to_watt(-174.0), rel=1e-13)
    assert cell.snr_threshold == pytest.approx(db_to_ratio(30.0), rel=1e-13)
