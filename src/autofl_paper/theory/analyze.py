"""What the convergence theory promises for a run, and what happens: constants, conditions, bounds,
||grad F||^2.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autofl.algorithms import PerFedAvg, is_independent
from autofl.channels import PathLoss
from autofl.config import Settings
from autofl.core.horizon import Horizon, draw_horizon
from autofl.core.round import Round
from autofl.core.simulation import Simulation, simulate
from autofl.data.batch import split_sizes
from autofl.engines import use_machine
from autofl.errors import AutoFLError
from autofl.evaluation import gradient_norm_sq, objective
from autofl.experiments.build import build_simulation
from autofl.forecast.participation import participation
from autofl.models import Params, loss_of
from autofl.planner import Observing
from autofl.rng import stream
from autofl.robust.aggregators import Mean
from autofl.selection import ByData, Uniform
from autofl.selection.fedcs import FedCS
from autofl.units import Array
from autofl.version import __version__
from autofl_paper.theory import (
    Bound,
    Condition,
    Constants,
    bound,
    bound_with_memory,
    choice_for,
    conditions,
    memory_of,
    meta_of,
    printed_bound,
    printed_rounds,
)
from autofl_paper.theory.bound import NOTHING
from autofl_paper.theory.estimate import Estimator, PointConstants, largest_constants

LAW_ROUNDS = 20_000
"""Rounds of the network alone from which the law of the decoded set is taken."""
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Accuracies epsilon at which rounds needed and promised are compared."""
DEFAULT_EPSILON = 0.02
"""epsilon of the conditions where the planner has none."""
OnStage = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """||grad F(w_k)||^2 and F(w_k) at the evaluated rounds, over all training samples of all UEs."""

    round: Array
    gradient_norm_sq: Array
    objective: Array

    def running_mean(self) -> Array:
        """(1/K) sum_{k<K} ||grad F(w_k)||^2 for K = 1, 2, ...; a straight line between evaluated
        rounds.
        """
        whole = np.interp(np.arange(int(self.round[-1]) + 1), self.round, self.gradient_norm_sq)[
            :-1
        ]
        return np.cumsum(whole) / np.arange(1, len(whole) + 1)


def analyze(
    settings: Settings,
    *,
    num_points: int = 3,
    num_samples: int = 128,
    num_steps: int = 16,
    on_stage: OnStage | None = None,
) -> dict[str, Any]:
    """Run a training, estimate the constants at points along it, and compare the bounds with what
    was measured.

    Args:
        num_points: points of the run at which constants are estimated, from the first to the last
            round.
        num_samples: samples of each UE whose own Hessians are taken.
        num_steps: Lanczos steps.
    Returns:
        Plain values for JSON; see docs/theory.md.
    """
    settings = settings.resolved()
    tell = on_stage or (lambda _: None)
    use_machine(settings.simulation.threads)
    sim = build_simulation(settings)
    algorithm = sim.algorithm
    _check(sim)
    assert isinstance(algorithm, PerFedAvg)
    rounds = settings.stop.rounds
    wanted = np.unique(np.linspace(0, rounds, num_points).round().astype(int))
    measured, kept = _train(sim, wanted, algorithm.inner_lr, tell)
    how = Estimator(loss_of(sim.model), sim.data, algorithm.inner_lr, num_samples, num_steps)
    points = _points(how, kept, settings.seed, tell)
    tell(f"the network alone, {LAW_ROUNDS} rounds")
    horizon = draw_horizon(sim, LAW_ROUNDS)
    return _result(settings, sim, measured, dict(zip(kept, points, strict=True)), horizon)


def _check(sim: Simulation) -> None:
    """Refuse what the theorems do not cover."""
    arm = sim.arm
    algorithm = sim.algorithm
    if sim.evaluator.measured or math.isinf(getattr(algorithm, "outer_lr", 0.0)):
        raise AutoFLError(
            "the theory needs numbers for learning.inner_lr and outer_lr, not auto; Table I has 0.03, 0.07"
        )
    if not isinstance(algorithm, PerFedAvg) or algorithm.variant != "exact":
        raise AutoFLError(
            "the theory covers exact meta-gradients only; use arm = autofl or per-fedavg, exact"
        )
    if algorithm.is_guarded or algorithm.lr_decay > 0.0:
        raise AutoFLError(
            "the theory covers plain steps only; leave out learning.guard, grad_clip and lr_decay"
        )
    used = [name for name in ("compressor", "downlink") if getattr(arm, name) is not None]
    if used or type(arm.aggregator) is not Mean:
        beside = ", ".join([*used, *(["aggregator"] if type(arm.aggregator) is not Mean else [])])
        raise AutoFLError(
            f"the theory covers plain averages of whole updates only; leave out {beside}"
        )
    if isinstance(arm.planner, Observing):
        raise AutoFLError(
            "the theory covers plans that depend on the channel only; this planner looks at the model"
        )


FORGETFUL = (ByData, FedCS, Uniform)
"""Selections that draw each round by the same law, from that round's gains at most."""


def remembers(sim: Simulation, horizon: Horizon) -> list[str]:
    """Why the law of S_k may depend on earlier rounds; empty where it cannot, as Theorem 1 asks.

    Where everybody who is selected uniformly is heard in all drawn rounds, S_k is that draw,
    whatever else remembers.
    """
    reasons = []
    if len(sim.arm.planner.init(sim.cell)):
        reasons.append(f"planner {type(sim.arm.planner).__name__} remembers earlier rounds")
    if type(sim.arm.selection) not in FORGETFUL:
        reasons.append(
            f"selection {type(sim.arm.selection).__name__} may look at the number of the round"
        )
    if type(sim.channel) is not PathLoss:
        reasons.append(f"gains of {type(sim.channel).__name__} in one round tell of the next")
    everybody = (
        bool((horizon.decoded == horizon.selected).all()) and type(sim.arm.selection) is Uniform
    )
    return [] if everybody else reasons


def _train(
    sim: Simulation, wanted: Array, inner_lr: float, tell: OnStage
) -> tuple[Measured, dict[int, Params]]:
    """Play the run; measure ||grad F||^2 and F at evaluated rounds and keep the parameters of some."""
    loss = loss_of(sim.model)
    measurements: list[tuple[int, float, float]] = []
    kept: dict[int, Params] = {}
    record = Round(0)
    for record, state in simulate(sim):
        if record.evaluation is not None:
            square = gradient_norm_sq(loss, state.params, sim.data, inner_lr)
            measurements.append(
                (record.k, square, objective(loss, state.params, sim.data, inner_lr))
            )
            tell(f"training, round {record.k} of {sim.stop.rounds}: ||grad F||^2 = {square:.3g}")
        if record.k in wanted or record.stop is not None:
            kept[record.k] = state.params
    if record.stop == "diverged":
        raise AutoFLError(
            f"the run diverged in round {record.k}; a smaller learning.outer_lr is needed"
        )
    return Measured(*np.array(measurements, dtype=np.float64).T), kept


def _points(
    how: Estimator, kept: dict[int, Params], seed: int, tell: OnStage
) -> list[PointConstants]:
    points: list[PointConstants] = []
    before: Params | None = None
    for number, (k, params) in enumerate(kept.items(), start=1):

        def on_step(name: str, k: int = k, number: int = number) -> None:
            tell(f"constants at round {k} ({number} of {len(kept)}): {name}")

        points.append(how.at(params, stream(seed, "constants", k), before, on_step))
        before = params
    return points


def _result(
    settings: Settings,
    sim: Simulation,
    measured: Measured,
    points: dict[int, PointConstants],
    horizon: Horizon,
) -> dict[str, Any]:
    """Constants, who is heard, conditions, bounds and what was measured, as plain values."""
    algorithm = sim.algorithm
    assert isinstance(algorithm, PerFedAvg)
    alpha = algorithm.inner_lr
    beta = algorithm.outer_lr
    tau = settings.learning.local_steps

    # The lemmas: batches and weights are those of everybody who is heard in the drawn rounds.
    decoded = horizon.decoded
    inner, outer, hess = split_sizes(horizon.num_samples[decoded], algorithm.split)
    own = np.broadcast_to(sim.data.partition.train_size, decoded.shape)[decoded]
    owned = np.full(own.shape, np.inf) if is_independent(algorithm) else own
    constants = largest_constants(list(points.values()))
    meta = meta_of(constants, alpha, inner, outer, hess, horizon.weight[decoded], owned)

    # Who is heard: Theorem 1 asks that nobody's chance depends on earlier rounds.
    law = participation(decoded)
    reasons = remembers(sim, horizon)
    memory = memory_of(decoded) if reasons else 0.0
    one_law = Condition(
        "Theorem 1: reasons why S_k may depend on earlier rounds", float(len(reasons)), 0.0
    )
    chance = decoded.mean(axis=0)
    share = chance / chance.sum()

    # The bounds. F >= 0, since it is a cross-entropy; as printed, F falls to what was measured.
    first = float(measured.objective[0])
    excess = first - float(measured.objective[-1])
    safe = 1.0 / (tau * meta.smoothness)
    sizes = (float(inner.max()), float(outer.max()), float(hess.max()))
    bounds = {
        "corrected": bound(meta, law, first, beta, tau) if one_law.met else NOTHING,
        "memory": bound_with_memory(meta, law, memory, first, beta, tau),
        "safe": bound(meta, law, first, safe, tau) if one_law.met else NOTHING,
        "printed": printed_bound(constants, share, excess, alpha, beta, *sizes),
        "appendix": printed_bound(constants, share, excess, alpha, beta, *sizes, appendix=True),
    }
    epsilon = float(settings.planner.given.get("epsilon", DEFAULT_EPSILON))
    choice = choice_for(constants, law, first, alpha, epsilon, float(owned.min()))
    asked = [
        one_law,
        *conditions(constants, share, alpha, beta, tau, float(inner.min()), epsilon),
    ]

    return {
        "version": __version__,
        "settings": settings.table(),
        "constants": _intervals(list(points.values())),
        "points": [{"round": k, **_intervals([point])} for k, point in points.items()],
        "meta": asdict(meta),
        "participation": {**asdict(law), "share": law.share.tolist()},
        "mean_samples": float(horizon.num_samples[decoded].mean()),
        "mean_power": float(horizon.tx_power[decoded].mean()),
        "mean_heard": float(decoded.sum(axis=1).mean()),
        "conditions": [{**asdict(condition), "met": condition.met} for condition in asked],
        "memory": {"zeta": memory, "reasons": reasons},
        "batches": algorithm.batches,
        "bounds": {name: _terms(limit) for name, limit in bounds.items()},
        "measured": {
            "round": measured.round.tolist(),
            "gradient_norm_sq": measured.gradient_norm_sq.tolist(),
            "objective": measured.objective.tolist(),
            "running_mean": measured.running_mean().tolist(),
        },
        "rounds_to": [_rounds_to(level, measured, bounds, excess, beta) for level in LEVELS],
        "safe_outer_lr": safe,
        "choice": {name: _plain(value) for name, value in asdict(choice).items()},
    }


def _intervals(points: list[PointConstants]) -> dict[str, dict[str, float | None]]:
    """Each constant over these points, with its interval; None where there is no upper end, or no
    rho yet.
    """
    ends = {end: asdict(largest_constants(points, end)) for end in ("value", "low", "high")}
    return {
        name: {end: _plain(ends[end][name]) for end in ends}
        for name in Constants.__dataclass_fields__
    }


def _rounds_to(
    level: float, measured: Measured, bounds: dict[str, Bound], excess: float, beta: float
) -> dict[str, Any]:
    """Rounds until the mean of ||grad F||^2 over all rounds is at most a level: needed, by K*,
    promised.
    """
    mean = measured.running_mean()
    there = np.flatnonzero(mean <= level)
    passed = measured.round[measured.gradient_norm_sq <= level]
    return {
        "epsilon": level,
        "measured_mean": int(there[0]) + 1 if len(there) else None,
        "measured_last": int(passed[0]) if len(passed) else None,
        "printed": printed_rounds(excess, beta, level),
        "corrected": _plain(bounds["corrected"].rounds_to(level)),
    }


def _terms(limit: Bound) -> dict[str, float | bool | None]:
    terms = {"start": limit.start, "bias": limit.bias, "noise": limit.noise, "floor": limit.floor}
    return {"holds": limit.holds, **{name: _plain(value) for name, value in terms.items()}}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
