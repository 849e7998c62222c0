"""What a model must be like for client updates to be pure functions of its weights; checked before
training.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from autofl.errors import AutoFLError

SIZES = (1, 8)
"""Samples in the batches of a check: one alone shows a `squeeze` that takes the sample axis away.
"""


def check_model(model: nn.Module, sample_shape: tuple[int, ...], num_classes: int) -> None:
    """Raise an AutoFLError where this model cannot be trained on samples of this shape; it is left
    in evaluation mode.

    A model takes (num, *sample_shape) and gives (num, num_classes), sample by sample, with neither
    statistics of its batches nor random draws in training, and has a weight to train.
    """
    _check_modules(model)
    weights = [p for p in model.parameters() if p.requires_grad]
    if not weights:
        raise AutoFLError(
            "model: there is no parameter with requires_grad=True, so nothing to train; unfreeze some"
        )
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        for num in SIZES:
            x = torch.rand(num, *sample_shape, generator=generator).to(weights[0])
            _check_output(_outputs(model.eval(), x), num, num_classes, sample_shape)
        _check_samples_apart(model, x)
        _check_training(model, x)
    model.eval()


def _check_modules(model: nn.Module) -> None:
    """Refuse by name what is known to keep statistics, to draw at random or to have no weights yet."""
    for name, module in model.named_modules():
        which = f"{type(module).__name__} {name!r}" if name else type(module).__name__
        if any(is_lazy(p) for p in module.parameters(recurse=False)):
            raise AutoFLError(
                f"model: {which} has no weights yet; pass a batch through the model first"
            )
        if isinstance(module, _BatchNorm) or getattr(module, "running_mean", None) is not None:
            raise AutoFLError(
                f"model: {which} keeps statistics of its batches, but a client update is a pure function; "
                "use GroupNorm or LayerNorm instead"
            )
        chance = module.p if isinstance(module, _DropoutNd) else 0.0
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            chance = module.dropout
        if chance > 0:
            raise AutoFLError(
                f"model: {which} drops values at random, but a client update is a pure function; "
                f"set its dropout to 0 instead of {chance:g}"
            )


def _outputs(model: nn.Module, x: Tensor, state: dict[str, Tensor] | None = None) -> Tensor:
    """What the model makes of a batch, in whatever mode it is."""
    with torch.no_grad():
        try:
            result: Tensor = functional_call(model, state or {}, (x,))
        except Exception as error:  # whatever it is, the user can mend it in the model
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise AutoFLError(
                f"model: a batch of shape {tuple(x.shape)} fails in it: {reason}; make it take (num, *sample shape)"
            ) from error
    return result


def _check_output(
    output: object, num: int, num_classes: int, sample_shape: tuple[int, ...]
) -> None:
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = str(output.dtype) if isinstance(output, Tensor) else type(output).__name__
        raise AutoFLError(
            f"model: its output is {kind}; return one tensor of floats, the score of each class"
        )
    if output.shape != (num, num_classes):
        raise AutoFLError(
            f"model: {num} samples of shape {sample_shape} give an output of shape {tuple(output.shape)}; "
            f"make it {(num, num_classes)}, a score for each sample and class"
        )


def _check_samples_apart(model: nn.Module, x: Tensor) -> None:
    """Padding must change nothing: with other samples beside it, a sample's output stays what it
    is.
    """
    beside = torch.cat([x[:1], 1.0 - x[1:]])
    if not _close(_outputs(model, x)[:1], _outputs(model, beside)[:1]):
        raise AutoFLError(
            "model: the output of a sample depends on the other samples of its batch; keep samples apart "
            "(attention and recurrent layers need batch_first=True)"
        )


def _check_training(model: nn.Module, x: Tensor) -> None:
    """What the model does in training mode must be what it does in evaluation mode, the one it is
    run in.
    """
    model.train()
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    # Moved weights, as after a step: buffers that follow the weights may have settled on the first
    # ones.
    moved = {
        name: p.detach() + 0.1 * torch.linspace(-1.0, 1.0, p.numel()).view_as(p).to(p)
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    one, two = (_outputs(model, x, {**moved, **buffers}) for _ in range(2))
    for name, value in model.named_buffers():
        if not torch.equal(value, buffers[name]):
            raise AutoFLError(
                f"model: its buffer {name!r} changes in training, but a client update is a pure function; "
                "take the part that updates it out (GroupNorm or LayerNorm keep no statistics)"
            )
    if not _close(one, two):
        raise AutoFLError(
            "model: it draws at random in training, but a client update is a pure function; set its dropout to 0"
        )


def _close(one: Tensor, two: Tensor) -> bool:
    """Equal up to the rounding of sums in another order."""
    return torch.allclose(one, two, rtol=1e-3, atol=1e-5, equal_nan=True)
