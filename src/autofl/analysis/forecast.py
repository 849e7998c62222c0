"""Learning time and energy to a target accuracy, before any training: pilots give the rounds, the network the rest.

NumPy only: `autofl plan --target` loads no PyTorch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autofl.analysis.pilot_files import Pilot, problem_of, read_pilots
from autofl.config import Settings
from autofl.config.parts import CompressorSettings
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_network, rates_of
from autofl.records import Run
from autofl.rng import stream
from autofl.rounds.horizon import Horizon, draw_horizon
from autofl.theory import excess_skew, participation
from autofl.theory.rounds import RoundsModel, fit_rounds
from autofl.units import Array, BoolArray, IntArray, PathLike

SHIPPED = Path(__file__).parent / "pilots"
"""Pilots on MNIST and MNIST-5k with the paper's step sizes; each file says by which command it was made."""
DRAWS = 20
"""Networks (seeds seed, seed + 1, ...) over which a forecast is made."""
FIRST, MOST = 256, 8192
"""Rounds of the network that are drawn at first, and at most."""
ENOUGH = 4
"""Rounds in which a UE must have been selected to be called unheard, where rounds are few."""


class Drawn(NamedTuple):
    """What decides the rounds a network needs: x, chi^2, y, z, and tau as one over the mean of 1/tau."""

    noise: float  # x, mean of 1/(d m)
    skew: float  # chi^2
    rounding: float  # y, mean of omega/m
    share: float  # z, mean of 1/m
    local_steps: float

    @classmethod
    def of(cls, horizon: Horizon, variance: Callable[[Array], Array], even: bool = False) -> "Drawn":
        """`even`: everybody is selected alike, so that only who is not heard makes the chances unequal."""
        heard = horizon.decoded
        return cls(
            mean_noise(heard, horizon.num_samples),
            excess_skew(heard, horizon.selected) if even else participation(heard).skew,
            mean_rounding(heard, variance(horizon.bits_per_weight)),
            mean_rounding(heard, np.ones(heard.shape)),
            float(1.0 / (1.0 / horizon.local_steps[heard]).mean()),
        )


@dataclass(frozen=True)
class Forecast:
    """Medians and 95 % intervals of a single run; `never` counts networks that did not get there."""

    target: float
    rounds: tuple[float, float, float]  # median, low, high
    sim_time: tuple[float, float, float]  # [s]
    energy: tuple[float, float, float]  # [J] a UE, mean over UEs
    typical: Drawn  # what the networks are like, medians over them
    unheard: int  # UEs that are heard less than a fifth as often as their share, median over networks
    never: int
    num_pilots: int
    scatter: float
    source: str
    outside: list[str]

    def table(self) -> dict[str, Any]:
        """Plain values for JSON, SI units."""
        names = ("median", "low_95", "high_95")
        spread = {key: dict(zip(names, getattr(self, key), strict=True)) for key in ("rounds", "sim_time", "energy")}
        rest = ("unheard", "never", "num_pilots", "scatter", "source", "outside")
        return {
            "target_accuracy": self.target,
            **spread,
            **self.typical._asdict(),
            **{key: getattr(self, key) for key in rest},
        }


def forecast(settings: Settings, target: float, pilots: PathLike | None = None) -> Forecast:
    """When a run of these settings will pass the target (adapted accuracy), and what it will have cost.

    Args:
        pilots: a file written by `autofl pilot`, or a folder of them; without one, those that come with the package.
    """
    settings = settings.resolved()
    if not 0.0 < target <= 1.0:
        raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
    fitted = Pilots.read(pilots).fitted(settings, target)
    return forecast_of(settings, fitted, draw_networks(settings, DRAWS, FIRST))


class Fitted(NamedTuple):
    """What pilots say about the rounds to a target."""

    target: float
    model: RoundsModel
    num_pilots: int
    source: str


@dataclass(frozen=True)
class Pilots:
    """Pilots, and where they come from."""

    every: list[Pilot]
    command: str
    path: Path

    @classmethod
    def read(cls, path: PathLike | None) -> "Pilots":
        place = Path(path) if path is not None else SHIPPED
        every, command = read_pilots(place)
        return cls(every, command, place)

    def fitted(self, settings: Settings, target: float) -> Fitted:
        model, fitting = fit(settings, self.every, target, str(self.path))
        return Fitted(target, model, len(fitting), f"{self.path.name}, made by: {self.command}")


def draw_networks(settings: Settings, num: int, num_rounds: int) -> Iterator[Horizon]:
    """Rounds of several networks of these settings, seeds seed, seed + 1, ..., without any learning."""
    for seed in range(settings.seed, settings.seed + num):
        yield draw_horizon(build_network(settings.model_copy(update={"seed": seed})), num_rounds)


def forecast_of(settings: Settings, fitted: Fitted, networks: Iterable[Horizon], few: bool = False) -> Forecast:
    """The forecast from rounds of networks, in the order of their seeds.

    Args:
        settings: resolved.
        few: whether the rounds are few because planning takes long. They are then repeated where more are needed, and
            who is heard is judged by who was selected.
    """
    model, h = fitted.model, heterogeneity_of(settings)
    variance, rng = variance_of(settings.compressor), stream(settings.seed, "forecast")
    even = few and settings.selection.name == "uniform"
    medians: list[tuple[float, float, float]] = []
    spread: list[tuple[float, float, float]] = []
    drawn: list[Drawn] = []
    unheard, num = [], 0
    for num, horizon in enumerate(networks, 1):
        if not horizon.decoded.any():
            continue
        its = Drawn.of(horizon, variance, even)
        needed, deviation = model.rounds(np.array(its.noise), its.local_steps, h, its.skew, its.rounding, its.share)
        factors = np.exp(float(deviation) * rng.standard_normal(100 if few else 10))
        wanted = float(needed) * np.array([1.0, *factors])
        if few:
            costs = _spent(_repeated(horizon, wanted.max()), wanted)
        else:
            horizon = _longer(settings.model_copy(update={"seed": settings.seed + num - 1}), horizon, wanted.max())
            costs = _spent(horizon, wanted)
        medians.append(costs[0])
        spread += costs[1:]
        drawn.append(its)
        unheard.append(_unheard(horizon, few))
    reached = np.array([row for row in medians if np.isfinite(row[0])])
    if 2 * len(reached) < num:
        raise AutoFLError(f"in {num - len(reached)} of {num} drawn networks too few UEs are heard to get there")
    low, high = np.quantile(np.array([row for row in spread if np.isfinite(row[0])]), [0.025, 0.975], axis=0)
    middle = np.median(reached, axis=0)
    rounds, sim_time, energy = ((float(m), float(a), float(b)) for m, a, b in zip(middle, low, high, strict=True))
    typical = Drawn(*np.median(np.array(drawn), axis=0).tolist())
    return Forecast(
        target=fitted.target,
        rounds=rounds,
        sim_time=sim_time,
        energy=energy,
        typical=typical,
        unheard=int(np.median(unheard)),
        never=num - len(reached),
        num_pilots=fitted.num_pilots,
        scatter=model.scatter,
        source=fitted.source,
        outside=model.outside(typical.noise, typical.local_steps, h, typical.skew, typical.rounding, typical.share),
    )


def fit(settings: Settings, pilots: list[Pilot], target: float, origin: str) -> tuple[RoundsModel, list[Pilot]]:
    """The model of rounds to a target from the pilots of the same learning problem, and those pilots."""
    problem = problem_of(settings.resolved().table())
    same = [pilot for pilot in pilots if pilot.problem == problem]
    if not same:
        other = min((pilot.problem for pilot in pilots), key=lambda its: sum(its.get(k) != problem[k] for k in problem))
        differs = ", ".join(f"{key} is {other.get(key)!r} there, {problem[key]!r} here" for key in problem
                            if other.get(key) != problem[key])  # fmt: skip
        raise AutoFLError(f"{origin}: no pilots of this learning problem ({differs}); make some with autofl pilot")
    reached = [pilot for pilot in same if not np.isnan(pilot.rounds_to(target))]
    if 2 * len(reached) <= len(same):
        raise AutoFLError(f"{origin}: only {len(reached)} of {len(same)} pilots reach {target:g}; ask for less")
    model = fit_rounds(
        noise=np.array([pilot.noise for pilot in reached]),
        local_steps=np.array([pilot.local_steps for pilot in reached], float),
        heterogeneity=np.array([heterogeneity(pilot.problem["partition"], pilot.labels) for pilot in reached]),
        skew=np.array([pilot.skew for pilot in reached]),
        rounding=np.array([pilot.rounding for pilot in reached]),
        rounds=np.maximum([pilot.rounds_to(target) for pilot in reached], 1.0),  # 0: passed before training
        share=np.array([pilot.share for pilot in reached]),
    )
    return model, reached


def variance_of(compressor: CompressorSettings) -> Callable[[Array], Array]:
    """omega of a compressor at these bits a weight; 0 for none, or one that does not say."""
    rates = np.array(sorted(rates_of(None if compressor.name == "none" else compressor.build()))).reshape(-1, 2)
    return lambda bits: np.interp(bits, *rates.T) if len(rates) else np.zeros_like(bits)


def pilot_of(run: Run) -> Pilot:
    """What a forecast needs of a run, from its folder alone."""
    shape = (int(run.rounds["round"].max()) + 1, int(run.manifest["num_ue"]))
    heard, samples, bits = np.zeros(shape, np.bool_), np.ones(shape, np.int64), np.zeros(shape)
    where = run.ues["round"].astype(np.int64), run.ues["ue"].astype(np.int64)
    heard[where], samples[where] = run.ues["decoded"] == 1, run.ues["num_samples"].astype(np.int64)
    bits[where] = run.ues["bits_per_weight"]
    compressor = CompressorSettings(**run.config.get("compressor", {}))
    rounds, _, accuracy = run.evaluated("adapted_accuracy")
    return Pilot(
        problem=problem_of(run.config),
        labels=int(run.config["data"]["labels"]),
        local_steps=int(run.config["learning"]["local_steps"]),
        num_samples=int(run.config["planner"]["num_samples"]),
        num_selected=int(run.config["simulation"]["num_selected"]),
        seed=int(run.config["seed"]),
        noise=mean_noise(heard, samples),
        skew=participation(heard).skew,
        round=tuple(rounds.astype(int).tolist()),
        accuracy=tuple(accuracy.round(5).tolist()),
        rounding=mean_rounding(heard, variance_of(compressor)(bits)),
    )


def mean_noise(heard: BoolArray, num_samples: IntArray) -> float:
    """x: mean of sum_i a_i^2/d_i over the rounds in which somebody is heard, shapes (num_rounds, num_ue)."""
    there = heard.any(axis=1)
    size = heard[there].sum(axis=1)
    return float(((heard[there] / np.maximum(num_samples[there], 1)).sum(axis=1) / size**2).mean())


def mean_rounding(heard: BoolArray, variance: Array) -> float:
    """y: mean of sum_i a_i^2 omega_i over the rounds in which somebody is heard, shapes (num_rounds, num_ue)."""
    there = heard.any(axis=1)
    return float(((heard * variance)[there].sum(axis=1) / heard[there].sum(axis=1) ** 2).mean())


def heterogeneity(partition: str, labels: int) -> float:
    """h = 1/l for a partition by labels; 0 for the others, whose pilots must share the partition itself."""
    return 1.0 / labels if partition == "labels" else 0.0


def heterogeneity_of(settings: Settings) -> float:
    return heterogeneity(settings.data.partition, settings.data.labels)


def _longer(settings: Settings, horizon: Horizon, needed: float) -> Horizon:
    """The horizon until so many rounds were heard, or at most MOST of them."""
    num = len(horizon.round_time)
    while horizon.decoded.any(axis=1).sum() < needed and num < MOST:
        num *= 2
        horizon = draw_horizon(build_network(settings), num)
    return horizon


def _repeated(horizon: Horizon, needed: float) -> Horizon:
    """The horizon again and again until so many rounds were heard, or at most MOST of them."""
    heard, num = int(horizon.decoded.any(axis=1).sum()), len(horizon.round_time)
    times = int(np.ceil(min(needed / heard, MOST / num)))
    return Horizon(
        **{field.name: np.concatenate([getattr(horizon, field.name)] * max(times, 1)) for field in fields(Horizon)}
    )


def _spent(horizon: Horizon, needed: Array) -> list[tuple[float, float, float]]:
    """Rounds, simulated time and energy a UE until so many rounds were heard; infinite where they never are."""
    heard = np.cumsum(horizon.decoded.any(axis=1))
    time, energy = np.cumsum(horizon.round_time), np.cumsum(horizon.energy.sum(axis=1)) / horizon.decoded.shape[1]
    costs = []
    for want in needed:
        if want > heard[-1]:
            costs.append((np.inf, np.inf, np.inf))
            continue
        k = int(np.searchsorted(heard, want))  # the round in which it is reached; K itself is not whole
        share = want / heard[k] if k == 0 else (want - heard[k - 1]) / max(heard[k] - heard[k - 1], 1)
        before = (0.0, 0.0) if k == 0 else (time[k - 1], energy[k - 1])
        costs.append(
            (k + share, before[0] + share * (time[k] - before[0]), before[1] + share * (energy[k] - before[1]))
        )
    return costs


def _unheard(horizon: Horizon, few: bool) -> int:
    """UEs that are hardly ever heard; in few rounds, of those that were selected often enough to tell."""
    if not few:
        often = horizon.decoded.mean(axis=0)
        return int((often < 0.2 * often.mean()).sum())
    asked = horizon.selected.sum(axis=0)
    told = asked >= ENOUGH
    often = horizon.decoded.sum(axis=0)[told] / asked[told]
    return int((often < 0.2 * often.mean()).sum()) if told.any() else 0
