"""A Gaussian random field over the plane, correlated as exp(-d): from which shadowing and line of
sight are taken.
"""

import numpy as np

from autofl.rng import stream
from autofl.units import Array

WAVES = 64
"""Plane waves of a field: the kurtosis of its values is 3 - 1.5/64."""
CHUNK = 1 << 13
"""Places computed at once, so that the waves stay in the processor's cache."""


def gaussian_field(seed: int, purpose: str, x: Array, y: Array) -> Array:
    """Values of mean 0 and variance 1 at places (x, y), correlated as exp(-d) over the distance d
    between two places.

        G(x, y) = sqrt(2/M) sum_m cos(2 pi (u_m x + v_m y + phi_m)),    2 pi |(u, v)| = sqrt((1 -
        q)^-2 - 1)

    The wave numbers follow the spectrum of exp(-d) in the plane, (1 + w^2)^(-3/2) / (2 pi): its
    share within w is q = 1 - (1 + w^2)^(-1/2). Lengths and directions are drawn in strata, so one
    landscape has nearly the correlation that is exact over all seeds. A value depends on its place
    and the seed alone. Float32 places a UE to a millimetre.

    Args:
        x, y: places in units of the correlation distance, shape (num,).
    """
    rng = stream(seed, purpose)
    share = (rng.permutation(WAVES) + rng.random(WAVES)) / WAVES
    direction = (
        np.pi * (np.arange(WAVES) + rng.random(WAVES)) / WAVES
    )  # half a turn: a cosine is even
    number = np.sqrt((1.0 - share) ** -2 - 1.0) / (2.0 * np.pi)
    u, v, phase = (
        column.astype(np.float32)[:, None]
        for column in (number * np.cos(direction), number * np.sin(direction), rng.random(WAVES))
    )
    values = np.empty(x.shape)
    for start in range(0, x.size, CHUNK):
        here = slice(start, start + CHUNK)
        turns = u * x[here].astype(np.float32)
        turns += v * y[here].astype(np.float32)
        turns += phase
        turns -= np.rint(turns)
        turns *= np.float32(2.0 * np.pi)
        values[here] = np.cos(turns, out=turns).sum(axis=0)
    return values * np.sqrt(2.0 / WAVES)
