"""Planners with every rate law, amplifier and circuits against dense grids; `make radio` has 1,000
cells.
"""

import dataclasses

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.network import Status, round_cost, upload_cost
from autofl.network.links.nr import Nr256
from autofl.planner import ExactPlanner, FixedPlanner, PaperPlanner
from autofl.planner.allocation import (
    Outcome,
    Task,
    allocate,
    allocate_fixed_band,
    laws_of,
    least_band,
    least_energy,
    least_energy_fixed_band,
    shortest,
)
from autofl.planner.allocation.staircase import flights_of
from autofl.planner.joint import JointPlanner
from autofl.planner.power import least_upload
from autofl.planner.yang import YangPlanner
from reference.allocation_reference import random_cell
from reference.cells import paper_cell
from reference.radio_checks import CHECKS, Worst, tasks
from reference.radio_reference import KINDS, least_band_of, least_energy_of, random_radio


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_plan_on_a_dense_grid_is_better_by_a_thousandth(check):
    worst = Worst()
    for seed in range(12 if check.__name__.startswith("thrift_in_shared") else 60):
        check(seed, worst)
    assert worst.count >= 10
    assert worst.off <= 1e-3
    assert worst.violation <= 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_without_circuits_and_ceiling_the_general_method_gives_the_fast_ones_times(seed):
    """A ceiling that is never reached sends the task the slow way."""
    task, total = random_cell(seed)
    other = dataclasses.replace(task, ceiling=600.0)
    fast, slow = allocate(task, total), allocate(other, total)
    np.testing.assert_array_equal(np.isfinite(shortest(other)), fast.able)
    if not fast.able.any():
        return
    np.testing.assert_allclose(slow.time, fast.time, rtol=1e-9)
    deadline = 1.2 * fast.time
    thrifty = least_energy(task, total, deadline).energy.sum()
    np.testing.assert_allclose(
        least_energy(other, total, deadline).energy.sum(), thrifty, rtol=1e-6
    )
    own = np.full(len(task.cycles), total / len(task.cycles))
    one, two = allocate_fixed_band(task, own), allocate_fixed_band(other, own)
    np.testing.assert_array_equal(one.able, two.able)
    np.testing.assert_allclose(two.ue_time, one.ue_time, rtol=1e-9)
    if one.able.any():
        one, two = (least_energy_fixed_band(kind, own, 1.2 * one.time) for kind in (task, other))
        np.testing.assert_allclose(two.energy, one.energy, rtol=1e-6)


def agree(ours, theirs):
    """At the very edge of what is possible, rounding decides who can take part."""
    possible = np.isfinite(ours) & np.isfinite(theirs)
    assert (np.isfinite(ours) != np.isfinite(theirs)).mean() < 0.01
    np.testing.assert_allclose(ours[possible], theirs[possible], rtol=1e-8)
    return int(possible.sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_least_band_and_energy_are_those_of_trying_everything(kind):
    """All levels, or all times and efficiencies, by slow searches; times from the shortest to far
    too long ones.
    """
    compared = 0
    for seed in range(kind, kind + 10 * len(KINDS), len(KINDS)):
        task = dataclasses.replace(
            tasks(seed)[3], circuit_power=1e-3 * (1 + seed % 5)
        )  # no task is a plain one
        least = shortest(task)
        if not np.isfinite(least).any():
            continue
        deadlines = least[np.isfinite(least)].min() * np.geomspace(1.003, 3e3, 12)[:, None]
        ours = least_band(task, deadlines)
        compared += agree(ours, least_band_of(task, deadlines))
        wider = np.where(np.isfinite(ours), ours, 1e6) * np.array([1.01, 1.3, 10.0])[:, None, None]
        point = laws_of(task).thriftiest(wider, deadlines)
        compared += agree(
            np.where(point.able, point.energy, np.inf), least_energy_of(task, wider, deadlines)
        )
    assert compared > 500


def test_a_scattered_table_is_searched_in_several_flights():
    """Each of them a curve like Shannon's; the tables of NR are one."""
    rising = tuple((0.5 * k, 2.0**k - 1.0) for k in range(1, 6))
    assert [len(flight.y) for flight in flights_of(rising)] == [5]
    assert [len(flight.y) for flight in flights_of(Nr256().law().levels)] == [28]
    scattered = (*rising[:3], (1.75, 14.0), *rising[3:])
    assert [len(flight.y) for flight in flights_of(scattered)] == [4, 2]


@pytest.mark.parametrize("seed", range(12))
def test_every_planner_keeps_every_budget(seed):
    cell, gain = random_radio(seed, 5)
    rates = [[1.0, 1.5], [4.0, 0.1]]
    for planner in (
        ExactPlanner(0.02),
        PaperPlanner(0.02),
        FixedPlanner(10),
        JointPlanner(rates=rates),
        JointPlanner(rates=rates, thrift=0.3),
        JointPlanner(rates=rates, band=False),
        JointPlanner(samples=False, bits=False, epsilon=0.1),
    ):
        memory = planner.init(cell)
        for _ in range(2):
            plan, memory = planner(cell, gain, memory)
            assert plan.problem(cell) is None
            cost = round_cost(cell, gain, plan)
            assert (cost.energy <= cell.max_energy * (1.0 + 1e-9)).all(), planner
            assert np.isfinite(cost.upload_time).all()
            assert plan.bandwidth[plan.feasible].sum() <= cell.bandwidth.sum() * (1.0 + 1e-9)
            if isinstance(planner, JointPlanner) and plan.certificate is not None:
                slowest = (cost.upload_time + cost.compute_time).max()
                assert slowest <= plan.certificate.upper * (1.0 + planner.thrift) * (1.0 + 1e-9)


def test_at_the_top_of_the_table_more_power_is_not_asked_for():
    cell, _ = random_radio(4, 3)
    plenty = {"max_energy": np.full(3, 10.0), "data_size": np.full(3, 100.0)}
    strong = dataclasses.replace(cell, **plenty, link=Nr256().law())
    plan, _ = ExactPlanner(0.02)(strong, np.full(3, 1e-6), {})
    assert (plan.tx_power < strong.max_power).all()
    assert (plan.power_limit == Status.RATE).all()
    assert (plan.status == Status.RATE).all()
    assert plan.feasible.all()
    assert (round_cost(strong, np.full(3, 1e-6), plan).upload_time > 0.0).all()
    weak, _ = ExactPlanner(0.02)(
        strong, 100.0 * strong.noise_power / strong.max_power, {}
    )  # 20 dB at P_max
    assert (weak.tx_power < strong.max_power).all()  # of its level it has the least power
    assert (weak.power_limit == Status.POWER).all()


def test_with_circuits_the_power_of_least_energy_is_not_the_lowest():
    """An SNR of 1,000 a watt and 0.2 W of circuits: (x + 200)/ln(1 + x) is least between phi = 0.1
    and P_max.
    """
    cell = dataclasses.replace(
        random_radio(0, 1)[0], circuit_power=0.2, pa_efficiency=1.0, snr_threshold=0.1
    )
    power, energy = least_upload(cell, cell.noise_power * 1e3)
    snr = np.geomspace(0.1, 1e4, 1_000_001)
    best = snr[((snr + 200.0) / np.log1p(snr)).argmin()]
    strong = cell.having(max_power=np.array([1.0]))
    np.testing.assert_allclose(
        least_upload(strong, cell.noise_power * 1e3)[0] * 1e3, best, rtol=1e-4
    )
    np.testing.assert_allclose(power, np.minimum(best / 1e3, cell.max_power), rtol=1e-4)
    assert energy < upload_cost(cell, cell.noise_power * 1e3, np.array([1e-4])).energy


def test_a_rival_whose_formulas_do_not_hold_says_so():
    cell, gain = random_radio(4, 3)
    with pytest.raises(AutoFLError, match="planner yang: its formulas are those of link shannon"):
        YangPlanner(10)(cell, gain, {})


@pytest.mark.parametrize(
    "planner",
    [ExactPlanner(0.02), PaperPlanner(0.02), FixedPlanner(5)],
    ids=lambda one: type(one).__name__,
)
def test_a_gain_just_on_a_threshold_at_the_highest_power_has_that_level(planner):
    rng = np.random.default_rng(3)
    cell = paper_cell(
        400, link=Nr256().law(), bandwidth=rng.uniform(1e5, 2e6, 400), max_energy=50.0
    )
    level = rng.integers(0, len(cell.link.levels), 400)
    gain = np.array(cell.link.levels)[level, 1] * cell.noise_power / cell.max_power
    plan, _ = planner(cell, gain, planner.init(cell))
    assert plan.feasible.all()
    assert (plan.tx_power <= cell.max_power).all()
    np.testing.assert_allclose(
        upload_cost(cell, gain, plan.tx_power).time,
        upload_cost(cell, gain, np.full(400, cell.max_power)).time,
    )


def random_staircase(seed):
    """UEs with a staircase of their own, and a band for them; some decide frequencies, some have
    circuits.
    """
    rng = np.random.default_rng((7, seed))
    num_ue, num_levels = int(rng.choice([1, 1, 2, 5, 20])), int(rng.integers(1, 9))
    y = np.cumsum(rng.uniform(0.05, 0.8, num_levels))
    snr = np.expm1(y) * rng.uniform(1.0, 3.0)
    task = Task(
        cycles=rng.uniform(1e5, 1e8, num_ue),
        bits=10.0 ** rng.uniform(3.0, 7.0, num_ue),
        gain_to_noise=10.0 ** rng.uniform(4.0, 10.0, num_ue),
        max_energy=10.0 ** rng.uniform(-4.0, 0.0, num_ue),
        max_power=rng.choice([0.01, 0.1, 0.2], num_ue),
        min_frequency=np.full(num_ue, 1e8),
        max_frequency=np.full(num_ue, rng.choice([1e8, 1e9])),
        phi=1e-3,
        kappa=5e-28,
        circuit_power=float(rng.choice([0.0, 0.05])),
        levels=tuple(zip(y.tolist(), snr.tolist(), strict=True)),
    )
    return task, 10.0 ** rng.uniform(4.0, 8.0)


def test_on_any_staircase_the_least_time_is_a_deadline_that_can_be_met():
    """A rounding error before it, no level may be left; and a longer deadline never costs energy."""
    met = 0
    for seed in range(200):
        task, total = random_staircase(seed)
        fastest = allocate(task, total)
        if fastest.outcome is Outcome.NO_BAND:  # circuits use up the energy at any deadline
            continue
        for deadline in (fastest.time, np.nextafter(fastest.time, 0.0), 1.25 * fastest.time):
            if fastest.able.any():
                thrifty = least_energy(task, total, deadline)
                np.testing.assert_array_equal(thrifty.able, fastest.able)
                assert thrifty.time <= deadline * (1.0 + 1e-11)
                assert thrifty.energy.sum() <= fastest.energy.sum() * (1.0 + 1e-6)
                assert thrifty.band.sum() <= total * (1.0 + 1e-9)
                met += 1
    assert met > 200
