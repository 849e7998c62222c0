"""Which models and algorithms the engine serves: networks in sequence, layer by layer, each known
by its exact type.

A subclass may compute anything, and so may a hook; whatever is not known for certain is left to the
other engines.
"""

from torch import nn
from torch.nn.modules import module as torch_module

from autofl.algorithms.base import Algorithm, is_stateful
from autofl.algorithms.fedavg import FedAvg
from autofl.algorithms.perfedavg import PerFedAvg
from autofl.engines.low_rank.images import (
    AvgPool,
    Conv,
    MaxPool,
    MaxPool2,
    Pair,
    Shifts,
    ToImages,
    ToRows,
)
from autofl.engines.low_rank.layers import Fixed, Linear, Relu, Reshape, activation_of

Layer = Linear | Conv | Fixed

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def low_rank_layers(model: nn.Module) -> tuple[Layer, ...] | None:
    """The layers of a model in sequence, convolutions and pooling first, linear layers last; None
    for any other.

    It takes less than 0.2 ms and is not remembered: a model may be given a hook or be frozen at any
    time.
    """
    layers: list[Layer] = []
    if any(getattr(torch_module, name) for name in GLOBAL_HOOKS):  # that every module calls
        return None
    for name, module in model.named_modules(remove_duplicate=False):
        if not _is_plain(module):
            return None
        if type(module) in (nn.Sequential, nn.Identity, nn.Dropout):
            continue  # evaluation mode: dropout does nothing
        prefix = f"{name}." if name else ""
        images = any(isinstance(layer, ToImages) for layer in layers)
        rows = any(isinstance(layer, Linear | Reshape | ToRows) for layer in layers)
        if type(module) is nn.Linear and (rows or not images):
            layers.append(
                Linear(f"{prefix}weight", f"{prefix}bias" if module.bias is not None else None)
            )
        elif type(module) is nn.Flatten and not rows and _flattens_whole(module, images):
            layers.append(ToRows() if images else Reshape())
        elif (activation := activation_of(module)) is not None:
            layers.append(activation)
        elif not rows and (image_layers := _image_layers(module, prefix)):
            layers += [] if images else [ToImages()]
            if isinstance(image_layers[0], MaxPool | MaxPool2) and isinstance(layers[-1], Relu):
                layers.insert(
                    -1, image_layers[0]
                )  # max and ReLU commute: a quarter of the pixels is left to rectify
            else:
                layers += image_layers
        else:
            return None
    return tuple(layers) if _are_whole(layers, model) else None


def _is_plain(module: nn.Module) -> bool:
    """Whether the module computes what its class says: no hooks, no forward of its own, parts in
    containers only.
    """
    own = vars(module)
    changed = (
        "forward" in own or "_call_impl" in own or any(getattr(module, name) for name in HOOKS)
    )
    return not changed and (type(module) is nn.Sequential or not list(module.children()))


def _flattens_whole(module: nn.Flatten, images: bool) -> bool:
    """Whether each sample becomes one row.

    Images have three axes. The axes of other samples are not known here, but with no more
    flattening to come a model that flattens its last axes gives one row of scores a sample only if
    these are all axes of a sample.
    """
    if images:
        return module.start_dim in (1, -3) and module.end_dim in (-1, 3)
    return (module.start_dim == 1 or module.start_dim < 0) and module.end_dim == -1


def _are_whole(layers: list[Layer], model: nn.Module) -> bool:
    """Whether the layers are all of the model: they end in scores, and their weights are its
    weights, all trained.
    """
    weighted = [layer for layer in layers if isinstance(layer, Linear | Conv)]
    names = {name for layer in weighted for name in (layer.weight, layer.bias) if name is not None}
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    every = [
        name for name, _ in model.named_parameters(remove_duplicate=False)
    ]  # tied weights have two names
    ends_in_scores = bool(layers) and isinstance(layers[-1], Linear)
    # A pool alone does not say that its samples are images: PyTorch's takes those without channels
    # too.
    pools_only = any(isinstance(layer, ToImages) for layer in layers) and not any(
        isinstance(layer, Conv) for layer in layers
    )
    return ends_in_scores and not pools_only and len(every) == len(names) and trained == names


def _image_layers(module: nn.Module, prefix: str) -> list[Layer]:
    """A convolution or pooling in our layers; none where it is not one we know."""
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
        if not plain or isinstance(module.padding, str):
            return []
        (height, width), (down, across), (vertical, horizontal) = (
            _pair(setting) for setting in (module.kernel_size, module.stride, module.padding)
        )
        bias = f"{prefix}bias" if module.bias is not None else None
        shifts = Shifts(width, across, (vertical, horizontal))
        return [shifts, Conv(f"{prefix}weight", bias, height, down)]
    if type(module) is nn.MaxPool2d and not module.return_indices:
        size = _pair(module.kernel_size)
        stride = _pair(module.stride)
        padding = _pair(module.padding)
        dilation = _pair(module.dilation)
        if (size, stride, padding, dilation) == (
            (2, 2),
            (2, 2),
            (0, 0),
            (1, 1),
        ) and not module.ceil_mode:
            return [MaxPool2()]
        return [MaxPool((size, stride, padding, dilation, module.ceil_mode))]
    if type(module) is nn.AvgPool2d:
        sizes = (_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))
        return [
            AvgPool((*sizes, module.ceil_mode, module.count_include_pad, module.divisor_override))
        ]
    return []


def _pair(value: int | tuple[int, ...]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


BOUNDED = ("client_update", "guarded_update", "beside", "factor", "tamed")
"""Functions of an update whose steps may be bounded."""


def low_rank_serves(layers: tuple[Layer, ...] | None, algorithm: Algorithm) -> bool:
    """Whether the engine is exact for a model of these layers (`low_rank_layers`) and this client
    update.
    """
    return layers is not None and _is_known(algorithm)


def _is_known(algorithm: Algorithm) -> bool:
    """Whether the client update is ours: neither the class nor the object has its own of any
    function in it.
    """
    if is_stateful(algorithm):  # what is called then is client_step
        return False
    if isinstance(algorithm, FedAvg) and isinstance(algorithm, PerFedAvg):
        return False
    for kind, functions in (
        (FedAvg, BOUNDED),
        (PerFedAvg, (*BOUNDED, "meta_grad", "guarded_grad", "_clipped", "_difference")),
    ):
        if isinstance(algorithm, kind):
            own = getattr(algorithm, "__dict__", {})
            return all(
                getattr(type(algorithm), name) is getattr(kind, name) for name in functions
            ) and not any(name in own for name in functions)
    return False
