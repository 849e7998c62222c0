"""Learning time and energy to a target accuracy, before any training: pilots give the rounds, the
network the rest.

NumPy only: `autofl plan --target` loads no PyTorch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from autofl.config import Settings, parse_settings
from autofl.config.parts import CompressorSettings
from autofl.config.settings import DeploySettings
from autofl.core.decide import Network
from autofl.core.horizon import Horizon, draw_horizon
from autofl.errors import AutoFLError
from autofl.experiments.cell import build_cell, build_network, rates_of
from autofl.experiments.data import owned_by
from autofl.files import finite_or_null
from autofl.forecast.coverage import Coverage, coverage, exposure, label_shares
from autofl.forecast.participation import excess_skew, participation
from autofl.forecast.pilot_files import Pilot, problem_of
from autofl.forecast.pilot_fit import Fitted, Pilots, heterogeneity_of
from autofl.forecast.rounds import Influences
from autofl.records import Run
from autofl.rng import stream
from autofl.units import Array, BoolArray, IntArray, PathLike

DRAWS = 20
"""Networks (seeds seed, seed + 1, ...) over which a forecast is made."""
FIRST = 128
MOST = 8192
"""Rounds of the network that are drawn at first, and at most."""
SINGLE = 100
"""Single runs that are drawn in each network, for the interval."""
ENOUGH = 4
"""Rounds in which a UE must have been selected to be called unheard, where rounds are few."""
FEW_TESTS = 1000
"""Test samples at all UEs below which accuracy is so noisy (1 point at 85 %) that a target is
passed by chance.
"""
ON_DEVICES = ("clip", "noise_multiplier", "statistics", "sample_shape", "num_classes")
"""Settings of a deployment that change learning; a pilot is a simulation."""
USUAL = DeploySettings()


def influences_of(settings: Settings, horizon: Horizon, even: bool = False) -> Influences:
    """What decides the rounds that a network needs, tau as one over the mean of 1/tau.

    `even`: all UEs are selected alike, so the chances are unequal only because some are not heard.
    """
    heard = horizon.decoded
    variance = variance_of(settings.compressor)(horizon.bits_per_weight)
    return Influences(
        noise=mean_noise(heard, horizon.num_samples),
        local_steps=float(1.0 / (1.0 / horizon.local_steps[heard]).mean()),
        heterogeneity=heterogeneity_of(settings),
        skew=excess_skew(heard, horizon.selected) if even else participation(heard).skew,
        rounding=mean_rounding(heard, variance),
        share=mean_rounding(heard, np.ones(heard.shape)),
    )


@dataclass(frozen=True)
class Forecast:
    """Medians and 95 % intervals of a single run; infinite where the target is never reached
    (counted by `never`).
    """

    target: float
    rounds: tuple[float, float, float]  # median, low, high
    sim_time: tuple[float, float, float]  # [s]
    energy: tuple[float, float, float]  # [J] a UE, mean over UEs
    typical: Influences  # what the networks are like, medians over them
    # UEs that are heard less than a fifth as often as their share, median over networks
    unheard: int
    # labels that are not learned since no UE that is heard owns any, median over networks
    missing: int
    never: int
    num_pilots: int
    short: int  # of these, pilots that end below the target
    coarse: int  # and those whose first evaluation is at it
    scatter: float
    source: str
    checked: bool  # whether the labels of those who are heard are known
    outside: list[str]

    def table(self) -> dict[str, Any]:
        """Plain values for JSON, SI units."""
        values: dict[str, Any] = {"target_accuracy": self.target}
        for name in ("rounds", "sim_time", "energy"):
            median, low, high = getattr(self, name)
            ends = {"median": median, "low_95": low, "high_95": high}
            values[name] = finite_or_null(ends)
        for name in ("noise", "skew", "rounding", "share", "local_steps"):
            values[name] = getattr(self.typical, name)
        for name in COUNTS:
            values[name] = getattr(self, name)
        return values


COUNTS = (
    "unheard",
    "missing",
    "never",
    "num_pilots",
    "short",
    "coarse",
    "scatter",
    "source",
    "checked",
    "outside",
)
"""What a forecast's table says beside costs and influences."""


def forecast(settings: Settings, target: float, pilots: PathLike | None = None) -> Forecast:
    """When a run of these settings will pass the target (adapted accuracy), and what it will have
    cost.

    Args:
        pilots: a file written by `autofl pilot`, or a folder of them; without one, those that come
            with the package.
    """
    settings = settings.resolved()
    if not 0.0 < target <= 1.0:
        raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
    fitted = Pilots.read(pilots).fitted(settings, target)
    return forecast_of(settings, fitted, draw_networks(settings, DRAWS, FIRST))


def draw_networks(settings: Settings, num: int, num_rounds: int) -> Iterator[Horizon]:
    """Rounds of several networks of these settings, seeds seed, seed + 1, ..., without any
    learning.
    """
    for seed in range(settings.seed, settings.seed + num):
        yield draw_horizon(network_of(settings.model_copy(update={"seed": seed})), num_rounds)


def network_of(settings: Settings) -> Network:
    """The network of these settings, with D_i of its partition where the samples are at hand."""
    try:
        owned = owned_by(settings)
    except AutoFLError:  # not fetched, or a file that is not there yet: planning needs no samples
        return build_network(settings)
    return build_network(settings, build_cell(settings, owned))


def far_error(freedom: int) -> float:
    """About the 99.5 % quantile of Student's law, expanded around the normal one (Abramowitz and
    Stegun 26.7.5).
    """
    z = 2.5758
    v = float(freedom)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / v + second / v**2 + third / v**3


def forecast_of(
    settings: Settings, fitted: Fitted, networks: Iterable[Horizon], few: bool = False
) -> Forecast:
    """The forecast from rounds of networks, in the order of their seeds.

    Args:
        settings: resolved.
        few: whether the rounds are few because planning takes long. They are then repeated where
            more are needed, and who is heard is judged by who was selected.
    """
    # Each network gives a run as the fit has it, and single runs with errors. Errors beyond the
    # farthest change no interval, and take long to draw.
    rng = stream(settings.seed, "forecast")
    freedom = fitted.model.freedom
    farthest = far_error(freedom)
    played: list[Played] = []
    spread: list[Costs] = []
    num = 0
    for num, horizon in enumerate(networks, 1):
        if not horizon.decoded.any():
            spread += [NEVER] * SINGLE
            continue
        own = settings.model_copy(update={"seed": settings.seed + num - 1})
        errors = np.clip(rng.standard_t(freedom, SINGLE), -farthest, farthest)
        played.append(play(own, fitted, horizon, errors, rng.random(SINGLE), few))
        spread += played[-1].single

    # A median needs networks that get there, more than half of them.
    medians = [one.median for one in played if np.isfinite(one.median[0])]
    labelled = [one.heard for one in played if one.heard is not None]
    missing = float(np.median([heard.missing for heard in labelled] or [0]))
    if 2 * len(medians) <= num:
        why = "too few UEs are heard"
        if missing > 0:
            why = "the UEs that own some labels are not heard"
        raise AutoFLError(
            f"in {num - len(medians)} of {num} drawn networks {why} to reach the target"
        )
    middle = np.median(np.array(medians + [NEVER] * (num - len(medians))), axis=0)
    low, high = np.quantile(np.array(spread), [0.025, 0.975], axis=0, method="nearest")
    costs = []
    for column in np.stack([middle, low, high], axis=1).tolist():
        costs.append(tuple(column))
    rounds, sim_time, energy = costs
    typical = Influences(*np.median(np.array([one.drawn for one in played]), axis=0).tolist())

    # In what the forecast goes beyond what pilots have seen.
    outside = fitted.model.outside(typical)
    rarest = float(np.median([heard.rarest for heard in labelled] or [1.0]))
    if missing > 0:
        outside.append("labels that nobody owns who is heard")
    elif fitted.is_rare(rarest):
        outside.append("a label that is hardly heard")
    if rounds[0] > 1.25 * fitted.longest:
        outside.append("more rounds than the longest pilot")

    return Forecast(
        target=fitted.target,
        rounds=rounds,
        sim_time=sim_time,
        energy=energy,
        typical=typical,
        unheard=int(np.median([one.unheard for one in played])),
        missing=int(missing),
        never=num - len(medians),
        num_pilots=fitted.num_pilots,
        short=fitted.short,
        coarse=fitted.coarse,
        scatter=float(fitted.model.scatter_at(typical.skew)),
        source=fitted.source,
        checked=len(labelled) == len(played),
        outside=[*outside, *unseen(settings)],
    )


def unseen(settings: Settings) -> list[str]:
    """Settings that change what is learned or measured, and that no pilot can have: in words."""
    words = []
    judged = settings.evaluation.num_ue or settings.cell.count
    samples = settings.evaluation.test_samples
    if samples and judged * samples < FEW_TESTS:
        words.append(f"accuracy on only {judged * samples} test samples")
    changed = [key for key in ON_DEVICES if getattr(settings.deploy, key) != getattr(USUAL, key)]
    if changed:
        names = ", ".join(f"deploy.{key}" for key in changed)
        words.append(f"what devices do to data and updates ({names})")
    return words


Costs = tuple[float, float, float]
"""Rounds, simulated time [s] and energy a UE [J] of a run."""
NEVER: Costs = (np.inf, np.inf, np.inf)


class Played(NamedTuple):
    """A network: what a run in it costs by the fit, and single runs with their errors."""

    median: Costs
    single: list[Costs]
    drawn: Influences
    heard: Coverage | None  # None: nobody can say without the samples
    unheard: int


def play(
    settings: Settings, fitted: Fitted, horizon: Horizon, errors: Array, doubt: Array, few: bool
) -> Played:
    """What becomes of a network by its rounds.

    Where a label is heard less than in any pilot, K rounds are enough if the target can do without
    it, and K/r_c if it must be learned like the others. Nothing tells where between them: ln K is
    drawn evenly.

    Args:
        settings: with the network's own seed.
        errors: of ln K, in deviations; doubt: between 0 and 1, where between the two; one of each
            for a single run.
    """
    even = few and settings.selection.name == "uniform"
    its = influences_of(settings, horizon, even)
    needed, deviation = fitted.model.rounds(its)
    errors = np.exp(float(deviation) * errors)
    wanted = float(needed) / float(horizon.pace.mean()) * np.array([1.0, *errors])

    shares = label_shares(settings)
    heard = None if shares is None else coverage(shares, horizon, even)
    rare = heard is not None and fitted.is_rare(heard.rarest)
    if heard is not None and rare:
        wanted = wanted * heard.rarest ** -np.array([0.5, *doubt])

    # Where too many test samples have labels that the model never sees, it never gets there.
    if heard is not None and heard.missing and heard.highest * fitted.highest < fitted.target:
        costs = [NEVER] * len(wanted)
    else:
        most = wanted.max()
        longer = _repeated(horizon, most) if few or rare else _longer(settings, horizon, most)
        costs = _spent(longer, wanted)
        horizon = longer
    return Played(costs[0], costs[1:], its, heard, _unheard(horizon, few))


def variance_of(compressor: CompressorSettings) -> Callable[[Array], Array]:
    """omega of a compressor at these bits a weight; 0 for none, or one that does not say."""
    built = None if compressor.name == "none" else compressor.build()
    rates = np.array(sorted(rates_of(built))).reshape(-1, 2)
    return lambda bits: np.interp(bits, *rates.T) if len(rates) else np.zeros_like(bits)


def pilot_of(run: Run) -> Pilot:
    """What a forecast needs of a run, from its folder alone."""
    shape = (int(run.rounds["round"].max()) + 1, int(run.manifest["num_ue"]))
    heard = np.zeros(shape, np.bool_)
    samples = np.ones(shape, np.int64)
    bits = np.zeros(shape)
    where = run.ues["round"].astype(np.int64), run.ues["ue"].astype(np.int64)
    heard[where] = run.ues["decoded"] == 1
    samples[where] = run.ues["num_samples"].astype(np.int64)
    bits[where] = run.ues["bits_per_weight"]

    compressor = CompressorSettings(**run.config.get("compressor", {}))
    metric = run.config.get("stop", {}).get("metric", "adapted")
    rounds, _, accuracy = run.evaluated(f"{metric}_accuracy")
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
        rarest=_exposure(run, heard),
    )


def _exposure(run: Run, heard: BoolArray) -> float:
    """Exposure of the label that was heard least in a run; 1 where nobody can say."""
    shares = label_shares(parse_settings(run.config).resolved())
    if shares is None:
        return 1.0
    there = heard[heard.any(axis=1)]
    weight = (there / there.sum(axis=1, keepdims=True)).mean(axis=0)
    return float(exposure(shares, weight, shares.mean(axis=0)).min())


def mean_noise(heard: BoolArray, num_samples: IntArray) -> float:
    """x: mean of sum_i a_i^2/d_i over the rounds in which somebody is heard, shapes (num_rounds,
    num_ue).
    """
    there = heard.any(axis=1)
    size = heard[there].sum(axis=1)
    return float(((heard[there] / np.maximum(num_samples[there], 1)).sum(axis=1) / size**2).mean())


def mean_rounding(heard: BoolArray, variance: Array) -> float:
    """y: mean of sum_i a_i^2 omega_i over the rounds in which somebody is heard, shapes
    (num_rounds, num_ue).
    """
    there = heard.any(axis=1)
    return float(((heard * variance)[there].sum(axis=1) / heard[there].sum(axis=1) ** 2).mean())


def _longer(settings: Settings, horizon: Horizon, needed: float) -> Horizon:
    """The horizon until so many rounds were heard, or at most MOST of them."""
    num = len(horizon.round_time)
    while horizon.decoded.any(axis=1).sum() < needed and num < MOST:
        num *= 2
        horizon = draw_horizon(network_of(settings), num)
    return horizon


def _repeated(horizon: Horizon, needed: float) -> Horizon:
    """The horizon again and again until so many rounds were heard, or at most MOST of them."""
    heard = int(horizon.decoded.any(axis=1).sum())
    num = len(horizon.round_time)
    times = int(np.ceil(min(needed / heard, MOST / num)))
    columns = {}
    for field in fields(Horizon):
        columns[field.name] = np.concatenate([getattr(horizon, field.name)] * max(times, 1))
    return Horizon(**columns)


def _spent(horizon: Horizon, needed: Array) -> list[Costs]:
    """Rounds, simulated time and energy a UE until so many rounds were heard; infinite where they
    never are.
    """
    heard = np.cumsum(horizon.decoded.any(axis=1))
    time = np.cumsum(horizon.round_time)
    energy = np.cumsum(horizon.energy.sum(axis=1)) / horizon.decoded.shape[1]
    costs = []
    for want in needed:
        if want > heard[-1]:
            costs.append(NEVER)
            continue

        # The target is reached within round k: K itself is not whole.
        k = int(np.searchsorted(heard, want))
        if k == 0:
            share = want / heard[0]
            costs.append((share, share * time[0], share * energy[0]))
            continue
        share = (want - heard[k - 1]) / max(heard[k] - heard[k - 1], 1)
        spent = time[k - 1] + share * (time[k] - time[k - 1])
        used = energy[k - 1] + share * (energy[k] - energy[k - 1])
        costs.append((k + share, spent, used))
    return costs


def _unheard(horizon: Horizon, few: bool) -> int:
    """UEs that are hardly ever heard; in few rounds, of those that were selected often enough to
    tell.
    """
    if not few:
        often = horizon.decoded.mean(axis=0)
        return int((often < 0.2 * often.mean()).sum())
    asked = horizon.selected.sum(axis=0)
    told = asked >= ENOUGH
    often = horizon.decoded.sum(axis=0)[told] / asked[told]
    return int((often < 0.2 * often.mean()).sum()) if told.any() else 0
