import itertools

import numpy as np
import pytest

import autofl
from autofl.core.horizon import draw_horizon
from autofl.experiments.cell import build_network
from autofl.planner.choices import choose, make_options
from autofl.planner.pace import Pace


def by_brute_force(band, value, must, total):
    """The best of all combinations of options; leaving a UE out costs no band and brings nothing."""
    num_ue, num = band.shape
    best = -np.inf
    for options in itertools.product(range(-1, num), repeat=num_ue):
        if any(option < 0 and needed for option, needed in zip(options, must, strict=True)):
            continue
        used = sum(band[i, option] for i, option in enumerate(options) if option >= 0)
        if used <= total:
            best = max(
                best, sum(value[i, option] for i, option in enumerate(options) if option >= 0)
            )
    return best


def random_case(seed):
    """More work is worth more, with falling returns, and needs more band: the shape the planner
    meets.
    """
    rng = np.random.default_rng(seed)
    num_ue, num = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    value = np.sort(rng.random((num_ue, num)), axis=1)
    band = np.cumsum(rng.random((num_ue, num)) * rng.random((num_ue, 1)), axis=1)
    band[rng.random((num_ue, num)) < 0.1] = np.inf
    must = (rng.random(num_ue) < 0.3) & np.isfinite(band).any(axis=1)
    return band, value, must, float(rng.random() * 2.0)


def test_choices_never_beat_brute_force_and_seldom_fall_short_of_it():
    shares = []
    for seed in range(300):
        band, value, must, total = random_case(seed)
        picked, progress = choose(band[None], value, must, total, np.ones(len(must)))
        best = by_brute_force(band, value, must, total)
        used = sum(band[i, option] for i, option in enumerate(picked[0]) if option >= 0)
        assert used <= total * (1 + 1e-12)
        if not np.isfinite(best):
            assert progress[0] == -np.inf
            continue
        if np.isfinite(progress[0]):
            assert progress[0] <= best + 1e-12
            assert not (must & (picked[0] < 0)).any()
        shares.append(max(progress[0], 0.0) / best if best > 0 else 1.0)
    assert np.mean(shares) > 0.97
    assert np.mean(np.array(shares) > 1 - 1e-9) > 0.8


def test_deadlines_judged_a_few_at_a_time_give_the_choices_of_all_at_once():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        num_ue, num, deadlines = (
            int(rng.integers(1, 30)),
            int(rng.integers(1, 30)),
            np.cumprod(np.full(40, 1.25)),
        )
        value, shortest = rng.random((num_ue, num)), rng.exponential(3.0, (num_ue, num))
        need, must = 40.0 * rng.random((num_ue, num)), rng.random(num_ue) < 0.1
        late = (
            deadlines[:, None, None] - shortest
        )  # jumps: an option that becomes possible may need more band
        band = np.where(late > 0.0, need / np.maximum(late, 1e-9), np.inf)
        total = float(10.0 ** rng.uniform(-1.0, 2.0))
        whole = choose(band, value, must, total, np.ones(num_ue))
        parts = [
            choose(band[k : k + 4], value, must, total, np.ones(num_ue)) for k in range(0, 40, 4)
        ]
        for place in (0, 1):
            np.testing.assert_array_equal(
                np.concatenate([part[place] for part in parts]), whole[place]
            )


def test_with_bands_of_their_own_every_ue_takes_the_best_that_fits():
    band = np.array([[[1.0, 2.0, 9.0], [1.0, np.inf, np.inf], [7.0, 8.0, 9.0]]])
    value = np.array([[1.0, 2.0, 3.0]] * 3)
    picked, progress = choose(band, value, np.zeros(3, bool), None, np.array([3.0, 3.0, 3.0]))
    np.testing.assert_array_equal(picked, [[1, 0, -1]])
    assert progress[0] == pytest.approx(3.0)


def test_a_ue_that_must_take_part_does_so_at_the_price_of_others():
    band = np.array([[[1.0], [1.0]]])
    value = np.array([[5.0], [1.0]])
    picked, _ = choose(band, value, np.array([False, True]), 1.0, np.ones(2))
    np.testing.assert_array_equal(picked, [[-1, 0]])


def test_pace_by_hand():
    # K = 4 + (8 + 100 / (5 * 10)) / 2 + (6 + 3 * 0.5) / 5 = 10.5
    pace = Pace(4.0, 8.0, 6.0, 100.0, 3.0)
    assert float(pace.progress(np.array(2.0), np.array(10.0), np.array(0.5), 5)) == pytest.approx(
        1 / (5 * 10.5)
    )


def test_options_are_those_that_pay():
    options = make_options(Pace(), (1, 2, 4), (4, 8), ((1.0, 1.0), (4.0, 0.1)), 5)
    for bits in (1.0, 4.0):
        of_rate = options.bits_per_weight == bits
        work = (options.local_steps * options.num_samples)[of_rate]
        assert (np.diff(work) > 0).all()
        assert (np.diff(options.progress[of_rate]) > 0).all()


def test_a_ue_that_its_own_band_is_too_wide_for_takes_no_part_where_bands_are_not_shared():
    """At P_max it misses phi in its own band; a narrower one would do, but is not to be had."""
    settings = autofl.load_settings(
        overrides=[
            "arm=autofl-j",
            "planner.band=false",
            "preset=physical",
            "cell.distance={disc=500}",
        ]
    )
    made = autofl.plan(settings).round
    reachable = made.cell.max_power * made.gain >= made.cell.snr_threshold * made.cell.noise_power
    assert 0 < reachable.sum() < made.cell.num_ue
    assert not (made.plan.feasible & ~reachable).any()
    assert made.plan.feasible.any()
    np.testing.assert_array_equal(made.plan.bandwidth, made.cell.bandwidth)


def test_somebody_takes_part_in_every_round_in_which_somebody_can():
    """Two poor UEs are worth less than the run's usual pace; an empty round would cost its wait all
    the same.
    """
    settings = autofl.load_settings(
        overrides=["arm=autofl-j", "simulation.num_selected=2", "cell.distance={disc=400}",
                   "cell.cpu_frequency={uniform=[0.2e9, 2e9]}", "cell.max_energy={uniform=[0.0005, 0.005]}"]
    )  # fmt: skip
    assert draw_horizon(build_network(settings), 24).decoded.any(axis=1).all()
