"""Rounds to a target accuracy, fitted from pilot runs: what the bounds are too loose for."""

from dataclasses import dataclass, replace

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array

SKEWED = 0.05
"""chi^2 from which UEs count as unequally heard; draws of an even law scatter by less."""


@dataclass(frozen=True)
class RoundsModel:
    """K = (a + b x + e chi^2)/tau + c with x = 1/(d m); a, b and e are straight lines in the heterogeneity h.

    Fields:
        coefficients: of the columns that `columns` gives, in their order.
        covariance: of the coefficients.
        scatter: standard deviation of ln K between a run and the fit.
        lowest, highest: of x, tau, h and chi^2 among the pilots, shape (4,). Where pilots do not differ in h, tau or
            chi^2, its columns are left out.
    """

    coefficients: Array
    covariance: Array
    scatter: float
    lowest: Array
    highest: Array

    def columns(
        self, noise: Array, local_steps: Array | float, heterogeneity: Array | float, skew: Array | float
    ) -> Array:
        """1, x and chi^2 over tau, each times h too, and 1, as far as the pilots tell; shape (..., num_columns)."""
        given = (noise, local_steps, heterogeneity, skew)
        x, tau, h, chi = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in given))
        _, by_steps, by_heterogeneity, by_skew = self.highest - self.lowest > (0.0, 0.0, 0.0, SKEWED)
        terms = [1.0 / tau, x / tau]
        if by_skew:
            terms.append(chi / tau)
        if by_heterogeneity:
            terms += [h * column for column in terms]
        if by_steps:
            terms.append(np.ones_like(tau))
        return np.stack(terms, axis=-1)

    def rounds(
        self, noise: Array, local_steps: float, heterogeneity: float, skew: Array | float
    ) -> tuple[Array, Array]:
        """K and the standard deviation of ln K of a single run around it, the fit's own error included."""
        columns = self.columns(noise, local_steps, heterogeneity, skew)
        mean = np.maximum(columns @ self.coefficients, 1.0)
        of_fit = np.einsum("...i,ij,...j->...", columns, self.covariance, columns) / mean**2
        return mean, np.sqrt(self.scatter**2 + of_fit)

    def outside(self, noise: float, local_steps: float, heterogeneity: float, skew: float) -> list[str]:
        """In what a setting lies outside the pilots, so that its forecast extrapolates."""
        asked = np.array([noise, local_steps, heterogeneity, skew])
        slack = np.array([0.0, 0.0, 0.0, SKEWED])
        bad = (asked < 0.8 * self.lowest - slack) | (asked > 1.25 * self.highest + slack)
        names = ("1/(d m)", "tau", "heterogeneity", "unequal chances to be heard (chi^2)")
        return [name for name, out in zip(names, bad, strict=True) if out]


def fit_rounds(noise: Array, local_steps: Array, heterogeneity: Array, skew: Array, rounds: Array) -> RoundsModel:
    """Least squares over pilots, with errors that grow with the number of rounds.

    Each pilot is weighted by one over its fitted K, found anew until it settles; weights of the measured K would draw
    the fit towards pilots that happened to be fast.

    Args:
        noise: x, the mean over rounds of sum_i a_i^2/d_i, which is 1/(d m) for m UEs with d samples, shape (num,).
        local_steps, heterogeneity, skew: tau, h and chi^2, shape (num,).
        rounds: K, rounds in which somebody was heard until the target was passed, shape (num,).
    """
    given = np.stack([noise, local_steps, heterogeneity, skew])
    shape = RoundsModel(np.empty(0), np.empty(0), 0.0, given.min(axis=1), given.max(axis=1))
    columns = shape.columns(noise, local_steps, heterogeneity, skew)
    num, width = columns.shape
    if num <= width or np.linalg.matrix_rank(columns) < width:
        raise AutoFLError(f"{num} pilots do not fix the {width} numbers of the fit; vary d and |A_k|, use more seeds")
    fitted = rounds
    for _ in range(10):
        scaled = columns / fitted[:, None]
        coefficients, *_ = np.linalg.lstsq(scaled, rounds / fitted, rcond=None)
        residual = rounds / fitted - scaled @ coefficients
        fitted = np.maximum(columns @ coefficients, 1.0)
    scatter = float(np.sqrt((residual**2).sum() / (num - width)))
    covariance: Array = scatter**2 * np.linalg.inv(scaled.T @ scaled).astype(np.float64)
    return replace(shape, coefficients=coefficients.astype(np.float64), covariance=covariance, scatter=scatter)
