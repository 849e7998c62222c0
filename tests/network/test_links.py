"""Rate laws against worked values and definitions, and what they make of time, energy, downlink and
outage.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from autofl.config import load_settings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_cell
from autofl.network import (
    Cell,
    Law,
    arrives,
    decoded,
    downlink_time,
    make_plan,
    rate,
    round_cost,
    upload_cost,
)
from autofl.network.cost import listening_time, tries_needed
from autofl.network.links.gap import Gap
from autofl.network.links.nr import Nr64, Nr256
from autofl.network.links.table import Levels
from autofl.registry import PARTS, find

LN2 = math.log(2.0)


def cell_with(link=None, **others):
    values = {
        "bandwidth": 1e6,
        "noise_psd": 1e-20,
        "update_bits": 1e6,
        "max_energy": 1.0,
        "max_power": 1.0,
    }
    return Cell(
        distance=np.array([10.0, 20.0]),
        **(values | others),
        **({} if link is None else {"link": link}),
    )


def law_of(name):
    given = {"levels": [[1.0, 0.0], [2.0, 6.0], [1.5, 9.0]]} if name == "table" else {}
    return find("link", name).build(given).law()


@pytest.mark.parametrize("name", PARTS["link"])
def test_no_law_carries_more_than_shannons_and_none_carries_less_at_more_snr(name):
    snr = np.geomspace(1e-3, 1e6, 4001)
    y = law_of(name).efficiency(snr)
    assert (np.diff(y) >= 0).all()
    assert (y <= np.log(1.0 + snr) * (1 + 1e-12)).all() or name == "table"
    needed = law_of(name).needed(snr)
    assert (needed <= snr * (1 + 1e-11)).all()
    np.testing.assert_allclose(
        law_of(name).efficiency(needed), y, rtol=1e-9
    )  # as fast with the SNR it needs


@pytest.mark.parametrize("name", PARTS["link"])
def test_a_rate_gives_back_the_snr_it_needs(name):
    law, snr = law_of(name), np.geomspace(1e-3, 1e6, 4001)
    decoded_at = snr >= law.least_snr(0.0)
    np.testing.assert_allclose(
        law.snr_of(law.efficiency(snr))[decoded_at], law.needed(snr)[decoded_at], rtol=1e-9
    )
    np.testing.assert_allclose(
        law.snr_of(law.repeated(snr))[~decoded_at], snr[~decoded_at], rtol=1e-9
    )


def test_a_gap_of_3_db_costs_half_the_snr_and_the_ceiling_holds():
    law = Gap(gap_db=10.0 * math.log10(2.0), ceiling=4.0).law()
    np.testing.assert_allclose(
        law.efficiency(np.array([2.0, 6.0, 30.0, 1e9])) / LN2, [1.0, 2.0, 4.0, 4.0], rtol=1e-12
    )
    np.testing.assert_allclose(law.needed(np.array([6.0, 1e9])), [6.0, 30.0], rtol=1e-12)


def test_the_tables_are_those_of_ts_38_214():
    """Spectral efficiencies as printed in Tables 5.1.3.1-1 and 5.1.3.1-2, of some MCS."""
    coarse, fine = (np.array(law(overhead=0.0).law().levels)[:, 0] / LN2 for law in (Nr64, Nr256))
    assert (len(coarse), len(fine)) == (29, 28)
    np.testing.assert_allclose(
        coarse[[0, 4, 9, 10, 15, 28]], [0.2344, 0.6016, 1.3262, 1.3281, 2.4063, 5.5547], atol=5e-5
    )
    np.testing.assert_allclose(coarse[[16, 17]], [2.5664, 2.5703], atol=5e-5)  # MCS 17 and 16
    np.testing.assert_allclose(
        fine[[0, 4, 5, 10, 19, 20, 27]],
        [0.2344, 1.1758, 1.4766, 2.5703, 5.1152, 5.3320, 7.4063],
        atol=5e-5,
    )


def test_the_lowest_mcs_says_who_is_decoded_and_not_phi():
    law = Nr256(gap_db=2.0).law()
    lowest = 10.0**0.2 * (2.0**0.234375 - 1.0)  # -5.5 dB
    cell = cell_with(law, snr_threshold=1e3)
    gain = np.array([0.999, 1.001]) * lowest * 1e-14
    np.testing.assert_array_equal(decoded(cell, gain, np.ones(2)), [False, True])
    np.testing.assert_allclose(rate(cell, gain, np.ones(2)), [0.0, 0.92 * 0.234375e6], rtol=1e-12)


def test_thresholds_of_ones_own_take_the_place_of_the_gap():
    law = Nr64(snr_db=[float(place) for place in range(29)]).law()
    assert law.least_snr(1e3) == 1.0
    assert len(law.levels) == 28  # MCS 17 carries less than MCS 16 and now needs more
    with pytest.raises(AutoFLError, match="snr_db: 2 values; the table has 28 MCS"):
        Nr256(snr_db=[1.0, 2.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Levels([]), "at least one"),
        (lambda: Levels([[1.0, math.nan]]), "between -100 and 200"),
        (lambda: Law(levels=((1.0, 2.0), (0.5, 3.0))), "must rise"),
        (lambda: Law(gap=0.0), "must be > 0"),
        (lambda: cell_with(pa_efficiency=1.5), "pa_efficiency: must be > 0 and <= 1"),
        (lambda: cell_with(tries=1.5), "tries = 1.5"),
        (lambda: cell_with(downlink_mode="both"), "must be 'broadcast' or 'unicast'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(make, words):
    with pytest.raises(AutoFLError, match=words):
        make()


def test_amplifier_and_circuits_are_paid_for_while_sending():
    """100 mW at 40 % and 50 mW besides, for 1 s at an SNR of 1."""
    cell = cell_with(pa_efficiency=0.4, circuit_power=0.05)
    cost = upload_cost(cell, np.full(2, 1e-13), np.full(2, 0.1))
    np.testing.assert_allclose(cost.time, 1.0, rtol=1e-12)
    np.testing.assert_allclose(cost.energy, 0.3, rtol=1e-12)


def test_a_model_for_each_ue_takes_the_sum_and_each_listens_to_its_own():
    """32 Mbit in 2 MHz: SNR 1 and 3 at the UEs carry 1 and 2 bit/s/Hz."""
    shared = {"downlink_power": 2.0, "update_bits": 1e6, "num_weights": 1e6, "receive_power": 0.5}
    gain = np.array([1.0, 3.0]) * 1e-14
    once, each = cell_with(**shared), cell_with(**shared, downlink_mode="unicast")
    np.testing.assert_allclose(downlink_time(once, gain), 16.0, rtol=1e-12)
    np.testing.assert_allclose(downlink_time(each, gain), 24.0, rtol=1e-12)
    np.testing.assert_allclose(listening_time(each, gain), [16.0, 8.0], rtol=1e-12)
    np.testing.assert_allclose(downlink_time(each, gain, np.array([False, True])), 8.0, rtol=1e-12)
    assert downlink_time(each, gain, np.array([False, False])) == 0.0
    deaf = replace(once, downlink_noise_psd=3e-20)
    np.testing.assert_allclose(
        downlink_time(deaf, gain), 16.0 / math.log2(1.0 + 1.0 / 3.0), rtol=1e-12
    )
    plan = make_plan(each, num_samples=np.array([3, 3]), tx_power=np.ones(2))
    without = round_cost(replace(each, receive_power=0.0), gain, plan)
    np.testing.assert_allclose(
        round_cost(each, gain, plan).energy - without.energy, [8.0, 4.0], rtol=1e-12
    )


def test_below_the_lowest_level_the_downlink_repeats_itself():
    law = Levels([[1.0, 0.0], [3.0, 10.0]]).law()
    np.testing.assert_allclose(
        law.repeated(np.array([0.25, 0.5, 1.0, 11.0])) / LN2, [0.25, 0.5, 1.0, 3.0], rtol=1e-12
    )


def test_an_update_planned_too_fast_is_sent_again_until_the_copies_add_up():
    """Planned for an SNR of 100; the true ones are 100, 40 and 10: one, three and ten copies."""
    cell = Cell(
        distance=np.ones(3),
        bandwidth=1e6,
        noise_psd=1e-20,
        max_power=1.0,
        snr_threshold=1.0,
        tries=3,
    )
    known, true = np.full(3, 1e-12), np.array([1.0, 0.4, 0.1]) * 1e-12
    np.testing.assert_array_equal(tries_needed(cell, true, known, np.ones(3)), [1, 3, 10])
    np.testing.assert_array_equal(arrives(cell, true, known, np.ones(3)), [True, True, False])
    plan = make_plan(cell, num_samples=np.full(3, 5), tx_power=np.ones(3))
    sure, guessed = round_cost(cell, known, plan), round_cost(cell, true, plan, known=known)
    np.testing.assert_allclose(guessed.upload_time, sure.upload_time * [1, 3, 3], rtol=1e-12)
    np.testing.assert_allclose(
        guessed.energy - sure.energy, sure.upload_time * [0, 2, 2], rtol=1e-9
    )


def test_a_better_gain_than_planned_gives_no_better_rate_and_between_levels_there_is_room():
    cell = cell_with(Levels([[1.0, 0.0], [2.0, 10.0]]).law())
    known = np.array([5.0, 20.0]) * 1e-14
    np.testing.assert_array_equal(
        arrives(cell, known * [0.21, 0.49], known, np.ones(2)), [True, False]
    )
    plan = make_plan(cell, num_samples=np.full(2, 5), tx_power=np.ones(2))
    np.testing.assert_allclose(
        round_cost(cell, 100 * known, plan, known=known).upload_time, [1.0, 0.5], rtol=1e-9
    )


def test_noise_figure_and_noise_rise_are_decibels_of_noise():
    plain, noisy = (
        build_cell(load_settings(overrides=changes))
        for changes in (
            [],
            ["cell.noise_figure_db=5", "cell.noise_rise_db=3", "cell.downlink_noise_figure_db=9"],
        )
    )
    np.testing.assert_allclose(
        10 * np.log10(noisy.noise_power / plain.noise_power), 8.0, rtol=1e-12
    )
    np.testing.assert_allclose(
        10 * np.log10(noisy.downlink_noise_psd / plain.noise_psd), 9.0, rtol=1e-12
    )
    assert plain.link.is_shannon
    assert (plain.pa_efficiency, plain.circuit_power, plain.receive_power, plain.tries) == (
        1.0,
        0.0,
        0.0,
        1,
    )
