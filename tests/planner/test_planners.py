import math

import numpy as np
import pytest

from autofl.network import DECISIONS, LIMITS, STATUS_NAMES, Cell, Status, channel_gain, stacked
from autofl.planner import ExactPlanner, FixedPlanner, PaperPlanner
from reference.cells import UPDATE_BITS, paper_cell
from reference.planner_reference import (
    Ue,
    best_by_brute_force,
    paper_round,
    power_by_bisection,
    ues_of,
)

# A number of samples is cut to an integer with a slack of 1e-9, relative and absolute, so d samples
# may take the energy
# of 1e-9 (d + 1) samples too much; with d >= 3 that is at most 4/3 * 1e-9 of E_max.
ENERGY_SLACK = 2e-9
DECODE_SLACK = 1e-11  # ten times the relative slack of the decoding test


def gain_for_snr(cell, ratio):
    """The gain that makes the SNR at P_max the given ratio."""
    return ratio * cell.noise_psd * cell.bandwidth / cell.max_power


def memory_of(planner, cell, previous_power):
    """What a planner remembers of a whole cell whose UEs sent at this power in their last rounds."""
    return dict.fromkeys(planner.init(cell), previous_power)


def first_plan(planner, cell, gain):
    """The plan of the first round of this whole cell."""
    return planner(cell, gain, planner.init(cell))[0]


# At SNR 2^14 - 1 each hertz carries 14 bit/s: an upload at P_max takes 2.54432 / 14 = 0.181737 s
# and 1.817371 mJ. The
# least power that is decoded, 10 mW * 1000 / 16383 = 0.610389 mW, takes 2.54432 / log2(1001) =
# 0.255267 s, 0.155812 mJ.
FOURTEEN_BITS = 2.0**14 - 1.0


def random_cell(seed, num_ue, epsilon, snr_threshold, local_steps=1):
    """A cell and gains in which every constraint binds some UE.

    SNRs at P_max lie around the threshold and up to a thousand times above it; energies around what
    the least decoded power takes plus the computing of up to 1.5 times the wanted samples.
    """
    rng = np.random.default_rng(seed)
    fields = {
        "distance": np.full(num_ue, 100.0),
        "cycles_per_sample": 10.0 ** rng.uniform(4.0, 6.0, num_ue),
        "cpu_frequency": 10.0 ** rng.uniform(8.5, 9.5, num_ue),
        "data_size": rng.integers(0, math.ceil(4.0 / epsilon), num_ue),
        "max_power": 10.0 ** rng.uniform(-3.0, 0.0, num_ue),
        "bandwidth": 10.0 ** rng.uniform(5.0, 7.0, num_ue),
        "update_bits": UPDATE_BITS,
        "local_steps": local_steps,
        "snr_threshold": snr_threshold,
    }
    free = Cell(max_energy=1.0, **fields)
    gain = gain_for_snr(free, snr_threshold * 10.0 ** rng.uniform(-0.3, 3.0, num_ue))
    least_power = snr_threshold * free.noise_power / gain
    least_upload = [
        ue.upload_energy(power) for ue, power in zip(ues_of(free, gain), least_power, strict=True)
    ]
    upload = least_upload * 10.0 ** rng.uniform(-0.1, 1.5, num_ue)
    compute = local_steps * rng.uniform(0.0, 1.5 / epsilon, num_ue) * free.energy_per_sample
    return Cell(max_energy=upload + compute, **fields), gain


CASES = [
    pytest.param(1, 0.02, 1000.0, 1, id="as in the paper"),
    pytest.param(2, 0.013, 1000.0, 4, id="four local steps"),
    pytest.param(3, 0.2, 1000.0, 1, id="five samples wanted"),
    pytest.param(4, 0.03, 1.0, 2, id="threshold 0 dB"),
    pytest.param(5, 0.02, 1e-3, 1, id="threshold -30 dB"),
    pytest.param(6, 0.02, 1e6, 1, id="threshold 60 dB"),
]


@pytest.mark.parametrize(("seed", "epsilon", "snr_threshold", "local_steps"), CASES)
def test_exact_finds_what_brute_force_finds_and_nothing_where_it_finds_nothing(
    seed, epsilon, snr_threshold, local_steps
):
    cell, gain = random_cell(seed, 1000, epsilon, snr_threshold, local_steps)
    plan = first_plan(ExactPlanner(epsilon), cell, gain)
    for i, ue in enumerate(ues_of(cell, gain)):
        best = best_by_brute_force(ue, epsilon)
        assert plan.feasible[i] == (best is not None)
        if best is None:
            assert (plan.num_samples[i], plan.tx_power[i]) == (0, 0.0)
            continue
        assert plan.num_samples[i] == best.num_samples
        # Not slower than the best of the grid, and not past the next power of the grid, which costs
        # too much.
        assert ue.time(plan.num_samples[i], plan.tx_power[i]) <= best.time * (1.0 + 1e-12)
        assert best.power * (1.0 - 1e-12) <= plan.tx_power[i] <= best.next_power
    for status in Status:
        if status in (
            Status.LEFT_OUT,
            Status.RATE,
        ):  # of planners that choose who takes part, and of laws with a top
            assert not (plan.status == status).any()
        else:
            assert (plan.status == status).sum() >= 10, status.name


def assert_keeps_all_constraints(ue: Ue, epsilon: float, num_samples: int, tx_power: float):
    assert 3 <= num_samples <= min(1.0 / epsilon * (1.0 + 1e-9), ue.data_size)
    assert 0.0 < tx_power <= ue.max_power
    assert ue.energy(num_samples, tx_power) <= ue.max_energy * (1.0 + ENERGY_SLACK)
    assert ue.snr(tx_power) >= ue.snr_threshold * (1.0 - DECODE_SLACK)


@pytest.mark.parametrize("planner_class", [ExactPlanner, PaperPlanner])
@pytest.mark.parametrize(("seed", "epsilon", "snr_threshold", "local_steps"), CASES)
def test_no_plan_breaks_a_constraint(planner_class, seed, epsilon, snr_threshold, local_steps):
    cell, gain = random_cell(100 + seed, 1000, epsilon, snr_threshold, local_steps)
    plan = first_plan(planner_class(epsilon), cell, gain)
    ues = ues_of(cell, gain)
    assert plan.feasible.sum() >= 100
    for i in np.flatnonzero(plan.feasible):
        assert_keeps_all_constraints(ues[i], epsilon, plan.num_samples[i], plan.tx_power[i])


def assert_plan_is_the_papers(plan, memory, cell, gain, previous_power, epsilon):
    ues = ues_of(cell, gain)
    rounds = [
        paper_round(ue, power, epsilon) for ue, power in zip(ues, previous_power, strict=True)
    ]
    sends = np.array([one.sends for one in rounds])
    np.testing.assert_array_equal(plan.feasible, sends)
    np.testing.assert_array_equal(
        plan.num_samples, np.where(sends, [one.num_samples for one in rounds], 0)
    )
    # Both powers are exact to rounding, enlarged where the energy left is hardly more than the
    # least an upload takes.
    np.testing.assert_allclose(
        plan.tx_power, np.where(sends, [one.power for one in rounds], 0.0), rtol=1e-9
    )
    power = np.array([one.power for one in rounds])
    carried = np.where(
        power > 0.0, power, previous_power
    )  # where no power fits, the last one is kept
    np.testing.assert_allclose(memory["power"], carried, rtol=1e-9)


@pytest.mark.parametrize(("seed", "epsilon", "snr_threshold", "local_steps"), CASES)
def test_paper_is_algorithm_2_as_printed(seed, epsilon, snr_threshold, local_steps):
    cell, gain = random_cell(300 + seed, 1000, epsilon, snr_threshold, local_steps)
    planner = PaperPlanner(epsilon)
    rng = np.random.default_rng(seed)
    for previous_power in (
        cell.max_power,
        cell.max_power * 10.0 ** rng.uniform(-4.0, 0.0, cell.num_ue),
    ):
        plan, memory = planner(cell, gain, memory_of(planner, cell, previous_power))
        assert_plan_is_the_papers(plan, memory, cell, gain, previous_power, epsilon)
        for status in (Status.POWER, Status.DATA, Status.ENERGY, Status.INFEASIBLE):
            assert (plan.status == status).any(), status.name


def test_paper_stays_algorithm_2_when_the_channel_changes_and_power_is_carried():
    epsilon = 0.02
    cell, first_gain = random_cell(7, 300, epsilon, 1000.0)
    rng = np.random.default_rng(7)
    power, memory = cell.max_power, PaperPlanner(epsilon).init(cell)
    for _ in range(5):
        gain = first_gain * rng.exponential(1.0, cell.num_ue)
        plan, memory = PaperPlanner(epsilon)(cell, gain, memory)
        assert_plan_is_the_papers(plan, memory, cell, gain, power, epsilon)
        power = memory["power"]


def test_paper_stalls_at_full_power_where_exact_reaches_the_wanted_samples():
    # (3 - 1.817371) mJ / 50 uJ = 23.65: 23 samples of the wanted 50, and full power, in every
    # round.
    cell = paper_cell()
    gain = gain_for_snr(cell, FOURTEEN_BITS)
    memory = PaperPlanner(epsilon=0.02).init(cell)
    for _ in range(10):
        plan, memory = PaperPlanner(epsilon=0.02)(cell, gain, memory)
        assert plan.num_samples.tolist() == [23]
        assert plan.tx_power.tolist() == [1e-2]
        assert plan.status.tolist() == [Status.ENERGY]
    assert first_plan(ExactPlanner(epsilon=0.02), cell, gain).num_samples.tolist() == [50]


def test_paper_started_at_the_exact_power_does_not_stall():
    cell = paper_cell()
    gain = gain_for_snr(cell, FOURTEEN_BITS)
    exact = first_plan(ExactPlanner(epsilon=0.02), cell, gain)
    plan, _ = PaperPlanner(epsilon=0.02)(cell, gain, {"power": exact.tx_power})
    assert plan.num_samples.tolist() == [50]
    np.testing.assert_allclose(plan.tx_power, exact.tx_power, rtol=1e-12)


# One UE for each status, all at 14 bit/s/Hz unless the ratio says otherwise; wanted are 50 samples,
# 2.5 mJ.
HAND_MADE = [
    # 3 - 2.5 = 0.5 mJ pay for an upload below P_max and above the least power.
    pytest.param(
        {}, FOURTEEN_BITS, 50, Status.ACCURACY, Status.ACCURACY, Status.ENERGY, id="accuracy"
    ),
    # 10 samples, 0.5 mJ, leave 2.5 mJ, more than the 1.817 mJ of P_max.
    pytest.param(
        {"data_size": 10}, FOURTEEN_BITS, 10, Status.DATA, Status.DATA, Status.POWER, id="data"
    ),
    # 30 samples, 1.5 mJ, leave 1.5 mJ, too little for P_max: data still binds the samples.
    pytest.param(
        {"data_size": 30},
        FOURTEEN_BITS,
        30,
        Status.DATA,
        Status.DATA,
        Status.ENERGY,
        id="data below P_max",
    ),
    # (1 - 0.155812) mJ / 50 uJ = 16.88
    pytest.param(
        {"max_energy": 1e-3},
        FOURTEEN_BITS,
        16,
        Status.ENERGY,
        Status.ENERGY,
        Status.ENERGY,
        id="energy",
    ),
    # 2.5 + 1.817 mJ are less than 10 mJ.
    pytest.param(
        {"max_energy": 1e-2},
        FOURTEEN_BITS,
        50,
        Status.POWER,
        Status.ACCURACY,
        Status.POWER,
        id="power",
    ),
    # (0.31 - 0.155812) mJ / 50 uJ = 3.08: just enough for three batches.
    pytest.param(
        {"max_energy": 3.1e-4},
        FOURTEEN_BITS,
        3,
        Status.ENERGY,
        Status.ENERGY,
        Status.ENERGY,
        id="three",
    ),
    # SNR 1001 at P_max: the least power, 9.99 mW, takes 2.5501 mJ and leaves 8.998 samples; with 8
    # of them 2.6 mJ are
    # left, more than the 2.5523 mJ of P_max.
    pytest.param({}, 1001.0, 8, Status.ENERGY, Status.ENERGY, Status.POWER, id="barely decoded"),
]


@pytest.mark.parametrize(
    ("changes", "ratio", "num_samples", "status", "samples_limit", "power_limit"), HAND_MADE
)
def test_exact_names_the_constraint_that_binds(
    changes, ratio, num_samples, status, samples_limit, power_limit
):
    cell = paper_cell(**changes)
    gain = gain_for_snr(cell, ratio)
    plan = first_plan(ExactPlanner(epsilon=0.02), cell, gain)
    assert plan.feasible.tolist() == [True]
    assert plan.num_samples.tolist() == [num_samples]
    assert plan.status.tolist() == [status]
    assert plan.samples_limit.tolist() == [samples_limit]
    assert plan.power_limit.tolist() == [power_limit]
    (ue,) = ues_of(cell, gain)
    expected = power_by_bisection(ue, ue.max_energy - num_samples * 5e-5)
    np.testing.assert_allclose(plan.tx_power, [expected], rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [
        ({"data_size": 2}, FOURTEEN_BITS),
        ({"data_size": 0}, FOURTEEN_BITS),
        ({"max_energy": 3e-4}, FOURTEEN_BITS),  # (0.3 - 0.155812) mJ / 50 uJ = 2.88 samples
        ({"max_energy": 1e-4}, FOURTEEN_BITS),  # less than the least upload
        ({"max_energy": 0.0}, FOURTEEN_BITS),
        ({}, 999.0),  # not decoded even at P_max
        ({}, 0.0),  # a dead channel
    ],
    ids=[
        "two samples",
        "no sample",
        "energy for two samples",
        "no upload",
        "no energy",
        "weak",
        "dead",
    ],
)
@pytest.mark.parametrize(
    "planner",
    [ExactPlanner(0.02), PaperPlanner(0.02), FixedPlanner(5, "max")],
    ids=lambda p: str(p)[:5],
)
def test_a_ue_that_cannot_take_part_is_infeasible_and_the_others_do_not_notice(
    planner, changes, ratio
):
    able = {"data_size": 3834, "max_energy": 3e-3}
    cell = paper_cell(2, **{name: [value, able[name]] for name, value in changes.items()})
    gain = gain_for_snr(cell, np.array([ratio, FOURTEEN_BITS]))
    plan, memory = planner(cell, gain, planner.init(cell))
    assert plan.status[0] == Status.INFEASIBLE
    assert plan.feasible.tolist() == [False, True]
    assert (plan.num_samples[0], plan.tx_power[0]) == (0, 0.0)
    assert plan.num_samples[1] >= 3
    assert plan.tx_power[1] > 0.0
    assert all(np.isfinite(kept).all() for kept in memory.values())


@pytest.mark.parametrize(("shortage", "fewer"), [(0.0, 0), (5e-10, 0), (1e-6, 1)])
def test_energy_for_exactly_so_many_samples_buys_them_in_spite_of_rounding(shortage, fewer):
    # A shortage below the slack of 1e-9 counts as rounding; a millionth does not.
    num_samples = np.arange(4, 501)
    least_power = 1e-2 * 1000.0 / FOURTEEN_BITS
    least_energy = least_power * UPDATE_BITS / (1e6 * math.log2(1001.0))
    cell = paper_cell(
        len(num_samples), max_energy=least_energy + num_samples * (1.0 - shortage) * 5e-5
    )
    plan = first_plan(ExactPlanner(epsilon=0.001), cell, gain_for_snr(cell, FOURTEEN_BITS))
    assert plan.feasible.all()
    np.testing.assert_array_equal(plan.num_samples, num_samples - fewer)
    assert (plan.tx_power >= least_power * (1.0 - DECODE_SLACK)).all()
    if not fewer:
        # Nothing is left beyond the least energy but rounding: 1e-16 of up to 25 mJ, against 0.16
        # mJ.
        np.testing.assert_allclose(plan.tx_power, least_power, rtol=1e-12)


def test_an_epsilon_of_one_over_n_wants_n_samples_in_spite_of_rounding():
    cell = paper_cell(max_energy=1.0)
    gain = gain_for_snr(cell, FOURTEEN_BITS)
    for num_samples in range(3, 501):
        plan = first_plan(ExactPlanner(epsilon=1.0 / num_samples), cell, gain)
        assert plan.num_samples.tolist() == [num_samples]


def test_wanted_samples_that_are_no_whole_number_are_cut():
    cell = paper_cell(max_energy=1.0)
    plan = first_plan(ExactPlanner(epsilon=0.03), cell, gain_for_snr(cell, FOURTEEN_BITS))  # 33.3
    assert plan.num_samples.tolist() == [33]
    assert plan.status.tolist() == [Status.POWER]


def test_fixed_at_full_power_takes_part_where_the_energy_suffices():
    # 5 samples and P_max take 0.25 + 1.817371 mJ = 2.067371 mJ.
    cell = paper_cell(
        5, max_energy=[3e-3, 2.068e-3, 2.067e-3, 3e-3, 3e-3], data_size=[99, 99, 99, 4, 2]
    )
    plan = first_plan(FixedPlanner(5, "max"), cell, gain_for_snr(cell, FOURTEEN_BITS))
    assert plan.num_samples.tolist() == [5, 5, 0, 4, 0]
    assert plan.tx_power.tolist() == [1e-2, 1e-2, 0.0, 1e-2, 0.0]
    names = [Status(code).name for code in plan.status]
    assert names == ["POWER", "POWER", "INFEASIBLE", "DATA", "INFEASIBLE"]


def test_fixed_accepts_energy_that_suffices_exactly_in_spite_of_rounding():
    num_samples = np.arange(3, 103)
    cell = paper_cell(100, max_energy=num_samples * 5e-5 + 1e-2 * UPDATE_BITS / 14e6)
    gain = gain_for_snr(cell, FOURTEEN_BITS)
    for i, num in enumerate(num_samples):
        one = first_plan(FixedPlanner(int(num), "max"), cell.take(np.array([i])), gain[[i]])
        assert one.num_samples.tolist() == [num]


def test_fixed_with_computed_power_spends_all_energy_or_sends_at_full_power():
    cell = paper_cell(4, max_energy=[3e-3, 2e-3, 1e-3, 4e-4])
    gain = gain_for_snr(cell, FOURTEEN_BITS)
    plan = first_plan(FixedPlanner(5, power="computed"), cell, gain)
    names = [Status(code).name for code in plan.status]
    # At 0.4 mJ what the samples leave, 0.15 mJ, is less than the 0.1558 mJ of the least decoded
    # power.
    assert names == ["POWER", "ACCURACY", "ACCURACY", "INFEASIBLE"]
    assert plan.num_samples.tolist() == [5, 5, 5, 0]
    assert plan.tx_power[0] == 1e-2
    for ue, power in list(zip(ues_of(cell, gain), plan.tx_power, strict=True))[1:3]:
        np.testing.assert_allclose(ue.energy(5, power), ue.max_energy, rtol=1e-12)


def test_sixty_samples_use_up_the_energy_of_the_paper_and_leave_nothing_to_send():
    # 60 * 50 uJ = 3 mJ: the collapse of Fig. 3 at d = 60.
    cell = paper_cell(2, cycles_per_sample=[1e5, 0.9e5])
    plan = first_plan(FixedPlanner(60, power="computed"), cell, gain_for_snr(cell, FOURTEEN_BITS))
    assert plan.feasible.tolist() == [False, True]


ALL_PLANNERS = [
    pytest.param(ExactPlanner(0.02), id="exact"),
    pytest.param(PaperPlanner(0.02), id="paper"),
    pytest.param(FixedPlanner(8, "max"), id="fixed max"),
    pytest.param(FixedPlanner(20, "computed"), id="fixed computed"),
]
PLAN_ARRAYS = (*DECISIONS, *LIMITS)


def assert_same_plan(ours, theirs, ue=...):
    """Powers to rounding: UEs solved together share the number of Newton steps, which moves them by
    an ulp or two.
    """
    for name in PLAN_ARRAYS:
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name)[ue], rtol=1e-12, err_msg=name
        )


def assert_same_memory(ours, theirs, ue=..., at=...):
    """The memories of the whole cell, at these UEs, the second at this place of its leading axes."""
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name][ue], theirs[name][at][ue], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("planner", ALL_PLANNERS)
def test_permuting_ues_permutes_the_plan(planner):
    cell, gain = random_cell(8, 200, 0.02, 1000.0, 2)
    rng = np.random.default_rng(8)
    previous_power = cell.max_power * rng.uniform(0.1, 1.0, cell.num_ue)
    ue = rng.permutation(cell.num_ue)
    before = memory_of(planner, cell, previous_power)
    whole, after = planner(cell, gain, before)
    assert len(np.unique(whole.status)) >= 3
    for some in (ue, ue[:7]):
        plan, memory = planner(cell.take(some), gain[some], before)
        assert_same_plan(plan, whole, some)
        assert_same_memory(memory, after, some)
        others = np.setdiff1d(np.arange(cell.num_ue), some)  # who is not selected keeps what it had
        assert_same_memory(memory, before, others)


@pytest.mark.parametrize("planner", ALL_PLANNERS)
def test_one_call_for_many_rounds_equals_a_loop_over_them(planner):
    cell, gain = random_cell(9, 50, 0.02, 1000.0, 2)
    rng = np.random.default_rng(9)
    gains = gain * rng.exponential(1.0, (2, 3, cell.num_ue))
    for previous_power in (cell.max_power, cell.max_power * rng.uniform(0.1, 1.0, gains.shape)):
        together, after = planner(cell, gains, memory_of(planner, cell, previous_power))
        for k in np.ndindex(2, 3):
            own = np.broadcast_to(previous_power, gains.shape)[k]
            alone, memory = planner(cell, gains[k], memory_of(planner, cell, own))
            assert_same_plan(alone, together, k)
            assert_same_memory(memory, after, at=k)
        for name in PLAN_ARRAYS:
            assert getattr(together, name).shape == gains.shape


@pytest.mark.parametrize("planner", ALL_PLANNERS)
def test_one_call_for_several_cells_equals_a_loop_over_them(planner):
    rng = np.random.default_rng(19)
    cells, gains = zip(
        *(random_cell(seed, 50, 0.02, 1000.0, 2) for seed in (9, 10, 11)), strict=True
    )
    selected = [np.sort(rng.choice(50, 20, replace=False)) for _ in cells]
    before = [
        memory_of(planner, cell, cell.max_power * rng.uniform(0.1, 1.0, 50)) for cell in cells
    ]
    some = [
        (cell.take(ue), gain[ue]) for cell, gain, ue in zip(cells, gains, selected, strict=True)
    ]
    stack = {name: np.stack([memory[name] for memory in before]) for name in before[0]}
    together, after = planner(
        stacked([cell for cell, _ in some]), np.stack([gain for _, gain in some]), stack
    )
    for r, (cell, gain) in enumerate(some):
        alone, memory = planner(cell, gain, before[r])
        assert_same_plan(alone, together, r)
        assert_same_memory(memory, after, at=r)


@pytest.mark.parametrize(
    "planner", [ExactPlanner(0.02), PaperPlanner(0.02), FixedPlanner(10, "computed")]
)
def test_local_steps_cost_as_much_as_samples_that_many_times_as_heavy(planner):
    cell, gain = random_cell(10, 300, 0.02, 1000.0, 3)
    heavy = Cell(
        **{name: getattr(cell, name) for name in Cell.PER_UE}
        | {"cycles_per_sample": 3.0 * cell.cycles_per_sample, "local_steps": 1.0}
    )
    stepped, plain = (first_plan(planner, each, gain) for each in (cell, heavy))
    assert (stepped.local_steps == 3).all()
    assert (plain.local_steps == 1).all()
    np.testing.assert_array_equal(stepped.num_samples, plain.num_samples)
    np.testing.assert_array_equal(stepped.status, plain.status)
    np.testing.assert_allclose(stepped.tx_power, plain.tx_power, rtol=1e-12)
    assert stepped.feasible.any()


def test_two_local_steps_halve_the_samples_of_the_stalled_ue():
    # 1.182629 mJ / (2 * 50 uJ) = 11.8
    cell = paper_cell(local_steps=2)
    plan = first_plan(PaperPlanner(epsilon=0.02), cell, gain_for_snr(cell, FOURTEEN_BITS))
    assert plan.num_samples.tolist() == [11]


@pytest.mark.parametrize("planner", ALL_PLANNERS)
def test_a_million_ues_are_planned_in_one_call(planner):
    num_ue = 1_000_000
    rng = np.random.default_rng(11)
    cell = paper_cell(num_ue, cycles_per_sample=rng.uniform(0.8e5, 1.2e5, num_ue), local_steps=2)
    gain = gain_for_snr(cell, 10.0 ** rng.uniform(2.5, 6.0, num_ue))
    plan, memory = planner(cell, gain, planner.init(cell))
    for name in PLAN_ARRAYS:
        assert getattr(plan, name).shape == (num_ue,), name
    assert plan.num_samples.dtype == np.int64
    assert plan.tx_power.dtype == np.float64
    assert plan.status.dtype == np.int8
    some = rng.integers(0, num_ue, 100)
    few, kept = planner(cell.take(some), gain[some], planner.init(cell))
    assert_same_plan(few, plan, some)
    assert_same_memory(kept, memory, some)
    assert 0.1 < plan.feasible.mean() < 0.9


@pytest.mark.parametrize("planner", ALL_PLANNERS)
def test_planning_changes_nothing_it_is_given(planner):
    cell, gain = random_cell(12, 20, 0.02, 1000.0, 2)
    previous_power = cell.max_power.copy()
    gain_before, power_before = gain.copy(), previous_power.copy()
    planner(cell, gain, memory_of(planner, cell, previous_power))
    np.testing.assert_array_equal(gain, gain_before)
    np.testing.assert_array_equal(previous_power, power_before)


def test_statuses_have_names():
    assert STATUS_NAMES == ("accuracy", "data", "energy", "power", "infeasible", "left_out", "rate")
    assert STATUS_NAMES[Status.ENERGY] == "energy"
    assert STATUS_NAMES[Status.INFEASIBLE] == "infeasible"


def test_after_a_fade_too_deep_for_any_power_the_ue_keeps_its_last_power():
    plan, memory = PaperPlanner(0.02)(paper_cell(), np.array([1e-20]), {"power": np.array([0.004])})
    assert plan.status[0] == Status.INFEASIBLE
    assert plan.tx_power[0] == 0.0
    assert memory["power"].tolist() == [0.004]


def test_a_share_of_a_sample_is_not_planned_with():
    whole, broken = (
        paper_cell(distance=np.array([150.0]), data_size=size) for size in (30.0, 30.9)
    )
    gain = channel_gain(whole, np.array([20.0]))
    first, second = (first_plan(ExactPlanner(0.02), cell, gain) for cell in (broken, whole))
    assert first.tx_power == second.tx_power
