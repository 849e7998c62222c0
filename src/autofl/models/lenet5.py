"""The paper's network for CIFAR-10."""

from torch import nn

from autofl.errors import AutoFLError


def lenet5(sample_shape: tuple[int, ...] = (3, 32, 32), num_classes: int = 10) -> nn.Module:
    """LeNet-5, two convolutions and three linear layers: 62,006 weights on 3x32x32."""
    if len(sample_shape) != 3 or min(sample_shape[1:]) < 28:
        raise AutoFLError(
            f"model lenet5: samples must be images of at least 28x28, got shape {sample_shape}"
        )
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
