"""Estimates of the constants of the theory from a model and the UEs' data, by Hessian-vector
products alone.

f_i is the mean loss over UE i's own training samples, as everywhere in the package. Where all of
them are used a number has no sampling error; where some are, its interval says what that costs.
Each number belongs to the point w at which
it is taken: the largest over points along a run is a lower estimate of the theory's supremum.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from autofl.data.batch import Batch
from autofl.data.federated import FederatedData
from autofl.models import Loss, Params
from autofl.units import Array
from autofl_paper.theory import Constants

RISK = 0.05
"""Probability with which an interval may miss, shared among all UEs whose largest value is taken.
"""
CHUNK = 32
"""Samples whose own gradients or Hessian-vector products are held at a time."""
VECTORS = 4
"""Random vectors of a sample whose images give the size of its Hessian."""
Operator = Callable[[Tensor], Tensor]
OnStep = Callable[[str], None]


class Estimate(NamedTuple):
    """A number and the interval that holds the truth with 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PointConstants:
    """The constants at one point w.

    `hessian_lipschitz` is max_i ||H_i(w) - H_i(u)|| / ||w - u|| with u the point before: no more
    than rho. Without one it is NaN.
    """

    smoothness: Estimate
    hessian_lipschitz: Estimate
    gradient_bound: Estimate
    gradient_variance: Estimate
    hessian_variance: Estimate
    gradient_spread: Estimate
    hessian_spread: Estimate
    hessian_deviation: Estimate


@dataclass(frozen=True)
class Estimator:
    """How constants are estimated.

    Fields:
        loss: f_i(w; D), on a batch.
        data: the UEs and their samples.
        inner_lr: alpha; gradients and their spread are taken at the adapted points too.
        num_samples: samples of each UE whose own Hessians are taken, at most all. With all of them
            sigma_H^2 is exact up to Lanczos; with fewer its upper end is of no use where a few
            samples carry most of it.
        num_steps: Lanczos steps, each a Hessian-vector product.
        num_gradients: samples of each UE whose own gradients are taken, at most all.
    """

    loss: Loss
    data: FederatedData
    inner_lr: float
    num_samples: int = 128
    num_steps: int = 16
    num_gradients: int = 4096

    def at(
        self,
        params: Params,
        rng: np.random.Generator,
        before: Params | None = None,
        on_step: OnStep | None = None,
    ) -> PointConstants:
        """The constants at `params`; with `before`, rho along the line between the two."""
        tell = on_step or (lambda _: None)
        w = _flat(params)
        num_ue = self.data.partition.num_ue
        risk = RISK / num_ue  # that of the largest over UEs, shared among them
        at = _Point(self, params, w)

        def over_ues(name: str, estimate: Callable[[int], Estimate]) -> Estimate:
            estimates = []
            for u in range(num_ue):
                tell(f"{name}, UE {u + 1} of {num_ue}")
                estimates.append(estimate(u))
            return _largest(estimates)

        # Gradients at w and at the points adapted by a UE's own and by the mean gradient: all their
        # norms and spreads are exact, since every sample counts.
        tell("gradients")
        ues = range(num_ue)
        gradient = torch.stack([at.gradient(u, w) for u in ues])
        mean = gradient.mean(dim=0)
        by_mean = torch.stack([at.gradient(u, w - self.inner_lr * mean) for u in ues])
        own = torch.stack([at.gradient(u, w - self.inner_lr * gradient[u]) for u in ues])
        bound = max(float(vectors.norm(dim=1).max()) for vectors in (gradient, own, by_mean))

        # What Hessians tell comes from products with vectors, one UE after another.
        smoothness = over_ues("L", lambda u: self._norm(lambda v: at.hessian(u, v), w, rng, risk))
        variance = over_ues("sigma_G", lambda u: at.gradient_variance(u, gradient[u], rng, risk))
        noise = over_ues("sigma_H", lambda u: at.hessian_variance(u, rng, risk))
        steep = over_ues("Lambda", lambda u: at.hessian_square(u, rng, risk))
        tell("gamma_H")
        between = self._norm(at.hessian_spread, w, rng, RISK)

        # rho is only what was met between two points of the run.
        turning = Estimate(math.nan, math.nan, math.nan)
        if before is not None:
            other = _Point(self, before, _flat(before))

            def change(u: int) -> Estimate:
                def difference(v: Tensor) -> Tensor:
                    return at.hessian(u, v) - other.hessian(u, v)

                return self._norm(difference, w, rng, risk)

            away = float((w - other.w).norm())
            if away > 0.0:
                turning = Estimate(*(value / away for value in over_ues("rho", change)))
        return PointConstants(
            smoothness=smoothness,
            hessian_lipschitz=turning,
            gradient_bound=_exact(bound),
            gradient_variance=variance,
            hessian_variance=noise,
            gradient_spread=_exact(max(_spread(gradient), _spread(by_mean))),
            hessian_spread=between,
            hessian_deviation=steep,
        )

    def _norm(
        self, operator: Operator, like: Tensor, rng: np.random.Generator, risk: float
    ) -> Estimate:
        return lanczos(operator, like, rng, self.num_steps, risk).norm


@dataclass(frozen=True)
class _Point:
    """Derivatives at a point, as functions of flat vectors."""

    how: Estimator
    params: Params
    w: Tensor

    def samples(self, ue: int) -> Batch:
        """All training samples of a UE."""
        x, y = self.how.data.gather(self.how.data.partition.train_of(ue), "constants")
        return Batch(x, y, torch.ones(len(y), dtype=self.w.dtype, device=x.device))

    def gradient(self, ue: int, w: Tensor) -> Tensor:
        """grad f_i at any point."""
        return _flat(grad(self.how.loss)(_like(w, self.params), self.samples(ue)))

    def hessian(self, ue: int, v: Tensor) -> Tensor:
        """grad^2 f_i v at this point."""
        return self._product(v, self.samples(ue))

    def _product(self, v: Tensor, batch: Batch) -> Tensor:
        along = _like(v, self.params)
        return _flat(jvp(lambda p: grad(self.how.loss)(p, batch), (self.params,), (along,))[1])

    def hessian_spread(self, v: Tensor) -> Tensor:
        """(1/n) sum_i (H_i - H)^2 v, H the mean of the H_i."""
        num_ue = self.how.data.partition.num_ue
        products = torch.stack([self.hessian(u, v) for u in range(num_ue)])
        deviations = products - products.mean(
            dim=0
        )  # (H_i - H) v, whose mean is 0: the outer H drops out
        return torch.stack([self.hessian(u, deviations[u]) for u in range(num_ue)]).mean(dim=0)

    def gradient_variance(
        self, ue: int, mean: Tensor, rng: np.random.Generator, risk: float
    ) -> Estimate:
        """E||grad l - grad f_i||^2 over a UE's samples, around the exact grad f_i."""
        drawn, share = self._some(ue, self.how.num_gradients, rng)
        # made before: what a chunk leaves would pin the heap
        values = np.empty(len(drawn.y))
        done = 0
        for part in _single(drawn):
            own = vmap(lambda one: _flat(grad(self.how.loss)(self.params, one)))(part)
            values[done : done + len(own)] = own.sub_(mean).square_().sum(dim=1).cpu().numpy()
            done += len(own)
        variance = float(values.mean())
        margin = _margin(values, share, risk)
        factor = math.exp(
            min(margin, 700.0)
        )  # positive and skew, so the interval is one of the logarithm
        return Estimate(variance, variance / factor, variance * factor)

    def hessian_variance(self, ue: int, rng: np.random.Generator, risk: float) -> Estimate:
        """The largest eigenvalue of E(H_s - H_i)^2 over a UE's samples.

        The direction is found on one half of the drawn samples. Its value there is too large on
        average, since it was
        chosen there, and its value on the other half too small, since it is not the best one: the
        interval goes from the low end of the second to the high end of the first. With all samples
        drawn there is nothing to split.
        """
        drawn, share = self._some(ue, self.how.num_samples, rng)
        half = len(drawn.y) if share == 1.0 else len(drawn.y) // 2
        first = Batch(*(part[:half] for part in drawn))
        second = Batch(*(part[half:] for part in drawn))
        whole = self.samples(ue)
        whole = Batch(whole.x.clone(), whole.y, whole.mask)  # the memory of `samples` is used again

        def squared(v: Tensor) -> Tensor:
            centre = self._product(v, whole)
            total = torch.zeros_like(v)
            away = torch.zeros_like(v)
            for part in _single(first):
                off = self._each_product(part, v.expand(len(part.y), -1)) - centre
                total = total + self._each_product(part, off).sum(dim=0)
                away = away + off.sum(dim=0)
            return (total - self._product(away, whole)) / half

        eigen = lanczos(squared, self.w, rng, self.how.num_steps, risk / 2)
        if share == 1.0:
            return eigen.norm
        centre = self._product(eigen.vector, whole)

        def along(batch: Batch) -> Array:
            """||(H_s - H_i) v||^2 of each sample, v the direction that was found."""
            squares = []
            for part in _single(batch):
                images = self._each_product(part, eigen.vector.expand(len(part.y), -1))
                squares.append(((images - centre) ** 2).sum(dim=1))
            return np.asarray(torch.cat(squares).double().cpu().numpy())

        first_values = along(first)
        second_values = along(second)
        here = float(first_values.mean())
        there = float(second_values.mean())
        low = there * math.exp(-_margin(second_values, share / 2, risk / 2))
        missed = eigen.norm.high - eigen.norm.value  # what Lanczos' method may have left out
        high = here * (1.0 + _margin(first_values, share / 2, risk / 2)) + missed
        return Estimate(min(max(math.sqrt(here * there), low), high), low, max(low, high))

    def hessian_square(self, ue: int, rng: np.random.Generator, risk: float) -> Estimate:
        """E||H_s||_F^2 over a UE's samples, from random vectors; no less than E||H_s - H_i||^2 =
        Lambda^2.

        The images of one sample are alike, so it counts as one value of the interval, not as
        `VECTORS` of them.
        """
        drawn, _ = self._some(ue, self.how.num_samples, rng)
        squares = []
        for part in _single(drawn):
            images = []
            for _ in range(VECTORS):
                z = torch.from_numpy(rng.standard_normal((len(part.y), self.w.numel()))).to(self.w)
                images.append((self._each_product(part, z) ** 2).sum(dim=1))
            squares.append(torch.stack(images).mean(dim=0))
        values = torch.cat(squares).double().cpu().numpy()
        mean = float(values.mean())
        factor = math.exp(min(_margin(values, 0.0, risk), 700.0))
        return Estimate(mean, mean / factor, mean * factor)

    def _each_product(self, part: Batch, v: Tensor) -> Tensor:
        """H_s v_s for each sample, shape (num, dim)."""
        return vmap(self._product)(v, part)

    def _some(self, ue: int, most: int, rng: np.random.Generator) -> tuple[Batch, float]:
        """Some samples of a UE, drawn without replacement, and which share of its own they are."""
        owned = self.how.data.partition.train_of(ue)
        num = min(most, len(owned))
        x, y = self.how.data.gather(rng.choice(owned, num, replace=False))
        return Batch(x, y, torch.ones(num, dtype=self.w.dtype, device=x.device)), num / len(owned)


class Eigen(NamedTuple):
    """The largest |eigenvalue| of a symmetric operator, and a vector near which it is taken."""

    norm: Estimate
    vector: Tensor


def lanczos(
    operator: Operator, like: Tensor, rng: np.random.Generator, num_steps: int, risk: float
) -> Eigen:
    """||A|| of a symmetric operator from products A v alone, by Lanczos' method from a random
    start.

    A Ritz value never exceeds the largest eigenvalue, and by Kuczynski and Wozniakowski (1992) it
    misses it by more than the share eps of the spectrum's width with probability at most 1.648
    sqrt(dim) exp(-sqrt(eps) (2 j - 1)).

    Args:
        like: a vector of the operator's dimension, device and dtype.
        num_steps: j; fewer where the Krylov space is exhausted, and then the answer is exact.
        risk: probability with which the interval may miss.
    """
    dim = like.numel()
    start = torch.from_numpy(rng.standard_normal(dim)).to(like)
    basis: list[Tensor] = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    exhausted = False
    for _ in range(min(num_steps, dim)):
        product = operator(basis[-1])
        diagonal.append(float(product @ basis[-1]))
        known = torch.stack(basis)
        for _ in range(2):  # twice is enough to stay orthogonal
            product = product - known.T @ (known @ product)

        # What is left of the product is rounding: the basis spans all that the start can reach.
        length = float(product.norm())
        scale = max(map(abs, diagonal + beside), default=0.0)
        if length <= 1e3 * torch.finfo(like.dtype).eps * max(scale, 1e-300) or len(basis) == dim:
            exhausted = True
            break
        beside.append(length)
        basis.append(product / length)

    # The operator on this basis is a small tridiagonal matrix, whose eigenvalues are Ritz values.
    size = len(diagonal)
    matrix = np.diag(diagonal) + np.diag(beside[: size - 1], 1) + np.diag(beside[: size - 1], -1)
    values, vectors = np.linalg.eigh(matrix)
    largest = int(np.argmax(np.abs(values)))
    vector = torch.stack(basis[:size]).T @ torch.from_numpy(vectors[:, largest]).to(like)
    low = float(np.abs(values[largest]))
    rounding = 1e2 * torch.finfo(like.dtype).eps * low
    if exhausted:
        return Eigen(Estimate(low, low - rounding, low + rounding), vector)

    # The share eps of the width may be missed at both ends of the spectrum, each with half the risk.
    eps = (math.log(1.648 * math.sqrt(dim) / (risk / 2.0)) / (2 * size - 1)) ** 2
    width = (values[-1] - values[0]) / (1.0 - 2.0 * eps) if eps < 0.5 else math.inf
    return Eigen(Estimate(low, low - rounding, low + eps * width + rounding), vector)


def largest_constants(points: list[PointConstants], end: str = "value") -> Constants:
    """The largest of each constant over points along a run, ready for the theorem; `end` is value,
    low or high.

    Note:
        The theory asks for the supremum over all w; this is a lower estimate of it.
    """

    def largest(name: str) -> float:
        values = [getattr(getattr(point, name), end) for point in points]
        return max((value for value in values if not math.isnan(value)), default=math.nan)

    return Constants(**{name: largest(name) for name in Constants.__dataclass_fields__})


def _largest(estimates: list[Estimate]) -> Estimate:
    """The largest of several: between the largest low end and the largest high end."""
    return Estimate(*(max(column) for column in zip(*estimates, strict=True)))


def _exact(value: float) -> Estimate:
    return Estimate(value, value * (1 - 1e-5), value * (1 + 1e-5))  # the rounding of float32 sums


def _spread(vectors: Tensor) -> float:
    return float(((vectors - vectors.mean(dim=0)) ** 2).sum(dim=1).mean())


def _margin(values: Array, share: float, risk: float) -> float:
    """Half the width of Student's interval around the mean of values drawn without replacement,
    over the mean.
    """
    from scipy.special import stdtrit

    mean = float(values.mean())
    num = len(values)
    if share >= 1.0 or mean <= 0.0:
        return 1e-5  # nothing but rounding
    if num < 2:
        return math.inf
    error = float(values.std(ddof=1)) / math.sqrt(num) * math.sqrt(1.0 - share)
    return 1e-5 + float(stdtrit(num - 1, 1.0 - risk / 2.0)) * error / mean


def _single(batch: Batch) -> Iterator[Batch]:
    """Chunks of a batch in which each sample is a batch of its own."""
    for begin in range(0, len(batch.y), CHUNK):
        yield Batch(*(part[begin : begin + CHUNK, None] for part in batch))


def _flat(params: Params) -> Tensor:
    return torch.cat([p.reshape(-1) for p in params.values()])


def _like(vector: Tensor, params: Params) -> Params:
    parts = torch.split(vector, [p.numel() for p in params.values()])
    return {name: part.view_as(p) for (name, p), part in zip(params.items(), parts, strict=True)}
