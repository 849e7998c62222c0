"""Which models and algorithms the engine serves: networks in sequence, layer by layer."""

from functools import cache

from torch import nn

from autofl.algorithms.base import Algorithm
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg
from autofl.engines.low_rank.images import AvgPool, Conv, MaxPool, MaxPool2, Pair, Shifts, ToImages, ToRows
from autofl.engines.low_rank.layers import Fixed, Linear, Relu, Reshape, activation_of
from autofl.models import SampleLoss, cross_entropy

Layer = Linear | Conv | Fixed


@cache
def low_rank_layers(model: nn.Module) -> tuple[Layer, ...] | None:
    """The layers of a model in sequence, convolutions and pooling first, linear layers last; None for any other."""
    layers: list[Layer] = []
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Sequential | nn.Identity | nn.Dropout):
            continue  # evaluation mode: dropout does nothing
        prefix = f"{name}." if name else ""
        images = any(isinstance(layer, ToImages) for layer in layers)
        rows = any(isinstance(layer, Linear | Reshape | ToRows) for layer in layers)
        if isinstance(module, nn.Linear) and (rows or not images):
            layers.append(Linear(f"{prefix}weight", f"{prefix}bias" if module.bias is not None else None))
        elif isinstance(module, nn.Flatten) and (rows or not images):
            layers.append(Reshape())
        elif isinstance(module, nn.Flatten) and module.start_dim in (1, -3) and module.end_dim in (-1, 3):
            layers.append(ToRows())
        elif (activation := activation_of(module)) is not None:
            layers.append(activation)
        elif not rows and (found := _image_layers(module, prefix)):
            layers += [] if images else [ToImages()]
            if isinstance(found[0], MaxPool | MaxPool2) and isinstance(layers[-1], Relu):
                layers.insert(-1, found[0])  # the larger of two rectified is the larger rectified, and one for four
            else:
                layers += found
        else:
            return None
    linear = [layer for layer in layers if isinstance(layer, Linear | Conv)]
    shared = len(list(model.parameters())) < sum(2 if layer.bias else 1 for layer in linear)  # tied weights
    ends_linear = bool(layers) and isinstance(layers[-1], Linear)
    return tuple(layers) if ends_linear and not shared else None


def _image_layers(module: nn.Module, prefix: str) -> list[Layer]:
    """A convolution or pooling in our layers; none where it is not one we know."""
    if isinstance(module, nn.Conv2d):
        plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
        if not plain or isinstance(module.padding, str):
            return []
        (height, width), (down, across), (vertical, horizontal) = (
            _pair(each) for each in (module.kernel_size, module.stride, module.padding)
        )
        bias = f"{prefix}bias" if module.bias is not None else None
        shifts = Shifts(width, across, (vertical, horizontal))
        return [shifts, Conv(f"{prefix}weight", bias, height, down)]
    if isinstance(module, nn.MaxPool2d) and not module.return_indices:
        size, stride = _pair(module.kernel_size), _pair(module.stride)
        padding, dilation = _pair(module.padding), _pair(module.dilation)
        if (size, stride, padding, dilation) == ((2, 2), (2, 2), (0, 0), (1, 1)) and not module.ceil_mode:
            return [MaxPool2()]
        return [MaxPool((size, stride, padding, dilation, module.ceil_mode))]
    if isinstance(module, nn.AvgPool2d):
        sizes = (_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))
        return [AvgPool((*sizes, module.ceil_mode, module.count_include_pad, module.divisor_override))]
    return []


def _pair(value: int | tuple[int, ...]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def low_rank_serves(model: nn.Module, algorithm: Algorithm, sample_loss: SampleLoss) -> bool:
    """Whether the engine is exact for this model, client update and loss."""
    kind = type(algorithm)
    known = getattr(kind, "client_update", None) is FedAvg.client_update or (
        issubclass(kind, PerFedAvg)
        and kind.client_update is PerFedAvg.client_update
        and kind.meta_grad is PerFedAvg.meta_grad
    )
    return known and sample_loss is cross_entropy and low_rank_layers(model) is not None
