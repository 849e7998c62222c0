"""The memory of who is heard: zeta of Theorem 2, exactly for a Markov chain, roughly from draws."""

import numpy as np

from autofl.forecast.participation import Participation, participation
from autofl.units import Array, BoolArray


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
