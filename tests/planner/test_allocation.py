import dataclasses
import itertools
import math

import numpy as np
import pytest

from autofl.network import Cell, make_plan, round_cost, snr
from autofl.planner.allocation import (
    Outcome,
    Task,
    allocate,
    allocate_fixed_band,
    least_band,
    least_energy,
    least_energy_fixed_band,
    shortest,
)
from autofl.planner.allocation.certificate import kkt_residual
from autofl.planner.allocation.roots import spectral_efficiency
from autofl.planner.allocation.shannon import ShannonLaws
from reference.allocation_reference import random_cell, rows, slow_least_band

SEEDS = range(120)


def task_of(**values):
    """Two UEs that differ in nothing: 1 Mcycle, 100 kbit, 1 mJ, 10 mW, 0.1 to 2 GHz, a = 1e11 Hz/W,
    phi = 10.
    """
    given = {
        "cycles": 1e6,
        "bits": 1e5,
        "gain_to_noise": 1e11,
        "max_energy": 1e-3,
        "max_power": 0.01,
        "min_frequency": 1e8,
        "max_frequency": 2e9,
    } | {name: value for name, value in values.items() if name not in ("phi", "kappa")}
    shape = np.broadcast_shapes(*(np.shape(value) for value in given.values()), (1,))
    arrays = {
        name: np.broadcast_to(np.asarray(value, dtype=float), shape)
        for name, value in given.items()
    }
    return Task(**arrays, phi=values.get("phi", 10.0), kappa=values.get("kappa", 5e-28))


def violation(task, allocation, total_band):
    """Largest relative violation of any constraint, from the definitions."""
    ue = allocation.able
    band, power, frequency = allocation.band[ue], allocation.power[ue], allocation.frequency[ue]
    ratio = power * task.gain_to_noise[ue] / band
    time = task.cycles[ue] / frequency + task.bits[ue] / (band * np.log2(1.0 + ratio))
    energy = task.kappa * task.cycles[ue] * frequency**2 + power * task.bits[ue] / (
        band * np.log2(1.0 + ratio)
    )
    return max(
        float(np.max(excess))
        for excess in (
            time / allocation.time - 1.0,
            energy / task.max_energy[ue] - 1.0,
            power / task.max_power[ue] - 1.0,
            task.phi / ratio - 1.0,
            frequency / task.max_frequency[ue] - 1.0,
            task.min_frequency[ue] / frequency - 1.0,
            band.sum() / total_band - 1.0,
        )
    )


def test_with_energy_to_spare_all_goes_at_full_speed_and_power_and_the_band_is_shared():
    # 10 mW in 1 MHz give SNR 15, that is 4 bit/s/Hz: 400 kbit take 0.1 s, and 1 Mcycle at 2 GHz 0.5
    # ms
    task = task_of(
        cycles=1e6, bits=4e5, gain_to_noise=15.0 * 1e6 / 0.01, max_energy=np.array([1.0, 1.0])
    )
    plan = allocate(task, 2e6)
    assert plan.time == pytest.approx(0.1 + 0.0005, rel=1e-12)
    np.testing.assert_allclose(plan.band, 1e6, rtol=1e-12)
    np.testing.assert_allclose(plan.power, 0.01, rtol=1e-12)
    np.testing.assert_allclose(plan.frequency, 2e9, rtol=1e-12)
    assert plan.energy.max() < 1e-2


def test_more_band_than_the_threshold_allows_is_left_over():
    task = task_of(max_energy=1.0)
    plan = allocate(task, 1e12)
    # at P_max the SNR reaches phi = 10 in a band of P a/phi = 0.1 GHz
    assert plan.band[0] == pytest.approx(1e8, rel=1e-12)
    assert plan.time == pytest.approx(1e6 / 2e9 + 1e5 / (1e8 * math.log2(11.0)), rel=1e-12)
    assert plan.time == pytest.approx(shortest(task)[0], rel=1e-12)
    assert plan.certificate.residual < 1e-9


def test_spectral_efficiency_inverts_its_definition():
    y = np.geomspace(1e-3, 60.0, 500)
    c = np.expm1(y) / y
    # c - 1 is about y/2, so that rounding of c leaves 2 eps/y of y
    np.testing.assert_allclose(spectral_efficiency(c), y, rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_least_band_is_that_of_a_slow_search(seed):
    task, _ = random_cell(seed)
    rng = np.random.default_rng(seed)
    soonest = shortest(task)
    deadline = np.where(np.isfinite(soonest), soonest, 1.0) * (
        1.0 + 10.0 ** rng.uniform(-1.0, 2.0, len(soonest))
    )
    band = least_band(task, deadline)
    for ue, row in enumerate(rows(task)):
        slow = slow_least_band(row, task.phi, task.kappa, float(deadline[ue]), points=80, passes=9)
        assert band[ue] == pytest.approx(slow, rel=1e-7)


def test_nobody_is_faster_than_shortest_and_everybody_is_as_fast():
    for seed in SEEDS:
        task, _ = random_cell(seed)
        soonest = shortest(task)
        able = np.isfinite(soonest)
        assert np.isinf(least_band(task, soonest * (1.0 - 1e-9))).all()
        np.testing.assert_array_equal(np.isfinite(least_band(task, soonest)), able)


def test_least_band_falls_with_the_deadline_and_is_convex_in_the_logarithms():
    for seed in range(30):
        task, _ = random_cell(seed)
        able = np.isfinite(shortest(task))
        grid = np.linspace(0.0, math.log(1e4), 400)[:, None] + np.log(
            np.where(able, shortest(task), 1.0)
        )
        log_band = np.log(least_band(task, np.exp(grid))[:, able][1:])
        assert (np.diff(log_band, axis=0) < 0.0).all()
        slope = np.diff(log_band, axis=0) / np.diff(grid[1:, able], axis=0)
        assert (np.diff(slope, axis=0) > -1e-7 * np.abs(slope[1:])).all()


def test_the_slope_is_that_of_a_difference():
    for seed in range(30):
        task, _ = random_cell(seed)
        able = np.isfinite(shortest(task))
        deadline = np.where(able, shortest(task), 1.0) * 1.37
        band, slope = (values[able] for values in ShannonLaws(task).band_and_slope(deadline))
        step = 1e-6
        ahead, behind = (
            least_band(task, deadline * math.exp(sign * step))[able] for sign in (1.0, -1.0)
        )
        np.testing.assert_allclose(slope / band, np.log(ahead / behind) / (2.0 * step), rtol=1e-5)


def test_least_band_of_many_deadlines_and_choices_is_that_of_each():
    task, _ = random_cell(0)
    choices = dataclasses.replace(
        task,
        **{
            name: getattr(task, name)[:, None]
            * (np.array([1.0, 3.0]) if name == "bits" else np.ones(2))
            for name in (
                "cycles",
                "bits",
                "gain_to_noise",
                "max_energy",
                "max_power",
                "min_frequency",
                "max_frequency",
            )
        },
    )
    deadlines = np.geomspace(1e-3, 10.0, 7)
    together = least_band(choices, deadlines[:, None, None])
    assert together.shape == (7, len(task.cycles), 2)
    for (row, deadline), choice in itertools.product(enumerate(deadlines), range(2)):
        alone = dataclasses.replace(task, bits=choices.bits[:, choice])
        np.testing.assert_allclose(
            together[row, :, choice], least_band(alone, deadline), rtol=1e-12
        )


def test_every_allocation_carries_its_certificate_and_keeps_every_constraint():
    for seed in SEEDS:
        task, total_band = random_cell(seed)
        plan = allocate(task, total_band)
        if not plan.able.any():
            continue
        assert 0.0 <= plan.certificate.gap <= 1e-9
        assert plan.certificate.residual <= 1e-8
        assert violation(task, plan, total_band) <= 1e-12
        assert plan.certificate.upper == plan.time == plan.ue_time[plan.able].max()
        np.testing.assert_array_equal(plan.able, np.isfinite(shortest(task)))


def test_an_allocation_that_stopped_early_has_a_wide_gap():
    gaps = []
    for seed in SEEDS:
        task, total_band = random_cell(seed)
        able = np.isfinite(shortest(task))
        if able.any():
            early = ShannonLaws(task.part(able), max_steps=1).allocate(total_band)
            gaps.append(early.certificate.gap)
            assert early.outcome is Outcome.STOPPED or early.certificate.gap <= 1e-9
    assert max(gaps) > 0.1


def test_a_hundredth_of_a_band_in_the_wrong_place_shows_in_the_residual():
    compared = 0
    for seed in SEEDS:
        task, total_band = random_cell(seed)
        plan = allocate(task, total_band)
        if not plan.able.all() or len(task.cycles) < 2 or plan.band.sum() < 0.999 * total_band:
            continue
        band = plan.band * np.where(np.arange(len(task.cycles)) == 0, 0.99, 1.0)
        worse = ShannonLaws(task).fastest(band * (plan.band.sum() / band.sum()))
        # the least share of sending in a round decides how much a hundredth of the band can matter
        assert (
            kkt_residual(task, worse, total_band)
            > 1e-3 * (1.0 - task.cycles / plan.frequency / plan.time).min()
        )
        compared += 1
    assert compared > 30


def test_no_random_plan_that_keeps_the_constraints_is_faster():
    rng = np.random.default_rng(5)
    for seed in range(20):
        task, total_band = random_cell(seed)
        best = allocate(task, total_band)
        num_ue = len(task.cycles)
        if not best.able.all():
            continue
        for _ in range(300):
            share = rng.dirichlet(np.ones(num_ue))
            near = best.band * np.exp(0.1 * rng.standard_normal(num_ue))
            band = (
                share * total_band
                if rng.random() < 0.3
                else near * min(1.0, total_band / near.sum())
            )
            frequency = np.clip(
                best.frequency * np.exp(0.1 * rng.standard_normal(num_ue)),
                task.min_frequency,
                task.max_frequency,
            )
            power = np.minimum(
                task.max_power, best.power * np.exp(0.1 * rng.standard_normal(num_ue))
            )
            ratio = power * task.gain_to_noise / band
            upload = task.bits / (band * np.log2(1.0 + ratio))
            energy = task.kappa * task.cycles * frequency**2 + power * upload
            if (energy <= task.max_energy).all() and (ratio >= task.phi).all():
                assert (task.cycles / frequency + upload).max() >= best.certificate.lower * (
                    1.0 - 1e-12
                )


def test_a_grid_over_two_ues_finds_nothing_better():
    task = task_of(gain_to_noise=np.array([1e10, 3e11]), max_energy=np.array([4e-4, 1e-3]), phi=3.0)
    best = allocate(task, 2e6)
    times = []
    for share in np.linspace(0.02, 0.98, 1001):
        plan = allocate_fixed_band(task, 2e6 * np.array([share, 1.0 - share]))
        times.append(plan.time)
    assert min(times) >= best.time
    assert min(times) == pytest.approx(best.time, rel=1e-3)


def test_a_fixed_band_gives_the_least_time_of_a_grid_over_power_and_frequency():
    for seed in range(12):
        task, total_band = random_cell(seed)
        band = np.full(len(task.cycles), total_band / len(task.cycles))
        plan = allocate_fixed_band(task, band)
        for ue, (cycles, bits, gain_to_noise, energy, strongest, low, high) in enumerate(
            rows(task)
        ):
            power = np.geomspace(1e-5, 1.0, 1500)[:, None] * strongest
            frequency = np.geomspace(low, high, 1500)[None, :]
            ratio = power * gain_to_noise / band[ue]
            upload = bits / (band[ue] * np.log2(1.0 + ratio))
            time = cycles / frequency + upload
            allowed = (task.kappa * cycles * frequency**2 + power * upload <= energy) & (
                ratio >= task.phi
            )
            fastest = np.where(allowed, time, np.inf).min()
            if plan.able[ue]:
                assert plan.ue_time[ue] <= fastest * (1.0 + 1e-12)
                assert fastest == pytest.approx(plan.ue_time[ue], rel=0.03) or not allowed.any()
            else:
                assert np.isinf(fastest)


def test_time_falls_with_band_energy_and_power_and_grows_with_work():
    for seed in range(30):
        task, total_band = random_cell(seed)
        plan = allocate(task, total_band)
        if not plan.able.all():
            continue
        assert allocate(task, 1.1 * total_band).time <= plan.time * (1.0 + 1e-12)
        for name, sign in (("max_energy", -1), ("max_power", -1), ("bits", 1), ("cycles", 1)):
            factor = 1.1 if sign < 0 else 1.0 / 1.1
            easier = allocate(
                dataclasses.replace(task, **{name: factor * getattr(task, name)}), total_band
            )
            assert easier.time <= plan.time * (1.0 + 1e-12), name


def test_the_cost_of_the_round_agrees_and_stays_within_the_budgets():
    for seed in SEEDS:
        task, total_band = random_cell(seed)
        plan = allocate(task, total_band)
        ue = plan.able
        if not ue.any():
            continue
        cell = Cell(
            distance=np.ones(ue.sum()),
            cycles_per_sample=task.cycles[ue] / 50.0,
            cpu_frequency=plan.frequency[ue],
            max_energy=task.max_energy[ue],
            max_power=task.max_power[ue],
            update_bits=task.bits[ue],
            snr_threshold=task.phi,
            capacitance=2.0 * task.kappa,
        )
        gain = task.gain_to_noise[ue] * cell.noise_psd
        decided = make_plan(
            cell,
            num_samples=np.full(ue.sum(), 50),
            tx_power=plan.power[ue],
            bandwidth=plan.band[ue],
        )
        cost = round_cost(cell, gain, decided)
        assert cost.time == pytest.approx(plan.time, rel=1e-12)
        assert (cost.energy <= task.max_energy[ue]).all()
        assert (snr(decided.applied(cell), gain, decided.tx_power) >= task.phi).all()


def test_extreme_values_are_served_or_left_out_without_a_warning():
    for phi, gain, energy in itertools.product(
        (0.1, 10.0, 1e4), 10.0 ** np.arange(-20.0, 1.0, 4.0), (1e-9, 1e-3, 10.0)
    ):
        task = task_of(
            gain_to_noise=gain / 10.0**-20.4 * np.array([1.0, 2.0]),
            max_energy=energy * np.array([1.0, 1e4]),
            phi=phi,
        )
        plan = allocate(task, 1e6)
        for ue, (cycles, bits, gain_to_noise, budget, _, low, _) in enumerate(rows(task)):
            least = (
                bits * math.log(2.0) * phi / (gain_to_noise * math.log1p(phi))
                + task.kappa * cycles * low**2
            )
            assert plan.able[ue] == (least <= budget)
        assert plan.able.any() == np.isfinite(plan.time)
        if plan.able.any():
            assert plan.certificate.gap <= 1e-9
            assert violation(task, plan, 1e6) <= 1e-12


def test_where_nobody_can_take_part_the_time_is_infinite_and_the_mask_says_so():
    plan = allocate(task_of(max_energy=np.array([1e-12, 0.0])), 1e6)
    assert not plan.able.any()
    assert plan.time == math.inf
    assert (plan.band == 0.0).all()
    assert (plan.power == 0.0).all()


def test_one_number_for_all_and_a_frequency_without_a_lower_bound_are_served():
    full = task_of(gain_to_noise=np.array([1e10, 1e11]), min_frequency=1e-3)
    short = Task(1e6, 1e5, np.array([1e10, 1e11]), 1e-3, 0.01, 0.0, 2e9, phi=10.0, kappa=5e-28)
    for deadline in (1.0, 30.0):
        np.testing.assert_allclose(
            least_band(short, deadline), least_band(full, deadline), rtol=1e-9
        )
    plan, same = allocate(short, 1e6), allocate(full, 1e6)
    assert plan.time == pytest.approx(same.time, rel=1e-12)
    assert plan.certificate.gap <= 1e-9
    thrifty = least_energy(short, 1e6, 2.0 * plan.time)
    np.testing.assert_allclose(
        thrifty.energy, least_energy(full, 1e6, 2.0 * plan.time).energy, rtol=1e-9
    )
    np.testing.assert_allclose(
        allocate_fixed_band(short, 5e5).ue_time, allocate_fixed_band(full, 5e5).ue_time, rtol=1e-9
    )


def test_a_ue_that_cannot_take_part_changes_nothing_for_the_others():
    alone = allocate(task_of(), 1e6)
    both = allocate(task_of(max_energy=np.array([1e-3, 1e-12])), 1e6)
    np.testing.assert_array_equal(both.able, [True, False])
    assert both.time == alone.time
    np.testing.assert_array_equal(both.band, [alone.band[0], 0.0])


@pytest.mark.parametrize("factor", [1.0, 1.15, 3.0])
def test_least_energy_makes_the_deadline_within_every_budget_and_never_takes_more(factor):
    for seed in SEEDS:
        task, total_band = random_cell(seed)
        fast = allocate(task, total_band)
        if not fast.able.any():
            continue
        slow = least_energy(task, total_band, factor * fast.time)
        assert slow.time <= factor * fast.time * (1.0 + 1e-12)
        assert violation(task, slow, total_band) <= 1e-12
        assert slow.energy.sum() <= fast.energy.sum() * (1.0 + 1e-12)
        assert slow.certificate.residual <= 1e-8


def test_no_exchange_of_band_between_two_ues_saves_energy():
    rng = np.random.default_rng(3)
    exchanges = 0
    for seed in SEEDS:
        task, total_band = random_cell(seed)
        fast = allocate(task, total_band)
        if not fast.able.all() or len(task.cycles) < 2:
            continue
        deadline = 1.3 * fast.time
        slow = least_energy(task, total_band, deadline)
        for _ in range(5):
            giver, taker = rng.choice(len(task.cycles), 2, replace=False)
            amount = 10.0 ** rng.uniform(-5.0, -1.0) * slow.band[[giver, taker]].min()
            band = slow.band.copy()
            band[giver] -= amount
            band[taker] += amount
            other = least_energy_fixed_band(task, band, deadline)
            if other.able.all():
                exchanges += 1
                assert other.energy.sum() >= slow.energy.sum() * (1.0 - 1e-11)
    assert exchanges > 100


def test_least_energy_in_a_fixed_band_is_that_of_a_grid():
    for seed in range(12):
        task, total_band = random_cell(seed)
        fast = allocate(task, total_band)
        if not fast.able.all():
            continue
        deadline = 1.5 * fast.time
        slow = least_energy_fixed_band(task, fast.band, deadline)
        for ue, (cycles, bits, gain_to_noise, _, strongest, low, high) in enumerate(rows(task)):
            frequency = np.geomspace(max(low, cycles / deadline), high, 200_001)[1:]
            upload = deadline - cycles / frequency
            most = bits / (fast.band[ue] * math.log2(1.0 + task.phi))
            upload = np.minimum(upload, most)  # slower than at the threshold is not decoded
            power = (
                np.expm1(bits * math.log(2.0) / (fast.band[ue] * upload))
                * fast.band[ue]
                / gain_to_noise
            )
            energy = np.where(
                power <= strongest, task.kappa * cycles * frequency**2 + power * upload, np.inf
            )
            assert slow.energy[ue] <= energy.min() * (1.0 + 1e-12)
            assert slow.energy[ue] == pytest.approx(energy.min(), rel=1e-3)


def test_a_deadline_that_nobody_can_make_is_said_to_be_too_short():
    task, total_band = random_cell(0)
    early = least_energy(task, total_band, 0.99 * allocate(task, total_band).time)
    assert early.outcome is Outcome.TOO_SHORT
    assert not early.able.any()
