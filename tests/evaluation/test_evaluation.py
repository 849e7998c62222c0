"""Accuracies, losses and the gradient norm against plain loops with torch's own tools."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from autofl.data import Dataset, split
from autofl.data.batch import Batch
from autofl.data.federated import federate
from autofl.evaluation import Evaluator, gradient_norm_sq, objective
from autofl.models import build, loss_of, mlp, params_of
from autofl.rng import stream


@pytest.fixture(scope="module")
def trained(federated):
    """A network after a few ordinary steps, so that accuracies are neither 10 % nor 100 %."""
    model = build(mlp, (784,), 10, stream(2, "init")).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = federated.gather(federated.partition.train)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model, params_of(model, torch.float64)


def adapted_model(model, x, y, lr):
    own = copy.deepcopy(model)
    optimiser = torch.optim.SGD(own.parameters(), lr=lr)
    optimiser.zero_grad()
    nn.functional.cross_entropy(own(x), y).backward()
    optimiser.step()
    return own


@pytest.mark.parametrize(
    ("fast", "most_kept"),
    [(True, 2**26), (True, 0), (False, 0)],
    ids=["kept", "gathered anew", "reference"],
)
def test_both_accuracies_and_losses_are_means_over_ues_of_a_plain_loop(
    trained, federated, monkeypatch, fast, most_kept
):
    model, params = trained
    monkeypatch.setattr("autofl.evaluation.evaluator.MOST_KEPT", most_kept)
    # With more samples asked for than any UE has, "at most so many" means all of them.
    evaluator = Evaluator(inner_lr=0.5, adapt_samples=10_000, train_samples=10_000)
    prepared = evaluator.prepare(model, federated, 1, fast=fast)
    assert all((piece.kept is not None) == (most_kept > 0) for piece in prepared.pieces)
    found = prepared(params)
    expected = {
        "global_accuracy": [],
        "adapted_accuracy": [],
        "train_loss": [],
        "adapted_train_loss": [],
    }
    for u in range(federated.partition.num_ue):
        x, y = federated.gather(federated.partition.train_of(u))
        test_x, test_y = federated.gather(federated.partition.test_of(u))
        own = adapted_model(model, x, y, 0.5)
        with torch.no_grad():
            for name, candidate in (("", model), ("adapted_", own)):
                hits = (candidate(test_x).argmax(1) == test_y).double().mean()
                expected[f"{name or 'global_'}accuracy"].append(float(hits))
                expected[f"{name}train_loss"].append(
                    float(nn.functional.cross_entropy(candidate(x), y))
                )
    for name, values in expected.items():
        assert getattr(found, name) == pytest.approx(np.mean(values), rel=1e-10)
    assert found.adapted_train_loss < found.train_loss  # a step on these very samples must help
    assert np.isnan(found.gradient_norm_sq)


def test_the_gradient_norm_and_the_objective_are_those_of_the_mean_meta_loss(trained, federated):
    model, params = trained
    loss, alpha = loss_of(model), 0.2
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    total = torch.zeros((), dtype=torch.float64)
    for u in range(federated.partition.num_ue):
        x, y = federated.gather(federated.partition.train_of(u))
        own = Batch(x, y, torch.ones(len(y), dtype=torch.float64))
        grads = torch.autograd.grad(loss(leaves, own), list(leaves.values()), create_graph=True)
        moved = {name: p - alpha * g for (name, p), g in zip(leaves.items(), grads, strict=True)}
        total = total + loss(moved, own) / federated.partition.num_ue
    whole = torch.autograd.grad(total, list(leaves.values()))
    expected = float(sum((g**2).sum() for g in whole))
    assert gradient_norm_sq(loss, params, federated, alpha) == pytest.approx(expected, rel=1e-9)
    assert objective(loss, params, federated, alpha) == pytest.approx(total.item(), rel=1e-12)


def test_an_evaluation_is_the_same_every_time_and_counts_the_stated_samples(trained, federated):
    model, params = trained
    some = Evaluator(inner_lr=0.1, test_samples=4)
    one, two = (some.prepare(model, federated, 1)(params) for _ in range(2))
    assert (one.global_accuracy, one.adapted_accuracy) == (
        two.global_accuracy,
        two.adapted_accuracy,
    )
    # 4 samples at each of 8 UEs: the mean accuracy is a multiple of 1/32.
    assert (one.global_accuracy * 32) == pytest.approx(round(one.global_accuracy * 32), abs=1e-9)


def test_pieces_hold_every_ue_once_and_little_padding(federated, monkeypatch):
    monkeypatch.setattr("autofl.evaluation.evaluator.ROWS", 120)
    prepared = Evaluator(inner_lr=0.1, train_samples=5).prepare(mlp(), federated, 1)
    assert len(prepared.pieces) > 2
    np.testing.assert_array_equal(
        np.sort(np.concatenate([piece.ue for piece in prepared.pieces])), np.arange(8)
    )
    for piece in prepared.pieces:
        np.testing.assert_array_equal(
            piece.test.mask.sum(axis=1), federated.partition.test_size[piece.ue]
        )
        for row, u in enumerate(piece.ue):
            assert set(piece.test.sample[row][piece.test.mask[row]]) == set(
                federated.partition.test_of(int(u))
            )


def test_a_perfect_and_a_hopeless_model_score_one_and_zero(rng):
    y = np.tile(np.arange(2), 40)
    x = np.where(y[:, None] == 1, 1.0, -1.0).astype(np.float32) * np.ones((80, 3), np.float32)
    owned = [np.arange(0, 40), np.arange(40, 80)]
    data = federate(Dataset("signs", x, y, 2), split(owned, rng))
    model = nn.Linear(3, 2, bias=False)
    weight = torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
    for sign, accuracy in ((1.0, 1.0), (-1.0, 0.0)):
        found = Evaluator(inner_lr=0.0).prepare(model, data, 1)({"weight": sign * weight})
        assert (found.global_accuracy, found.adapted_accuracy) == (accuracy, accuracy)
