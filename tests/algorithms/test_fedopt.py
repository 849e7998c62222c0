"""FedOpt: the server's rules by hand, and against PyTorch's own optimiser."""

import pytest
import torch

from autofl.algorithms import FedAvg
from autofl.algorithms.fedopt import FedOpt
from autofl.config import load_settings
from autofl.core.simulation import simulate
from autofl.core.together import fit_together
from autofl.errors import AutoFLError
from autofl.experiments.build import build_simulation
from reference.runs import simulate_together


def params_of(value):
    return {"w": torch.tensor([value], dtype=torch.float64)}


def test_momentum_by_hand():
    rule = FedOpt(0.1, server="momentum", server_lr=0.5, momentum=0.5)
    state = rule.init(params_of(0.0))
    state = rule.server_update(state, params_of(2.0))  # m = 2, w = 1
    assert state.params["w"].item() == 1.0
    state = rule.server_update(
        state, params_of(2.0)
    )  # the move is 2 - 1 = 1: m = 0.5 * 2 + 1 = 2, w = 2
    assert state.params["w"].item() == 2.0


def test_momentum_is_pytorch_s_sgd_on_the_negative_move():
    rule, moves = (
        FedOpt(0.1, server="momentum", server_lr=0.3, momentum=0.8),
        [1.0, -0.5, 0.25, 2.0],
    )
    state, weight = (
        rule.init(params_of(1.0)),
        torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64)),
    )
    theirs = torch.optim.SGD([weight], lr=0.3, momentum=0.8)
    for move in moves:
        state = rule.server_update(state, {"w": state.params["w"] + move})
        weight.grad = torch.tensor([-move], dtype=torch.float64)
        theirs.step()
        assert state.params["w"].item() == pytest.approx(weight.item(), rel=1e-12)


def test_adam_by_hand():
    rule = FedOpt(0.1, server="adam", server_lr=0.1, momentum=0.5, decay=0.75, floor=0.5)
    state = rule.server_update(rule.init(params_of(0.0)), params_of(1.0))
    # m = 0.5, v = 0.75 * 0.25 + 0.25 * 1 = 0.4375, w = 0.1 * 0.5 / (0.66144 + 0.5)
    assert state.params["w"].item() == pytest.approx(0.1 * 0.5 / (0.4375**0.5 + 0.5), rel=1e-12)
    assert state.second["w"].item() == 0.4375


def test_a_server_that_takes_the_whole_move_and_forgets_is_fedavg():
    rule, plain = FedOpt(0.1, server="momentum", server_lr=1.0, momentum=0.0), FedAvg(0.1)
    average = params_of(0.7)
    ours, theirs = (
        each.server_update(each.init(params_of(0.2)), average) for each in (rule, plain)
    )
    torch.testing.assert_close(ours.params, theirs.params)


def test_runs_in_one_batch_take_the_server_s_step_too():
    overrides = [
        "arm=fedopt",
        "stop.rounds=4",
        "evaluation.every=4",
        "evaluation.test_samples=20",
    ]
    sim = build_simulation(load_settings(overrides=overrides))
    assert fit_together(sim, sim)
    together = [state for r, record, state in simulate_together([sim, sim]) if r == 0]
    for ours, (_, alone) in zip(together, simulate(sim), strict=True):
        for name, p in alone.params.items():
            torch.testing.assert_close(ours.params[name], p, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    "wrong", [{"server_lr": 0.0}, {"momentum": 1.0}, {"floor": 0.0}, {"decay": -0.1}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(AutoFLError):
        FedOpt(0.1, **wrong)
