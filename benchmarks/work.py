"""The work every benchmark does: one round of federated learning on a given number of UEs and
samples.
"""

import numpy as np
import torch

from autofl.data import Dataset, Partition
from autofl.data.federated import FederatedData, federate
from autofl.models import Params, build, lenet5, mlp, params_of
from autofl.rng import stream

OWNED = 150
"""Training samples of each UE; UEs share samples where there are more of them than samples to own.
"""
INNER_LR, OUTER_LR = 0.03, 0.07


def population(dataset: Dataset, num_ue: int, owned: int = OWNED) -> FederatedData:
    """UEs that own random samples of the first nine tenths, and are tested on ten of the rest."""
    rng, cut = stream(1, "population"), len(dataset.y) * 9 // 10
    train = rng.integers(0, cut, num_ue * owned)
    test = rng.integers(cut, len(dataset.y), num_ue * 10)
    start = np.arange(num_ue + 1)
    return federate(dataset, Partition(train, start * owned, test, start * 10))


def model_of(dataset: Dataset | FederatedData) -> tuple[torch.nn.Module, Params]:
    """The paper's model for this data, freshly initialised."""
    factory = lenet5 if len(dataset.sample_shape) == 3 else mlp
    model = build(factory, dataset.sample_shape, dataset.num_classes, stream(1, "init"))
    return model, params_of(model)


def plain_sgd(
    data: FederatedData,
    model: torch.nn.Module,
    ue: np.ndarray,
    num_samples: np.ndarray,
    k: int,
    rows: int,
) -> list[torch.Tensor]:
    """The limit: one SGD gradient on the samples of a round, drawn and gathered in the same way, by
    autograd.
    """
    batches = data.draw(ue, num_samples, 1, seed=1, round_index=k)
    params = list(model.parameters())
    total = [torch.zeros_like(p) for p in params]
    step = max(1, rows // (3 * batches.width))
    for begin in range(0, len(ue), step):
        some = np.arange(begin, min(begin + step, len(ue)))
        x, y = data.gather(batches.draw.sample[:, some].reshape(-1), "batch")
        loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
        for sum_so_far, grad in zip(total, torch.autograd.grad(loss, params), strict=True):
            sum_so_far += grad
    with torch.no_grad():
        return [p - OUTER_LR / len(ue) * grad for p, grad in zip(params, total, strict=True)]
