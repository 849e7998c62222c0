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


def markov_participation(decoded: BoolArray, transition: Array) -> tuple[Participation, float]:
    """The stationary law of S_k = S(X_k), X_k an irreducible Markov chain, and its memory zeta.

        zeta^2 = n E||Z_j||^2,    Z_j = sum_{l >= 0} (E[a_{j+l} | rounds before j] - U),

    where j counts the rounds in which somebody is heard.

    Args:
        decoded: 1{i in S(x)}, shape (num_states, num_ue).
        transition: P(X_{k+1} = y | X_k = x), shape (num_states, num_states).
    Note:
        Z solves Z(x) - E[Z(X_1) | X_0 = x] = E[a(X_1) | X_0 = x] - U, so a periodic chain has one
        too. zeta = 0 where rounds are independent.
    """
    num_ue = decoded.shape[1]
    heard = decoded.any(axis=1)
    law = participation(decoded, _stationary(transition))
    among = transition[np.ix_(heard, heard)]
    out = transition[np.ix_(heard, ~heard)]
    back = transition[np.ix_(~heard, heard)]
    stay = transition[np.ix_(~heard, ~heard)]
    induced = among + out @ np.linalg.solve(
        np.eye(len(stay)) - stay, back
    )  # from one heard round to the next
    stationary = _stationary(induced)
    weight = decoded[heard] / decoded[heard].sum(axis=1, keepdims=True)
    ahead = np.linalg.solve(np.eye(len(induced)) - induced + stationary, weight - law.share)
    coming = induced @ ahead
    return law, float(np.sqrt(num_ue * stationary @ (coming**2).sum(axis=1)))


def _stationary(transition: Array) -> Array:
    """pi with pi P = pi and sum 1."""
    size = len(transition)
    system = np.vstack([transition.T - np.eye(size), np.ones(size)])
    return np.maximum(np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0], 0.0)


def memory_of(decoded: BoolArray) -> float:
    """zeta from draws (num_rounds, num_ue): a rough estimate, not a bound; 0 where no memory is
    found.

        zeta^2 = n sum_i sum_{m >= 2} (m - 1) Cov(a_{j,i}, a_{j+m,i})

    Exact, up to scatter, where S is drawn from the state of a reversible Markov chain that the past
    tells. Only covariances between rounds enter, so a selection at random, which hides that state
    in any single round, does not hide its memory.

    Note:
        Lags are summed in blocks of 2, 4, 8, ... of them: from the first whose mean stands out by
        three deviations, as long as they stand out by one. Deviations are those of far lags. The
        estimate scatters by a fifth where 20,000 rounds are correlated over tens, and by a factor
        of two over hundreds. A memory that is weak or as long as the draws is missed, and a chain
        that goes in circles has another zeta.
    """
    size = decoded.sum(axis=1)
    weight = decoded[size > 0] / size[size > 0][:, None]
    num, num_ue = weight.shape
    spectrum = np.fft.rfft(weight - weight.mean(axis=0), 2 * num, axis=0)
    power = (spectrum.real**2 + spectrum.imag**2).sum(axis=1)
    lag = np.arange(num // 2)
    covariance = num_ue * np.fft.irfft(power, 2 * num)[: num // 2] / (num - lag)
    far = covariance[num // 8 :]
    square = 0.0
    total = 0.0
    length = 2
    while 2 * length <= num // 8:
        block = slice(length, 2 * length)
        total += float((lag[block] - 1) @ covariance[block])
        noise = far[: len(far) // length * length].reshape(-1, length).mean(axis=1)
        stands_out = covariance[block].mean() > (1.0 if square else 3.0) * np.sqrt(
            (noise**2).mean()
        )
        if stands_out:
            square = total
        elif square:
            break
        length *= 2
    return float(np.sqrt(max(square, 0.0)))


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
