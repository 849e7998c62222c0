"""Steps of the model's own length, worked by hand: the bound, the decay, gradients that are none,
who is refused.
"""

import math

import numpy as np
import pytest
import torch

from autofl.algorithms import FedAvg, PerFedAvg, at_round
from autofl.algorithms.ditto import Ditto
from autofl.algorithms.fedopt import FedOpt
from autofl.algorithms.fedprox import FedProx
from autofl.algorithms.scaffold import Scaffold
from autofl.data.batch import Batch, MetaBatch
from autofl.errors import AutoFLError
from reference.one_weight import batch_of, quadratic

RULE = {"outer_lr": math.inf, "longest_step": 0.3, "lr_decay": 1.0}


def bowl(params, batch):
    """x . (w1^2 / 2 + 2 w2^2 + 3 w1 - w2): gradient (w1 + 3, 4 w2 - 1), averaged x = 1."""
    w1, w2 = params["a"], params["b"]
    return (w1**2 / 2.0 + 2.0 * w2**2 + 3.0 * w1 - w2).sum() * batch.x.mean()


def bowl_gradient(w):
    return np.array([w[0] + 3.0, 4.0 * w[1] - 1.0])


def ones(steps):
    part = Batch(
        torch.ones(steps, 2).double(), torch.zeros(steps, 2).long(), torch.ones(steps, 2).double()
    )
    return MetaBatch(part, part, part)


def start(a, b):
    return {"a": torch.tensor([a]).double(), "b": torch.tensor([b]).double()}


def flat(params):
    return np.array([float(params["a"]), float(params["b"])])


def test_a_step_is_a_share_of_the_model_s_length_and_shorter_in_later_rounds():
    w = start(3.0, 4.0)  # 5 long; the gradient is (6, 15)
    for k, longest in ((1, 1.5), (4, 0.75), (9, 0.5)):
        after = flat(at_round(FedAvg(**RULE), k, w).client_update(bowl, w, ones(1)))
        np.testing.assert_allclose(
            after, flat(w) - longest * np.array([6.0, 15.0]) / math.sqrt(261.0), rtol=1e-12
        )


def test_the_length_is_the_round_s_for_all_its_local_steps():
    w, by_hand = start(3.0, 4.0), np.array([3.0, 4.0])
    for _ in range(4):
        gradient = bowl_gradient(by_hand)
        by_hand = by_hand - 0.75 * gradient / np.linalg.norm(gradient)
    after = at_round(FedAvg(**RULE), 4, w).client_update(bowl, w, ones(4))
    np.testing.assert_allclose(flat(after), by_hand, rtol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(0.0, 0.0), (0.6, 0.0), (0.0, 0.1)])
def test_a_short_model_is_taken_for_one_of_length_one(a, b):
    w = start(a, b)
    moved = flat(at_round(FedAvg(**RULE), 1, w).client_update(bowl, w, ones(1))) - flat(w)
    assert np.linalg.norm(moved) == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0, 100.0])
def test_a_number_for_beta_is_followed_up_to_the_length(beta):
    w, k = start(3.0, 4.0), 4
    gradient = np.array([6.0, 15.0])
    step = min(beta / 2.0, 0.75 / np.linalg.norm(gradient))  # beta is halved in round 4 too
    for clip, cut in ((0.0, 1.0), (2.0, min(1.0, 2.0 / np.linalg.norm(gradient)))):
        rule = FedAvg(beta, lr_decay=1.0, longest_step=0.3, grad_clip=clip)
        after = flat(at_round(rule, k, w).client_update(bowl, w, ones(1)))
        np.testing.assert_allclose(
            after, flat(w) - min(step, cut * beta / 2.0) * gradient, rtol=1e-12
        )


@pytest.mark.parametrize(
    "rule", [FedAvg(**RULE), PerFedAvg(0.1, **RULE), FedProx(**RULE), Ditto(**RULE)]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, 1e-25])
def test_gradients_that_are_not_finite_or_vanish_make_no_step(rule, value):
    w = {"w": torch.tensor([0.5, 2.0])}  # single precision, in which the square of 1e-25 is 0

    def loss(params, batch):
        return (torch.tensor([value, 0.0]) * params["w"]).sum()

    after = at_round(rule, 1, w).client_update(loss, w, batch_of(3))
    assert torch.equal(after["w"], w["w"])


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_the_unit_of_the_loss_changes_nothing(unit):
    w = start(3.0, 4.0)

    def scaled(params, batch):
        return unit * bowl(params, batch)

    for k in (1, 5):
        plain, other = (
            at_round(FedAvg(**RULE), k, w).client_update(f, w, ones(3)) for f in (bowl, scaled)
        )
        np.testing.assert_allclose(flat(other), flat(plain), rtol=1e-9)
        for variant in ("exact", "first-order"):  # alpha is a step size: it has the loss's unit
            first = at_round(PerFedAvg(0.1, **RULE, variant=variant), k, w).client_update(
                bowl, w, ones(3)
            )
            again = at_round(PerFedAvg(0.1 / unit, **RULE, variant=variant), k, w).client_update(
                scaled, w, ones(3)
            )
            np.testing.assert_allclose(flat(again), flat(first), rtol=1e-9)


def test_fedprox_s_steps_have_the_length_too_and_point_where_its_gradient_does():
    w, by_hand = start(3.0, 4.0), np.array([3.0, 4.0])
    for _ in range(3):
        gradient = bowl_gradient(by_hand) + 0.5 * (by_hand - np.array([3.0, 4.0]))
        by_hand = by_hand - 1.5 * gradient / np.linalg.norm(gradient)
    after = at_round(FedProx(**RULE, mu=0.5), 1, w).client_update(bowl, w, ones(3))
    np.testing.assert_allclose(flat(after), by_hand, rtol=1e-12)


def test_ditto_s_own_model_makes_steps_of_the_global_model_s_length():
    ditto, sent = Ditto(**RULE, pull=2.0), start(3.0, 4.0)
    own = {**start(30.0, 40.0), "trained": torch.ones(()).double()}
    update, after = at_round(ditto, 1, sent).client_step(bowl, sent, ones(2), own)
    by_hand = np.array([30.0, 40.0])
    for _ in range(2):
        gradient = bowl_gradient(by_hand) + 2.0 * (by_hand - np.array([3.0, 4.0]))
        by_hand = by_hand - 1.5 * gradient / np.linalg.norm(gradient)
    np.testing.assert_allclose(flat(after), by_hand, rtol=1e-12)
    fedavg = at_round(FedAvg(**RULE), 1, sent).client_update(bowl, sent, ones(2))
    np.testing.assert_allclose(flat(update), flat(fedavg), rtol=1e-12)


def test_a_round_s_algorithm_says_what_it_does():
    w = start(3.0, 4.0)
    now = at_round(FedAvg(**RULE), 4, w)
    assert (now.outer_lr, now.unit, now.longest_step, now.lr_decay) == (
        pytest.approx(0.75),
        True,
        0.0,
        0.0,
    )
    assert at_round(FedAvg(0.1), 4, w) == FedAvg(0.1)
    assert at_round(FedAvg(0.1, lr_decay=1.0), 4, w) == FedAvg(0.05)
    # Nothing of it counts as guarded: a step of this length is the rule, not an accident.
    assert int(now.guarded_update(bowl, w, ones(3))[1]) == 0


def test_a_subclass_that_computes_its_own_update_is_refused_in_one_line():
    for base, first in ((FedAvg, ()), (PerFedAvg, (0.1,)), (FedProx, ())):

        class Own(base):
            def client_update(self, loss, params, batch):
                return params

        with pytest.raises(
            AutoFLError, match="Own computes its own update, which they do not reach"
        ) as refused:
            Own(*first, **RULE)
        assert "\n" not in str(refused.value)
        Own(*first, 0.1)  # with a number for beta and no bound it is nobody's business
    for server_side in (FedOpt, Ditto):
        assert server_side(**RULE).is_guarded


def test_what_makes_no_sense_is_refused():
    with pytest.raises(AutoFLError, match="an infinite step needs longest_step"):
        FedAvg(math.inf)
    with pytest.raises(TypeError):
        Scaffold(0.1, longest_step=0.3)  # its control variates need a step size that is known


def test_one_weight_comes_within_the_last_step_of_its_target():
    """|w - 4| after k rounds is at most the length of a step, which shrinks: no constant is needed
    to converge.
    """
    w = {"w": torch.tensor([0.0], dtype=torch.float64)}
    for k in range(1, 401):
        w = at_round(FedAvg(**RULE), k, w).client_update(quadratic, w, batch_of(1))
    assert abs(float(w["w"]) - 4.0) <= 0.3 / math.sqrt(400) * 4.1
