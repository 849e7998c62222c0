"""TR 38.901 against values worked by hand from its formulas; Sionna's are in test_sionna.py."""

import numpy as np
import pytest

from autofl.channels.log_distance import log_distance
from autofl.channels.tr38901 import (
    SCENARIOS,
    Site,
    breakpoint_distance,
    check_site,
    los_probability,
    path_loss_db,
    rural_breakpoint,
    shadowing_deviation_db,
)
from autofl.errors import AutoFLError

MICRO, MACRO = Site(3.5e9, 10.0, 1.5), Site(3.5e9, 25.0, 1.5)  # 20 log10 3.5 = 10.88136
RURAL, OFFICE = Site(0.7e9, 35.0, 1.5), Site(3.5e9, 3.0, 1.0)  # 20 log10 0.7 = -3.09804

WORKED = [
    # UMi: d_3D = sqrt(200^2 + 8.5^2) = 200.18054, log10 = 2.30142; d'_BP = 4 * 9 * 0.5 * 3.5e9 /
    # 3e8 = 210 m
    ("umi", MICRO, 200.0, True, 91.61122),  # 32.4 + 21 * 2.30142 + 10.88136
    (
        "umi",
        MICRO,
        200.0,
        False,
        115.22884,
    ),  # 35.3 * 2.30142 + 22.4 + 21.3 log10 3.5 (11.58865) - 0
    # d_3D = 500.07224, log10 = 2.69903; log10(210^2 + 8.5^2) = 4.64515
    ("umi", MICRO, 500.0, True, 107.11375),  # 32.4 + 40 * 2.69903 + 10.88136 - 9.5 * 4.64515
    # UMa: d_3D = sqrt(200^2 + 23.5^2) = 201.37589, log10 = 2.30401; d'_BP = 4 * 24 * 0.5 * 3.5e9 /
    # 3e8 = 560 m
    ("uma", MACRO, 200.0, True, 89.56953),  # 28 + 22 * 2.30401 + 10.88136
    ("uma", MACRO, 200.0, False, 114.46197),  # 13.54 + 39.08 * 2.30401 + 10.88136 - 0
    # d_3D = 1000.27609, log10 = 3.00012; log10(560^2 + 23.5^2) = 5.49714
    ("uma", MACRO, 1000.0, True, 109.41189),  # 28 + 40 * 3.00012 + 10.88136 - 9 * 5.49714
    # RMa: d_3D = sqrt(200^2 + 33.5^2) = 202.78622, log10 = 2.30704; 5^1.72 = 15.93046
    (
        "rma",
        RURAL,
        200.0,
        True,
        76.16961,
    ),  # 75.48450 + 0.47791 * 2.30704 - 0.70094 + 0.001398 * 202.78622
    # d_BP = 2 pi * 35 * 1.5 * 0.7e9 / 3e8 = 769.69020 m, PL_1(d_BP) = 88.82450; d_3D = 2000.28054
    (
        "rma",
        RURAL,
        2000.0,
        True,
        105.41550,
    ),  # 88.82450 + 40 log10(2000.28054 / 769.69020) (16.59100)
    (
        "rma",
        RURAL,
        2000.0,
        False,
        128.06766,
    ),  # 161.04 - 9.23731 + 5.24228 - 37.51235 + 11.63216 - 3.09804 + 0.00092
    # InH: d_3D = sqrt(30^2 + 2^2) = 30.06659, log10 = 1.47808; 24.9 log10 3.5 = 13.54729
    ("inh-mixed", OFFICE, 30.0, True, 68.85222),  # 32.4 + 17.3 * 1.47808 + 10.88136
    ("inh-mixed", OFFICE, 30.0, False, 87.45792),  # 38.3 * 1.47808 + 17.3 + 13.54729
    ("inh-open", OFFICE, 30.0, False, 87.45792),
]


@pytest.mark.parametrize(("name", "site", "distance", "los", "expected"), WORKED)
def test_path_loss_is_the_standards(name, site, distance, los, expected):
    loss = path_loss_db(SCENARIOS[name], site, np.array([distance]), np.array([los]))
    np.testing.assert_allclose(
        loss, expected, atol=1e-4, rtol=0.0
    )  # the arithmetic above has five digits


@pytest.mark.parametrize(
    ("name", "site", "distance", "expected"),
    [
        ("umi", MICRO, 18.0, 1.0),
        ("umi", MICRO, 100.0, 0.23098),  # 0.18 + exp(-100/36) * 0.82
        ("uma", MACRO, 100.0, 0.34767),  # 0.18 + exp(-100/63) * 0.82
        (
            "uma",
            Site(3.5e9, 25.0, 20.0),
            100.0,
            0.47835,
        ),  # 0.34767 * (1 + 0.7^1.5 * 1.25 * exp(-100/150))
        ("rma", RURAL, 1000.0, 0.37158),  # exp(-990/1000)
        ("inh-mixed", OFFICE, 1.2, 1.0),
        ("inh-mixed", OFFICE, 5.0, 0.44552),  # exp(-3.8/4.7)
        ("inh-mixed", OFFICE, 20.0, 0.21150),  # 0.32 exp(-13.5/32.6)
        ("inh-open", OFFICE, 30.0, 0.70250),  # exp(-25/70.8)
        ("inh-open", OFFICE, 100.0, 0.42439),  # 0.54 exp(-51/211.7)
    ],
)
def test_chance_of_a_line_of_sight_is_the_standards(name, site, distance, expected):
    np.testing.assert_allclose(
        los_probability(SCENARIOS[name], site, np.array([distance])), expected, atol=1e-5
    )


def test_breakpoints():
    assert breakpoint_distance(MICRO) == pytest.approx(210.0)
    assert breakpoint_distance(MACRO) == pytest.approx(560.0)
    assert rural_breakpoint(RURAL) == pytest.approx(769.69020)


def test_shadowing_deviations_and_correlation_distances():
    both, near, far = np.array([True, False]), np.full(2, 100.0), np.full(2, 2000.0)
    expected = {
        "umi": (4, 7.82),
        "uma": (4, 6),
        "rma": (4, 8),
        "inh-mixed": (3, 8.03),
        "inh-open": (3, 8.03),
    }
    for name, sigma in expected.items():
        np.testing.assert_array_equal(
            shadowing_deviation_db(SCENARIOS[name], RURAL, near, both), sigma
        )
    np.testing.assert_array_equal(
        shadowing_deviation_db(SCENARIOS["rma"], RURAL, far, both), (6, 8)
    )
    distances = {name: law.shadow_distance for name, law in SCENARIOS.items()}
    assert distances == {
        "umi": (10, 13),
        "uma": (37, 50),
        "rma": (37, 120),
        "inh-mixed": (10, 6),
        "inh-open": (10, 6),
    }  # Table 7.5-6


def test_below_its_least_distance_a_law_is_taken_there_and_beyond_the_largest_refused():
    law, los = SCENARIOS["umi"], np.array([True])
    at_ten = path_loss_db(law, MICRO, np.array([10.0]), los)
    np.testing.assert_array_equal(path_loss_db(law, MICRO, np.array([0.0]), los), at_ten)
    with pytest.raises(AutoFLError, match=r"5200 m .* UMi street canyon holds up to 5000 m"):
        path_loss_db(law, MICRO, np.array([5200.0]), los)


@pytest.mark.parametrize(
    ("name", "site", "words"),
    [
        ("umi", Site(0.4e9, 10.0, 1.5), "carrier = 4e"),
        ("rma", Site(60e9, 35.0, 1.5), "3e"),
        ("uma", Site(3.5e9, 25.0, 30.0), "ue_height = 30"),
        ("rma", Site(0.7e9, 200.0, 1.5), "bs_height = 200"),
    ],
)
def test_what_the_standard_has_no_law_for_is_refused(name, site, words):
    with pytest.raises(AutoFLError, match=words):
        check_site(SCENARIOS[name], site)


def test_no_law_is_stretched_in_silence():
    rural, office = SCENARIOS["rma"], SCENARIOS["inh-open"]
    far = np.array([9e3])
    assert path_loss_db(rural, Site(0.7e9, 35.0, 1.5), far, np.array([True])) > 100.0
    with pytest.raises(AutoFLError, match=r"without line of sight is 9000 m .* holds up to 5000 m"):
        path_loss_db(rural, Site(0.7e9, 35.0, 1.5), far, np.array([False]))
    with pytest.raises(
        AutoFLError, match=r"156\.85 m .* holds up to 150 m"
    ):  # 149 m over ground, 50 m up
        path_loss_db(office, Site(3.5e9, 50.0, 1.0), np.array([149.0]), np.array([True]))


def test_log_distance_starts_at_its_intercept():
    site, nobody = Site(1e9, 1.5, 1.5), np.array([False])
    given, free = log_distance(3.0, 40.0), log_distance(2.0)
    np.testing.assert_allclose(path_loss_db(given, site, np.array([100.0]), nobody), 40.0 + 60.0)
    np.testing.assert_allclose(
        path_loss_db(free, site, np.array([10.0]), nobody), 32.4 + 20.0
    )  # 1 GHz: 20 log10 f = 0
