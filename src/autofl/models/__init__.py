"""The models of the paper, and any `nn.Module` as a pure function of its trained weights."""

from autofl.models.base import (
    Loss,
    Params,
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

__all__ = [
    "Loss",
    "Params",
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
