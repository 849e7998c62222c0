"""Choosing |A_k|, accuracy and thrift, and explaining it, on small cells with pilots that follow a
law.
"""

import itertools
import math

import numpy as np
import pytest

import autofl
from autofl.core.horizon import draw_horizon
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_network, plan
from autofl.forecast.choose import Effort, choose
from autofl.forecast.explain import bounds_of, elasticities, explain
from autofl.forecast.pilot_fit import Pilots
from autofl.forecast.predict import draw_networks, forecast_of
from reference.joint_pilots import write

pytestmark = pytest.mark.slow

CELL = ["cell.num_ue=8", "seed=3"]
QUICK = {"effort": Effort(2, 8)}


@pytest.fixture(scope="module")
def pilots(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pilots") / "joint.json", *CELL)


def settings_of(*overrides):
    return autofl.load_settings(overrides=["planner.name=joint", *CELL, *overrides])


def test_all_ues_are_asked_and_no_thrift_is_chosen_for_the_least_time(pilots):
    choice = choose(settings_of(), target=0.85, pilots=pilots, **QUICK)
    assert [(one.num_selected, one.thrift) for one in choice.candidates] == [
        (8, 0.0), (8, 0.25), (8, 0.5), (8, 1.0), (4, 0.0),
    ]  # fmt: skip
    assert choice.best is choice.candidates[0]
    for one in choice.candidates:
        low, high = one.forecast.sim_time[1:]
        assert low <= one.time <= high
    assert choose(settings_of(), target=0.85, pilots=pilots, **QUICK) == choice


def test_thrift_trades_time_for_energy(pilots):
    by_thrift = choose(settings_of(), target=0.85, pilots=pilots, **QUICK).candidates[:-1]
    for one, more in itertools.pairwise(by_thrift):
        assert more.time > one.time
        assert more.energy < one.energy


def test_on_the_front_nobody_is_beaten_in_both(pilots):
    choice = choose(settings_of(), target=0.85, pilots=pilots, **QUICK)
    for one in choice.candidates:
        beaten = any(
            other.time <= one.time and other.energy < one.energy for other in choice.candidates
        )
        assert (one in choice.front) != beaten


def test_a_number_of_ues_and_a_thrift_that_are_set_are_kept(pilots):
    choice = choose(settings_of("simulation.num_selected=5"), target=0.85, pilots=pilots, **QUICK)
    assert {one.num_selected for one in choice.candidates} == {5}
    thrifty = choose(settings_of("planner.thrift=0.7"), target=0.85, pilots=pilots, **QUICK)
    assert thrifty.best.thrift == 0.7
    arm = autofl.load_settings(overrides=["arm=autofl-j-thrifty", *CELL])
    assert choose(arm, target=0.85, pilots=pilots, **QUICK).best.thrift == 0.5


def test_rounds_follow_the_law_that_the_pilots_do(pilots):
    choice = choose(settings_of("evaluation.every=1"), target=0.85, pilots=pilots, **QUICK)
    its = choice.best.forecast.typical
    tau, x, y = its.local_steps, its.noise, its.rounding
    K = 6.0 + (12.0 + 1500.0 * x) / tau + 3.0 * y
    expected = -math.log1p(-0.85 / 0.97) / 2.5 * K
    # a smoothed curve lags by one round, and rounds are whole
    assert choice.best.forecast.rounds[0] == pytest.approx(expected + 1.5, rel=0.03)


def test_a_choice_runs_as_autofl_j_with_what_was_chosen(pilots):
    choice = choose(settings_of(), target=0.85, pilots=pilots, **QUICK)
    again = autofl.load_settings(overrides=[*CELL, *choice.changes]).resolved()
    assert again.planner.name == "joint"
    assert again.compressor.name == "entropy"
    assert again.simulation.num_selected == choice.best.num_selected
    one, other = (draw_horizon(build_network(its), 3) for its in (again, choice.best.settings))
    np.testing.assert_allclose(
        one.round_time, other.round_time, rtol=0.02
    )  # the pace is written with four digits


def test_more_energy_is_never_slower(pilots):
    times = [
        choose(
            settings_of(f"cell.max_energy={energy}"), target=0.85, pilots=pilots, **QUICK
        ).best.time
        for energy in (0.0002, 0.0006, 0.003)
    ]
    assert times[0] > 1.2 * times[1]
    assert times[1] > times[2]


def test_the_best_accuracy_within_a_time_is_one_that_the_target_asked_for_takes(pilots):
    limit = choose(settings_of("evaluation.every=1"), target=0.85, pilots=pilots, **QUICK).best.time
    choice = choose(settings_of("evaluation.every=1"), within=1.01 * limit, pilots=pilots, **QUICK)
    assert choice.best.time <= 1.01 * limit
    assert 0.84 <= choice.best.forecast.target <= 0.875
    shorter = choose(settings_of("evaluation.every=1"), within=0.5 * limit, pilots=pilots, **QUICK)
    assert shorter.best.forecast.target < choice.best.forecast.target - 0.05


def test_a_budget_is_kept_and_a_step_more_would_break_it(pilots):
    choice = choose(settings_of(), budget=0.003, pilots=pilots, **QUICK)
    best = choice.best
    assert best.forecast.energy[0] <= 0.003
    assert best.forecast.target == max(one.forecast.target for one in choice.candidates)
    fitted = Pilots.read(pilots).fitted(best.settings, best.forecast.target + 0.005)
    networks = list(draw_networks(best.settings, *QUICK["effort"]))
    assert forecast_of(best.settings, fitted, networks, few=True).energy[0] > 0.003
    frugal = choose(settings_of(), budget=0.002, pilots=pilots, **QUICK).best
    assert frugal.forecast.target < best.forecast.target


def test_a_band_for_all_is_the_one_that_the_cell_then_has(pilots):
    own = choose(settings_of(), target=0.85, pilots=pilots, **QUICK)
    narrow = choose(settings_of(), target=0.85, pilots=pilots, total_band=2e6, **QUICK)
    assert narrow.best.time > own.best.time
    assert "cell.total_bandwidth=2000000.0" in narrow.changes
    assert build_network(narrow.best.settings).air.cell.bandwidth.sum() == pytest.approx(2e6)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "give one of"),
        ({"target": 0.85, "within": 1.0}, "give one of"),
        ({"target": 1.5}, "between 0 and 1"),
        ({"target": 0.98}, "pilots reach"),
        ({"within": -1.0}, "more than 0"),
        ({"within": 1e-7}, "no plan reaches even"),
        ({"budget": 1e-9}, "no plan reaches even"),
        ({"target": 0.85, "total_band": 0.0}, "--total-band"),
    ],
)
def test_nonsense_is_refused_in_a_line(pilots, asked, says):
    with pytest.raises(AutoFLError, match=says):
        choose(settings_of(), pilots=pilots, **asked, **QUICK)


def test_only_the_joint_planner_chooses_and_only_with_its_pilots(pilots):
    with pytest.raises(AutoFLError, match="add --planner joint"):
        choose(autofl.load_settings(overrides=CELL), target=0.85, pilots=pilots)
    with pytest.raises(
        AutoFLError, match=r"no pilots of this learning problem \(num_ue is 8 there, 20 here\)"
    ):
        choose(autofl.load_settings(overrides=["planner.name=joint"]), target=0.85, pilots=pilots)


@pytest.mark.parametrize("data", ["mnist5k", "cifar10"])
def test_the_joint_planner_brings_the_same_to_autofl_as_autofl_j_has(data):
    """Whoever plans with it, by [planner] or by [joint]: one round, one compressor, one set of step
    sizes.
    """
    ours = autofl.load_settings(overrides=["planner.name=joint", f"data.name={data}"]).resolved()
    theirs = autofl.load_settings(overrides=["arm=autofl-j", f"data.name={data}"]).resolved()
    assert ours.compressor == theirs.compressor
    assert ours.learning == theirs.learning
    one, two = (draw_horizon(build_network(its), 3) for its in (ours, theirs))
    np.testing.assert_array_equal(one.round_time, two.round_time)
    np.testing.assert_array_equal(plan(ours).round.cost.time, plan(theirs).round.cost.time)


def test_a_plan_is_made_by_the_planner_that_a_run_has():
    for algorithm in ("autofl", "autofl-j", "per-fedavg", "fedavg-2"):
        settings = autofl.load_settings(
            overrides=[f"arm={algorithm}", "simulation.num_selected=20"]
        )
        planned, first = plan(settings).round, draw_horizon(build_network(settings), 1)
        np.testing.assert_allclose(first.round_time[0], planned.cost.time, rtol=1e-12)


def test_the_waterfall_goes_from_exact_to_the_joint_figure(pilots):
    best = choose(settings_of(), target=0.85, pilots=pilots, **QUICK).best
    told = explain(best, pilots, effort=QUICK["effort"])
    assert told.waterfall[-1].time == best.time
    assert told.before.time == pytest.approx(
        best.time * np.prod([step.factor for step in told.waterfall]), rel=1e-9
    )
    exact = autofl.load_settings(
        overrides=[*CELL, "arm=autofl-j", "planner.name=exact", "compressor.name=none",
                   f"simulation.num_selected={best.num_selected}",
                   f"cell.total_bandwidth={best.settings.cell.total_bandwidth!r}",
                   *(f"learning.{name}=auto" for name in ("inner_lr", "outer_lr", "lr_decay", "guard", "grad_clip"))]
    ).resolved()  # fmt: skip
    fitted = Pilots.read(pilots).fitted(exact, 0.85)
    assert (
        told.before.time
        == forecast_of(
            exact, fitted, list(draw_networks(exact, *QUICK["effort"])), few=True
        ).sim_time[0]
    )
    assert {step.decision for step in told.left_out} == {step.decision for step in told.waterfall}
    without = {step.decision: step.factor for step in told.left_out}
    assert without["compressor"] > 3.0
    assert told.waterfall[-2].time == told.left_out[-1].time  # all but admission


def test_what_is_switched_off_is_not_in_the_waterfall(pilots):
    best = choose(settings_of("planner.admission=false"), target=0.85, pilots=pilots, **QUICK).best
    told = explain(best, pilots, effort=QUICK["effort"])
    assert "admission" not in {step.decision for step in told.waterfall}
    assert told.waterfall[-1].time == best.time


@pytest.mark.parametrize("energy", [0.0003, 0.003])
def test_shadow_prices_are_what_a_trifle_more_gains_where_only_the_allocation_is_free(energy):
    off = [f"planner.{name}=false" for name in ("steps", "samples", "bits", "admission")]
    settings = settings_of(
        *off, "simulation.num_selected=5", "planner.epsilon=0.1", f"cell.max_energy={energy}"
    ).resolved()
    price = elasticities(settings, num_rounds=6)
    time = draw_horizon(build_network(settings), 6).round_time.sum()
    for name, gained in price.items():
        richer = getattr(settings.cell, name).scaled(1.0005)
        cell = settings.cell.model_copy(update={name: richer})
        again = draw_horizon(
            build_network(settings.model_copy(update={"cell": cell})), 6
        ).round_time.sum()
        assert gained == pytest.approx((again - time) / time / 0.0005, rel=0.02, abs=2e-4)
    assert price["bandwidth"] < -0.01
    assert (price["max_energy"] < -0.01) == (energy < 0.001)


def test_what_binds_a_ue_is_what_it_has_used_up():
    settings = settings_of(
        "cell.max_energy=0.0003", "preset=physical", "cell.distance={disc=450}"
    ).resolved()
    made = plan(settings)
    bounds = bounds_of(settings, made)
    this_round = made.round
    slowest = this_round.cost.time
    for bound, status in zip(bounds, this_round.plan.status, strict=True):
        ue = bound.ue
        if not this_round.plan.feasible[ue]:
            assert bound.binds == []
            assert (bound.round_time is not None) == (status == 5)
            continue
        if "energy" in bound.binds:
            assert this_round.cost.energy[ue] == pytest.approx(0.0003, rel=2e-3)
            assert bound.spare < 2e-3
        if "power" in bound.binds:
            assert this_round.plan.tx_power[ue] == pytest.approx(0.01, rel=2e-3)
    left_out = [bound for bound in bounds if bound.round_time is not None]
    assert left_out
    assert all(bound.round_time > slowest and bound.slower > -0.02 for bound in left_out)
    assert max(bound.slower for bound in left_out) > 0.05
