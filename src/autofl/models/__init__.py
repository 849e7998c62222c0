"""The models of the paper, and any `nn.Module` as a pure function of its trained weights."""

from collections.abc import Callable

from torch import nn

from autofl.models.base import (
    Loss,
    Params,
    SampleLoss,
    build,
    cross_entropy,
    loss_of,
    num_weights,
    outputs,
    params_of,
)
from autofl.models.checks import check_model
from autofl.models.lenet5 import lenet5
from autofl.models.mlp import mlp

MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {"mlp": mlp, "lenet5": lenet5}

__all__ = [
    "MODELS",
    "Loss",
    "Params",
    "SampleLoss",
    "build",
    "check_model",
    "cross_entropy",
    "lenet5",
    "loss_of",
    "mlp",
    "num_weights",
    "outputs",
    "params_of",
]
