"""Any `nn.Module` as a pure function of its trained weights."""

from collections.abc import Callable
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from autofl.data.batch import Batch
from autofl.models.checks import check_model

Params = dict[str, Tensor]
Loss = Callable[[Params, Batch], Tensor]
"""Mean loss over the unmasked samples of one batch, as a function of the parameters."""


def build(
    factory: Callable[[tuple[int, ...], int], nn.Module],
    sample_shape: tuple[int, ...],
    num_classes: int,
    rng: np.random.Generator,
) -> nn.Module:
    """A freshly initialised model whose weights come from `rng` alone; PyTorch's global generator
    is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        model = factory(sample_shape, num_classes)
    check_model(model, sample_shape, num_classes)
    return model


def params_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> Params:
    """The model's trained parameters as a plain dictionary, detached and copied.

    Those with requires_grad=False are left out: they are neither trained nor uploaded, and stay in
    the model.
    """
    return {
        name: p.detach().to(dtype).clone()
        for name, p in model.named_parameters()
        if p.requires_grad
    }


def num_weights(params: Params) -> int:
    return sum(p.numel() for p in params.values())


def cross_entropy(output: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of each sample, shape (num,)."""
    return F.cross_entropy(output, label, reduction="none")


def loss_of(model: nn.Module) -> Loss:
    """f_i(w; D), Eq. (2), on a padded batch: the mean over its unmasked samples.

    Note:
        The model runs in evaluation mode with its buffers fixed: a client update is a pure
        function. `check_model` refuses models that this would change.
    """
    model.eval()

    def loss(params: Params, batch: Batch) -> Tensor:
        losses = cross_entropy(_output(model, params, batch.x), batch.y)
        return (losses * batch.mask).sum() / batch.mask.sum().clamp(min=1.0)

    return loss


def outputs(model: nn.Module, params: Params, x: Tensor) -> Tensor:
    """The model's outputs without gradients."""
    with torch.no_grad():
        return _output(model, params, x)


def _output(model: nn.Module, params: Params, x: Tensor) -> Tensor:
    """The output under these parameters; frozen weights and buffers are the model's own, in the
    same precision.
    """
    dtype = next(iter(params.values())).dtype
    fixed = {
        name: value.detach().to(dtype)
        for name, value in chain(model.named_parameters(), model.named_buffers())
        if name not in params and value.is_floating_point()
    }
    result: Tensor = functional_call(model, {**fixed, **params}, (x,))
    return result
