"""Updates that a compressor may meet."""

import torch


def updates_of(num_weights):
    """By name: usual ones, heavy tails, an outlier, very small and very large ones, none at all."""
    generator = torch.Generator().manual_seed(num_weights)
    normal = torch.randn(num_weights, generator=generator)
    outlier = 0.01 * normal
    outlier[-1] = -1e9
    return {
        "normal": 0.01 * normal,
        "double precision": 0.01 * normal.double(),
        "heavy": normal**9,
        "outlier": outlier,
        "sparse": torch.where(torch.rand(num_weights, generator=generator) < 0.01, normal, 0.0),
        "subnormal": 1e-42 * normal,
        "large": 1e37 * normal,
        "zero": torch.zeros(num_weights),
        "not finite": torch.cat([normal[:-1], torch.tensor([torch.nan])]),
    }
