"""The constants of the assumptions, and what Lemmas 1 to 3 make of them: smoothness, bias, variance, spread of F_i.

Derivations are in docs/theory.md. The `printed_...` functions are the paper's, kept for comparison.
"""

from dataclasses import dataclass

import numpy as np

from autofl.units import Array, IntArray


@dataclass(frozen=True)
class Constants:
    """What is assumed of f_1, ..., f_n on the set that holds all w_k and all adapted points (Assumptions 2-5).

    Note:
        sigma_H^2 and gamma_H^2 bound the mean of ||(H - mean H) v||^2 over samples and over UEs, for every unit
        vector v. That is all the proofs need, and no more than the paper's mean of ||H - mean H||^2.
    """

    smoothness: float  # L: ||grad^2 f_i|| <= L
    hessian_lipschitz: float  # rho: ||grad^2 f_i(w) - grad^2 f_i(u)|| <= rho ||w - u||
    gradient_bound: float  # B: ||grad f_i|| <= B; the paper uses it and does not state it
    gradient_variance: float  # sigma_G^2 of one sample of a UE
    hessian_variance: float  # sigma_H^2 of one sample of a UE
    gradient_spread: float  # gamma_G^2 over UEs
    hessian_spread: float  # gamma_H^2 over UEs


Sizes = Array | IntArray | float


def meta_smoothness(constants: Constants, inner_lr: float) -> float:
    """L_F = L (1 + alpha L)^2 + alpha rho B, Lemma 1: every F_i, and so F, is L_F-smooth. At most 4 L + alpha rho B."""
    L, alpha = constants.smoothness, inner_lr
    return L * (1.0 + alpha * L) ** 2 + alpha * constants.hessian_lipschitz * constants.gradient_bound


def meta_bias(constants: Constants, inner_lr: float, inner: Sizes) -> Array:
    """Bound b on the bias of a stochastic meta-gradient, ||E[g_i] - grad F_i||, Lemma 2.

        b = (1 + alpha L) min(alpha L sigma_G / sqrt(D_in), rho alpha^2 sigma_G^2 / (2 D_in))

    Args:
        inner: D_in, any shape.
    Note:
        The paper has 2 alpha L sigma_G / sqrt(D_in). The second entry is ours: the adapted point is unbiased, so only
        the curvature of grad f_i makes a bias. It is 0 for a quadratic, and falls with 1/D_in otherwise.
    """
    alpha, L, inner = inner_lr, constants.smoothness, np.asarray(inner, dtype=np.float64)
    moved = alpha**2 * constants.gradient_variance / inner  # E||adapted point - its mean||^2
    by_curvature = 0.5 * constants.hessian_lipschitz * moved
    return (1.0 + alpha * L) * np.minimum(L * np.sqrt(moved), by_curvature)


def meta_variance(constants: Constants, inner_lr: float, inner: Sizes, outer: Sizes, hess: Sizes) -> Array:
    """Bound sigma_F^2 on the mean square error of a stochastic meta-gradient, E||g_i - grad F_i||^2, Lemma 2.

        sigma_F^2 = (1 + alpha L)^2 sigma_G^2 (1/D_o + (alpha L)^2/D_in) + alpha^2 sigma_H^2/D_h (B^2 + sigma_G^2/D_o)

    Args:
        inner, outer, hess: D_in, D_o, D_h, shapes that broadcast.
    """
    alpha, L = inner_lr, constants.smoothness
    inner, outer, hess = (np.asarray(size, dtype=np.float64) for size in (inner, outer, hess))
    of_gradient = constants.gradient_variance * (1.0 / outer + (alpha * L) ** 2 / inner)
    of_hessian = alpha**2 * constants.hessian_variance / hess
    outer_square = constants.gradient_bound**2 + constants.gradient_variance / outer
    return (1.0 + alpha * L) ** 2 * of_gradient + of_hessian * outer_square


def meta_second_moment(constants: Constants, inner_lr: float, outer: Sizes, hess: Sizes) -> Array:
    """Bound Gamma^2 on E||g_i||^2: how far a local step can go.

    Gamma^2 = ((1 + alpha L)^2 + alpha^2 sigma_H^2/D_h) (B^2 + sigma_G^2/D_o)
    """
    alpha, outer, hess = inner_lr, np.asarray(outer, dtype=np.float64), np.asarray(hess, dtype=np.float64)
    stretch = (1.0 + alpha * constants.smoothness) ** 2 + alpha**2 * constants.hessian_variance / hess
    return stretch * (constants.gradient_bound**2 + constants.gradient_variance / outer)


def meta_spread(constants: Constants, inner_lr: float) -> float:
    """Bound gamma_F^2 on the mean of ||grad F_i - grad F||^2 over UEs, Lemma 3.

    gamma_F = (1 + alpha L)^2 gamma_G + alpha B gamma_H
    """
    alpha = inner_lr
    of_gradient = (1.0 + alpha * constants.smoothness) ** 2 * np.sqrt(constants.gradient_spread)
    return float((of_gradient + alpha * constants.gradient_bound * np.sqrt(constants.hessian_spread)) ** 2)


def printed_meta_smoothness(constants: Constants, inner_lr: float) -> float:
    """L_F = 4 L + alpha rho B, Lemma 1 as printed; needs alpha <= 1/L."""
    return 4.0 * constants.smoothness + inner_lr * constants.hessian_lipschitz * constants.gradient_bound


def printed_meta_variance(constants: Constants, inner_lr: float, inner: float, outer: float, hess: float) -> float:
    """sigma_F^2 of Lemma 2 as printed, Eq. (22); needs alpha <= 1/L.

    12 [B^2 + sigma_G^2 (1/D_o + (alpha L)^2/D_in)] [1 + sigma_H^2 alpha^2/(4 D_h)] - 12 B^2
    """
    alpha, square = inner_lr, constants.gradient_bound**2
    noisy = square + constants.gradient_variance * (1.0 / outer + (alpha * constants.smoothness) ** 2 / inner)
    return 12.0 * noisy * (1.0 + constants.hessian_variance * alpha**2 / (4.0 * hess)) - 12.0 * square


def printed_meta_spread(constants: Constants, inner_lr: float) -> float:
    """gamma_F^2 = 3 B^2 alpha^2 gamma_H^2 + 192 gamma_G^2, Lemma 3 as printed, Eq. (24); needs alpha <= 1/L."""
    of_hessian = 3.0 * (constants.gradient_bound * inner_lr) ** 2 * constants.hessian_spread
    return of_hessian + 192.0 * constants.gradient_spread
