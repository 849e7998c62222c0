"""Who is heard, as far as it matters for convergence: a few numbers of the law of the decoded set
S.
"""

from dataclasses import dataclass

import numpy as np

from autofl.errors import AutoFLError
from autofl.units import Array, BoolArray


@dataclass(frozen=True)
class Participation:
    """The law of the server's weights a_i = 1{i in S}/|S|, given that somebody is heard.

    Fields:
        heard: P(S not empty); in the other rounds the model stays.
        share: U_i = E[a_i], shape (num_ue,), sum 1. What the paper's q_i / sum_j q_j stands for;
            the two are equal where |S| is fixed.
        inverse_size: omega = E[1/|S|], the factor by which averaging cuts the variance.
        skew: chi^2 = n sum_i U_i^2 - 1, 0 when all UEs are heard equally often. It does not fall
            with |S|.
        draw_variance: psi = n lambda_max(P E[a a^T] P) with P = I - 11^T/n, so that
            E||sum_i a_i x_i||^2 <= psi (1/n) sum_i ||x_i||^2 when sum_i x_i = 0. For m of n UEs
            drawn uniformly it is (n - m)/(m (n - 1)). Never below chi^2.
    """

    heard: float
    share: Array
    inverse_size: float
    skew: float
    draw_variance: float


def participation(decoded: BoolArray, probability: Array | None = None) -> Participation:
    """The law of S from draws of it, or exactly from all its values and their probabilities.

    Args:
        decoded: 1{i in S}, shape (num_sets, num_ue).
        probability: of each set, shape (num_sets,); without it all draws count alike.
    """
    num_sets, num_ue = decoded.shape
    law = (
        np.full(num_sets, 1.0 / num_sets)
        if probability is None
        else probability / probability.sum()
    )
    size = decoded.sum(axis=1)
    there = (size > 0) & (law > 0.0)
    heard = float(law[there].sum())
    if heard == 0.0:
        raise AutoFLError(
            "nobody is ever heard, so there is nothing to converge; raise cell.max_power or move closer"
        )
    law = law[there] / heard
    weight = decoded[there] / size[there][:, None]
    share = law @ weight
    square = float((share**2).sum()) if probability is not None else _square(weight)
    centre = np.eye(num_ue) - 1.0 / num_ue
    second = centre @ (weight.T @ (law[:, None] * weight)) @ centre
    return Participation(
        heard=heard,
        share=share,
        inverse_size=float(law @ (1.0 / size[there])),
        skew=max(num_ue * square - 1.0, 0.0),
        draw_variance=max(float(num_ue * np.linalg.eigvalsh(second)[-1]), 0.0),
    )


def excess_skew(decoded: BoolArray, selected: BoolArray) -> float:
    """chi^2 of who is heard beyond that of who was selected, where selection is even, shapes
    (num_rounds, num_ue).

    Over a few rounds, draws from an even law are uneven too. A UE that is selected more often by
    chance is also heard more often, so the difference scatters less than chi^2 itself.
    """
    skews = []
    for members in (decoded, selected):
        weight = members[members.any(axis=1)] / members[members.any(axis=1)].sum(axis=1)[:, None]
        skews.append(members.shape[1] * _square(weight) - 1.0)
    return max(skews[0] - skews[1], 0.0)


def _square(weight: Array) -> float:
    """sum_i U_i^2 from draws of the weights, shape (num_sets, num_ue), without the variance of
    their mean.
    """
    square = float(((np.full(len(weight), 1.0 / len(weight)) @ weight) ** 2).sum())
    if len(weight) == 1:
        return square
    return (len(weight) * square - float((weight**2).sum(axis=1).mean())) / (len(weight) - 1)
