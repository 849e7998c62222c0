"""Theorem 1, as corrected and as printed: a bound on the mean over rounds of E||grad F(w_k)||^2."""

import math
from dataclasses import dataclass

import numpy as np

from autofl.forecast.participation import Participation
from autofl.units import Array
from autofl_paper.theory.constants import (
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


@dataclass(frozen=True)
class Meta:
    """What the theorem asks of F_1, ..., F_n and of the stochastic meta-gradients g_i."""

    smoothness: float  # L_F
    variance: float  # sigma_F^2, of one g_i
    bias: float  # b, of one g_i; with weights its root mean square under a_i
    second_moment: float  # Gamma^2, of one g_i; only tau > 1 needs it
    spread: float  # gamma_F^2
    bias_in_noise: float | None = (
        None  # b inside sigma_tau: with weights its root mean square under a_i^2; b if None
    )
    gradient_bound: float = math.nan  # B_F >= ||grad F_i||; only participation with memory needs it


def meta_of(
    constants: Constants,
    inner_lr: float,
    inner: Sizes,
    outer: Sizes,
    hess: Sizes,
    weight: Array | None = None,
    owned: Sizes = math.inf,
) -> Meta:
    """Lemmas 1 to 3, for the batches of all UEs and rounds.

    Args:
        inner, outer, hess: D_in, D_o, D_h of one UE and round or of many, shapes that broadcast.
        weight: the server's weights a_k^i of the same shape; without them the worst UE and round
            count.
        owned: D_i of the same shape where the three batches are disjoint; infinite where they are
            independent.
    Note:
        With weights the variance is the mean under a_i^2 and the squared bias the mean under a_i,
        which is what the proof asks for. The paper takes the largest batch of all UEs (max), which
        is not a bound; the worst case is the smallest batch.
    """
    variance = meta_variance(constants, inner_lr, inner, outer, hess, owned)
    bias = meta_bias(constants, inner_lr, inner, owned)
    moment = meta_second_moment(constants, inner_lr, inner, outer, hess, owned)

    def mean(values: Array, power: int) -> float:
        """The mean under a_i^power; without weights the largest."""
        if weight is None:
            return float(values.max())
        return float((weight**power * values).sum() / (weight**power).sum())

    return Meta(
        smoothness=meta_smoothness(constants, inner_lr),
        variance=mean(variance, 2),
        bias=math.sqrt(mean(bias**2, 1)),
        second_moment=float(moment.max()),
        spread=meta_spread(constants, inner_lr),
        bias_in_noise=math.sqrt(mean(bias**2, 2)),
        gradient_bound=(1.0 + inner_lr * constants.smoothness) * constants.gradient_bound,
    )


@dataclass(frozen=True)
class Bound:
    """mean_k E||grad F(w_k)||^2 <= start / K + bias + noise."""

    start: float  # falls with the number of rounds
    bias: float  # falls with neither K nor beta
    noise: float  # falls with beta
    # whether the theorem's condition is met and all constants are known; if not, nothing is
    # promised
    holds: bool

    @property
    def floor(self) -> float:
        """What is left after infinitely many rounds."""
        return self.bias + self.noise

    def after(self, num_rounds: Array | float) -> Array:
        """The bound on the mean over the first K rounds, any shape."""
        return np.asarray(self.start / np.asarray(num_rounds, dtype=np.float64) + self.floor)

    def rounds_to(self, epsilon: float) -> float:
        """The least K with a bound of at most epsilon; infinite where the floor is not below
        epsilon.
        """
        if epsilon <= self.floor:
            return math.inf
        return math.ceil(self.start / (epsilon - self.floor) * (1 - 1e-12))


def bound(
    meta: Meta, law: Participation, excess: float, outer_lr: float, local_steps: int = 1
) -> Bound:
    """Theorem 1, corrected, for the server that averages the decoded updates and keeps its model
    when there are none.

        mean_k E||grad F(w_k)||^2 <= c [2 (F(w_0) - F*) / (beta tau P(heard) K)
            + t (chi gamma_F + b_tau)^2 + s (omega sigma_tau^2 + (sqrt(psi) gamma_F + b_tau)^2)],

        s = beta tau L_F < 2,
        c = 1, t = 1 - s for s <= 1,    c = 2/((2 - s)(3 - s)), t = 2 (s - 1)/(2 - s) above,
        delta = beta L_F Gamma (tau - 1)/2,    b_tau = b + delta,
        sigma_tau = sigma_F/sqrt(tau) + delta + b (tau - 1)/tau, this b with weights the mean under
        a_i^2.

    Args:
        meta: L_F, sigma_F^2, b, Gamma^2, gamma_F^2.
        law: P(heard), omega, chi^2, psi.
        excess: F(w_0) - F*, F* a lower bound of F.
        outer_lr, local_steps: beta, tau.
    Returns:
        An infinite bound that does not hold where s >= 2 or a constant is not known (NaN).
    Note:
        S_k must have the same law whatever happened before. Where planner, selection or channel
        have a memory, `bound_with_memory` is the one that holds.
    """
    tau = local_steps
    s = outer_lr * tau * meta.smoothness
    if not s < 2.0:
        return NOTHING
    factor = 1.0
    tilt = 1.0 - s
    if s > 1.0:
        factor = 2.0 / ((2.0 - s) * (3.0 - s))
        tilt = 2.0 * (s - 1.0) / (2.0 - s)
    bias, deviation = _over_steps(meta, outer_lr, tau)
    spread = math.sqrt(meta.spread)
    moved = (math.sqrt(law.draw_variance) * spread + bias) ** 2
    return _known(
        start=factor * 2.0 * excess / (outer_lr * tau * law.heard),
        bias=factor * tilt * (math.sqrt(law.skew) * spread + bias) ** 2,
        noise=factor * s * (law.inverse_size * deviation**2 + moved),
    )


NOTHING = Bound(math.inf, math.inf, math.inf, holds=False)
"""What is promised where the condition fails: nothing."""


def _known(start: float, bias: float, noise: float) -> Bound:
    """The bound, or nothing where a constant is not known."""
    return Bound(start, bias, noise, holds=True) if math.isfinite(start + bias + noise) else NOTHING


def _over_steps(meta: Meta, outer_lr: float, tau: int) -> tuple[float, float]:
    """b_tau and sigma_tau: bias and deviation of the mean of tau meta-gradients along a UE's own
    path.
    """
    drift = 0.0
    if tau > 1:  # with one step the second moment need not be known
        drift = 0.5 * (tau - 1) * outer_lr * meta.smoothness * math.sqrt(meta.second_moment)
    own = meta.bias if meta.bias_in_noise is None else meta.bias_in_noise
    return meta.bias + drift, math.sqrt(meta.variance / tau) + drift + own * (tau - 1) / tau


def bound_with_memory(
    meta: Meta,
    law: Participation,
    memory: float,
    excess: float,
    outer_lr: float,
    local_steps: int = 1,
) -> Bound:
    """Theorem 2: the law of S_k may depend on earlier rounds. Means are over rounds in which
    somebody is heard.

        mean_j E||grad F(w_j)||^2 <= 2 (F(w_0) - F*) / (beta tau J) + 4 zeta B_F gamma_F / J + (chi
        gamma_F + b_tau)^2
            + s (R^2 + 2 zeta (gamma_F + B_F) R),    R^2 = omega sigma_tau^2 + (B_F + b_tau)^2,
            any s

    Args:
        law: chi^2 and omega of the stationary law.
        memory: zeta, of a Markov chain by `markov_participation`, from draws by `memory_of`.
        excess, outer_lr, local_steps: as in `bound`.
    """
    tau = local_steps
    bias, deviation = _over_steps(meta, outer_lr, tau)
    spread = math.sqrt(meta.spread)
    steepest = meta.gradient_bound
    moved = math.sqrt(law.inverse_size * deviation**2 + (steepest + bias) ** 2)
    s = outer_lr * tau * meta.smoothness
    return _known(
        start=2.0 * excess / (outer_lr * tau) + 4.0 * memory * steepest * spread,
        bias=(math.sqrt(law.skew) * spread + bias) ** 2,
        noise=s * moved * (moved + 2.0 * memory * (spread + steepest)),
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
    """Theorem 1 as printed, Eq. (25), or with the coefficients 8, 4, 16 of its own appendix, 4
    sigma_T^2 of (68).

        4 (F(w_0) - F*)/(beta K) + sum_i U_i^2 (beta L_F sigma_F^2 + beta L_F gamma_F^2 + alpha^2
        L^2 sigma_G^2/D_in)

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
    """What the corrected and the printed theorem require, and what the paper's power allocation
    takes for granted.

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


def choice_for(
    constants: Constants,
    law: Participation,
    excess: float,
    inner_lr: float,
    epsilon: float,
    owned: float = math.inf,
) -> Choice:
    """Corollary 1, corrected, tau = 1: beta, D_in = D_o = D_h and K that make the bound at most
    epsilon.

    With X = (chi gamma_F + b)^2 the batch is the least one with X <= chi^2 gamma_F^2 + (epsilon -
    chi^2 gamma_F^2)/4,
    noise and start share what X leaves: beta = O(eps), K = O(eps^-2) and D = O(1/eps), or
    O(1/sqrt(eps)) where rho is the smaller of the two reasons for a bias.

    Args:
        owned: D, the fewest samples of a UE, where batches are disjoint: none is larger than a
            third of it.
    Returns:
        K is infinite where no choice makes the bound epsilon: chi^2 gamma_F^2 >= epsilon, since UEs
        are heard unequally, or the bias of disjoint batches is too large for every batch.
    """
    skewed = math.sqrt(law.skew * meta_spread(constants, inner_lr))
    room = epsilon - skewed**2
    if not room > 0.0:
        return Choice(math.nan, 0, math.inf)
    allowed = room / 4.0 / (math.sqrt(skewed**2 + room / 4.0) + skewed)
    batch = _batch_for(constants, inner_lr, allowed, owned)
    if batch == 0:
        return Choice(math.nan, 0, math.inf)
    meta = meta_of(constants, inner_lr, batch, batch, batch, owned=owned)
    least = (skewed + meta.bias) ** 2
    whole = bound(meta, law, excess, 1.0 / meta.smoothness)  # s = 1: all noise
    if not (least < epsilon and whole.holds):
        return Choice(math.nan, 0, math.inf)
    more = whole.noise - least
    outer_lr = min(1.0, 0.5 * (epsilon - least) / more if more > 0.0 else 1.0) / meta.smoothness
    return Choice(outer_lr, batch, bound(meta, law, excess, outer_lr).rounds_to(epsilon))


def _batch_for(constants: Constants, inner_lr: float, allowed: float, owned: float) -> int:
    """The least D_in with a bias of at most `allowed`; the one with the least bias where there is
    none, 0 for no D.
    """
    if math.isinf(owned):
        stretch = 1.0 + inner_lr * constants.smoothness
        spread = inner_lr**2 * constants.gradient_variance
        by_root = (
            stretch * constants.smoothness * math.sqrt(spread)
        )  # b is the smaller of by_root/sqrt(D_in)
        by_size = stretch * 0.5 * constants.hessian_lipschitz * spread  # and by_size/D_in
        needed = min((by_root / allowed) ** 2, by_size / allowed)
        return max(1, math.ceil(needed)) if math.isfinite(needed) else 0
    sizes = np.arange(1, int(owned) // 3 + 1)
    bias = meta_bias(constants, inner_lr, sizes, owned)
    if not np.isfinite(bias).any():
        return 0
    enough = np.flatnonzero(bias <= allowed)
    return int(sizes[enough[0] if len(enough) else np.nanargmin(bias)])
