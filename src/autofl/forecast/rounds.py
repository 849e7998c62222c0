"""Rounds to a target accuracy, fitted from pilot runs: what the bounds are too loose for."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from autofl.errors import AutoFLError
from autofl.forecast.tobit import tobit
from autofl.units import Array, BoolArray, IntArray

SKEWED = 0.05
"""chi^2 from which UEs count as unequally heard; draws of an even law scatter by less."""
SLACK = np.array([0.0, 0.0, 0.0, SKEWED, 0.0, 0.0])
"""By how much pilots must differ in x, tau, h, chi^2, y and z to differ at all."""


class Influences(NamedTuple):
    """What decides how many rounds a training needs; arrays broadcast."""

    noise: Array | float  # x, mean over rounds of 1/(d m)
    local_steps: Array | float  # tau
    heterogeneity: Array | float  # h
    skew: Array | float = 0.0  # chi^2, how unequally UEs are heard
    rounding: Array | float = 0.0  # y, mean of omega/m, omega the variance of the compressor
    share: Array | float = 0.0  # z, mean of 1/m


IN_WORDS = (
    "1/(d m)",
    "tau",
    "heterogeneity",
    "unequal chances to be heard (chi^2)",
    "rounding (omega/m)",
    "1/m",
)


@dataclass(frozen=True)
class RoundsModel:
    """K = (a + b x + e chi^2)/tau + c + q y + s z with x = 1/(d m), y = omega/m and z = 1/m.

    omega is the variance of the compressor, h the heterogeneity; a, b, e are linear in h. The last
    term is there because a few UEs stand in for all.

    Fields:
        coefficients: of the columns that `columns` gives, in their order.
        covariance: of the coefficients.
        scatter: standard deviation of ln K between a run and the fit where all UEs are equally
            heard.
        lowest, highest: of x, tau, h, chi^2, y and z among the pilots that reached the target,
            shape (6,). Where they do not differ in h, tau, chi^2, y or z, its columns are left out.
        skew_variance: by how much the variance of ln K grows with chi^2; it then matters who is not
            heard.
        freedom: pilots that reached the target less numbers that were fitted, for Student's law.
    """

    coefficients: Array
    covariance: Array
    scatter: float
    lowest: Array
    highest: Array
    skew_variance: float = 0.0
    freedom: int = 1

    def columns(self, given: Influences) -> Array:
        """1, x, chi^2 over tau, each times h too, 1, y and z, if pilots vary in them; shape (...,
        num_columns).
        """
        arrays = [np.asarray(value, np.float64) for value in given]
        x, tau, h, chi, y, z = np.broadcast_arrays(*arrays)
        differs = self._differs
        terms = [1.0 / tau, x / tau]
        if differs.skew:
            terms.append(chi / tau)
        if differs.heterogeneity:
            terms += [h * column for column in terms]
        if differs.local_steps:
            terms.append(np.ones_like(tau))
        if differs.rounding:
            terms.append(y)
        if differs.share:
            terms.append(z)
        return np.stack(terms, axis=-1)

    @property
    def terms(self) -> list[IntArray]:
        """The columns of a, b, e, c, q and s, as far as they are present."""
        differs = self._differs
        num = 3 if differs.skew else 2
        lines = 2 * num if differs.heterogeneity else num
        alone = int(differs.local_steps + differs.rounding + differs.share)
        pairs = [np.arange(place, lines, num) for place in range(num)]
        return [*pairs, *(np.array([lines + place]) for place in range(alone))]

    def is_negative(self, term: IntArray) -> bool:
        """Whether a term is below 0 at every heterogeneity of the pilots; none can be, as noise
        saves no rounds.
        """
        if len(term) == 1:
            return bool(self.coefficients[term[0]] < 0.0)
        ends = np.array([self.lowest[2], self.highest[2]])
        values = self.coefficients[term[0]] + self.coefficients[term[1]] * ends
        return bool((values < 0.0).all())

    @property
    def _differs(self) -> Influences:
        """In which of the six the pilots differ."""
        return Influences(*(self.highest - self.lowest > SLACK).tolist())

    def pace(self, heterogeneity: float) -> tuple[float, float, float, float, float]:
        """c, a, s, b and q at this heterogeneity: K of UEs that are equally heard, as a planner
        weighs it.
        """

        def at(noise: float, local_steps: float, rounding: float, share: float) -> float:
            given = Influences(noise, local_steps, heterogeneity, 0.0, rounding, share)
            return float(self.columns(given) @ self.coefficients)

        endless = 1e12
        constant = at(0.0, endless, 0.0, 0.0) if self._differs.local_steps else 0.0
        per_step = at(0.0, 1.0, 0.0, 0.0) - constant
        per_ue = at(0.0, endless, 0.0, 1.0) - at(0.0, endless, 0.0, 0.0)
        noise = at(1.0, 1.0, 0.0, 0.0) - per_step - constant
        rounding = at(0.0, endless, 1.0, 0.0) - at(0.0, endless, 0.0, 0.0)
        values = (constant, per_step, per_ue, noise, rounding)
        return tuple(max(value, 0.0) for value in values)  # type: ignore[return-value]

    def rounds(self, given: Influences) -> tuple[Array, Array]:
        """K and the standard deviation of ln K of a single run around it, the fit's own error
        included.
        """
        columns = self.columns(given)
        mean = np.maximum(columns @ self.coefficients, 1.0)
        of_fit = np.einsum("...i,ij,...j->...", columns, self.covariance, columns) / mean**2
        return mean, np.sqrt(self.scatter_at(given.skew) ** 2 + of_fit)

    def scatter_at(self, skew: Array | float) -> Array:
        """Standard deviation of ln K between a run and the fit."""
        return np.asarray(np.sqrt(self.scatter**2 + self.skew_variance * np.asarray(skew)))

    def outside(self, given: Influences) -> list[str]:
        """The quantities in which a setting lies outside the pilots, so that its forecast
        extrapolates.
        """
        asked = np.array(given)
        bad = (asked < 0.8 * self.lowest - SLACK) | (asked > 1.25 * self.highest + SLACK)
        return [name for name, out in zip(IN_WORDS, bad, strict=True) if out]


def fit_rounds(
    given: Influences,
    rounds: Array,
    reached: BoolArray | None = None,
    group: IntArray | None = None,
) -> RoundsModel:
    """Least squares over pilots, with errors that grow with the number of rounds and with chi^2.

    Each pilot is weighted by one over its fitted K, solved anew until it settles; weights of the
    measured K would draw the fit towards pilots that happened to be fast. A term that comes out
    negative is left out, one after another. A pilot that ended before the target counts with what K
    is expected to be, given that it is longer (a Tobit fit by expectation and maximisation):
    leaving it out would keep the fast ones alone.

    Args:
        given: of each pilot, shape (num,); z is left out where the pilots do not tell it from the
            other terms.
        rounds: K, rounds in which somebody was heard until the target was passed or the pilot
            ended, shape (num,).
        reached: whether the target was passed, shape (num,); by default it was.
        group: pilots of one number share partition and start, so that their errors go together; by
            default none do.
    """
    if reached is None:
        reached = np.ones(rounds.shape, np.bool_)
    if group is None:
        group = np.arange(len(rounds))

    # What the pilots that got there differ in decides which terms there are.
    columns_of = Influences(*np.broadcast_arrays(*given))
    share = np.asarray(columns_of.share)
    if not _tells(np.asarray(columns_of.noise)[reached], share[reached]):
        columns_of = columns_of._replace(share=np.full(rounds.shape, share[reached].mean()))
    seen = np.stack(columns_of)[:, reached]
    shape = RoundsModel(np.empty(0), np.empty(0), 0.0, seen.min(axis=1), seen.max(axis=1))
    columns = shape.columns(columns_of)
    num = int(reached.sum())
    width = columns.shape[1]
    if num <= width or np.linalg.matrix_rank(columns[reached]) < width:
        raise AutoFLError(
            f"{num} pilots do not fix the {width} numbers of the fit; vary d and |A_k|, use more seeds"
        )

    # The scatter grows with chi^2 where that differs.
    skew = np.asarray(columns_of.skew, np.float64)
    law = np.ones((len(rounds), 1))
    if np.ptp(skew[reached]) > SKEWED:
        law = np.stack([np.ones_like(skew), skew], axis=1)

    kept = np.ones(width, np.bool_)
    while True:
        solved = tobit(columns[:, kept], rounds, reached, law, group)
        coefficients = np.zeros(width)
        covariance = np.zeros((width, width))
        coefficients[kept] = solved.coefficients
        covariance[np.ix_(kept, kept)] = solved.covariance
        model = replace(shape, coefficients=coefficients, covariance=covariance)
        absurd = [term for term in model.terms if kept[term].any() and model.is_negative(term)]
        if not absurd:
            break

        # Of several terms that make no sense, the one that matters most goes first.
        fitted = np.maximum(columns @ coefficients, 1.0)
        weights = []
        for term in absurd:
            part = columns[:, term] @ coefficients[term] / fitted
            weights.append(float(np.abs(part).mean()))
        kept[absurd[int(np.argmax(weights))]] = False

    return replace(
        model,
        scatter=float(np.sqrt(solved.variance[0])),
        skew_variance=float(solved.variance[1:].sum()),
        freedom=num - int(kept.sum()),
    )


def _tells(noise: Array, share: Array) -> bool:
    """Whether pilots differ both in m and in d = z/x, so that x and z can be told apart."""
    samples = share / noise
    return bool(np.ptp(share) > 0.01 * share.max() and np.ptp(samples) > 0.01 * samples.max())
