"""Steps of the model's own length: each has it, in every engine, whatever the algorithm, the model
and the gradient.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from autofl.algorithms import FedAvg, PerFedAvg, at_round
from autofl.compressors.ternary import Ternary
from autofl.config import parse_settings
from autofl.data import Dataset
from autofl.data.batch import Batch
from autofl.data.federated import federate
from autofl.engines import ClientMemory, CompressedUpdates, make_engine, pick_engine, shaped
from autofl.experiments.build import LONGEST, build_algorithm
from autofl.models import build, mlp, params_of
from autofl.rng import stream
from reference.updates import NUM_SAMPLES, UE, InMemory

pytestmark = pytest.mark.slow

ENGINES = ("loop", "vmap", "low_rank")
LENGTH = {"outer_lr": np.inf, "longest_step": 0.3, "lr_decay": 1.0}
RULED = {
    "fedavg": FedAvg(**LENGTH),
    "exact": PerFedAvg(0.03, **LENGTH),
    "exact, guarded": PerFedAvg(0.3, **LENGTH, guard=0.5),
    "first-order": PerFedAvg(0.3, **LENGTH, variant="first-order"),
    "finite-difference": PerFedAvg(0.3, **LENGTH, variant="finite-difference", difference=1e-2),
}
# Lengths come from Gram matrices in the low-rank engine: sums of 10^5 products in another order.
EXACT = 1e-8


def small_images():
    return nn.Sequential(
        nn.Conv2d(1, 3, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3 * 12 * 12, 10)
    )


@pytest.fixture(scope="module", params=["mlp", "convolution"])
def problem(request, few_digits, federated):
    """Data, a model and its weights, float64."""
    if request.param == "mlp":
        model = build(mlp, (784,), 10, stream(1, "init"))
        return federated, model, params_of(model, torch.float64)
    data = federate(
        Dataset("images", few_digits.x.reshape(-1, 1, 28, 28), few_digits.y, 10),
        federated.partition,
        torch.float64,
    )
    model = build(lambda shape, classes: small_images(), (1, 28, 28), 10, stream(1, "init"))
    return data, model, params_of(model, torch.float64)


def length(params):
    """By NumPy, all numbers in one row."""
    return np.linalg.norm(
        np.concatenate([p.numpy().astype(float).ravel() for p in params.values()])
    )


def moved(updates):
    """How far each UE went, by its row."""
    return updates.table().double().norm(dim=1).numpy()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RULED)
def test_one_step_of_every_ue_is_as_long_as_the_rule_says(problem, name, engine):
    data, model, params = problem
    assert pick_engine("auto", model, RULED[name]) == "low_rank"
    batches = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)
    for k in (1, 9):
        updates = make_engine(engine, model)(at_round(RULED[name], k, params), params, batches, UE)
        np.testing.assert_allclose(moved(updates), 0.3 / np.sqrt(k) * length(params), rtol=EXACT)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_of_length_below_one_is_taken_for_one(problem, engine):
    data, model, params = problem
    short = {name: p * (0.5 / length(params)) for name, p in params.items()}
    batches = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)
    for sent in (short, {name: torch.zeros_like(p) for name, p in params.items()}):
        updates = make_engine(engine, model)(at_round(RULED["fedavg"], 4, sent), sent, batches, UE)
        np.testing.assert_allclose(moved(updates), 0.15, rtol=EXACT)


def slow_update(model, params, batch, longest, steps):
    """w <- w - longest g / |g|, `steps` times, one backward pass of the model for each FedAvg
    gradient.
    """
    local = {name: p.clone().requires_grad_() for name, p in params.items()}
    for step in range(steps):
        x, y, mask = (
            torch.cat([role[step] for role in part]) for part in (batch.x, batch.y, batch.mask)
        )
        output = torch.func.functional_call(model, local, (x,))
        loss = (nn.functional.cross_entropy(output, y, reduction="none") * mask).sum() / mask.sum()
        gradient = torch.autograd.grad(loss, list(local.values()))
        whole = np.sqrt(sum(float((g**2).sum()) for g in gradient))
        local = {
            name: (p - longest / whole * g).detach().requires_grad_()
            for (name, p), g in zip(local.items(), gradient, strict=True)
        }
    return {name: p.detach() for name, p in local.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_several_steps_are_those_of_a_slow_loop(problem, engine):
    data, model, params = problem
    steps = np.array([3, 1, 3, 2, 3])
    batches = data.draw(UE, NUM_SAMPLES, steps, seed=1, round_index=2)
    longest = 0.3 / np.sqrt(4) * length(params)
    updates = make_engine(engine, model)(at_round(RULED["fedavg"], 4, params), params, batches, UE)
    checked = 0
    for row, change in updates:
        changes = shaped(change, params)
        own = batches.take(np.array([row]))
        own = Batch(own.x[:, 0], own.y[:, 0], own.mask[:, 0])
        expected = slow_update(model, params, own, longest, steps[row])
        for name, p in params.items():
            torch.testing.assert_close(changes[name], expected[name] - p, rtol=1e-7, atol=1e-9)
        checked += 1
    assert checked == 5


@pytest.mark.parametrize("name", RULED)
def test_engines_agree_on_several_steps_and_on_their_mean(problem, name):
    data, model, params = problem
    batches = data.draw(UE, NUM_SAMPLES, np.array([3, 1, 3, 2, 3]), seed=1, round_index=2)
    algorithm, weight = at_round(RULED[name], 2, params), np.arange(1.0, 6.0)
    means = [
        make_engine(engine, model)(algorithm, params, batches, UE).mean(weight)
        for engine in ENGINES
    ]
    # A finite difference divides by a step of 0.01, and a kink that one engine crosses by rounding
    # is all.
    close = 1e-5 if name == "finite-difference" else 1e-6
    for other in means[1:]:
        for key, p in params.items():
            assert length({key: means[0][key] - other[key]}) < close * length(
                {key: means[0][key] - p}
            ), key


@dataclass(frozen=True)
class Watching:
    """Ternary, remembering how long each update was that it was given."""

    seen: list = field(default_factory=list)
    ternary: Ternary = field(default_factory=Ternary)

    def init(self, num_weights):
        return self.ternary.init(num_weights)

    def __call__(self, change, bits, randomness, own):
        self.seen.append(length({"all": change}))
        return self.ternary(change, bits, randomness, own)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_compressed_has_the_same_length(problem, engine):
    data, model, params = problem
    batches = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)
    updates = make_engine(engine, model)(at_round(RULED["exact"], 1, params), params, batches, UE)
    watching = Watching()
    CompressedUpdates(updates, watching, np.full(5, 1.6), 1, 1, ClientMemory()).mean(np.ones(5))
    np.testing.assert_allclose(watching.seen, np.full(5, 0.3 * length(params)), rtol=EXACT)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["fedavg", "exact"])
def test_a_number_for_beta_is_bounded_by_the_length_and_followed_below_it(problem, name, engine):
    data, model, params = problem
    batches = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2)

    def lengths(beta, **settings):
        made = FedAvg(beta, **settings) if name == "fedavg" else PerFedAvg(0.03, beta, **settings)
        return moved(make_engine(engine, model)(at_round(made, 1, params), params, batches, UE))

    free = lengths(0.7)
    bound = np.median(free)  # cuts two of the five UEs
    share = bound / length(params)
    np.testing.assert_allclose(
        lengths(0.7, longest_step=share), np.minimum(free, bound), rtol=EXACT
    )
    np.testing.assert_allclose(
        lengths(7.0, longest_step=share), np.minimum(10.0 * free, bound), rtol=EXACT
    )
    np.testing.assert_allclose(lengths(0.007, longest_step=share), 0.01 * free, rtol=EXACT)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_gradients_that_are_none_make_no_step(few_digits, federated, engine, dtype):
    data = federate(few_digits, federated.partition, dtype)
    model = build(mlp, (784,), 10, stream(1, "init"))
    params = params_of(model, dtype)
    batch = data.draw(UE, NUM_SAMPLES, 2, seed=1, round_index=2).take(np.arange(5))
    spoiled = Batch(batch.x.clone(), batch.y.clone(), batch.mask)
    for row, far in (
        (1, 0.8),
        (2, 0.95),
    ):  # inputs are finite, as data sets are; what follows from them is not
        spoiled.x[:, row] *= torch.finfo(dtype).max ** far
    updates = make_engine(engine, model)(
        at_round(RULED["exact"], 1, params), params, InMemory(spoiled), UE
    )
    found = moved(updates)
    assert (found[[1, 2]] == 0.0).all()
    assert (found[[0, 3, 4]] > 0.1 * length(params)).all()
    assert updates.guarded[1] == 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("margin", [40.0, 55.0, 70.0, 1000.0])
def test_where_the_loss_has_vanished_no_step_is_longer(few_digits, federated, engine, margin):
    """Gradients whose squares are below single precision: their length reads 0, and no factor may
    blow them up.
    """
    data = federate(few_digits, federated.partition, torch.float32)
    model = build(mlp, (784,), 10, stream(1, "init"))
    params = params_of(model, torch.float32)
    last = list(params)[-1]
    params[last] = params[last] + margin * torch.eye(10)[3]
    batch = data.draw(UE, NUM_SAMPLES, 1, seed=1, round_index=2).take(np.arange(5))
    sure = Batch(batch.x, torch.full_like(batch.y, 3), batch.mask)
    for name in ("fedavg", "exact"):
        updates = make_engine(engine, model)(
            at_round(RULED[name], 1, params), params, InMemory(sure), UE
        )
        assert (moved(updates) <= 0.3 * length(params) * (1.0 + 1e-4)).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_of_fedavg_are_cut_as_a_slow_loop_cuts_them(problem, engine):
    data, model, params = problem
    steps = 3
    batches = data.draw(UE, NUM_SAMPLES, steps, seed=1, round_index=2)
    one = make_engine("loop", model)(FedAvg(1.0), params, data.draw(UE, NUM_SAMPLES, 1, 1, 2), UE)
    clip = float(np.median(moved(one)))  # the gradients' lengths in a first step
    algorithm = FedAvg(0.4, grad_clip=clip)
    updates = make_engine(engine, model)(algorithm, params, batches, UE)
    cut = np.zeros(5, dtype=int)
    for row, change in updates:
        changes = shaped(change, params)
        own, local = batches.take(np.array([row])), params
        for step in range(steps):
            x, y, mask = (
                torch.cat([role[0, step] for role in part]) for part in (own.x, own.y, own.mask)
            )
            leaves = {name: p.clone().requires_grad_() for name, p in local.items()}
            output = torch.func.functional_call(model, leaves, (x,))
            loss = (
                nn.functional.cross_entropy(output, y, reduction="none") * mask
            ).sum() / mask.sum()
            gradient = dict(
                zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True)
            )
            whole = length(gradient)
            cut[row] += whole > clip
            local = {
                name: p - 0.4 * min(1.0, clip / whole) * gradient[name] for name, p in local.items()
            }
        for name, p in params.items():
            torch.testing.assert_close(changes[name], local[name] - p, rtol=1e-7, atol=1e-9)
    assert updates.guarded.tolist() == cut.tolist()
    assert 0 < cut.sum() < 15


def test_what_auto_means_is_this_rule():
    for arm in ("autofl-j", "fedavg-j"):
        algorithm = build_algorithm(parse_settings({"arm": arm}).resolved())
        sent = {"w": torch.tensor([3.0, 4.0])}
        for k in (1, 4):
            now = at_round(algorithm, k, sent)
            step, _ = now.tamed({"w": torch.tensor([0.0, 1e-6])})
            assert float(now.outer_lr * step["w"][1]) == pytest.approx(
                LONGEST * 5.0 / np.sqrt(k), rel=1e-6
            )
