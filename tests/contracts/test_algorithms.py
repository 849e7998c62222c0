"""Promises every algorithm keeps: vmap equals the loop, padding and the order of UEs change nothing."""

import numpy as np
import pytest
import torch

from autofl.algorithms import ENGINES, FedAvg, PerFedAvg, StackedUpdates
from autofl.data import find, load, split
from autofl.data.batch import Batch, MetaBatch
from autofl.data.federated import federate
from autofl.data.partition import iid
from autofl.models import build, lenet5, loss_of, mlp, params_of
from autofl.rng import stream

ALGORITHMS = {
    "fedavg": FedAvg(0.07),
    "exact": PerFedAvg(0.3, 0.07),
    "first-order": PerFedAvg(0.3, 0.07, "first-order"),
    "finite-difference": PerFedAvg(0.3, 0.07, "finite-difference"),
}
UE = np.array([0, 2, 3, 5, 7])
NUM_SAMPLES = np.array([24, 3, 17, 8, 11])
# float64 sums in another order: a few ulp of the largest terms. float32: the same, 2^29 times coarser.
TOLERANCE = {torch.float64: {"rtol": 1e-11, "atol": 1e-14}, torch.float32: {"rtol": 2e-4, "atol": 2e-7}}


@pytest.fixture(scope="module", params=[torch.float64, torch.float32], ids=["float64", "float32"])
def problem(request, few_digits, federated):
    data = federate(few_digits, federated.partition, request.param)
    model = build(mlp, (784,), 10, stream(1, "init"))
    return data, loss_of(model), params_of(model, request.param), TOLERANCE[request.param]


def equal(left, right, tolerance, algorithm=""):
    # A difference of two gradients over a step of 0.01 loses two to three digits.
    loss = 300.0 if algorithm == "finite-difference" else 1.0
    for name in left:
        torch.testing.assert_close(
            left[name], right[name], rtol=loss * tolerance["rtol"], atol=loss * tolerance["atol"]
        )


@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_vmap_equals_the_loop(problem, name, local_steps):
    data, loss, params, tolerance = problem
    batch = data.draw(UE, NUM_SAMPLES, local_steps, seed=1, round_index=2)
    loop, vmap = (ENGINES[engine](ALGORITHMS[name], loss, params, batch, UE) for engine in ("loop", "vmap"))
    equal(loop.params, vmap.params, tolerance, name)
    moved = sum(float((loop.params[key] - params[key]).abs().max()) for key in params)
    assert moved > 1e-3  # an update that does nothing would agree with everything


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_padding_changes_nothing(problem, name, engine):
    data, loss, params, tolerance = problem
    batch = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)

    def padded(part: Batch) -> Batch:
        rubbish = 1e3 * torch.ones_like(part.x[:, :, :5])
        return Batch(
            torch.cat([part.x, rubbish], dim=2),
            torch.cat([part.y, torch.zeros_like(part.y[:, :, :5])], dim=2),
            torch.cat([part.mask, torch.zeros_like(part.mask[:, :, :5])], dim=2),
        )

    more = MetaBatch(*(padded(part) for part in batch))
    equal(
        ENGINES[engine](ALGORITHMS[name], loss, params, batch, UE).params,
        ENGINES[engine](ALGORITHMS[name], loss, params, more, UE).params,
        tolerance,
        name,
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_ue_alone_gets_the_update_it_gets_among_others(problem, name):
    data, loss, params, tolerance = problem
    together = ENGINES["vmap"](ALGORITHMS[name], loss, params, data.draw(UE, NUM_SAMPLES, 2, 1, 2), UE)
    for i in range(len(UE)):
        own = data.draw(UE[[i]], NUM_SAMPLES[[i]], 2, seed=1, round_index=2)
        alone = ENGINES["loop"](ALGORITHMS[name], loss, params, own, UE[[i]])
        first, own_row = ({k: stack[row] for k, stack in u.params.items()} for u, row in ((alone, 0), (together, i)))
        equal(first, own_row, tolerance, name)


def test_the_average_is_the_same_to_the_bit_in_whatever_order_updates_arrive(rng):
    stack = torch.from_numpy(rng.normal(size=(30, 50)).astype(np.float32))
    ue, weight = rng.permutation(1000)[:30], rng.random(30)
    expected = StackedUpdates(ue, {"w": stack}).mean(weight)["w"]
    for _ in range(20):
        order = rng.permutation(30)
        arrived = StackedUpdates(ue[order], {"w": stack[torch.from_numpy(order)]})
        assert torch.equal(arrived.mean(weight[order])["w"], expected)
    slow = sum(w * p for w, p in zip(weight, stack.double().numpy(), strict=True)) / weight.sum()
    np.testing.assert_allclose(expected.numpy(), slow, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(find("cifar10") is None, reason="the real CIFAR-10 is not in AUTOFL_DATA")
def test_vmap_equals_the_loop_for_lenet_on_cifar10():
    dataset = load("cifar10")
    data = federate(dataset, split(iid(dataset.y, 20, stream(1, "p")), stream(1, "s")), torch.float64)
    lenet_agrees(data, (3, 32, 32))


def test_vmap_equals_the_loop_for_lenet_on_digits(few_digits, federated):
    images = type(few_digits)("images", few_digits.x.reshape(-1, 1, 28, 28), few_digits.y, 10)
    lenet_agrees(federate(images, federated.partition, torch.float64), (1, 28, 28))


def lenet_agrees(data, shape):
    model = build(lenet5, shape, 10, stream(1, "init"))
    loss, params, ue = loss_of(model), params_of(model, torch.float64), np.array([1, 4])
    batch = data.draw(ue, np.array([9, 5]), 1, seed=1, round_index=1)
    for algorithm in (ALGORITHMS["exact"], ALGORITHMS["fedavg"]):
        loop, vmap = (ENGINES[engine](algorithm, loss, params, batch, ue) for engine in ("loop", "vmap"))
        equal(loop.params, vmap.params, TOLERANCE[torch.float64])
