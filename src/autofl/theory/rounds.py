"""Rounds to a target accuracy, fitted from pilot runs: what the bounds are too loose for."""

from dataclasses import dataclass, replace

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array


@dataclass(frozen=True)
class RoundsModel:
    """K = (a + b x)/tau + c with x = 1/(d m), and a, b straight lines in the heterogeneity h where pilots differ in it.

    Fields:
        coefficients: of the columns that `columns` gives, in their order.
        covariance: of the coefficients.
        scatter: standard deviation of ln K between a run and the fit.
        by_heterogeneity, by_steps: whether pilots differ in h and in tau, so that h and c are known.
        lowest, highest: of x, tau and h among the pilots, shape (3,).
    """

    coefficients: Array
    covariance: Array
    scatter: float
    by_heterogeneity: bool
    by_steps: bool
    lowest: Array
    highest: Array

    def columns(self, noise: Array, local_steps: Array | float, heterogeneity: Array | float) -> Array:
        """1/tau and x/tau, both times h too where it is known, and 1 where tau is; shape (..., num_columns)."""
        noise, tau, h = np.broadcast_arrays(*(np.asarray(v, float) for v in (noise, local_steps, heterogeneity)))
        found = [1.0 / tau, noise / tau]
        if self.by_heterogeneity:
            found += [h / tau, h * noise / tau]
        if self.by_steps:
            found.append(np.ones_like(tau))
        return np.stack(found, axis=-1)

    def rounds(self, noise: Array, local_steps: float, heterogeneity: float) -> tuple[Array, Array]:
        """K and the standard deviation of ln K of a single run around it, the fit's own error included."""
        columns = self.columns(noise, local_steps, heterogeneity)
        mean = np.maximum(columns @ self.coefficients, 1.0)
        of_fit = np.einsum("...i,ij,...j->...", columns, self.covariance, columns) / mean**2
        return mean, np.sqrt(self.scatter**2 + of_fit)

    def outside(self, noise: float, local_steps: float, heterogeneity: float) -> list[str]:
        """In what a setting lies outside the pilots, so that its forecast extrapolates."""
        asked = np.array([noise, local_steps, heterogeneity])
        bad = (asked < 0.8 * self.lowest) | (asked > 1.25 * self.highest)
        return [name for name, out in zip(("1/(d m)", "tau", "heterogeneity"), bad, strict=True) if out]


def fit_rounds(noise: Array, local_steps: Array, heterogeneity: Array, rounds: Array) -> RoundsModel:
    """Least squares over pilots, each weighted by 1/K: errors grow with the number of rounds.

    Args:
        noise: x, the mean over rounds of sum_i a_i^2/d_i, which is 1/(d m) for m UEs with d samples, shape (num,).
        local_steps, heterogeneity: tau and h, shape (num,).
        rounds: K, rounds in which somebody was heard until the target was passed, shape (num,).
    """
    given = np.stack([noise, local_steps, heterogeneity])
    empty = np.empty(0)
    shape = RoundsModel(
        empty, empty, 0.0, len(np.unique(heterogeneity)) > 1, len(np.unique(local_steps)) > 1,
        given.min(axis=1), given.max(axis=1),
    )  # fmt: skip
    columns = shape.columns(noise, local_steps, heterogeneity)
    num, width = columns.shape
    scaled = columns / rounds[:, None]
    if num <= width or np.linalg.matrix_rank(scaled) < width:
        raise AutoFLError(f"{num} pilots do not fix the {width} numbers of the fit; vary d and |A_k|, use more seeds")
    coefficients, *_ = np.linalg.lstsq(scaled, np.ones(num), rcond=None)
    residual = 1.0 - scaled @ coefficients
    scatter = float(np.sqrt((residual**2).sum() / (num - width)))
    covariance: Array = scatter**2 * np.linalg.inv(scaled.T @ scaled).astype(np.float64)
    return replace(shape, coefficients=coefficients.astype(np.float64), covariance=covariance, scatter=scatter)
