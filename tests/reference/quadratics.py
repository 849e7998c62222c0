"""Random federated problems with quadratic losses, and Per-FedAvg on them, in plain NumPy.

l_s(w) = w^T A_s w / 2 - h_s^T w for the samples s of a UE. Constants are exact; gradients and
Hessians of UEs differ as much as one likes.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from autofl.forecast.participation import Participation, participation
from autofl_paper.theory import Constants


@dataclass(frozen=True)
class Problem:
    hessian: np.ndarray  # A_s, (num_ue, num_samples, dim, dim)
    linear: np.ndarray  # h_s, (num_ue, num_samples, dim)
    sets: np.ndarray  # all values of S, (2^num_ue, num_ue)
    probability: np.ndarray  # of each, (2^num_ue,)
    start: np.ndarray  # w_0
    alpha: float
    tau: int
    sizes: tuple[int, int, int]  # D_in, D_o, D_h
    disjoint: bool = (
        False  # batches of a step share no sample; otherwise all are drawn with replacement
    )

    @property
    def law(self) -> Participation:
        return participation(self.sets, self.probability)

    @property
    def smoothness(self) -> float:
        return float(np.linalg.norm(self.hessian.mean(axis=1), 2, axis=(1, 2)).max())

    def meta(self) -> tuple[np.ndarray, np.ndarray]:
        """grad F_i(w) = Q_i w - r_i."""
        A, h = self.hessian.mean(axis=1), self.linear.mean(axis=1)
        M = np.eye(A.shape[-1]) - self.alpha * A
        return M @ A @ M, _times(M @ M, h)

    def excess(self) -> float:
        """F(w_0) - min F."""
        Q, r = (part.mean(axis=0) for part in self.meta())
        least = np.linalg.lstsq(Q, r, rcond=None)[0]
        gap = self.start - least
        return float(0.5 * gap @ Q @ gap)


def random_problem(rng: np.random.Generator, disjoint: bool = False) -> Problem:
    num_ue, num_samples, dim = (
        int(rng.integers(low, high)) for low, high in ((2, 6), (2, 9), (1, 5))
    )
    num_samples += 7 * disjoint  # three batches of up to three samples must fit
    noise, spread, tilt = 10.0 ** rng.uniform(-3, 0.5, 3)
    basis = rng.normal(size=(num_ue, 1, dim, dim)) * rng.uniform(0.2, 1.5, (num_ue, 1, 1, 1))
    factor = basis + 0.3 * noise * rng.normal(size=(num_ue, num_samples, dim, dim))
    hessian = factor @ factor.swapaxes(-1, -2)
    linear = spread * 10 * rng.normal(size=(num_ue, 1, dim)) + noise * rng.normal(
        size=(num_ue, num_samples, dim)
    )
    sets = np.array(list(itertools.product([False, True], repeat=num_ue)))
    probability = rng.dirichlet(np.full(len(sets), 0.05 + tilt))
    probability[0] *= 0.5
    probability[-1] += 1e-3
    L = np.linalg.norm(hessian.mean(axis=1), 2, axis=(1, 2)).max()
    return Problem(
        hessian, linear, sets, probability / probability.sum(), rng.normal(size=dim) * 10 ** rng.uniform(-1, 1),
        alpha=rng.uniform(0.0, 1.0) / L, tau=int(rng.choice([1, 1, 3])), sizes=tuple(rng.integers(1, 4, 3)),
        disjoint=disjoint,
    )  # fmt: skip


def learn(problem: Problem, beta: float, num_rounds: int, num_runs: int, rng: np.random.Generator):
    """Mean of ||grad F(w_k)||^2 over rounds and runs, and the constants that hold on all points
    that were visited.
    """
    num_ue, num_samples = problem.hessian.shape[:2]
    Q, r = problem.meta()
    params = np.tile(problem.start, (num_runs, 1))
    total, seen = 0.0, _Seen(problem)
    ue = np.arange(num_ue)[None, :, None]

    def batches() -> list[tuple[np.ndarray, np.ndarray]]:
        shape, ends = (num_runs, num_ue, sum(problem.sizes)), np.cumsum(problem.sizes)[:-1]
        if problem.disjoint:
            drawn = rng.random((num_runs, num_ue, num_samples)).argsort(axis=2)[:, :, : shape[2]]
        else:
            drawn = rng.integers(num_samples, size=shape)
        return [
            (problem.hessian[ue, part].mean(axis=2), problem.linear[ue, part].mean(axis=2))
            for part in np.split(drawn, ends, axis=2)
        ]

    for _ in range(num_rounds):
        total += (
            float(((params @ Q.mean(axis=0) - r.mean(axis=0)) ** 2).sum(axis=1).mean()) / num_rounds
        )
        own = np.repeat(params[:, None], num_ue, axis=1)  # (num_runs, num_ue, dim)
        for _ in range(problem.tau):
            (A_in, h_in), (A_out, h_out), (A_hess, _) = batches()
            adapted = own - problem.alpha * (_times(A_in, own) - h_in)
            outer = _times(A_out, adapted) - h_out
            seen.note(own, adapted)
            own = own - beta * (outer - problem.alpha * _times(A_hess, outer))
        heard = problem.sets[rng.choice(len(problem.sets), p=problem.probability, size=num_runs)]
        weight = heard / np.maximum(heard.sum(axis=1, keepdims=True), 1)
        params = params + np.einsum("ru,rud->rd", weight, own - params[:, None])
    return total, seen.constants()


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return (matrix @ vector[..., None])[..., 0]


class _Seen:
    """The largest ||grad f_i||, variance and spread at the points that were visited."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.A, self.h = problem.hessian.mean(axis=1), problem.linear.mean(axis=1)
        self.centred = problem.hessian - self.A[:, None], problem.linear - self.h[:, None]
        self.bound = self.variance = self.spread = 0.0

    def note(self, own: np.ndarray, adapted: np.ndarray) -> None:
        gradient = self._of_all(own)
        mean = own - self.problem.alpha * gradient.mean(axis=2)  # adapted by the mean gradient
        for each in (gradient, self._of_all(mean)):
            centre = each.mean(axis=2, keepdims=True)
            self.spread = max(
                self.spread, float(((each - centre) ** 2).sum(axis=-1).mean(axis=-1).max())
            )
            self.bound = max(self.bound, float(np.sqrt((centre**2).sum(axis=-1).max())))
        exact = own - self.problem.alpha * np.einsum("ruuj->ruj", gradient)
        points = np.concatenate([own, exact, adapted])  # (3 num_runs, num_ue, dim)
        slope = _times(self.A, points) - self.h
        self.bound = max(self.bound, float(np.sqrt((slope**2).sum(axis=-1).max())))
        off = _times(self.centred[0], points[:, :, None]) - self.centred[1]
        self.variance = max(self.variance, float((off**2).sum(axis=-1).mean(axis=-1).max()))

    def _of_all(self, points: np.ndarray) -> np.ndarray:
        """grad f_i of every UE i at the point of each UE u, (num_runs, num_ue, num_ue, dim)."""
        num_ue, dim = self.h.shape
        flat = points @ self.A.reshape(num_ue * dim, dim).T
        return flat.reshape(*points.shape[:2], num_ue, dim) - self.h

    def constants(self) -> Constants:
        centred, between = self.centred[0], self.A - self.A.mean(axis=0)
        return Constants(
            smoothness=self.problem.smoothness,
            hessian_lipschitz=0.0,
            gradient_bound=self.bound,
            gradient_variance=self.variance,
            hessian_variance=float(
                np.linalg.norm((centred @ centred).mean(axis=1), 2, axis=(1, 2)).max()
            ),
            gradient_spread=self.spread,
            hessian_spread=float(np.linalg.norm((between @ between).mean(axis=0), 2)),
            hessian_deviation=float(
                (np.linalg.norm(centred, 2, axis=(2, 3)) ** 2).mean(axis=1).max()
            ),
        )
