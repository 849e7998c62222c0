"""The exact meta-gradient of models that PyTorch cannot differentiate forwards, against finite
differences.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from autofl.algorithms import PerFedAvg
from autofl.algorithms.hessian import hessian_product
from autofl.data.batch import Batch, MetaBatch
from autofl.engines import make_engine, pick_engine
from autofl.models import check_model, loss_of, params_of
from reference.updates import InMemory

ALPHA = 0.5


class Transformer(nn.Module):
    """One layer of attention over the rows of a sample, and their mean."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, activation="gelu"
        )
        self.scores = nn.Linear(8, 3)

    def forward(self, x):
        return self.scores(self.encoder(x).mean(-2))


class Cube(torch.autograd.Function):
    """x^3 that says how to go backwards, twice, but not forwards."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, delta):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * delta


class Cubed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.outer(Cube.apply(self.inner(x.mean(-2))))


def weight_normed():
    return nn.Sequential(
        nn.Flatten(),
        nn.utils.parametrizations.weight_norm(nn.Linear(40, 6)),
        nn.Tanh(),
        nn.Linear(6, 3),
    )


MODELS = {"attention": Transformer, "own function": Cubed, "weight norm": weight_normed}


@pytest.fixture(params=MODELS)
def problem(request):
    torch.manual_seed(2)
    model = MODELS[request.param]().double()
    check_model(model, (5, 8), 3)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(
        3, 2, 1, 6, 5, 8, dtype=torch.float64, generator=generator
    )  # role, UE, step, sample
    y = torch.randint(3, (3, 2, 1, 6), generator=generator)
    return (
        model,
        params_of(model, torch.float64),
        Batch(x, y, torch.ones(y.shape, dtype=torch.float64)),
    )


def part_of(batch, ue):
    """The three batches of one UE's only step."""
    return MetaBatch(
        *(
            Batch(batch.x[role, ue, 0], batch.y[role, ue, 0], batch.mask[role, ue, 0])
            for role in range(3)
        )
    )


def plain_gradient(model, params, batch):
    """By autograd, without torch.func."""
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    loss = nn.functional.cross_entropy(functional_call(model, leaves, (batch.x,)), batch.y)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def moved(params, step, direction):
    return {name: p + step * direction[name] for name, p in params.items()}


def reference(model, params, batch):
    """Eq. (7) with H v as a central difference: an error of some 1e-9 in float64 with smooth
    models.
    """
    outer = plain_gradient(
        model, moved(params, -ALPHA, plain_gradient(model, params, batch.inner)), batch.outer
    )
    step = 1e-5
    ahead, behind = (
        plain_gradient(model, moved(params, sign * step, outer), batch.hess) for sign in (1, -1)
    )
    return {
        name: outer[name] - ALPHA * (ahead[name] - behind[name]) / (2 * step) for name in outer
    }, outer


def test_the_exact_meta_gradient_equals_a_finite_difference(problem):
    model, params, batch = problem
    one = part_of(batch, 0)
    found = PerFedAvg(ALPHA, 1.0).meta_grad(loss_of(model), params, one)
    expected, outer = reference(model, params, one)
    for name, p in expected.items():
        torch.testing.assert_close(found[name], p, rtol=1e-6, atol=1e-8)
    assert (
        max(float((outer[name] - p).abs().max()) for name, p in expected.items()) > 1e-4
    )  # the Hessian's part counts


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_both_engines_run_it(problem, engine):
    model, params, batch = problem
    algorithm = PerFedAvg(ALPHA, 1.0)
    assert pick_engine("auto", model, algorithm) == "vmap"
    updates = make_engine(engine, model)(algorithm, params, InMemory(batch), np.arange(2))
    for ue in range(2):
        expected, _ = reference(model, params, part_of(batch, ue))
        for name, p in updates.params_of(np.arange(2)).items():
            torch.testing.assert_close(params[name] - p[ue], expected[name], rtol=1e-6, atol=1e-8)


def test_a_second_backward_pass_is_the_forward_derivative_where_there_are_both():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    params, loss = params_of(model, torch.float64), loss_of(model)
    batch = Batch(torch.randn(7, 8).double(), torch.randint(3, (7,)), torch.ones(7).double())
    direction = {name: torch.randn_like(p) for name, p in params.items()}

    def forward_less(at, on):
        return loss({name: Refusing.apply(p) for name, p in at.items()}, on)

    forwards, backwards = (
        hessian_product(each, params, direction, batch) for each in (loss, forward_less)
    )
    for name in params:
        torch.testing.assert_close(forwards[name], backwards[name], rtol=1e-12, atol=1e-14)


class Refusing(torch.autograd.Function):
    """The identity, backwards only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, delta):
        return delta
