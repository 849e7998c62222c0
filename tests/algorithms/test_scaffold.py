"""SCAFFOLD: steps by hand, and what it is for: on unequal UEs its fixed point is the optimum,
FedAvg's is not.
"""

import pytest
import torch

from autofl.algorithms import FedAvg
from autofl.algorithms.scaffold import Scaffold
from autofl.config import load_settings
from autofl.data.batch import Batch, MetaBatch
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation


def batch_of(steps, curvature, optimum):
    x = torch.tensor([curvature, optimum], dtype=torch.float64).expand(steps, 2, 2)
    part = Batch(
        x, torch.zeros(steps, 2, dtype=torch.long), torch.ones(steps, 2, dtype=torch.float64)
    )
    return MetaBatch(part, part, part)


def quadratic(params, batch):
    """a (w - b)^2 / 2 with a and b out of the samples: gradient a (w - b)."""
    a, b = batch.x[0, 0], batch.x[0, 1]
    return 0.5 * a * ((params["w"] - b) ** 2).sum()


def test_a_round_by_hand():
    rule = Scaffold(0.1, participation=0.5)
    state = rule.init({"w": torch.tensor([1.0], dtype=torch.float64)})
    up, own = rule.client_step(
        quadratic, state.sent, batch_of(2, 2.0, 0.0), rule.client_init(state.sent)
    )
    # y: 1 - 0.1 * 2 = 0.8, 0.8 - 0.1 * 1.6 = 0.64; c_i = (1 - 0.64) / 0.2 = 1.8, the mean gradient
    # of the two steps
    assert up["w"].item() == pytest.approx(0.64)
    assert own["w"].item() == pytest.approx(1.8)
    assert up["control.w"].item() == pytest.approx(1.8)
    after = rule.server_update(state, up)
    assert after.params["w"].item() == pytest.approx(0.64)
    assert after.control["w"].item() == pytest.approx(0.9)  # half of the UEs took part


def play(rule, rounds, steps=10):
    """Two UEs of unequal curvature, both in every round: a_1 = 1 with b_1 = 0, a_2 = 4 with b_2 =
    10.
    """
    batches = [batch_of(steps, 1.0, 0.0), batch_of(steps, 4.0, 10.0)]
    state = rule.init({"w": torch.tensor([0.0], dtype=torch.float64)})
    own = (
        [rule.client_init(state.sent) for _ in batches]
        if hasattr(rule, "client_init")
        else [None, None]
    )
    for _ in range(rounds):
        ups = []
        for i, batch in enumerate(batches):
            if own[i] is None:
                ups.append(rule.client_update(quadratic, state.sent, batch))
            else:
                up, own[i] = rule.client_step(quadratic, state.sent, batch, own[i])
                ups.append(up)
        state = rule.server_update(
            state, {name: (ups[0][name] + ups[1][name]) / 2 for name in ups[0]}
        )
    return state.params["w"].item()


@pytest.mark.slow
def test_it_ends_at_the_optimum_where_fedavg_does_not():
    # The sum of both gradients is zero at (1 * 0 + 4 * 10) / 5 = 8.
    assert play(Scaffold(0.05, participation=1.0), 400) == pytest.approx(8.0, rel=1e-6)
    assert abs(play(FedAvg(0.05), 400) - 8.0) > 0.5


def test_an_update_has_twice_the_numbers_and_the_radio_pays_for_them():
    plain, scaffold = (
        build_simulation(load_settings(overrides=[f"arm={name}"]))
        for name in ("fedavg-2", "scaffold")
    )
    assert scaffold.cell.update_bits[0] == 2 * plain.cell.update_bits[0]
    assert scaffold.arm.algorithm.participation == 5 / 20


@pytest.mark.parametrize("participation", [0.0, 1.5])
def test_nonsense_is_refused(participation):
    with pytest.raises(AutoFLError):
        Scaffold(0.1, participation)
