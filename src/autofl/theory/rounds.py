"""Rounds to a target accuracy, fitted from pilot runs: what the bounds are too loose for."""

from dataclasses import dataclass, replace

import numpy as np

from autofl.errors import AutoFLError
from autofl.theory.tobit import tobit
from autofl.units import Array, BoolArray, IntArray

SKEWED = 0.05
"""chi^2 from which UEs count as unequally heard; draws of an even law scatter by less."""


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

    def columns(
        self,
        noise: Array,
        local_steps: Array | float,
        heterogeneity: Array | float,
        skew: Array | float,
        rounding: Array | float = 0.0,
        share: Array | float = 0.0,
    ) -> Array:
        """1, x, chi^2 over tau, each times h too, 1, y and z, if pilots vary in them; shape (...,
        num_columns).
        """
        given = (noise, local_steps, heterogeneity, skew, rounding, share)
        x, tau, h, chi, y, z = np.broadcast_arrays(
            *(np.asarray(value, np.float64) for value in given)
        )
        _, by_steps, by_heterogeneity, by_skew, by_rounding, by_share = self._differs
        terms = [1.0 / tau, x / tau]
        if by_skew:
            terms.append(chi / tau)
        if by_heterogeneity:
            terms += [h * column for column in terms]
        if by_steps:
            terms.append(np.ones_like(tau))
        if by_rounding:
            terms.append(y)
        if by_share:
            terms.append(z)
        return np.stack(terms, axis=-1)

    @property
    def terms(self) -> list[IntArray]:
        """The columns of a, b, e, c, q and s, as far as they are present."""
        _, by_steps, by_heterogeneity, by_skew, by_rounding, by_share = self._differs
        num = 3 if by_skew else 2
        lines = num * (2 if by_heterogeneity else 1)
        pairs = [np.arange(place, lines, num) for place in range(num)]
        return [
            *pairs,
            *(np.array([lines + place]) for place in range(by_steps + by_rounding + by_share)),
        ]

    def is_negative(self, term: IntArray) -> bool:
        """Whether a term is below 0 at every heterogeneity of the pilots; none can be, as noise
        saves no rounds.
        """
        ends = np.array([self.lowest[2], self.highest[2]])
        values = self.coefficients[term[0]] + (
            self.coefficients[term[1]] * ends if len(term) == 2 else 0.0 * ends
        )
        return bool((values < 0.0).all())

    @property
    def _differs(self) -> list[bool]:
        return (self.highest - self.lowest > (0.0, 0.0, 0.0, SKEWED, 0.0, 0.0)).tolist()

    def pace(self, heterogeneity: float) -> tuple[float, float, float, float, float]:
        """c, a, s, b and q at this heterogeneity: K of UEs that are equally heard, as a planner
        weighs it.
        """

        def at(noise: float, local_steps: float, rounding: float, share: float) -> float:
            columns = self.columns(
                np.array(noise), local_steps, heterogeneity, 0.0, rounding, share
            )
            return float(columns @ self.coefficients)

        endless = 1e12
        constant = at(0.0, endless, 0.0, 0.0) if self._differs[1] else 0.0
        per_step = at(0.0, 1.0, 0.0, 0.0) - constant
        values = (
            constant,
            per_step,
            at(0.0, endless, 0.0, 1.0) - at(0.0, endless, 0.0, 0.0),
            at(1.0, 1.0, 0.0, 0.0) - per_step - constant,
            at(0.0, endless, 1.0, 0.0) - at(0.0, endless, 0.0, 0.0),
        )
        return tuple(max(value, 0.0) for value in values)  # type: ignore[return-value]

    def rounds(
        self,
        noise: Array,
        local_steps: float,
        heterogeneity: float,
        skew: Array | float,
        rounding: float = 0.0,
        share: float = 0.0,
    ) -> tuple[Array, Array]:
        """K and the standard deviation of ln K of a single run around it, the fit's own error
        included.
        """
        columns = self.columns(noise, local_steps, heterogeneity, skew, rounding, share)
        mean = np.maximum(columns @ self.coefficients, 1.0)
        of_fit = np.einsum("...i,ij,...j->...", columns, self.covariance, columns) / mean**2
        return mean, np.sqrt(self.scatter_at(skew) ** 2 + of_fit)

    def scatter_at(self, skew: Array | float) -> Array:
        """Standard deviation of ln K between a run and the fit."""
        return np.asarray(np.sqrt(self.scatter**2 + self.skew_variance * np.asarray(skew)))

    def outside(
        self,
        noise: float,
        local_steps: float,
        heterogeneity: float,
        skew: float,
        rounding: float = 0.0,
        share: float | None = None,
    ) -> list[str]:
        """The quantities in which a setting lies outside the pilots, so that its forecast
        extrapolates.
        """
        asked = np.array(
            [
                noise,
                local_steps,
                heterogeneity,
                skew,
                rounding,
                self.lowest[5] if share is None else share,
            ]
        )
        slack = np.array([0.0, 0.0, 0.0, SKEWED, 0.0, 0.0])
        bad = (asked < 0.8 * self.lowest - slack) | (asked > 1.25 * self.highest + slack)
        names = (
            "1/(d m)",
            "tau",
            "heterogeneity",
            "unequal chances to be heard (chi^2)",
            "rounding (omega/m)",
            "1/m",
        )
        return [name for name, out in zip(names, bad, strict=True) if out]


def fit_rounds(
    noise: Array,
    local_steps: Array,
    heterogeneity: Array,
    skew: Array,
    rounding: Array,
    rounds: Array,
    share: Array | None = None,
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
        noise: x, the mean over rounds of sum_i a_i^2/d_i, which is 1/(d m) for m UEs with d
            samples, shape (num,).
        local_steps, heterogeneity, skew, rounding: tau, h, chi^2 and y, shape (num,).
        rounds: K, rounds in which somebody was heard until the target was passed or the pilot
            ended, shape (num,).
        share: z, shape (num,); left out where the pilots do not tell it from the other terms.
        reached: whether the target was passed, shape (num,); by default it was.
        group: pilots of one number share partition and start, so that their errors go together; by
            default none do.
    """
    reached = np.ones(rounds.shape, np.bool_) if reached is None else reached
    z = np.zeros_like(noise) if share is None else share
    if share is not None and not _tells(noise[reached], share[reached]):
        z = np.full_like(noise, share[reached].mean())
    given = np.stack([noise, local_steps, heterogeneity, skew, rounding, z])
    seen = given[:, reached]
    shape = RoundsModel(np.empty(0), np.empty(0), 0.0, seen.min(axis=1), seen.max(axis=1))
    columns = shape.columns(*given)
    num = int(reached.sum())
    width = columns.shape[1]
    if num <= width or np.linalg.matrix_rank(columns[reached]) < width:
        raise AutoFLError(
            f"{num} pilots do not fix the {width} numbers of the fit; vary d and |A_k|, use more seeds"
        )
    kept = np.ones(width, np.bool_)
    law = np.stack(
        [np.ones_like(skew), skew] if np.ptp(skew[reached]) > SKEWED else [np.ones_like(skew)],
        axis=1,
    )
    alone = np.arange(len(rounds)) if group is None else group
    while True:
        solved = tobit(columns[:, kept], rounds, reached, law, alone)
        coefficients = np.zeros(width)
        covariance = np.zeros((width, width))
        coefficients[kept], covariance[np.ix_(kept, kept)] = solved.coefficients, solved.covariance
        model = replace(shape, coefficients=coefficients, covariance=covariance)
        if not (
            absurd := [term for term in model.terms if kept[term].any() and model.is_negative(term)]
        ):
            break
        fitted = np.maximum(columns @ coefficients, 1.0)
        kept[
            max(
                absurd,
                key=lambda term: float(
                    np.abs(columns[:, term] @ coefficients[term] / fitted).mean()
                ),
            )
        ] = False
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
