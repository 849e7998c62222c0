"""Plans held against what they promise: easing what binds helps, easing what does not changes
nothing.
"""

import numpy as np
import pytest

from autofl.network import Plan, Status
from autofl.planner import ExactPlanner, FixedPlanner
from reference.cells import paper_cell
from reference.planner_reference import ues_of

NUM_UE = 600
WANTED = 50
SAMPLE_ENERGY = 5e-5  # of `paper_cell`: 0.5e-27 * 1e5 * (1e9)^2 J


def plan_of(planner, fields, gain) -> Plan:
    """The plan of one round; the one place here that calls a planner."""
    cell = paper_cell(NUM_UE, **fields)
    return planner(cell, gain, planner.init(cell))[0]


def fields_and_gain(seed):
    """UEs of which each constraint binds some; SNRs at P_max from the threshold of 1000 to a
    hundred times as much.
    """
    rng = np.random.default_rng(seed)
    fields = {
        "data_size": rng.integers(3, 120, NUM_UE),
        "max_energy": 10.0 ** rng.uniform(-3.5, -2.2, NUM_UE),
        "max_power": np.full(NUM_UE, 1e-2),
    }
    cell = paper_cell(NUM_UE, **fields)
    return fields, 10.0 ** rng.uniform(3.0, 5.0, NUM_UE) * cell.noise_psd * 1e6 / 1e-2


@pytest.fixture(params=[1, 2, 3])
def eased(request):
    """The plan as it is; with data or energy for one more sample, or both; with more power; with a
    lesser wish.
    """
    fields, gain = fields_and_gain(request.param)
    more_data = {"data_size": fields["data_size"] + 1}
    more_energy = {"max_energy": fields["max_energy"] + 1.001 * SAMPLE_ENERGY}
    more_power = {"max_power": 1.01 * fields["max_power"]}
    exact = ExactPlanner(1.0 / WANTED)
    return {
        "nothing": plan_of(exact, fields, gain),
        "data": plan_of(exact, fields | more_data, gain),
        "energy": plan_of(exact, fields | more_energy, gain),
        "both": plan_of(exact, fields | more_data | more_energy, gain),
        "power": plan_of(exact, fields | more_power, gain),
        "wish": plan_of(ExactPlanner(1.0 / (WANTED - 1)), fields, gain),
    }


def samples_gained(eased, by, status):
    some = eased["nothing"].status == status
    assert some.sum() >= 20, Status(status).name
    return (eased[by].num_samples - eased["nothing"].num_samples)[some]


def power_ratio(eased, by, status):
    some = eased["nothing"].status == status
    return (eased[by].tx_power / np.where(some, eased["nothing"].tx_power, 1.0))[some]


def test_where_energy_binds_more_energy_brings_samples_and_more_data_none(eased):
    assert (samples_gained(eased, "energy", Status.ENERGY) >= 1).all()
    assert (samples_gained(eased, "data", Status.ENERGY) == 0).all()


def test_where_data_binds_more_of_it_brings_a_sample_once_it_is_paid_for_and_energy_alone_none(
    eased,
):
    assert (samples_gained(eased, "energy", Status.DATA) == 0).all()
    assert (samples_gained(eased, "both", Status.DATA) == 1).all()


def test_where_the_wish_is_met_nothing_brings_more_samples(eased):
    for status in (Status.ACCURACY, Status.POWER):
        assert (samples_gained(eased, "both", status) == 0).all()
        assert (eased["nothing"].num_samples[eased["nothing"].status == status] == WANTED).all()


def test_where_power_binds_only_more_power_makes_the_upload_faster(eased):
    assert (power_ratio(eased, "power", Status.POWER) > 1.0).all()
    assert (power_ratio(eased, "energy", Status.POWER) == 1.0).all()
    assert (power_ratio(eased, "wish", Status.POWER) == 1.0).all()


def test_where_accuracy_binds_energy_or_a_lesser_wish_makes_the_upload_faster_and_more_power_does_not(
    eased,
):
    assert (power_ratio(eased, "energy", Status.ACCURACY) > 1.0).all()
    assert (power_ratio(eased, "wish", Status.ACCURACY) > 1.0).all()
    np.testing.assert_allclose(power_ratio(eased, "power", Status.ACCURACY), 1.0, rtol=1e-12)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fixed_with_computed_power_could_not_send_with_more_and_who_stays_out_could_not_send_at_all(
    seed,
):
    fields, gain = fields_and_gain(seed)
    fields["data_size"] -= 2  # from 1 on
    plan = plan_of(FixedPlanner(20, "computed"), fields, gain)
    assert 100 <= plan.feasible.sum() <= NUM_UE - 100
    for i, ue in enumerate(ues_of(paper_cell(NUM_UE, **fields), gain)):
        owned = min(20, int(ue.data_size))
        if plan.feasible[i]:
            power = plan.tx_power[i]
            assert plan.num_samples[i] == owned >= 3
            assert ue.energy(owned, power) <= ue.max_energy * (1.0 + 1e-9)
            assert ue.snr(power) >= ue.snr_threshold
            assert power == ue.max_power or ue.energy(owned, power * (1.0 + 1e-6)) > ue.max_energy
        else:
            assert (plan.num_samples[i], plan.tx_power[i]) == (0, 0.0)
            powers = np.geomspace(1e-3 * ue.max_power, ue.max_power, 300)
            allowed = [
                ue.snr(p) >= ue.snr_threshold and ue.energy(owned, p) <= ue.max_energy
                for p in powers
            ]
            assert owned < 3 or not any(allowed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fixed_at_full_power_sends_where_that_is_paid_for_and_only_there(seed):
    fields, gain = fields_and_gain(seed)
    plan = plan_of(FixedPlanner(20, "max"), fields, gain)
    assert (plan.tx_power[plan.feasible] == 1e-2).all()
    assert 100 <= plan.feasible.sum() <= NUM_UE - 100
    for i, ue in enumerate(ues_of(paper_cell(NUM_UE, **fields), gain)):
        owned = min(20, int(ue.data_size))  # all are decoded at P_max, and own at least 3
        assert plan.feasible[i] == (ue.energy(owned, 1e-2) <= ue.max_energy)
        assert plan.num_samples[i] == plan.feasible[i] * owned
