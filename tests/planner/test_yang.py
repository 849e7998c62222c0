"""Yang et al.'s planner: their closed form where energy does not bind, brute force where it does."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import lambertw

from autofl.network import Cell, decoded, round_cost
from autofl.planner import FixedPlanner
from autofl.planner.yang import YangPlanner


def cell_of(seed, num_ue=4, **others):
    rng = np.random.default_rng(seed)
    values = {
        "distance": rng.uniform(50.0, 250.0, num_ue),
        "cycles_per_sample": rng.uniform(0.8e5, 1.2e5, num_ue),
        "cpu_frequency": 10.0 ** rng.uniform(8.5, 9.3, num_ue),
        "max_energy": 10.0 ** rng.uniform(-3.0, -2.0, num_ue),
        "max_power": 10.0 ** rng.uniform(-2.3, -1.7, num_ue),
        "bandwidth": rng.uniform(0.5e6, 2e6, num_ue),
    }
    cell = Cell(**{**values, **others})
    return cell, rng.exponential(1.0, num_ue) * cell.distance**-3.8


def planned(cell, gain, **settings):
    plan, _ = YangPlanner(**settings)(cell, gain, {})
    return plan, round_cost(cell, gain, plan)


@pytest.mark.parametrize("seed", range(5))
def test_without_an_energy_limit_it_is_their_closed_form(seed):
    """f = f_max, p = p_max, and the band of time t is a Lambert W (their theorem); all users end
    together.
    """
    cell, gain = cell_of(seed, max_energy=np.array(1e3))
    plan, cost = planned(cell, gain)
    on = plan.feasible
    assert on.sum() >= 2
    np.testing.assert_allclose(plan.cpu_frequency[on], cell.cpu_frequency[on], rtol=1e-9)
    np.testing.assert_allclose(plan.tx_power[on], cell.max_power[on], rtol=1e-9)
    time = float(cost.time) - cell.cycles_per_sample * plan.num_samples / cell.cpu_frequency
    x = np.log(2.0) * cell.noise_psd * cell.update_bits / (gain * cell.max_power * time)
    band = -np.log(2.0) * cell.update_bits / (time * (lambertw(-x * np.exp(-x), -1).real + x))
    np.testing.assert_allclose(plan.bandwidth[on], band[on], rtol=1e-7)
    np.testing.assert_allclose(plan.bandwidth[on].sum(), cell.bandwidth.sum(), rtol=1e-9)


def brute_band(cell, i, gain, deadline, samples):
    """The least band of UE i by trying upload times: the power it can pay for, then the band that
    carries Z.
    """
    work, best = cell.local_steps[i] * cell.cycles_per_sample[i] * samples, np.inf
    for time in np.linspace(0.0, deadline - work / cell.cpu_frequency[i], 4001)[1:]:
        frequency = work / (deadline - time)
        rest = cell.max_energy[i] - 0.5 * cell.capacitance * work * frequency**2
        power = min(cell.max_power[i], rest / time)
        if power <= 0.0:
            continue
        a = power * gain / cell.noise_psd
        rate = cell.update_bits[i] / time
        if a / np.log(2.0) <= rate:  # even an infinite band carries less
            continue
        band = brentq(lambda b, a=a, rate=rate: b * np.log2(1.0 + a / b) - rate, 1e-3, 1e15)
        if a / band >= cell.snr_threshold:
            best = min(best, band)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_shorter_deadline_fits_the_band(seed):
    cell, gain = cell_of(seed + 20, num_ue=3, max_energy=np.array([1e-3, 2.5e-3, 4e-3]))
    plan, cost = planned(cell, gain)
    on = np.flatnonzero(plan.feasible)
    assert len(on) >= 1
    assert (
        cost.energy[on] > 0.99 * cell.max_energy[on]
    ).any()  # or the first test would be the same

    def total(deadline):
        return sum(brute_band(cell, i, gain[i], deadline, plan.num_samples[i]) for i in on)

    assert total(float(cost.time) * 0.999) > cell.bandwidth.sum()
    assert total(float(cost.time) * 1.001) < cell.bandwidth.sum()


def test_limits_hold_and_everybody_ends_together():
    heard = 0
    for seed in range(16):
        cell, gain = cell_of(
            seed + 100, num_ue=6, distance=np.random.default_rng(seed).uniform(20.0, 500.0, 6)
        )
        for reach in ("own", "any"):
            plan, cost = planned(cell, gain, reach=reach)
            on = plan.feasible
            heard += on.sum()
            assert (cost.energy <= cell.max_energy * (1 + 1e-10)).all()
            assert (plan.tx_power <= cell.max_power).all()
            assert (plan.cpu_frequency <= cell.cpu_frequency * (1 + 1e-12)).all()
            assert plan.bandwidth[on].sum() <= cell.bandwidth.sum() * (1 + 1e-12)
            assert decoded(plan.applied(cell), gain, plan.tx_power)[on].all()
            np.testing.assert_allclose(
                (cost.upload_time + cost.compute_time)[on], cost.time, rtol=1e-9
            )
    assert heard > 60


def test_it_is_never_slower_than_the_cells_own_band_and_frequency():
    for seed in range(16):
        cell, gain = cell_of(seed + 300)
        fixed, _ = FixedPlanner(num_samples=40)(cell, gain, {})
        cell, gain = cell.take(np.flatnonzero(fixed.feasible)), gain[fixed.feasible]
        if cell.num_ue:
            fixed, _ = FixedPlanner(num_samples=40)(cell, gain, {})
            plan, cost = planned(cell, gain)
            assert plan.feasible.all()
            assert cost.time <= round_cost(cell, gain, fixed).time * (1 + 1e-9)


def test_a_ue_out_of_reach_takes_no_part_and_leaves_its_band_to_the_others():
    cell = Cell(
        distance=np.array([100.0, 100.0, 300.0, 3000.0]),
        max_energy=np.array([3e-3, 3e-3, 3e-3, 3e-3]),
    )
    gain = cell.distance**-3.8
    plan, _ = planned(cell, gain)
    assert plan.feasible.tolist() == [True, True, False, False]
    np.testing.assert_allclose(
        plan.bandwidth[:2], 2e6, rtol=1e-9
    )  # two equal UEs share what four bring
    wide, _ = planned(cell, gain, reach="any")  # a third of the band has three times the SNR
    assert wide.feasible.tolist() == [True, True, True, False]
    assert wide.bandwidth[2] < 1e6


def test_nobody_in_reach_is_no_error():
    cell = Cell(distance=np.array([5000.0, 6000.0]))
    plan, cost = planned(cell, np.array([0.0, 1e-16]))
    assert not plan.feasible.any()
    assert (cost.energy == 0.0).all()
