"""Several runs judged in one batch score what each scores by itself."""

import dataclasses

import numpy as np
import pytest
import torch

from autofl.data import ByLabels
from autofl.data.federated import federate
from autofl.engines.low_rank import low_rank_layers
from autofl.evaluation.evaluator import Evaluator, groups_of_like_size
from autofl.evaluation.joint import JointEvaluator
from autofl.models import build, mlp, params_of
from autofl.rng import stream


@pytest.mark.parametrize(
    ("small", "most", "test_samples"), [(2**14, 2**30, None), (1, 1, None), (100, 2**30, 9)]
)
def test_runs_of_unequal_ues_score_together_what_they_score_alone(
    few_digits, federated, monkeypatch, small, most, test_samples
):
    monkeypatch.setattr("autofl.evaluation.joint.SMALL", small)
    monkeypatch.setattr("autofl.evaluation.joint.MOST_VALUES", most)
    unequal = few_digits.partition(ByLabels(3), 6, seed=4)  # two UEs fewer, other sizes
    other = federate(few_digits, unequal, torch.float64)
    data = [federated, dataclasses.replace(other, x=federated.x, y=federated.y)]
    model = build(mlp, (784,), 10, stream(2, "init")).double()
    start = params_of(model, torch.float64)
    params = {name: torch.stack([p, 3.0 * p]) for name, p in start.items()}
    evaluator = Evaluator(inner_lr=0.3, adapt_samples=7, train_samples=5, test_samples=test_samples)
    layers = low_rank_layers(model)
    assert layers is not None

    joint = JointEvaluator.of([(evaluator, each, 5 + r) for r, each in enumerate(data)], layers)
    assert (len(joint.groups) > 2) == (small == 1)
    together = joint(params, [0, 1])
    for r, each in enumerate(data):
        alone = evaluator.prepare(model, each, 5 + r)({name: p[r] for name, p in params.items()})
        np.testing.assert_allclose(
            dataclasses.astuple(together[r]), dataclasses.astuple(alone), rtol=1e-12
        )
        (later,) = joint(
            {name: p[r : r + 1] for name, p in params.items()}, [r]
        )  # when the other run has ended
        np.testing.assert_allclose(
            dataclasses.astuple(later), dataclasses.astuple(alone), rtol=1e-12
        )


def test_sizes_alike_are_neighbours_with_little_padding():
    size = np.array([0, 1, 1, 2, 10, 10, 11, 50, 54, 90])
    assert [size[some].tolist() for some in groups_of_like_size(size, small=8)] == [
        [0, 1, 1, 2],
        [10, 10, 11],
        [50, 54],
        [90],
    ]
    assert [size[some].tolist() for some in groups_of_like_size(size, small=8, most=20)] == [
        [0, 1, 1, 2], [10, 10], [11], [50], [54], [90],
    ]  # fmt: skip
    assert list(groups_of_like_size(np.zeros(0, dtype=np.int64), small=8)) == []
