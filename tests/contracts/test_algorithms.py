"""Promises every algorithm keeps: vmap equals the loop, padding and the order of UEs change
nothing.
"""

import numpy as np
import pytest
import torch
from torch import nn

from autofl.algorithms import PerFedAvg
from autofl.data import Iid, find, load
from autofl.data.batch import Batch
from autofl.data.federated import federate
from autofl.engines import make_engine, pick_engine, shaped
from autofl.models import build, lenet5, mlp, params_of
from autofl.rng import stream
from reference.updates import ALGORITHMS, NUM_SAMPLES, UE, InMemory, received

pytestmark = pytest.mark.slow

# float64 sums in another order: a few ulp of the largest terms. float32: the same, 2^29 times
# coarser.
TOLERANCE = {
    torch.float64: {"rtol": 1e-11, "atol": 1e-14},
    torch.float32: {"rtol": 2e-4, "atol": 2e-7},
}


@pytest.fixture(scope="module", params=[torch.float64, torch.float32], ids=["float64", "float32"])
def problem(request, few_digits, federated):
    data = federate(few_digits, federated.partition, request.param)
    model = build(mlp, (784,), 10, stream(1, "init"))
    return data, model, params_of(model, request.param), TOLERANCE[request.param]


def equal(left, right, tolerance, algorithm=""):
    for name in left:
        if algorithm == "finite-difference":
            # A difference of gradients over a step of 0.01 loses digits, and all of them where
            # rounding decides on
            # which side of a kink a ReLU is evaluated: compare lengths, not elements.
            off = (left[name] - right[name]).norm() / left[name].norm()
            assert off < 30 * tolerance["rtol"], name
        else:
            torch.testing.assert_close(left[name], right[name], **tolerance)


def one_by_one(updates, params):
    """Client parameters from the single updates, in the order of the rows."""
    changes = [shaped(row, params) for row in updates.table()]
    return {name: p + torch.stack([own[name] for own in changes]) for name, p in params.items()}


WEIGHT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_engine_equals_the_loop(problem, name, local_steps):
    data, model, params, tolerance = problem
    batches = data.draw(UE, NUM_SAMPLES, local_steps, seed=1, round_index=2)
    loop, vmap, low_rank = (
        make_engine(engine, model)(ALGORITHMS[name], params, batches, UE)
        for engine in ("loop", "vmap", "low_rank")
    )
    everybody = np.arange(len(UE))
    equal(loop.params_of(everybody), vmap.params_of(everybody), tolerance, name)
    for updates in (loop, vmap, low_rank):
        equal(loop.params_of(everybody), one_by_one(updates, params), tolerance, name)
    equal(loop.mean(WEIGHT), vmap.mean(WEIGHT), tolerance, name)
    equal(loop.mean(WEIGHT), low_rank.mean(WEIGHT), tolerance, name)
    assert data.columns is not None  # inputs that low_rank leaves out; their weights stay
    zeros = data.scale == 0.0
    assert torch.equal(low_rank.mean(WEIGHT)["0.weight"][:, zeros], params["0.weight"][:, zeros])
    moved = sum(float((loop.mean(WEIGHT)[key] - params[key]).abs().max()) for key in params)
    assert moved > 1e-3  # an update that does nothing would agree with everything


@pytest.mark.parametrize("name", ["exact", "fedavg"])
def test_engines_agree_on_batches_of_unequal_shares(problem, name):
    data, model, params, tolerance = problem
    split = data.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2, split=(0.1, 0.8, 0.1))
    means = [
        make_engine(engine, model)(ALGORITHMS[name], params, split, UE)
        for engine in ("loop", "vmap", "low_rank")
    ]
    for updates in means[1:]:
        equal(means[0].mean(WEIGHT), updates.mean(WEIGHT), tolerance)
    thirds = make_engine("loop", model)(
        ALGORITHMS[name], params, data.draw(UE, NUM_SAMPLES, 2, 1, 2), UE
    ).mean(WEIGHT)
    off = max(float((means[0].mean(WEIGHT)[key] - p).abs().max()) for key, p in thirds.items())
    assert off < 1e-6 if name == "fedavg" else off > 1e-3  # FedAvg joins the three again


@pytest.mark.parametrize("engine", ["loop", "vmap", "low_rank"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_padding_changes_nothing(problem, name, engine):
    data, model, params, tolerance = problem
    batch = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2).take(np.arange(len(UE)))

    more = Batch(
        torch.cat(
            [batch.x, 1e3 * torch.ones_like(batch.x[..., :5, :])], dim=3
        ),  # rubbish behind the mask
        torch.cat([batch.y, torch.zeros_like(batch.y[..., :5])], dim=3),
        torch.cat([batch.mask, torch.zeros_like(batch.mask[..., :5])], dim=3),
    )
    plain, longer = (
        make_engine(engine, model)(ALGORITHMS[name], params, InMemory(each), UE).mean(WEIGHT)
        for each in (batch, more)
    )
    equal(plain, longer, tolerance, name)


@pytest.mark.parametrize("engine", ["loop", "vmap", "low_rank"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_mean_is_that_of_ues_alone_and_the_same_to_the_bit_in_any_order(problem, name, engine):
    data, model, params, tolerance = problem
    run = make_engine(engine, model)
    mean = run(
        ALGORITHMS[name], params, data.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2), UE
    ).mean(WEIGHT)
    total = {key: torch.zeros_like(p) for key, p in params.items()}
    for i in range(len(UE)):
        own = data.draw(UE[[i]], NUM_SAMPLES[[i]], 2, seed=1, round_index=2)
        alone = run(ALGORITHMS[name], params, own, UE[[i]]).mean(np.ones(1))
        total = {key: total[key] + WEIGHT[i] / WEIGHT.sum() * alone[key] for key in total}
    equal(total, mean, tolerance, name)
    for order in (np.array([4, 2, 0, 1, 3]), np.array([1, 0, 3, 4, 2])):
        mixed = data.draw(UE[order], NUM_SAMPLES[order], 2, seed=1, round_index=2)
        again = run(ALGORITHMS[name], params, mixed, UE[order]).mean(WEIGHT[order])
        assert all(torch.equal(again[key], mean[key]) for key in mean)


ACTIVATIONS = [
    nn.ReLU(), nn.LeakyReLU(0.1), nn.Tanh(), nn.Sigmoid(), nn.Softplus(), nn.SiLU(), nn.GELU(), nn.ELU(0.7)
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda module: type(module).__name__)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_low_rank_is_exact_for_deep_networks_with_the_usual_activations(
    federated, name, activation
):
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Linear(784, 12),
        activation,
        nn.Sequential(nn.Linear(12, 9, bias=False), activation),
        nn.Linear(9, 10),
    )
    params = params_of(model, torch.float64)
    assert pick_engine("auto", model, ALGORITHMS[name]) == "low_rank"
    batches = federated.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2)
    loop, low_rank = (
        make_engine(engine, model)(ALGORITHMS[name], params, batches, UE)
        for engine in ("loop", "low_rank")
    )
    # Standardised rare pixels reach 30, so the first layer's sums cancel more than those of the
    # paper's network.
    equal(loop.mean(WEIGHT), low_rank.mean(WEIGHT), {"rtol": 1e-9, "atol": 1e-12}, name)


def test_auto_takes_low_rank_only_where_it_is_exact():
    class Own(PerFedAvg):
        def client_update(self, loss, params, batch):
            return params

    class OwnGradient(PerFedAvg):
        def meta_grad(self, loss, params, batch):
            return params

    tied = nn.Linear(10, 10)
    exact = PerFedAvg(0.1, 0.1)
    assert pick_engine("auto", mlp(), exact) == "low_rank"
    assert pick_engine("auto", mlp(), Own(0.1, 0.1)) == "vmap"
    assert pick_engine("auto", mlp(), OwnGradient(0.1, 0.1)) == "vmap"
    assert (
        pick_engine("auto", nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), exact)
        == "vmap"
    )
    assert pick_engine("auto", nn.Sequential(tied, nn.ReLU(), tied), exact) == "vmap"


def test_the_average_is_the_same_to_the_bit_in_whatever_order_updates_arrive(rng):
    stack = torch.from_numpy(rng.normal(size=(30, 50)).astype(np.float32))
    ue, weight = rng.permutation(1000)[:30], rng.random(30)
    expected = received(ue, {"w": stack}, {"w": stack[0]}).mean(weight)["w"]
    for _ in range(20):
        order = rng.permutation(30)
        arrived = received(ue[order], {"w": stack[torch.from_numpy(order)]}, {"w": stack[0]})
        assert torch.equal(arrived.mean(weight[order])["w"], expected)
    slow = sum(w * p for w, p in zip(weight, stack.double().numpy(), strict=True)) / weight.sum()
    np.testing.assert_allclose(expected.numpy(), slow, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(find("cifar10") is None, reason="the real CIFAR-10 is not in AUTOFL_DATA")
def test_vmap_equals_the_loop_for_lenet_on_cifar10():
    dataset = load("cifar10")
    data = federate(dataset, dataset.partition(Iid(), 20, seed=1), torch.float64)
    lenet_agrees(data, (3, 32, 32))


def test_vmap_equals_the_loop_for_lenet_on_digits(few_digits, federated):
    images = type(few_digits)("images", few_digits.x.reshape(-1, 1, 28, 28), few_digits.y, 10)
    lenet_agrees(federate(images, federated.partition, torch.float64), (1, 28, 28))


def lenet_agrees(data, shape):
    model = build(lenet5, shape, 10, stream(1, "init"))
    params, ue = params_of(model, torch.float64), np.array([1, 4])
    batches = data.draw(ue, np.array([9, 5]), 1, seed=1, round_index=1)
    for algorithm in (ALGORITHMS["exact"], ALGORITHMS["fedavg"]):
        loop, vmap = (
            make_engine(engine, model)(algorithm, params, batches, ue)
            for engine in ("loop", "vmap")
        )
        equal(loop.params_of(np.arange(2)), vmap.params_of(np.arange(2)), TOLERANCE[torch.float64])
