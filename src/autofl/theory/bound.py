"""Theorem 1, as corrected and as printed: a bound on the mean over rounds of E||grad F(w_k)||^2."""

import math
from dataclasses import dataclass

import numpy as np

from autofl.theory.constants import (
    Constants,
    Sizes,
    meta_bias,
    meta_second_moment,
    meta_smoothness,
    meta_spread,
    meta_variance,
    printed_meta_smoothness,
    printed_meta_spread,
    printed_meta_variance,
)
from autofl.theory.participation import Participation
from autofl.units import Array


@dataclass(frozen=True)
class Meta:
    """What the theorem asks of F_1, ..., F_n and of the stochastic meta-gradients g_i."""

    smoothness: float  # L_F
    variance: float  # sigma_F^2, of one g_i
    bias: float  # b, of one g_i
    second_moment: float  # Gamma^2, of one g_i; only tau > 1 needs it
    spread: float  # gamma_F^2


def meta_of(
    constants: Constants, inner_lr: float, inner: Sizes, outer: Sizes, hess: Sizes, weight: Array | None = None
) -> Meta:
    """Lemmas 1 to 3, for the batches of all UEs and rounds.

    Args:
        inner, outer, hess: D_in, D_o, D_h of one UE and round or of many, shapes that broadcast.
        weight: the server's weights a_k^i of the same shape; without them the worst UE and round count.
    Note:
        With weights the variance is the mean under a_i^2 and the squared bias the mean under a_i, which is what the
        proof asks for. The paper takes the largest batch of all UEs (max), which is no bound; the worst is the least.
    """
    variance = meta_variance(constants, inner_lr, inner, outer, hess)
    bias = meta_bias(constants, inner_lr, inner)
    moment = meta_second_moment(constants, inner_lr, outer, hess)
    return Meta(
        smoothness=meta_smoothness(constants, inner_lr),
        variance=float(variance.max() if weight is None else (weight**2 * variance).sum() / (weight**2).sum()),
        bias=float(bias.max() if weight is None else np.sqrt((weight * bias**2).sum() / weight.sum())),
        second_moment=float(moment.max()),
        spread=meta_spread(constants, inner_lr),
    )


@dataclass(frozen=True)
class Bound:
    """mean_k E||grad F(w_k)||^2 <= start / K + bias + noise."""

    start: float  # falls with the number of rounds
    bias: float  # falls with neither K nor beta
    noise: float  # falls with beta
    holds: bool  # whether the condition on beta is met; if not, nothing is promised

    @property
    def floor(self) -> float:
        """What is left after infinitely many rounds."""
        return self.bias + self.noise

    def after(self, num_rounds: Array | float) -> Array:
        """The bound on the mean over the first K rounds, any shape."""
        return np.asarray(self.start / np.asarray(num_rounds, dtype=np.float64) + self.floor)

    def rounds_to(self, epsilon: float) -> float:
        """The least K with a bound of at most epsilon; infinite where the floor is not below epsilon."""
        return math.ceil(self.start / (epsilon - self.floor) * (1 - 1e-12)) if epsilon > self.floor else math.inf


def bound(meta: Meta, law: Participation, excess: float, outer_lr: float, local_steps: int = 1) -> Bound:
    """Theorem 1, corrected, for the server that averages the decoded updates and keeps its model when there are none.

        mean_k E||grad F(w_k)||^2 <= c [2 (F(w_0) - F*) / (beta tau P(heard) K)
            + t (chi gamma_F + b_tau)^2 + s (omega sigma_tau^2 + (sqrt(psi) gamma_F + b_tau)^2)],

        s = beta tau L_F < 2,
        c = 1, t = 1 - s for s <= 1,    c = 2/((2 - s)(3 - s)), t = 2 (s - 1)/(2 - s) above,
        delta = beta L_F Gamma (tau - 1)/2,    b_tau = b + delta,
        sigma_tau = sigma_F/sqrt(tau) + delta + b (tau - 1)/tau.

    Args:
        meta: L_F, sigma_F^2, b, Gamma^2, gamma_F^2.
        law: P(heard), omega, chi^2, psi.
        excess: F(w_0) - F*, F* a lower bound of F.
        outer_lr, local_steps: beta, tau.
    Returns:
        An infinite bound that does not hold where s >= 2.
    """
    tau = local_steps
    s = outer_lr * tau * meta.smoothness
    if s >= 2.0:
        return Bound(math.inf, math.inf, math.inf, holds=False)
    factor, tilt = (1.0, 1.0 - s) if s <= 1.0 else (2.0 / ((2.0 - s) * (3.0 - s)), 2.0 * (s - 1.0) / (2.0 - s))
    drift = 0.5 * (tau - 1) * outer_lr * meta.smoothness * math.sqrt(meta.second_moment)
    bias, spread = meta.bias + drift, math.sqrt(meta.spread)
    deviation = math.sqrt(meta.variance / tau) + drift + meta.bias * (tau - 1) / tau
    moved = (math.sqrt(law.draw_variance) * spread + bias) ** 2
    return Bound(
        start=factor * 2.0 * excess / (outer_lr * tau * law.heard),
        bias=factor * tilt * (math.sqrt(law.skew) * spread + bias) ** 2,
        noise=factor * s * (law.inverse_size * deviation**2 + moved),
        holds=True,
    )


def printed_bound(
    constants: Constants,
    share: Array,
    excess: float,
    inner_lr: float,
    outer_lr: float,
    inner: float,
    outer: float,
    hess: float,
    appendix: bool = False,
) -> Bound:
    """Theorem 1 as printed, Eq. (25), or with the coefficients 8, 4, 16 of its own appendix, 4 sigma_T^2 of (68).

        4 (F(w_0) - F*)/(beta K) + sum_i U_i^2 (beta L_F sigma_F^2 + beta L_F gamma_F^2 + alpha^2 L^2 sigma_G^2/D_in)

    Args:
        share: U_i, shape (num_ue,).
        excess: F(w_0) - F*; the paper writes F(w_epsilon).
        inner, outer, hess: D_in, D_o, D_h, by the paper the largest over UEs.
    """
    of_variance, of_spread, of_bias = (8.0, 4.0, 16.0) if appendix else (1.0, 1.0, 1.0)
    smoothness = printed_meta_smoothness(constants, inner_lr)
    variance = printed_meta_variance(constants, inner_lr, inner, outer, hess)
    spread = printed_meta_spread(constants, inner_lr)
    square = float((share**2).sum())
    inner_variance = (inner_lr * constants.smoothness) ** 2 * constants.gradient_variance / inner
    return Bound(
        start=4.0 * excess / outer_lr,
        bias=square * of_bias * inner_variance,
        noise=square * outer_lr * smoothness * (of_variance * variance + of_spread * spread),
        holds=inner_lr * constants.smoothness <= 1.0 and 2.0 * outer_lr * smoothness <= 1.0,
    )


def printed_rounds(excess: float, outer_lr: float, epsilon: float) -> float:
    """K* = 4 (F(w_0) - F(w_eps)) / (beta epsilon), Eq. (30)."""
    return 4.0 * excess / (outer_lr * epsilon)


@dataclass(frozen=True)
class Condition:
    """One condition of the theory: left <= right, or not."""

    name: str
    left: float
    right: float

    @property
    def met(self) -> bool:
        return self.left <= self.right


def conditions(
    constants: Constants,
    share: Array,
    inner_lr: float,
    outer_lr: float,
    local_steps: int,
    inner: float,
    epsilon: float,
) -> list[Condition]:
    """What the corrected and the printed theorem ask for, and what the paper's power allocation takes for granted.

    Args:
        share: U_i, shape (num_ue,).
        inner: D_in, the least over UEs.
        epsilon: of (C3.1) and (C4.1).
    """
    inner_variance = (inner_lr * constants.smoothness) ** 2 * constants.gradient_variance
    printed = printed_meta_smoothness(constants, inner_lr)
    return [
        Condition(
            "corrected theorem: beta tau L_F < 2",
            outer_lr * local_steps * meta_smoothness(constants, inner_lr),
            2.0,
        ),
        Condition("paper: alpha <= 1/L", inner_lr, 1.0 / constants.smoothness),
        Condition("paper: beta <= 1/(2 tau L_F)", outer_lr, 0.5 / (local_steps * printed)),
        Condition(
            "(C4.1): sum U_i^2 alpha^2 L^2 sigma_G^2 / D_in <= epsilon",
            float((share**2).sum()) * inner_variance / inner,
            epsilon,
        ),
        Condition("(C4.1) may be dropped: alpha^2 L^2 sigma_G^2 <= 1", inner_variance, 1.0),
    ]


@dataclass(frozen=True)
class Choice:
    """A choice of hyperparameters: beta, samples of each of the three batches, rounds."""

    outer_lr: float
    batch: int
    num_rounds: float


def choice_for(constants: Constants, law: Participation, excess: float, inner_lr: float, epsilon: float) -> Choice:
    """Corollary 1, corrected, tau = 1: beta, D_in = D_o = D_h and K that make the bound at most epsilon.

    The bias takes a quarter of epsilon, the noise a quarter, the start the rest: beta = O(eps), K = O(eps^-2) and
    D = O(1/eps), or O(1/sqrt(eps)) where rho is the smaller of the two reasons for a bias.

    Returns:
        K is infinite where UEs are heard unequally and chi gamma_F alone exceeds what epsilon leaves for the bias:
        then no choice will do.
    """
    skewed = math.sqrt(law.skew * meta_spread(constants, inner_lr))
    allowed = math.sqrt(epsilon / 4.0) - skewed
    if allowed <= 0.0:
        return Choice(math.nan, 0, math.inf)
    by_root, by_size = _bias_factors(constants, inner_lr)
    batch = max(1, math.ceil(min((by_root / allowed) ** 2, by_size / allowed)))
    meta = meta_of(constants, inner_lr, batch, batch, batch)
    unit = bound(meta, law, excess, 1.0 / meta.smoothness)  # s = 1: all noise
    outer_lr = min(1.0, epsilon / 4.0 / unit.noise if unit.noise > 0.0 else 1.0) / meta.smoothness
    return Choice(outer_lr, batch, bound(meta, law, excess, outer_lr).rounds_to(epsilon))


def _bias_factors(constants: Constants, inner_lr: float) -> tuple[float, float]:
    """The bias bound is the smaller of first/sqrt(D_in) and second/D_in."""
    stretch, spread = 1.0 + inner_lr * constants.smoothness, inner_lr**2 * constants.gradient_variance
    return (
        stretch * constants.smoothness * math.sqrt(spread),
        stretch * 0.5 * constants.hessian_lipschitz * spread,
    )
