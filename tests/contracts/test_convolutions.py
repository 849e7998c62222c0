"""The low-rank engine on networks with convolutions: the same numbers as the loop, run by run and
UE by UE.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from autofl.algorithms import PerFedAvg
from autofl.data import Dataset, Iid, find, load
from autofl.data.batch import Batch
from autofl.data.federated import FederatedData, federate
from autofl.engines import make_engine, pick_engine
from autofl.engines.low_rank import low_rank_layers, mean_of_runs
from autofl.engines.low_rank.images import MaxPool2
from autofl.evaluation import Evaluator
from autofl.models import build, lenet5, params_of
from autofl.rng import stream
from reference.updates import ALGORITHMS, NUM_SAMPLES, UE, InMemory

pytestmark = pytest.mark.slow

WEIGHT = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
# How far apart two updates may be, over the update's length: sums of some 10^3 terms that cancel,
# in another order.
# A finite difference divides by a step of 0.01, and rounding decides on which side of a kink a ReLU
# is.
CLOSE = {torch.float64: 1e-11, torch.float32: 1e-3}


def images_of(dataset: Dataset, partition, dtype=torch.float64) -> FederatedData:
    """Digits as 1 x 28 x 28 images."""
    return federate(
        Dataset("images", dataset.x.reshape(-1, 1, 28, 28), dataset.y, 10), partition, dtype
    )


@pytest.fixture(scope="module", params=["digits", "cifar10"])
def data(request, few_digits, federated):
    if request.param == "digits":
        return images_of(few_digits, federated.partition)
    if find("cifar10") is None:
        pytest.skip("the real CIFAR-10 is not in AUTOFL_DATA")
    dataset = load("cifar10")
    few = Dataset(dataset.name, dataset.x[::30], dataset.y[::30], 10)
    return federate(few, few.partition(Iid(), 10, seed=1), torch.float64)


@pytest.fixture(scope="module")
def digits_images(few_digits, federated):
    return images_of(few_digits, federated.partition)


def of_type(data: FederatedData, dtype: torch.dtype) -> FederatedData:
    return replace(data, shift=data.shift.to(dtype), scale=data.scale.to(dtype), dtype=dtype)


def lenet_for(data, dtype=torch.float64):
    model = build(lenet5, data.sample_shape, 10, stream(1, "init"))
    return model, params_of(model, dtype)


def close(start, left, right, within):
    """Two results of an update that began at `start`, parameter by parameter."""
    for name in left:
        moved = (left[name] - start[name]).norm()
        assert moved > 0, name  # an update that does nothing would agree with everything
        assert (left[name] - right[name]).norm() < within * moved, name


def mean(engine, model, algorithm, params, batches, ue=UE, weight=WEIGHT):
    return make_engine(engine, model)(algorithm, params, batches, ue).mean(weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_low_rank_equals_the_loop_for_lenet(data, name, local_steps, dtype):
    moved = of_type(data, dtype)
    model, params = lenet_for(moved, dtype)
    assert pick_engine("auto", model, ALGORITHMS[name]) == "low_rank"
    batches = moved.draw(UE, NUM_SAMPLES, local_steps, seed=1, round_index=2)
    loop, low_rank = (
        mean(engine, model, ALGORITHMS[name], params, batches) for engine in ("loop", "low_rank")
    )
    assert low_rank["0.weight"].dtype == dtype
    close(params, loop, low_rank, CLOSE[dtype] * (30 if name == "finite-difference" else 1))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rubbish_behind_the_mask_changes_nothing(digits_images, name):
    model, params = lenet_for(digits_images)
    batch = digits_images.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2).take(np.arange(len(UE)))
    more = Batch(
        torch.cat([batch.x, 1e3 * torch.ones_like(batch.x[:, :, :, :3])], dim=3),
        torch.cat([batch.y, torch.zeros_like(batch.y[..., :3])], dim=3),
        torch.cat([batch.mask, torch.zeros_like(batch.mask[..., :3])], dim=3),
    )
    plain, longer = (
        mean("low_rank", model, ALGORITHMS[name], params, InMemory(each)) for each in (batch, more)
    )
    close(params, plain, longer, 1e-9 if name == "finite-difference" else 1e-11)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_round_without_samples_changes_nothing(digits_images, name):
    model, params = lenet_for(digits_images)
    none = digits_images.draw(UE, np.zeros_like(UE), 1, seed=1, round_index=2)
    after = mean("low_rank", model, ALGORITHMS[name], params, none)
    assert all(torch.equal(after[key], params[key]) for key in params)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_mean_is_the_same_to_the_bit_in_any_order_of_ues(digits_images, name):
    model, params = lenet_for(digits_images, torch.float32)
    data = of_type(digits_images, torch.float32)
    first = mean("low_rank", model, ALGORITHMS[name], params, data.draw(UE, NUM_SAMPLES, 2, 1, 2))
    for order in (np.array([4, 2, 0, 1, 3]), np.array([1, 0, 3, 4, 2])):
        mixed = data.draw(UE[order], NUM_SAMPLES[order], 2, 1, 2)
        again = mean("low_rank", model, ALGORITHMS[name], params, mixed, UE[order], WEIGHT[order])
        assert all(torch.equal(again[key], first[key]) for key in first)


MODELS = {
    "average pooling, a bend": [
        nn.Conv2d(1, 4, 5), nn.Tanh(), nn.AvgPool2d(3, 2, 1), nn.Conv2d(4, 3, 3, bias=False), nn.AvgPool2d(2),
        nn.SiLU(), nn.Flatten(), nn.Linear(3 * 5 * 5, 10),
    ],
    "padding and strides": [
        nn.Conv2d(1, 5, (3, 4), stride=(2, 1), padding=(2, 1)), nn.ReLU(), nn.Conv2d(5, 9, 3, 2, 1), nn.ReLU(),
        nn.Flatten(-3), nn.Linear(9 * 8 * 14, 8), nn.ReLU(), nn.Linear(8, 10),
    ],
    "overlapping pools": [
        nn.MaxPool2d(3, 2), nn.Conv2d(1, 12, 2), nn.GELU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(),
        nn.Linear(12 * 6 * 6, 10),
    ],
    "odd sizes": [
        nn.Conv2d(1, 6, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 4), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(6 * 4 * 4, 10),
    ],
    "an activation first": [
        nn.Sequential(nn.ReLU(), nn.Conv2d(1, 3, 7, stride=3)), nn.Dropout(), nn.Flatten(), nn.Linear(192, 10),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", MODELS)
def test_low_rank_is_exact_for_other_convolutions_and_pools(digits_images, kind, name):
    torch.manual_seed(7)
    model = nn.Sequential(*MODELS[kind])
    for p in model.parameters():
        nn.init.normal_(p, std=0.2)
    params = params_of(model, torch.float64)
    assert pick_engine("auto", model, ALGORITHMS[name]) == "low_rank"
    batches = digits_images.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2)
    loop, low_rank = (
        mean(engine, model, ALGORITHMS[name], params, batches) for engine in ("loop", "low_rank")
    )
    close(params, loop, low_rank, 1e-8 if name == "finite-difference" else 1e-10)


def test_a_tie_in_a_pool_goes_where_pytorch_sends_it():
    pixels = torch.randint(0, 2, (2, 9, 3, 8, 5)).double()  # two values, so most squares tie
    images = pixels.permute(0, 4, 2, 1, 3).flatten(0, 1).requires_grad_(True)
    expected = nn.functional.max_pool2d(images, 2)
    pool = MaxPool2()
    y, kept = pool.forward(pixels)
    delta = torch.randn_like(y)
    as_planes = [
        part.permute(0, 4, 2, 1, 3).flatten(0, 1)
        for part in (y, delta, pool.pull(delta, pixels, kept))
    ]
    expected.backward(as_planes[1])
    assert torch.equal(as_planes[0], expected)
    assert torch.equal(as_planes[2], images.grad)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("local_steps", [1, 2])
def test_several_runs_in_one_batch_give_what_each_gives_alone(digits_images, name, local_steps):
    model, params = lenet_for(digits_images)
    runs = [{key: (1 + 0.1 * r) * p for key, p in params.items()} for r in range(3)]
    stacked = {key: torch.stack([run[key] for run in runs]) for key in params}
    batches = [
        digits_images.draw(UE, NUM_SAMPLES, local_steps, seed, round_index=2) for seed in range(3)
    ]
    taken = [digits_images.batch(one.draw) for one in batches]
    joined = Batch(*(torch.cat(parts, dim=1) for parts in zip(*taken, strict=True)))
    share = np.tile(WEIGHT / WEIGHT.sum(), 3)
    together, _ = mean_of_runs(low_rank_layers(model), stacked, ALGORITHMS[name], joined, share)
    for r, run in enumerate(runs):
        alone = mean("low_rank", model, ALGORITHMS[name], run, batches[r])
        close(
            run,
            alone,
            {key: p[r] for key, p in together.items()},
            1e-8 if name == "finite-difference" else 1e-11,
        )


def test_the_adapted_evaluation_equals_the_reference(data):
    model, params = lenet_for(data)
    params = {
        key: 1.5 * p for key, p in params.items()
    }  # away from the start, where all outputs are alike
    evaluator = Evaluator(inner_lr=0.1, adapt_samples=13, train_samples=21, test_samples=37)
    fast, slow = (
        evaluator.prepare(model, data, seed=3, fast=fast)(params) for fast in (True, False)
    )
    np.testing.assert_allclose(
        [fast.train_loss, fast.adapted_train_loss, fast.global_accuracy, fast.adapted_accuracy],
        [slow.train_loss, slow.adapted_train_loss, slow.global_accuracy, slow.adapted_accuracy],
        rtol=1e-10,
    )
    assert abs(fast.train_loss - fast.adapted_train_loss) > 1e-3  # adaptation did something


def test_auto_leaves_alone_what_is_not_a_plain_convolution():
    exact = PerFedAvg(0.1, 0.1)
    last = [nn.Flatten(), nn.Linear(8, 2)]
    for first in (
        nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 2, 3, dilation=2), nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
    ):  # fmt: skip
        assert pick_engine("auto", nn.Sequential(first, *last), exact) == "loop"
    assert pick_engine("auto", nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(4, 2)), exact) == "loop"
    assert (
        pick_engine(
            "auto", nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(-2), nn.Linear(4, 2)), exact
        )
        == "loop"
    )
    assert (
        pick_engine("auto", nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), *last), exact)
        == "loop"
    )
    tied = nn.Conv2d(1, 1, 3)
    assert pick_engine("auto", nn.Sequential(tied, nn.ReLU(), tied, *last), exact) == "loop"
    assert pick_engine("auto", nn.Sequential(nn.Conv2d(1, 2, 3), *last), exact) == "low_rank"
