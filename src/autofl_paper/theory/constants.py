"""The constants of the assumptions, and what Lemmas 1 to 3 make of them: smoothness, bias,
variance, spread of F_i.

Derivations are in docs/theory.md. The `printed_...` functions are the paper's, kept for comparison.
"""

import math
from dataclasses import dataclass

import numpy as np

from autofl.units import Array, IntArray


@dataclass(frozen=True)
class Constants:
    """What is assumed of f_1, ..., f_n on a convex set that holds all iterates and adapted points
    (Assumptions 2-5).

    Note:
        sigma_H^2 and gamma_H^2 bound the mean of ||(H - mean H) v||^2 over samples and over UEs,
        for every unit vector v. That is all the proofs need, and no more than the paper's mean of
        ||H - mean H||^2.
    """

    smoothness: float  # L: ||grad^2 f_i|| <= L
    hessian_lipschitz: float  # rho: ||grad^2 f_i(w) - grad^2 f_i(u)|| <= rho ||w - u||
    gradient_bound: float  # B: ||grad f_i|| <= B; the paper uses it and does not state it
    gradient_variance: float  # sigma_G^2 of one sample of a UE
    hessian_variance: float  # sigma_H^2 of one sample of a UE
    gradient_spread: float  # gamma_G^2 over UEs
    hessian_spread: float  # gamma_H^2 over UEs
    hessian_deviation: float = (
        math.nan
    )  # Lambda^2, mean over a UE's samples of Lip(grad l - grad f_i)^2; disjoint only


Sizes = Array | IntArray | float


def meta_smoothness(constants: Constants, inner_lr: float) -> float:
    """L_F = L (1 + alpha L)^2 + alpha rho B, Lemma 1: every F_i, and so F, is L_F-smooth. At most 4
    L + alpha rho B.
    """
    L = constants.smoothness
    alpha = inner_lr
    return (
        L * (1.0 + alpha * L) ** 2 + alpha * constants.hessian_lipschitz * constants.gradient_bound
    )


def meta_bias(
    constants: Constants, inner_lr: float, inner: Sizes, owned: Sizes = math.inf
) -> Array:
    """Bound b on the bias of a stochastic meta-gradient, ||E[g_i] - grad F_i||, Lemma 2.

        b = (1 + alpha L) min(alpha L sigma_G / sqrt(D_in), rho alpha^2 sigma_G^2 / (2 D_in))
        independent batches
            + (1 + alpha L) alpha Lambda sigma_G k + alpha sigma_H sigma_G / (D - D_in - 1)
            disjoint ones add
            + alpha^2 (L + Lambda sqrt(D/(D - D_in - 1))) sigma_H sigma_G k,    k = sqrt(2/(D (D -
            1)))

    Args:
        inner: D_in, any shape.
        owned: D, the samples of the UE from which disjoint batches are drawn; infinite for
            independent batches.
    Note:
        The paper has 2 alpha L sigma_G / sqrt(D_in). The second entry is ours: the adapted point is
        unbiased, so only the curvature of grad f_i makes a bias. It is 0 for a quadratic, and falls
        with 1/D_in otherwise. What disjoint batches add falls with 1/D alone.
    """
    alpha = inner_lr
    L = constants.smoothness
    inner = np.asarray(inner, dtype=np.float64)
    owned = np.asarray(owned, dtype=np.float64)
    moved = alpha**2 * constants.gradient_variance / inner  # E||adapted point - its mean||^2
    by_curvature = 0.5 * constants.hessian_lipschitz * moved
    independent = (1.0 + alpha * L) * np.minimum(L * np.sqrt(moved), by_curvature)
    if np.isinf(owned).all():
        return independent
    rest = owned - inner - 1.0
    noise = np.sqrt(constants.gradient_variance)
    turn = np.sqrt(constants.hessian_deviation)
    with np.errstate(divide="ignore", invalid="ignore"):
        swapped = (
            alpha * noise * np.sqrt(2.0 / (owned * (owned - 1.0)))
        )  # one sample of two batches exchanged
        steeper = L + turn * np.sqrt(owned / rest)
        crossed = np.sqrt(constants.hessian_variance) * alpha * (noise / rest + steeper * swapped)
        added = (1.0 + alpha * L) * turn * swapped + crossed
    return independent + np.where(rest > 0.0, added, np.inf)


def _drawn_after(size: Sizes, before: Sizes, owned: Sizes) -> tuple[Array, Array]:
    """v^2 and e^2 of a batch drawn where q samples of D were drawn before it, in units of one
    sample's variance.

    E||batch mean - mean||^2 <= v^2 = D/(D - q) (1/size + q/(D - q)),    ||E[batch mean | before] -
    mean|| <= e,
    e^2 = q D/(D - q)^2,    at any point that what was drawn before decides. Independent batches:
    1/size and 0.
    """
    size, before, owned = (np.asarray(value, dtype=np.float64) for value in (size, before, owned))
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(owned > before, 1.0 - before / owned, 0.0)  # (D - q)/D
        shift = before / owned / left**2
        return np.where(left > 0.0, 1.0 / (size * left) + shift, np.inf), np.where(
            left > 0.0, shift, np.inf
        )


def meta_variance(
    constants: Constants,
    inner_lr: float,
    inner: Sizes,
    outer: Sizes,
    hess: Sizes,
    owned: Sizes = math.inf,
) -> Array:
    """Bound sigma_F^2 on the mean square error of a stochastic meta-gradient, E||g_i - grad
    F_i||^2, Lemma 2.

        sigma_F^2 = (1 + alpha L)^2 A^2 + alpha^2 sigma_H^2 v_h^2 C^2 + 2 (1 + alpha L) alpha
        sigma_H e_h A C, A^2 = sigma_G^2 (v_o^2 + (alpha L)^2/D_in + 2 e_o alpha L/sqrt(D_in)), C^2
        = B^2 + 2 e_o sigma_G B + v_o^2 sigma_G^2

    Independent batches have v^2 = 1/size and e = 0; for disjoint ones see `_drawn_after`.

    Args:
        inner, outer, hess: D_in, D_o, D_h, shapes that broadcast.
        owned: D, the samples of the UE from which disjoint batches are drawn; infinite for
            independent batches.
    """
    alpha = inner_lr
    L = constants.smoothness
    inner, outer, hess = (np.asarray(size, dtype=np.float64) for size in (inner, outer, hess))
    of_outer, shift = _drawn_after(outer, inner, owned)
    of_hess, turned = _drawn_after(hess, inner + outer, owned)
    of_inner = (alpha * L) ** 2 / inner
    of_gradient = constants.gradient_variance * (
        of_outer + of_inner + 2.0 * np.sqrt(shift * of_inner)
    )
    outer_square = _outer_square(constants, of_outer, shift)
    of_hessian = alpha**2 * constants.hessian_variance * outer_square
    crossed = 2.0 * (1.0 + alpha * L) * np.sqrt(turned * of_hessian * of_gradient)
    return np.asarray((1.0 + alpha * L) ** 2 * of_gradient + of_hess * of_hessian + crossed)


def _outer_square(constants: Constants, of_outer: Array, shift: Array) -> Array:
    """C^2 >= E||grad f_i(adapted point; D_o)||^2."""
    B = constants.gradient_bound
    noise = np.sqrt(constants.gradient_variance)
    return np.asarray(B**2 + 2.0 * np.sqrt(shift) * noise * B + of_outer * noise**2)


def meta_second_moment(
    constants: Constants,
    inner_lr: float,
    inner: Sizes,
    outer: Sizes,
    hess: Sizes,
    owned: Sizes = math.inf,
) -> Array:
    """Bound Gamma^2 on E||g_i||^2: how far a local step can go.

        Gamma^2 = ((1 + alpha L)^2 + 2 (1 + alpha L) alpha sigma_H e_h + alpha^2 sigma_H^2 v_h^2)
        C^2

    Arguments, v, e and C as in `meta_variance`.
    """
    stretch = 1.0 + inner_lr * constants.smoothness
    turn = inner_lr * np.sqrt(constants.hessian_variance)
    of_outer, shift = _drawn_after(outer, inner, owned)
    of_hess, turned = _drawn_after(hess, np.asarray(inner) + outer, owned)
    square = stretch**2 + 2.0 * stretch * turn * np.sqrt(turned) + turn**2 * of_hess
    return np.asarray(square * _outer_square(constants, of_outer, shift))


def meta_spread(constants: Constants, inner_lr: float) -> float:
    """Bound gamma_F^2 on the mean of ||grad F_i - grad F||^2 over UEs, Lemma 3.

    gamma_F = (1 + alpha L)^2 gamma_G + alpha B gamma_H
    """
    alpha = inner_lr
    of_gradient = (1.0 + alpha * constants.smoothness) ** 2 * np.sqrt(constants.gradient_spread)
    return float(
        (of_gradient + alpha * constants.gradient_bound * np.sqrt(constants.hessian_spread)) ** 2
    )


def printed_meta_smoothness(constants: Constants, inner_lr: float) -> float:
    """L_F = 4 L + alpha rho B, Lemma 1 as printed; needs alpha <= 1/L."""
    return (
        4.0 * constants.smoothness
        + inner_lr * constants.hessian_lipschitz * constants.gradient_bound
    )


def printed_meta_variance(
    constants: Constants, inner_lr: float, inner: float, outer: float, hess: float
) -> float:
    """sigma_F^2 of Lemma 2 as printed, Eq. (22); needs alpha <= 1/L.

    12 [B^2 + sigma_G^2 (1/D_o + (alpha L)^2/D_in)] [1 + sigma_H^2 alpha^2/(4 D_h)] - 12 B^2
    """
    alpha = inner_lr
    square = constants.gradient_bound**2
    noisy = square + constants.gradient_variance * (
        1.0 / outer + (alpha * constants.smoothness) ** 2 / inner
    )
    return (
        12.0 * noisy * (1.0 + constants.hessian_variance * alpha**2 / (4.0 * hess)) - 12.0 * square
    )


def printed_meta_spread(constants: Constants, inner_lr: float) -> float:
    """gamma_F^2 = 3 B^2 alpha^2 gamma_H^2 + 192 gamma_G^2, Lemma 3 as printed, Eq. (24); needs
    alpha <= 1/L.
    """
    of_hessian = 3.0 * (constants.gradient_bound * inner_lr) ** 2 * constants.hessian_spread
    return of_hessian + 192.0 * constants.gradient_spread
