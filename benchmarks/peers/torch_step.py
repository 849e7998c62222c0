"""The model and the exact Per-FedAvg step for the PyTorch frameworks that ship none."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import grad

Batch = tuple[Tensor, Tensor]


class Net(nn.Module):
    """The MLP or LeNet-5 with these weights: layer for layer those of `autofl.models`."""

    def __init__(self, weights: list[np.ndarray]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for w in weights[::2]:  # each layer's weight; its bias follows
            if w.ndim == 4:
                layers += [
                    nn.Conv2d(w.shape[1], w.shape[0], w.shape[2:]),
                    nn.ReLU(),
                    nn.MaxPool2d(2),
                ]
            else:
                flat = [nn.Flatten()] if layers and isinstance(layers[-1], nn.MaxPool2d) else []
                layers += [*flat, nn.Linear(w.shape[1], w.shape[0]), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        with torch.no_grad():
            for p, w in zip(self.parameters(), weights, strict=True):
                p.copy_(torch.from_numpy(w))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self(x), y)

    def weights(self) -> list[np.ndarray]:
        return [p.detach().numpy().copy() for p in self.parameters()]


def meta_gradient(model: Net, d_in: Batch, d_o: Batch, d_h: Batch, inner_lr: float) -> list[Tensor]:
    """(I - alpha H(w; D_h)) g(w - alpha g(w; D_in); D_o), the Hessian product by two backward
    passes.

    The weights are moved in place and put back: faster on this small model than `torch.func`, which
        keeps them.
    """
    w = list(model.parameters())
    before = [p.detach().clone() for p in w]
    inner = grad(model.loss(*d_in), w)
    with torch.no_grad():
        torch._foreach_add_(w, inner, alpha=-inner_lr)
    outer = grad(model.loss(*d_o), w)
    with torch.no_grad():
        torch._foreach_copy_(w, before)
    slope = grad(model.loss(*d_h), w, create_graph=True)
    hess = grad(slope, w, grad_outputs=outer)
    return [g - inner_lr * h for g, h in zip(outer, hess, strict=True)]


def thirds(x: Tensor, y: Tensor) -> list[Batch]:
    """D_in, D_o and D_h out of the samples of one round."""
    return list(zip(x.chunk(3), y.chunk(3), strict=True))
