"""The joint planner as a whole; its allocation and its discrete choices have tests of their own."""

import dataclasses
import itertools

import numpy as np
import pytest

from autofl.errors import AutoFLError
from autofl.network import DECISIONS, LIMITS, Cell, Status, channel_gain, round_cost
from autofl.planner import ExactPlanner, joint
from autofl.planner.allocation import Task, allocate
from autofl.planner.allocation.shannon import ShannonLaws
from autofl.planner.joint import SAMPLED, WIDEST, JointPlanner
from autofl.planner.pace import Pace

RATES = [[0.1, 18.0], [0.4, 2.3], [1.6, 0.08]]
OFF = dict.fromkeys(("admission", "steps", "samples", "frequency", "band", "bits"), False)


def drawn(num_ue=5, radius=200.0, seed=1, **others):
    cell = Cell.disc(
        num_ue=num_ue, radius=radius, seed=seed, update_bits=np.array(32.0 * 79_510), **others
    )
    return cell, channel_gain(cell, np.random.default_rng(seed).exponential(1.0, num_ue))


def test_with_every_decision_off_it_is_the_exact_planner():
    for seed in range(20):
        cell, gain = drawn(8, 300.0, seed)
        planner = JointPlanner(**OFF)
        plan, _ = planner(cell, gain, planner.init(cell))
        exact, _ = ExactPlanner()(cell, gain, {})
        for name in (*DECISIONS, *LIMITS):
            np.testing.assert_array_equal(getattr(plan, name), getattr(exact, name), err_msg=name)


@pytest.mark.parametrize("name", OFF)
def test_what_is_switched_off_stays_as_the_cell_has_it(name):
    cell, gain = drawn(6, 250.0, 3, local_steps=np.array(2.0))
    planner = JointPlanner(**{name: False}, rates=RATES)
    plan, _ = planner(cell, gain, planner.init(cell))
    there = plan.feasible
    assert there.any()
    held = {
        "steps": (plan.local_steps, np.full(6, 2)),
        "samples": (plan.num_samples, np.full(6, 50)),
        "frequency": (plan.cpu_frequency, cell.cpu_frequency),
        "band": (plan.bandwidth, cell.bandwidth),
        "bits": (plan.bits_per_weight, np.full(6, 32.0)),
    }
    if name == "admission":
        assert (plan.status != Status.LEFT_OUT).all()
    elif name == "samples":
        assert (plan.num_samples[there] <= 50).all()
    else:
        np.testing.assert_array_equal(held[name][0][there], held[name][1][there])


def test_limits_hold_to_the_last_bit_and_the_time_is_certified():
    for seed, budget in itertools.product(range(15), (3e-4, 3e-3, 3e-2)):
        cell, gain = drawn(5, 400.0, seed, max_energy=np.array(budget))
        planner = JointPlanner(rates=RATES)
        memory = planner.init(cell)
        for _ in range(3):
            plan, memory = planner(cell, gain, memory)
            if not plan.feasible.any():
                continue
            cost, there = round_cost(cell, gain, plan), plan.feasible
            assert (cost.energy <= cell.max_energy).all()
            assert (plan.tx_power <= cell.max_power).all()
            assert (plan.cpu_frequency[there] <= cell.cpu_frequency[there] * (1 + 1e-12)).all()
            assert (plan.cpu_frequency[there] >= cell.min_cpu_frequency[there] * (1 - 1e-12)).all()
            assert plan.bandwidth[there].sum() <= cell.bandwidth.sum() * (1 + 1e-12)
            assert plan.certificate is not None
            assert plan.certificate.gap <= 1e-9
            assert float(cost.time) == pytest.approx(plan.certificate.upper, rel=1e-9)


def test_a_first_round_is_hardly_worse_than_the_best_of_all_combinations():
    """Every combination of options of two UEs, each with its exact allocation: the best progress a
    second.
    """
    pace, rates = Pace(), RATES[:2]
    grid = list(itertools.product((2, 4, 8), (8, 16), rates))
    for seed in range(4):
        cell, gain = drawn(2, 250.0, seed)
        best = 0.0
        for options in itertools.product(grid, repeat=2):
            tau, d = (
                np.array([option[place] for option in options], dtype=float) for place in (0, 1)
            )
            bits, variance = np.array([option[2] for option in options]).T
            task = Task(
                cell.cycles_per_sample * tau * d, bits * cell.num_weights, gain / cell.noise_psd, cell.max_energy,
                cell.max_power, cell.min_cpu_frequency, cell.cpu_frequency, cell.snr_threshold, 0.5 * cell.capacitance,
            )  # fmt: skip
            found_time = allocate(task, float(cell.bandwidth.sum())).time
            best = max(best, float(pace.progress(tau, d, variance, 2).sum()) / found_time)
        planner = JointPlanner(rates=RATES, least_bits=0.0, least_samples=8)
        _, memory = planner(cell, gain, planner.init(cell))
        assert float(memory["progress"] / memory["time"]) >= 0.95 * best


@pytest.mark.parametrize("num_ue", [1, 5, 30, 100, SAMPLED + 30])
def test_trials_that_cannot_be_better_are_left_out_without_changing_a_bit(monkeypatch, num_ue):
    for seed, rates in itertools.product(range(2 if num_ue < 100 else 1), (RATES, None)):
        cell, gain = drawn(num_ue, 300.0, seed)
        planner, plans = JointPlanner(rates=rates), []
        for at_once in (4, WIDEST):
            with monkeypatch.context() as patched:
                patched.setattr(joint, "AT_ONCE", at_once)
                patched.setattr(joint, "MANY", 0)
                plans.append(planner(cell, gain, planner.init(cell))[0])
        for name in (*DECISIONS, *LIMITS):
            assert getattr(plans[0], name).tobytes() == getattr(plans[1], name).tobytes(), name


def test_a_deadline_that_rounding_made_too_short_leaves_the_fastest_plan(monkeypatch):
    """The real solver refuses it; the round is then the shortest one, not the end of a run."""
    cell, gain = drawn()
    its = []
    allocate = ShannonLaws.allocate

    def early(laws, total):
        fastest = allocate(laws, total)
        its.append(fastest)
        return dataclasses.replace(fastest, time=fastest.time * (1.0 - 1e-6))

    planner = JointPlanner(rates=RATES)
    monkeypatch.setattr(ShannonLaws, "allocate", early)
    plan, _ = planner(cell, gain, planner.init(cell))
    np.testing.assert_array_equal(plan.bandwidth[plan.feasible], its[0].band)


def test_thrift_trades_time_for_energy():
    cell, gain = drawn(5, 200.0, 2)
    times, energies = [], []
    for thrift in (0.0, 0.25, 1.0):
        planner = JointPlanner(thrift=thrift, rates=RATES, admission=False)
        plan, _ = planner(cell, gain, planner.init(cell))
        cost = round_cost(cell, gain, plan)
        times.append(float(cost.time))
        energies.append(float(cost.energy.sum()))
    assert times[1] <= 1.25 * times[0] * (1 + 1e-9)
    assert energies[0] > energies[1] > energies[2]


def test_overhead_calls_for_more_work_in_a_round():
    work = []
    for overhead in (0.0, 0.01, 0.1):
        cell, gain = drawn(5, 200.0, 2, overhead=overhead)
        planner = JointPlanner(rates=RATES)
        plan, _ = planner(cell, gain, planner.init(cell))
        work.append(int((plan.local_steps * plan.num_samples)[plan.feasible].mean()))
    assert work[0] < work[1] < work[2]


def heard_at_the_edge(rounds, **given):
    """How often a UE is heard that all others would rather do without, and in which rounds, its
    channel fading.
    """
    cell = Cell(distance=np.array([50.0, 60.0, 70.0, 600.0]), update_bits=np.array(32.0 * 79_510))
    planner, rng = JointPlanner(rates=RATES, **given), np.random.default_rng(8)
    memory, fading, heard = planner.init(cell), [], []
    for _ in range(rounds):
        fading.append(rng.uniform(0.7, 3.0))
        plan, memory = planner(
            cell, channel_gain(cell, np.array([1.0, 1.0, 1.0, fading[-1]])), memory
        )
        heard.append(bool(plan.feasible[3]))
    return np.array(fading), np.array(heard)


def test_nobody_starves():
    """A UE at the edge would be left out for ever; the floor has it heard, at most `patience`
    rounds late.
    """
    assert not heard_at_the_edge(60, floor=0.0)[1].any()
    for patience in (0, 4):
        _, heard = heard_at_the_edge(60, floor=0.5, patience=patience)
        behind = 0.5 * np.arange(1, 61) - np.cumsum(heard)
        assert behind.max() <= patience + 0.5
        assert behind[-1] >= -1.0  # and no more often than it must


def test_among_many_nobody_starves_who_was_not_sampled():
    """The deadline is found on some of 1,000 UEs; those far away are at the places that are not
    looked at.
    """
    looked_at = set(np.linspace(0, 999, SAMPLED).astype(int).tolist())
    far = np.array([i for i in range(1000) if i not in looked_at][::20])
    distance = np.linspace(20.0, 150.0, 1000)
    distance[far] = 600.0
    cell = Cell(distance=distance, update_bits=np.array(32.0 * 79_510))
    planner, gain = JointPlanner(rates=RATES, patience=0), channel_gain(cell, np.ones(1000))
    memory = planner.init(cell)
    memory["asked"][far] = 2.0
    plan, _ = planner(cell, gain, memory)
    assert plan.feasible[far].all()


@pytest.mark.slow
def test_patience_waits_for_a_better_channel():
    fading, at_once = heard_at_the_edge(200, floor=0.3, patience=0)
    _, patient = heard_at_the_edge(200, floor=0.3, patience=4)
    assert patient.sum() >= at_once.sum() - 5
    assert fading[patient].mean() > 1.1 * fading[at_once].mean()


def test_lambda_is_the_progress_a_second_so_far():
    cell, _ = drawn(5, 200.0, 2)
    planner = JointPlanner(rates=RATES)
    memory, rng = planner.init(cell), np.random.default_rng(5)
    progress = time = 0.0
    for _ in range(10):
        gain = channel_gain(cell, rng.exponential(1.0, 5))
        plan, memory = planner(cell, gain, memory)
        there = plan.feasible
        variance = np.interp(plan.bits_per_weight[there], *np.array(RATES).T)
        progress += float(
            Pace().progress(plan.local_steps[there], plan.num_samples[there], variance, 5).sum()
        )
        time += float(round_cost(cell, gain, plan).time)
    assert float(memory["progress"]) == pytest.approx(progress, rel=1e-9)
    assert float(memory["time"]) == pytest.approx(time, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rates": [[0.0, 1.0]]}, "rates"),
        ({"pace": [1.0, 2.0]}, "five"),
        ({"pace": [0.0, 0.0, 1.0, 1.0, 1.0]}, "not both 0"),
        ({"pace": [1e308, 0.0, 0.0, 1.0, 1.0]}, "from 0 to"),
        ({"pace": [1e-320, 0.0, 0.0, 0.0, 0.0]}, "not both 0"),
    ],
)
def test_nonsense_is_refused_in_one_line(given, words):
    with pytest.raises(AutoFLError, match=words):
        JointPlanner(**given)


def test_bits_that_nobody_packs_are_refused():
    assert JointPlanner(
        rates=RATES
    ).needs_compressor  # else 32 bits a weight would travel at the price of 0.1
    assert not JointPlanner(rates=RATES, bits=False).needs_compressor
    assert not JointPlanner(rates=[]).needs_compressor
    assert not JointPlanner().needs_compressor


@pytest.mark.parametrize("rate", [[0.2, np.nan], [np.nan, 1.0], [np.inf, 1.0], [0.2, np.inf]])
def test_rates_that_are_no_numbers_are_refused(rate):
    with pytest.raises(AutoFLError, match="rates"):
        JointPlanner(rates=[rate])


def test_a_small_model_is_offered_no_rate_that_its_compressor_cannot_keep():
    from autofl.compressors.entropy import Entropy
    from autofl.experiments.cell import rates_of

    compressor = Entropy()
    assert rates_of(compressor, 79_510) == [list(pair) for pair in compressor.rates()]
    for num_weights in (50, 300, 3000):
        rates = rates_of(compressor, num_weights)
        assert rates
        for bits, _ in rates:
            assert compressor.update_bits(num_weights, bits) <= bits * num_weights
