"""The radio channel: its law against a Monte Carlo of its own, places that keep their shadows, time
from the run.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

import autofl as fl
from autofl.channels import Channel, success_probability
from autofl.channels.radio import Radio
from autofl.cli.main import run as autofl
from autofl.config import load_settings, parse_settings
from autofl.core.horizon import draw_horizon
from autofl.core.simulation import simulate, simulated
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from autofl.experiments.cell import build_cell, build_channel, build_network
from autofl.experiments.data import build_data
from autofl.network import Cell
from reference.runs import simulate_together


def own_umi(rng, num, radius, power_dbm, noise_dbm):
    """SNRs [dB] of a UMi cell at 3.5 GHz, drawn link by link with nothing of ours."""
    d2 = radius * np.sqrt(rng.random(num))
    chance = np.where(d2 <= 18.0, 1.0, 18.0 / d2 + np.exp(-d2 / 36.0) * (1.0 - 18.0 / d2))
    d2 = np.maximum(d2, 10.0)
    d3 = np.sqrt(d2**2 + 8.5**2)
    los = rng.random(num) < chance
    f = 20.0 * np.log10(3.5)
    one = np.where(
        d2 <= 210.0,
        32.4 + 21.0 * np.log10(d3) + f,
        32.4 + 40.0 * np.log10(d3) + f - 9.5 * np.log10(210.0**2 + 8.5**2),
    )
    loss = np.where(los, one, np.maximum(one, 35.3 * np.log10(d3) + 22.4 + 21.3 * np.log10(3.5)))
    shadow = np.where(los, 4.0, 7.82) * rng.standard_normal(num)
    k = 10.0**0.9
    scatter = (rng.standard_normal(num) + 1j * rng.standard_normal(num)) / np.sqrt(2.0)
    rice = np.sqrt(k / (k + 1.0)) + scatter / np.sqrt(k + 1.0)
    fading = np.where(los, np.abs(rice) ** 2, np.abs(scatter) ** 2)
    return power_dbm - loss + shadow + 10.0 * np.log10(fading) - noise_dbm


def test_the_law_of_the_snr_in_a_cell_is_that_of_a_monte_carlo():
    """Places share shadows, so UEs of one landscape are no independent draws: 600 landscapes of 100
    UEs.
    """
    ours = []
    for seed in range(600):
        cell = Cell.disc(num_ue=100, radius=250.0, seed=seed)
        gain = Radio(landscape=seed).gain_at(cell, seed, 0.0)
        ours.append(10.0 * np.log10(cell.max_power * gain / cell.noise_power))
    theirs = own_umi(np.random.default_rng(1), 400_000, 250.0, 10.0, -174.0 + 60.0)
    values = np.concatenate(ours)
    assert stats.ks_2samp(values, theirs).statistic < 0.015
    for quantile in (0.05, 0.5, 0.95):
        assert abs(np.quantile(values, quantile) - np.quantile(theirs, quantile)) < 0.5  # dB


def test_survival_is_the_share_of_seeds_above_a_level():
    """Places and landscape given, the fading is a matter of the seed."""
    cell = Cell.disc(num_ue=30, radius=150.0, seed=2)
    for small_scale in ("standard", "rayleigh", "rician", "nakagami"):
        radio = Radio(small_scale=small_scale, m=1.7, landscape=4)
        gains = np.stack([radio.gain_at(cell, seed, 5.0) for seed in range(800)])
        level = np.quantile(gains, 0.4, axis=0)
        np.testing.assert_allclose(
            radio.at(5.0).survival(cell, level), 0.6, atol=0.08
        )  # 4 sigma, and 16 paths
    step = Radio(small_scale="none").large_scale(cell).gain
    law = Radio(small_scale="none").survival(cell, np.stack([step, 1.001 * step]))
    np.testing.assert_array_equal(law, np.repeat([[1.0], [0.0]], 30, axis=1))
    chance = success_probability(cell, Radio(), cell.max_power)
    assert ((chance >= 0.0) & (chance <= 1.0)).all()
    assert chance.max() > chance.min()


def test_a_bad_place_is_bad_for_the_whole_run_and_for_all_seeds():
    cell, radio = Cell.disc(num_ue=50, radius=200.0, seed=1), Radio(speed=5.0)
    rounds = np.stack([10.0 * np.log10(radio.gain(cell, 1, k)) for k in range(1, 200)])
    scale = radio.large_scale(cell)
    middle = 10.0 * np.log10(scale.gain)
    assert np.corrcoef(np.median(rounds, axis=0), middle)[0, 1] > 0.99
    np.testing.assert_array_equal(radio.large_scale(cell, 99.0).gain, scale.gain)
    other = Radio(speed=5.0, landscape=2).large_scale(cell)
    assert (other.shadow_db != scale.shadow_db).all()


def test_ues_side_by_side_share_shadow_and_line_of_sight():
    near = Cell(
        distance=np.full(2, 80.0), angle=np.array([1.0, 1.0 + 0.5 / 80.0])
    )  # half a metre apart
    apart = Cell(distance=np.full(2, 80.0), angle=np.array([1.0, 4.0]))
    drop = [
        [Radio(landscape=seed).large_scale(cell) for seed in range(300)] for cell in (near, apart)
    ]
    near_los, apart_los = (
        np.mean([scale.los[0] == scale.los[1] for scale in scales]) for scales in drop
    )
    assert near_los > 0.93
    assert apart_los < 0.8
    same = [
        scale.shadow_db / np.where(scale.los, 4.0, 7.82)
        for scale in drop[0]
        if scale.los[0] == scale.los[1]
    ]
    assert np.corrcoef(np.array(same).T)[0, 1] == pytest.approx(np.exp(-0.5 / 12.0), abs=0.03)


def test_the_budget_adds_up_in_decibels():
    cell = Cell(distance=np.array([100.0]))
    radio = Radio("uma", carrier=2e9, small_scale="none", shadowing_db=0.0, line_of_sight="never")
    # d_3D = sqrt(100^2 + 23.5^2) = 102.72414: 13.54 + 39.08 * 2.01167 + 20 log10 2 = 98.17667 dB
    np.testing.assert_allclose(10.0 * np.log10(radio.gain(cell, 1, 1)), -98.17667, atol=1e-4)
    more = replace(radio, bs_antenna_dbi=8.0, ue_antenna_dbi=-2.0, extra_loss_db=11.0)
    np.testing.assert_allclose(10.0 * np.log10(more.gain(cell, 1, 1)), -98.17667 - 5.0, atol=1e-4)


def test_a_long_upload_has_the_mean_rate_of_its_duration():
    cell = Cell.disc(num_ue=40, radius=100.0, seed=1)
    instant, per_gain = Radio(speed=3.0), cell.max_power / cell.noise_power
    for upload, tolerance in ((0.1, 0.05), (0.5, 0.15)):  # 3.5 and 17 wavelengths
        averaged = Radio(speed=3.0, upload=upload)
        times = 2.0 + upload * (np.arange(1000) + 0.5) / 1000
        rates = np.mean(
            [np.log1p(per_gain * instant.gain_at(cell, 1, moment)) for moment in times], axis=0
        )
        ours = np.log1p(per_gain * averaged.gain_at(cell, 1, 2.0))
        np.testing.assert_allclose(ours, rates, rtol=tolerance)
        assert np.abs(ours / rates - 1.0).mean() < tolerance / 4.0
    short = Radio(speed=3.0, upload=1e-9).gain_at(cell, 1, 2.0)
    np.testing.assert_allclose(short, instant.gain_at(cell, 1, 2.0), rtol=1e-3)
    with pytest.raises(AutoFLError, match="upload"):
        averaged.survival(cell, np.ones(40))


@pytest.mark.parametrize("fading", ["standard", "nakagami"])
def test_moments_of_an_upload_looked_at_together_give_the_same_bits(fading, monkeypatch):
    cell, radio = (
        Cell.disc(num_ue=7, radius=100.0, seed=1),
        Radio(speed=3.0, upload=0.3, small_scale=fading),
    )
    together = radio.gain_at(cell, 1, 2.0)
    for at_once in (1, 7 * 10):  # one moment in each call, and ten
        monkeypatch.setattr("autofl.channels.radio.LOOKED_AT_ONCE", at_once)
        np.testing.assert_array_equal(radio.gain_at(cell, 1, 2.0), together)


def test_the_planner_may_know_an_old_gain():
    cell, late = Cell.disc(num_ue=20, radius=200.0, seed=1), Radio(estimate_delay=0.02)
    true = late.gain_at(cell, 1, 1.0)
    np.testing.assert_array_equal(
        late.at(1.0).estimate(cell, 1, 5, true), late.gain_at(cell, 1, 0.98)
    )
    assert (late.gain_at(cell, 1, 0.98) != true).all()
    assert Radio().estimate(cell, 1, 5, true) is true


def test_moving_ues_take_their_distance_with_them():
    cell = Cell.disc(num_ue=20, radius=200.0, seed=1)
    radio = Radio(mobility="waypoint", speed=15.0)
    first, later = radio.large_scale(cell, 0.0), radio.large_scale(cell, 60.0)
    np.testing.assert_allclose(first.place.distance, cell.distance)
    assert (later.path_loss_db != first.path_loss_db).all()
    there = Cell(distance=later.place.distance, angle=np.arctan2(later.place.y, later.place.x))
    still = Radio().large_scale(there)
    np.testing.assert_array_equal(still.los, later.los)
    np.testing.assert_allclose(
        still.gain, later.gain, rtol=1e-3
    )  # the landscape is the same for who comes and who stays


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("channel.carrier=1e8", "carrier"),
        ('channel.mobility="track"', "go together"),
        ('channel.scenario="umx"', "scenario"),
        ("channel.heigth=3", "'ue_height'"),
    ],
)
def test_a_bad_setting_ends_in_one_line(capsys, setting, words):
    assert autofl(["plan", "--set", "channel.name=radio", "--set", setting]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


def test_a_round_of_many_ues_takes_little_time():
    """benchmarks/gains.py: 0.5 to 0.7 s for a million; here a tenth of them, with room for a busy
    machine.
    """
    cell, radio = Cell.disc(num_ue=100_000, radius=200.0, seed=1), Radio()
    start = time.process_time()
    radio.gain_at(cell, 1, 5.0)
    assert time.process_time() - start < 0.5


# ---- time ----


@dataclass(frozen=True)
class Clock(Channel):
    """A gain that tells the time it is asked for."""

    time: float = -1.0

    def at(self, time):
        return replace(self, time=time)

    def gain(self, cell, seed, k):
        return np.full(cell.num_ue, 1e-8 * (1.0 + self.time))


def test_rounds_without_learning_ask_for_the_time_at_which_they_begin():
    network = build_network(parse_settings({"cell": {"num_ue": 4}}))
    network = replace(network, air=replace(network.air, channel=Clock()))
    seen = []

    class Listening:
        cell = network.air.cell

        def gains(self, seed, k, ue, start):
            seen.append(start)
            return network.air.gains(seed, k, ue, start)

    drawn = draw_horizon(replace(network, air=Listening()), 5)
    np.testing.assert_array_equal(seen, np.concatenate([[0.0], drawn.round_time.cumsum()[:-1]]))


RADIO = {
    "cell": {"num_ue": 8, "distance": {"disc": 60.0}, "snr_threshold_db": 5.0},
    "channel": {"name": "radio", "speed": 3.0, "mobility": "waypoint", "estimate_delay": 0.01},
    "simulation": {"num_selected": 3},
    "stop": {"rounds": 6},
    "evaluation": {"every": 3},
}


def test_a_run_its_batch_its_horizon_and_its_replay_see_the_same_gains(few_digits):
    settings = parse_settings(RADIO)
    data = build_data(settings, few_digits)
    sim = build_simulation(settings, data=data)
    alone = [record for record, _ in simulate(sim)][1:]
    starts = np.array([0.0] + [record.sim_time for record in alone[:-1]])
    assert (np.diff(starts) > 0.0).all()
    for record, start in zip(alone, starts, strict=True):
        np.testing.assert_array_equal(
            record.gain, sim.channel.gain_at(sim.cell, sim.seed, start)[record.ue]
        )
    together = [record for _, record, _ in simulate_together([sim])][1:]
    drawn = draw_horizon(sim, 6)
    whole = list(simulated(sim))
    rest = [step.round for step in simulated(sim, whole[3].checkpoint)]
    for k, record in enumerate(alone):
        np.testing.assert_array_equal(together[k].gain, record.gain)
        assert drawn.round_time[k] == pytest.approx(float(record.cost.time), rel=1e-12)
        if k >= 3:
            np.testing.assert_array_equal(rest[k - 3].gain, record.gain)


def test_settings_give_each_seed_its_landscape_and_a_file_written_out_keeps_it():
    settings = parse_settings({**RADIO, "seed": 5})
    assert build_channel(settings).landscape == 5
    assert "landscape" not in settings.resolved().channel.given
    assert (
        build_channel(
            parse_settings({**RADIO, "channel": {"name": "radio", "landscape": 3}})
        ).landscape
        == 3
    )
    cell = build_cell(load_settings(overrides=["seed=5", "cell.num_ue=9"]))
    np.testing.assert_allclose(cell.position, fl.Cell.disc(9, 200.0, 5).position)
    placed = build_cell(parse_settings({"cell": {"positions": [[3.0, 4.0], [-6.0, 0.0]]}}))
    np.testing.assert_allclose(placed.position, [[3.0, -6.0], [4.0, 0.0]], atol=1e-12)
    ring = build_cell(parse_settings({"cell": {"num_ue": 50, "distance": 100.0}}))
    assert len(np.unique(ring.angle)) == 50


def test_indoors_shadows_are_those_of_table_7_5_6_and_nothing_has_a_direct_path():
    cell = Cell.disc(num_ue=40_000, radius=300.0, seed=2)
    for scenario, sigma in (("umi", 7.0), ("uma", 7.0), ("rma", 8.0)):
        indoors = Radio(scenario, indoor=True)
        shadow = np.concatenate(
            [replace(indoors, landscape=seed).large_scale(cell).shadow_db for seed in range(8)]
        )
        assert shadow.std() == pytest.approx(
            sigma, rel=0.03 if scenario != "rma" else 0.2
        )  # rma's reach 120 m
        there = indoors.large_scale(cell)
        assert 0.0 < there.los.mean() < 1.0
        gain = indoors.gain(cell, 1, 1) / there.gain
        assert (gain[there.los] > 1.0).mean() == pytest.approx(
            np.exp(-1.0), abs=0.02
        )  # exponential; Rician has 0.46
    with pytest.raises(AutoFLError, match="no column for UEs in buildings"):
        Radio("inh-open", indoor=True)


def test_the_longest_upload_is_looked_at_as_often_as_any():
    cell = Cell.disc(num_ue=3, seed=1)
    assert np.isfinite(Radio(speed=2.9e8, upload=1e9).gain(cell, 1, 1)).all()
