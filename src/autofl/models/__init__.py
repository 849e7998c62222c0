"""The models of the paper, and any `nn.Module` as a pure function of its parameters."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from autofl.data.batch import Batch
from autofl.errors import AutoFLError

Params = dict[str, Tensor]
Loss = Callable[[Params, Batch], Tensor]
"""Mean loss over the unmasked samples of one batch, as a function of the parameters."""
SampleLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each sample from the model's output and the label, shape (num,)."""


def mlp(sample_shape: tuple[int, ...] = (784,), num_classes: int = 10) -> nn.Module:
    """The paper's "2-layer NN with hidden layer of size 100": 79,510 weights on 784 pixels."""
    num_inputs = int(np.prod(sample_shape))
    layers: list[nn.Module] = [nn.Flatten(-len(sample_shape))] if len(sample_shape) > 1 else []
    return nn.Sequential(*layers, nn.Linear(num_inputs, 100), nn.ReLU(), nn.Linear(100, num_classes))


def lenet5(sample_shape: tuple[int, ...] = (3, 32, 32), num_classes: int = 10) -> nn.Module:
    """LeNet-5, two convolutions and three linear layers: 62,006 weights on 3x32x32."""
    if len(sample_shape) != 3 or min(sample_shape[1:]) < 28:
        raise AutoFLError(f"model lenet5: samples must be images of at least 28x28, got shape {sample_shape}")
    channels, height, width = sample_shape
    flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(-3),
        nn.Linear(flat, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, num_classes),
    )


MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {"mlp": mlp, "lenet5": lenet5}


def build(
    factory: Callable[[tuple[int, ...], int], nn.Module],
    sample_shape: tuple[int, ...],
    num_classes: int,
    rng: np.random.Generator,
) -> nn.Module:
    """A freshly initialised model whose weights come from `rng` alone; PyTorch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        return factory(sample_shape, num_classes)


def params_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> Params:
    """The model's parameters as a plain dictionary, detached and copied."""
    return {name: p.detach().to(dtype).clone() for name, p in model.named_parameters()}


def num_weights(params: Params) -> int:
    return sum(p.numel() for p in params.values())


def cross_entropy(output: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of each sample, shape (num,)."""
    return F.cross_entropy(output, label, reduction="none")


def loss_of(model: nn.Module, sample_loss: SampleLoss = cross_entropy) -> Loss:
    """f_i(w; D), Eq. (2), on a padded batch: the mean over its unmasked samples.

    Note:
        The model runs in evaluation mode with its buffers fixed: a client update is a pure function, so dropout is
        off and batch normalisation keeps the statistics it came with.
    """
    model.eval()

    def loss(params: Params, batch: Batch) -> Tensor:
        each = sample_loss(functional_call(model, params, (batch.x,)), batch.y)
        return (each * batch.mask).sum() / batch.mask.sum().clamp(min=1.0)

    return loss


def outputs(model: nn.Module, params: Params, x: Tensor) -> Tensor:
    """The model's outputs without gradients."""
    with torch.no_grad():
        result: Tensor = functional_call(model, params, (x,))
    return result
