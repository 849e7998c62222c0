"""The product of a loss's Hessian with a vector, for whatever model PyTorch can differentiate
twice.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from autofl.data.batch import Batch
from autofl.models import Loss, Params


def hessian_product(loss: Loss, params: Params, direction: Params, batch: Batch) -> Params:
    """H(w; D) v, forward over reverse; by a second backward pass where an operation has no forward
    derivative.

    Note:
        Attention and weight norm are computed by their plain formulas here: PyTorch's fused
        attention can be differentiated once only, and the second derivative of its fused weight
        norm is wrong.
    """

    def gradient(at: Params) -> Params:
        gradients: Params = grad(loss)(at, batch)
        return gradients

    def along(at: Params) -> Tensor:
        """<g(w), v>, whose gradient is H v."""
        return torch.stack([(g * direction[name]).sum() for name, g in gradient(at).items()]).sum()

    with sdpa_kernel(SDPBackend.MATH), _PlainWeightNorm():
        try:
            product: Params = jvp(gradient, (params,), (direction,))[1]
        except NotImplementedError:
            product = grad(along)(params)
    return product


class _PlainWeightNorm(TorchFunctionMode):
    """g v / |v| in operations that PyTorch differentiates as often as one likes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch._weight_norm:
            v, g, dim = args
            return v * (g / torch.norm_except_dim(v, 2, dim))
        return func(*args, **(kwargs or {}))
