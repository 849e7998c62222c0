"""Least squares on relative errors when some values are known only to be larger than what was seen."""

import math
from typing import NamedTuple

import numpy as np

from autofl.units import Array, BoolArray, IntArray

STEPS = 300
SETTLED = 1e-7
"""Steps at most, and the relative change of the fitted values at which they end."""
LEAST = 1e-24
"""Variance of an exact law."""
FAR = 30.0
"""Deviations beyond which a normal tail is taken by its first terms."""


class Tobit(NamedTuple):
    """What was fitted: the mean is columns @ coefficients, relative errors have variance law @
    variance.
    """

    coefficients: Array
    covariance: Array  # of the coefficients
    variance: Array


def tobit(columns: Array, values: Array, seen: BoolArray, law: Array, group: IntArray) -> Tobit:
    """A straight line in the columns, by expectation and maximisation (Tobin 1958; Dempster, Laird
    and Rubin 1977).

        y_i = x_i c (1 + e_i),    Var e_i = l_i v,    of some y_i only y_i > values_i is known

    Each step puts E[y_i | y_i > values_i] in the place of such a value and adds the variance of y_i
    there, then solves least squares weighted by one over the fitted mean and deviation, then fits v
    to the squares of the errors. Where v would come out negative, one variance serves all.

    Args:
        columns: x, shape (num, width), of full rank among the values that were seen.
        values: y, or what it is larger than, shape (num,), all > 0.
        seen: whether y itself was seen, shape (num,).
        law: l, shape (num, 1) or (num, 2), first column 1.
        group: errors of one group go together: their correlation widens the covariance of c, shape
            (num,).
    """
    fitted = values
    target = np.ones(values.shape)
    variance = np.eye(law.shape[1])[0]
    for _ in range(STEPS):
        deviation = np.sqrt(law @ variance)
        scaled = columns / (fitted * deviation)[:, None]
        coefficients = np.linalg.lstsq(scaled, target / deviation, rcond=None)[0]
        before = fitted
        fitted = np.maximum(columns @ coefficients, 1.0)
        error, unknown = _expected(values / fitted - 1.0, deviation, seen)
        target = 1.0 + error
        variance = _variance(scaled, error**2 + unknown * deviation**2, law, deviation**2)
        if np.abs(fitted / before - 1.0).max() < SETTLED:
            break

    # A value that was not seen tells less, and errors that go together tell less than they seem to.
    deviation = np.sqrt(law @ variance)
    told = columns * (np.sqrt(1.0 - unknown) / (fitted * deviation))[:, None]
    paired = (group[:, None] == group) & ~np.eye(len(group), dtype=np.bool_)
    scale, together = _shared(told, np.where(seen, error / deviation, 0.0), seen, paired)
    inverse = np.linalg.inv(told.T @ told)
    covariance = inverse @ (told.T @ (np.eye(len(group)) + together * paired) @ told) @ inverse
    return Tobit(coefficients, scale * covariance, scale * variance)


def _expected(relative: Array, deviation: Array, seen: BoolArray) -> tuple[Array, Array]:
    """The relative error, or its mean given that it is larger, and the share of its variance that
    is left then.
    """
    if seen.all():
        return relative, np.zeros_like(relative)
    z = relative / deviation
    hazard = np.array([_hazard(float(one)) for one in z])
    left = np.clip(1.0 + z * hazard - hazard**2, 0.0, 1.0)
    return np.where(seen, relative, deviation * hazard), np.where(seen, 0.0, left)


def _hazard(z: float) -> float:
    """phi(z) / (1 - Phi(z)), the mean of a standard normal number that is larger than z; far out z
    + 1/z.
    """
    if z > FAR:
        return z + 1.0 / z
    return math.sqrt(2.0 / math.pi) * math.exp(-0.5 * z * z) / math.erfc(z / math.sqrt(2.0))


def _variance(scaled: Array, square: Array, law: Array, before: Array) -> Array:
    """v from squared errors, whose mean is (1 - leverage) l v; weighted by one over the variance as
    it was.
    """
    q, _ = np.linalg.qr(scaled)
    free = 1.0 - (q**2).sum(axis=1)
    scaled_law = free[:, None] * law / before[:, None]
    variance = np.linalg.lstsq(scaled_law, square / before, rcond=None)[0]
    if (variance <= 0.0).any():
        variance = np.zeros(law.shape[1])
        variance[0] = max(square.sum() / free.sum(), LEAST)
    return np.asarray(variance)


def _shared(scaled: Array, error: Array, seen: BoolArray, paired: BoolArray) -> tuple[float, float]:
    """By how much the variance is larger than residuals show, and the correlation of errors that go
    together.

    The fit takes up part of what pilots of a group share, so that residuals e show too little of
    it. With Q the projection on what the columns leave and B the pairs, E e e^T = s Q (I + r B) Q;
    s and r follow from the mean of the squares and of the products within groups (Rao 1971).
    """
    pairs = paired & seen[:, None] & seen
    if not pairs.any():
        return 1.0, 0.0
    basis, _ = np.linalg.qr(scaled)
    left = np.eye(len(error)) - basis @ basis.T
    mixed = left @ paired @ left
    square = left[seen, seen].sum()
    moments = np.array([[square, mixed[seen, seen].sum()], [left[pairs].sum(), mixed[pairs].sum()]])
    shown = np.array([(error**2).sum(), np.outer(error, error)[pairs].sum()])
    if (
        abs(np.linalg.det(moments)) < 1e-3 * square**2
    ):  # one group: its error is in the coefficients
        return 1.0, 0.0
    scale, common = np.linalg.solve(moments, shown)
    if not common > 0.0:
        return 1.0, 0.0
    scale = max(scale, common)
    return float(scale), float(min(common / scale, 1.0))
