"""The paper's network for MNIST."""

import numpy as np
from torch import nn


def mlp(sample_shape: tuple[int, ...] = (784,), num_classes: int = 10) -> nn.Module:
    """The paper's "2-layer NN with hidden layer of size 100": 79,510 weights on 784 pixels."""
    num_inputs = int(np.prod(sample_shape))
    layers: list[nn.Module] = [nn.Flatten(-len(sample_shape))] if len(sample_shape) > 1 else []
    return nn.Sequential(
        *layers, nn.Linear(num_inputs, 100), nn.ReLU(), nn.Linear(100, num_classes)
    )
