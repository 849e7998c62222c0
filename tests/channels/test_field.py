"""Shadows: correlation over space against theory, and against a slow sum of waves."""

import math

import numpy as np

from autofl.channels.field import WAVES, gaussian_field
from autofl.rng import stream


def slow_field(seed, purpose, x, y):
    """One place, one wave after the other, in double precision."""
    rng = stream(seed, purpose)
    rank, within = rng.permutation(WAVES), rng.random(WAVES)
    side, phase = rng.random(WAVES), rng.random(WAVES)
    total = 0.0
    for m in range(WAVES):
        share = (rank[m] + within[m]) / WAVES
        number = math.sqrt(1.0 / (1.0 - share) ** 2 - 1.0)
        angle = math.pi * (m + side[m]) / WAVES
        total += math.cos(
            number * (x * math.cos(angle) + y * math.sin(angle)) + 2.0 * math.pi * phase[m]
        )
    return math.sqrt(2.0 / WAVES) * total


def test_the_fast_field_is_the_slow_one():
    x, y = np.random.default_rng(3).uniform(-20.0, 20.0, (2, 50))
    expected = [slow_field(7, "shadowing", *place) for place in zip(x, y, strict=True)]
    # phases of up to 20 * 128 / 2 pi turns in single precision
    np.testing.assert_allclose(gaussian_field(7, "shadowing", x, y), expected, atol=3e-3)


def test_shadows_are_correlated_over_space_as_exp_of_minus_distance():
    """Pairs at each distance and in all directions, over 400 landscapes."""
    rng = np.random.default_rng(5)
    distance = np.array([0.1, 0.3, 1.0, 2.0, 4.0])
    pairs, landscapes = 60, 400
    products = np.zeros((landscapes, len(distance)))
    for seed in range(landscapes):
        x, y = rng.uniform(-30.0, 30.0, (2, pairs, 1))
        angle = rng.uniform(0.0, 2.0 * np.pi, (pairs, 1))
        here = gaussian_field(seed, "test", x.ravel(), y.ravel())[:, None]
        there_x, there_y = x + distance * np.cos(angle), y + distance * np.sin(angle)
        there = gaussian_field(seed, "test", there_x.ravel(), there_y.ravel()).reshape(pairs, -1)
        products[seed] = (here * there).mean(axis=0)
    error = 5.0 * products.std(axis=0) / math.sqrt(landscapes)
    assert (error < 0.06).all()
    assert (np.abs(products.mean(axis=0) - np.exp(-distance)) < error).all()


def test_values_are_normal_over_landscapes():
    values = np.concatenate(
        [
            gaussian_field(seed, "test", *np.random.default_rng(seed).uniform(0.0, 400.0, (2, 20)))
            for seed in range(1000)
        ]
    )
    assert abs(values.mean()) < 0.05
    assert abs(values.std() - 1.0) < 0.03
    for level, share in ((-1.2816, 0.1), (0.0, 0.5), (1.2816, 0.9)):  # quantiles of the normal law
        assert abs((values < level).mean() - share) < 0.015


def test_a_place_keeps_its_value_whoever_else_is_asked():
    x, y = np.random.default_rng(1).uniform(0.0, 50.0, (2, 20000))  # more than one chunk
    whole = gaussian_field(3, "test", x, y)
    np.testing.assert_array_equal(
        gaussian_field(3, "test", x[15000:15010], y[15000:15010]), whole[15000:15010]
    )
