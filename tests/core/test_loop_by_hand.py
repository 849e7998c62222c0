"""Rounds of Algorithm 2 small enough to be worked by hand: one input, two classes, four UEs."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from autofl.config import parse_settings
from autofl.core.simulation import simulate
from autofl.data import ByOwner, Dataset
from autofl.experiments.build import build_simulation
from autofl.network import STATUS_NAMES

# UEs 0 and 1 own samples of class 0, UEs 2 and 3 of class 1, and every input is 1: whichever
# samples are drawn, the
# gradient is the same. The model is two weights (c, -c), begun at 0, and gives class 0 the
# probability
# p = 1 / (1 + exp(-2 c)). A step of size beta takes c to c + beta (1 - p) at a UE of class 0, to c
# - beta p at one of
# class 1, so the average over those that are heard is c + beta (s - p), where s is the share of
# class 0 among them.
LABEL = np.array([0, 0, 1, 1])
# At 14, 14 and 10 bit/s/Hz an update of 140,000 bit takes 10, 10 and 14 ms. UE 3 is at SNR 511,
# below phi = 1000.
BITS_PER_HERTZ = (14, 14, 10, 9)
NOISE_OVER_POWER = 10.0**-14.4 / 1e-2  # N0 B / P_max: the gain that makes the SNR 1


def run(bits_per_hertz=BITS_PER_HERTZ, rounds=1, engine="auto", lr_decay=None, **simulation):
    """FedAvg with beta = 1 at 1 m from the base station: five samples at P_max, no fading."""
    settings = parse_settings(
        {
            "arm": "fedavg-1",
            "cell": {
                "num_ue": 4,
                "distance": 1.0,
                "small_scale_gain": [
                    (2.0**bits - 1.0) * NOISE_OVER_POWER for bits in bits_per_hertz
                ],
                "cycles_per_sample": [1e5, 1e5, 2e5, 1e5],
                "update_bits": 140_000.0,
            },
            "learning": {
                "outer_lr": 1.0,
                "engine": engine,
                **({} if lr_decay is None else {"lr_decay": lr_decay}),
            },
            "simulation": {"num_selected": 4, "device": "cpu", **simulation},
            "stop": {"rounds": rounds},
            "evaluation": {"every": rounds},
        }
    )
    owner = np.repeat(np.arange(4), 20)
    dataset = Dataset("ones", np.ones((80, 1), np.float32), LABEL[owner], 2)
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    return list(
        simulate(
            build_simulation(
                settings, data=dataset.federate(ByOwner(owner), 4, seed=1), model=model
            )
        )
    )


def weights(state):
    return torch.cat([p.reshape(-1) for p in state.params.values()]).numpy()


@pytest.mark.parametrize("engine", ["loop", "vmap", "low_rank"])
def test_one_round_averages_those_that_are_heard_with_equal_weights(engine):
    _, (record, state) = run(engine=engine)
    assert record.arrived.tolist() == [True, True, True, False]
    # Updates 1/2, 1/2 and -1/2; with UE 3 their mean would be 0.
    np.testing.assert_allclose(weights(state), [1 / 6, -1 / 6], rtol=1e-6)


def test_one_round_takes_the_time_and_energy_worked_by_hand():
    _, (record, _) = run()
    np.testing.assert_allclose(record.snr, [16383.0, 16383.0, 1023.0, 0.0], rtol=1e-9)
    np.testing.assert_allclose(record.cost.upload_time, [10e-3, 10e-3, 14e-3, 0.0], rtol=1e-9)
    np.testing.assert_allclose(record.cost.compute_time, [0.5e-3, 0.5e-3, 1e-3, 0.0], rtol=1e-9)
    # 10 mW for as long as it sends, and 0.5e-27 * 1e18 * 1e5 = 50 uJ a sample (UE 2: 100 uJ)
    np.testing.assert_allclose(record.cost.energy, [0.35e-3, 0.35e-3, 0.64e-3, 0.0], rtol=1e-9)
    assert [STATUS_NAMES[code] for code in record.plan.status] == [
        "power",
        "power",
        "power",
        "infeasible",
    ]
    assert record.plan.num_samples.tolist() == [5, 5, 5, 0]
    assert record.cost.time == pytest.approx(15e-3, rel=1e-9)


@pytest.mark.parametrize(
    ("outage", "bits_per_hertz", "round_time"),
    [
        ("skip", (14, 14, 14, 9), 11e-3),
        ("wait", (14, 14, 14, 9), 14.04603e-3),  # 140,000 bit at log2(1001) = 9.967226 bit/s/Hz
        ("wait", (14, 14, 14, 14), 11e-3),
        ("skip", (9, 9, 9, 9), 14.04603e-3),  # nobody sends: as long as anybody could have taken
    ],
)
def test_waiting_for_the_unheard_takes_the_longest_upload(outage, bits_per_hertz, round_time):
    *_, (record, _) = run(bits_per_hertz, rounds=3, outage=outage)
    assert record.cost.time == pytest.approx(round_time, rel=1e-6)
    assert record.sim_time == pytest.approx(3 * round_time, rel=1e-6)


def test_many_rounds_end_at_the_odds_of_those_that_are_heard():
    records = run(rounds=60)
    (first, _), (last, state) = records[0], records[-1]
    assert len(records) == 61
    # p = 2/3, the share of class 0 among the three, at exp(2 c) = 2
    np.testing.assert_allclose(weights(state), [math.log(2) / 2, -math.log(2) / 2], rtol=1e-5)
    assert first.evaluation.train_loss == pytest.approx(math.log(2), rel=1e-6)
    assert last.evaluation.train_loss == pytest.approx(
        (math.log(3 / 2) + math.log(3)) / 2, rel=1e-5
    )  # all four judged
    assert (first.sim_time, last.sim_time) == pytest.approx((0.0, 60 * 15e-3), rel=1e-9)


def test_each_round_averages_the_selected_that_are_heard_and_no_others():
    c, unheard = 0.0, 0
    for record, state in run(rounds=25, num_selected=2)[1:]:
        heard = [ue for ue in record.ue.tolist() if ue != 3]
        p = 1.0 / (1.0 + math.exp(-2.0 * c))
        c += np.mean(LABEL[heard] == 0) - p
        np.testing.assert_allclose(weights(state), [c, -c], rtol=1e-4, atol=1e-5)
        assert record.cost.time == pytest.approx(15e-3 if 2 in heard else 10.5e-3, rel=1e-9)
        unheard += len(heard) < 2
    assert 5 <= unheard <= 20  # UE 3 is selected in half of the rounds


@pytest.mark.parametrize("engine", ["loop", "low_rank"])
def test_a_step_size_that_decays_falls_with_the_square_root_of_the_rounds(engine):
    records = run(rounds=3, engine=engine, lr_decay=1.5)
    c = 0.0
    for beta, (_, state) in zip(
        (1.0, math.sqrt(0.4), 0.5), records[1:], strict=True
    ):  # 1/2.5 = 0.4, 1/4 = 0.25
        c += beta * (2 / 3 - 1.0 / (1.0 + math.exp(-2.0 * c)))
        np.testing.assert_allclose(weights(state), [c, -c], rtol=1e-5)
