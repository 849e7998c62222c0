"""The meta-gradient against finite differences of F_i, a quadratic's closed form, and its own
special cases.
"""

import numpy as np
import pytest
import torch
from torch import nn

from autofl.algorithms import FedAvg, PerFedAvg
from autofl.data import ByLabels, load
from autofl.data.batch import Batch, MetaBatch
from autofl.data.federated import federate
from autofl.models import build, lenet5, loss_of, mlp, num_weights, params_of
from autofl.rng import stream

ALPHA = 0.5  # large, so that the Hessian's part cannot hide


def all_of(batch: Batch) -> MetaBatch:
    return MetaBatch(batch, batch, batch)


def smooth_problem(seed=0):
    """A small network with a smooth activation and one batch, float64."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    batch = Batch(
        torch.randn(9, 4, dtype=torch.float64),
        torch.randint(3, (9,)),
        torch.ones(9, dtype=torch.float64),
    )
    return loss_of(model), params_of(model, torch.float64), batch


def meta_loss(loss, params, batch, alpha):
    """F_i(w) = f_i(w - alpha grad f_i(w)), Eq. (4), written with autograd instead of torch.func."""
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    grads = torch.autograd.grad(loss(leaves, batch), list(leaves.values()))
    moved = {name: p - alpha * g for (name, p), g in zip(params.items(), grads, strict=True)}
    return float(loss(moved, batch))


def flat(params):
    return torch.cat([p.reshape(-1) for p in params.values()])


def test_the_exact_meta_gradient_is_the_finite_difference_of_f_i():
    loss, params, batch = smooth_problem()
    gradient = PerFedAvg(ALPHA, 1.0).meta_grad(loss, params, all_of(batch))
    h = 1e-5
    for name, p in params.items():
        for place in range(0, p.numel(), 5):
            shift = torch.zeros_like(p).reshape(-1)
            shift[place] = h
            shift = shift.reshape(p.shape)
            ahead = meta_loss(loss, {**params, name: p + shift}, batch, ALPHA)
            behind = meta_loss(loss, {**params, name: p - shift}, batch, ALPHA)
            slope = float(gradient[name].reshape(-1)[place])
            assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-6, abs=1e-9)


def test_on_a_quadratic_with_three_batches_it_is_the_closed_form():
    # f(w; D) = mean over D of (x.w - y)^2 / 2: gradient X'(Xw - y)/m, Hessian X'X/m, so Eq. (7) by
    # hand.
    generator = np.random.default_rng(1)
    data = [(generator.normal(size=(m, 4)), generator.normal(size=m)) for m in (5, 7, 3)]
    w = generator.normal(size=4)

    def loss(params, batch):
        return (0.5 * (batch.x @ params["w"] - batch.y) ** 2 * batch.mask).sum() / batch.mask.sum()

    batches = MetaBatch(
        *(
            Batch(torch.from_numpy(x), torch.from_numpy(y), torch.ones(len(y), dtype=torch.float64))
            for x, y in data
        )
    )
    (xi, yi), (xo, yo), (xh, _) = data
    theta = w - ALPHA * xi.T @ (xi @ w - yi) / 5
    outer = xo.T @ (xo @ theta - yo) / 7
    expected = outer - ALPHA * xh.T @ (xh @ outer) / 3
    found = PerFedAvg(ALPHA, 1.0).meta_grad(loss, {"w": torch.from_numpy(w)}, batches)["w"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_dropping_the_hessian_gives_the_first_order_variant():
    loss, params, batch = smooth_problem()
    exact = flat(PerFedAvg(ALPHA, 1.0).meta_grad(loss, params, all_of(batch)))
    first = flat(PerFedAvg(ALPHA, 1.0, "first-order").meta_grad(loss, params, all_of(batch)))
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    grads = torch.autograd.grad(loss(leaves, batch), list(leaves.values()))
    moved = {
        name: (p - ALPHA * g).requires_grad_()
        for (name, p), g in zip(params.items(), grads, strict=True)
    }
    outer = torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(loss(moved, batch), list(moved.values()))]
    )
    torch.testing.assert_close(first, outer, rtol=1e-12, atol=1e-14)
    assert (exact - first).norm() > 0.02 * exact.norm()


def test_the_finite_difference_variant_approaches_the_exact_one():
    loss, params, batch = smooth_problem()
    exact = flat(PerFedAvg(ALPHA, 1.0).meta_grad(loss, params, all_of(batch)))
    errors = []
    for length in (1e-1, 1e-2, 1e-3):
        found = flat(
            PerFedAvg(ALPHA, 1.0, "finite-difference", length).meta_grad(
                loss, params, all_of(batch)
            )
        )
        errors.append(float((found - exact).norm() / exact.norm()))
    assert errors[2] < 1e-6
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.1)  # central differences: second order


def test_without_an_inner_step_per_fedavg_is_fedavg_on_the_outer_batch():
    loss, params, batch = smooth_problem()
    stacked = MetaBatch(
        *(Batch(part.x[None], part.y[None], part.mask[None]) for part in all_of(batch))
    )
    outer_only = Batch(batch.x[None], batch.y[None], batch.mask[None])
    nothing = Batch(batch.x[None, :1], batch.y[None, :1], 0 * batch.mask[None, :1])
    ours = PerFedAvg(0.0, 0.07).client_update(loss, params, stacked)
    plain = FedAvg(0.07).client_update(loss, params, MetaBatch(nothing, outer_only, nothing))
    for name in params:
        torch.testing.assert_close(ours[name], plain[name], rtol=1e-13, atol=1e-15)


def test_fedavg_is_one_step_of_torchs_own_sgd():
    torch.manual_seed(3)
    model = nn.Linear(4, 3).double()
    loss, params = loss_of(model), params_of(model, torch.float64)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,))
    thirds = [
        Batch(x[None, k::3], y[None, k::3], torch.ones(1, 2, dtype=torch.float64)) for k in range(3)
    ]
    ours = FedAvg(0.1).client_update(loss, params, MetaBatch(*thirds))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(model(x), y).backward()
    optimiser.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(ours[name], p.detach(), rtol=1e-12, atol=1e-14)


def test_the_models_have_the_paper_sizes():
    assert num_weights(params_of(mlp())) == 79_510
    assert num_weights(params_of(lenet5())) == 62_006


def test_building_a_model_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one, two = (build(mlp, (784,), 10, stream(5, "init")) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for left, right in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(left, right)


def first_step_of_digits(dtype, num_samples, seed):
    """Loss, first weights and the batches of eight UEs of MNIST-5k, in this precision."""
    digits = load("mnist5k")
    data = federate(digits, digits.partition(ByLabels(5), 8, seed), dtype)
    model = build(mlp, data.sample_shape, 10, stream(seed, "init"))
    batch = data.draw(np.arange(8), np.full(8, num_samples), 1, seed, 1).take(np.arange(8))
    each = [
        MetaBatch(*(Batch(*(part[role, ue, 0] for part in batch)) for role in range(3)))
        for ue in range(8)
    ]
    return loss_of(model), params_of(model, dtype), each


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_samples", [50, 5])
def test_the_finite_difference_is_nearer_to_the_exact_variant_than_no_hessian_is(num_samples, seed):
    loss, params, batches = first_step_of_digits(torch.float32, num_samples, seed)
    exact_loss, exact_params, exact_batches = first_step_of_digits(torch.float64, num_samples, seed)
    ratio = []
    for batch, exact_batch in zip(batches, exact_batches, strict=True):
        exact = flat(PerFedAvg(0.03, 1.0).meta_grad(exact_loss, exact_params, exact_batch))
        difference, first = (
            (
                flat(PerFedAvg(0.03, 1.0, variant).meta_grad(loss, params, batch)).double() - exact
            ).norm()
            for variant in ("finite-difference", "first-order")
        )
        ratio.append(float(difference / first))
    assert np.median(ratio) < 0.1
    # The step of one UE in a hundred crosses a kink, however short it is: there the difference is
    # useless.
    assert np.mean(np.array(ratio) < 0.5) >= 7 / 8
