"""Why a joint plan is as it is: what binds each UE, what each decision gains, and what more of a
resource would.

Everything is planned anew on the same networks (the same seeds), so differences come from the plans
alone. NumPy only.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from autofl.config import Settings
from autofl.config.parts import CompressorSettings
from autofl.core.decide import before_training, without_learning
from autofl.errors import AutoFLError
from autofl.experiments.cell import RoundPlan, build_network, build_planner
from autofl.files import finite_or_null
from autofl.forecast.choose import FULL, Candidate, Effort, OnStage, planned_with
from autofl.forecast.pilot_fit import Pilots
from autofl.forecast.predict import draw_networks, forecast_of
from autofl.network import Cell, Plan, Status, fixed_time
from autofl.planner.allocation import Task, allocate, allocate_fixed_band
from autofl.planner.joint import BINDS, JointPlanner
from autofl.units import Array, PathLike

ORDER = ("band", "frequency", "compressor", "bits", "steps", "samples", "admission")
"""Decisions in the order in which the waterfall switches them on; the compressor is one of the
settings' own.
"""
RESOURCES = {"max_energy": "J", "bandwidth": "Hz", "max_power": "W", "cpu_frequency": "cycle/s"}
"""What a UE has, settings of the cell, and their units."""
MORE = 1.1
"""How much more of a resource is tried."""
PRICED = 12
"""Rounds whose shadow prices are averaged."""


class Bound(NamedTuple):
    """What keeps a UE from being faster in a round."""

    ue: int
    binds: list[str]  # energy, power, frequency, band, decoding, data; nothing for a UE that waits
    spare: float  # share of its energy budget that is left
    round_time: float | None = None  # [s] if this UE, which is left out, were admitted
    slower: float | None = None  # by which share learning would then be slower


@dataclass(frozen=True)
class Step:
    """Learning time with a decision switched on, or left out alone."""

    decision: str
    time: float  # [s], median; infinite where the target is not reached
    factor: float  # how many times as long as it was before, or as long as with all decisions
    outside: list[str]  # in what this lies outside the pilots


@dataclass(frozen=True)
class More:
    """What more of a resource would gain in learning time."""

    resource: str
    unit: str
    time: float  # [s] with 10 % more, planned anew
    gain: float  # share of the learning time
    # shadow price: s of learning time saved for one more unit at each UE, decisions as they are
    price: float


@dataclass(frozen=True)
class Explained:
    """The waterfall, each decision left out alone, and what more would gain."""

    before: Step  # all decisions off: the `exact` planner, updates as they are
    waterfall: list[Step]
    left_out: list[Step]
    more: list[More]

    def table(self) -> dict[str, Any]:
        """Plain values for JSON, SI units."""
        return {
            "before": finite_or_null(vars(self.before)),
            "waterfall": [finite_or_null(vars(step)) for step in self.waterfall],
            "left_out": [finite_or_null(vars(step)) for step in self.left_out],
            "more": [finite_or_null(vars(more)) for more in self.more],
        }


def explain(
    candidate: Candidate,
    pilots: PathLike | None = None,
    on_stage: OnStage | None = None,
    effort: Effort = FULL,
) -> Explained:
    """What each decision of a candidate gains in time to its target, and what more of each resource
    would.
    """
    settings = candidate.settings
    target = candidate.forecast.target
    fitted = Pilots.read(pilots).fitted(settings, target)
    tell = on_stage or (lambda stage: None)
    used = [name for name in ORDER if _is_on(settings, name)]

    def look(others: Settings, what: str) -> tuple[float, list[str]]:
        """Median time, infinite where the target is not reached, and in what it lies outside the
        pilots.
        """
        tell(f"explaining: {what}")
        networks = list(draw_networks(others, *effort))
        try:
            coming = forecast_of(others, fitted, networks, few=True)
        except AutoFLError:
            return math.inf, []
        return coming.sim_time[0], coming.outside

    seen: dict[frozenset[str], tuple[float, list[str]]] = {}

    def with_only(on: list[str]) -> tuple[float, list[str]]:
        key = frozenset(on)
        if key not in seen:
            seen[key] = look(_only(settings, on), f"{', '.join(on) or 'nothing'} decided")
        return seen[key]

    # One decision after another is switched on.
    last, outside = with_only([])
    before = Step("all off (exact)", last, 1.0, outside)
    waterfall = []
    for place, name in enumerate(used, 1):
        time, outside = with_only(used[:place])
        waterfall.append(Step(name, time, last / time if time < math.inf else math.nan, outside))
        last = time

    # Each is left out alone; without a compressor there are no bits to decide.
    left_out = []
    for name in used:
        gone = (name, "bits") if name == "compressor" else (name,)
        time, outside = with_only([other for other in used if other not in gone])
        left_out.append(Step(name, time, time / last, outside))

    # A little more of each resource, planned anew and by its shadow price.
    elasticity = elasticities(settings)
    cell = build_network(settings).air.cell
    more = []
    for resource, unit in RESOURCES.items():
        time, _ = look(_richer(settings, resource), f"10 % more of {resource}")
        amount = float(np.mean(getattr(cell, resource)))
        price = max(0.0, -elasticity[resource]) * last / amount
        more.append(More(resource, unit, time, 1.0 - time / last, price))
    return Explained(before, waterfall, left_out, more)


def _richer(settings: Settings, resource: str) -> Settings:
    """The same with more of a resource."""
    more: dict[str, Any] = {resource: getattr(settings.cell, resource).scaled(MORE)}
    if resource == "bandwidth" and settings.cell.total_bandwidth is not None:
        more["total_bandwidth"] = MORE * settings.cell.total_bandwidth
    return settings.model_copy(update={"cell": settings.cell.model_copy(update=more)})


def _is_on(settings: Settings, decision: str) -> bool:
    if decision == "compressor":
        return settings.compressor.name != "none"
    return bool(settings.planner.given.get(decision, True))


def _only(settings: Settings, on: list[str]) -> Settings:
    """The same with these decisions alone; without its compressor an update has 32 bits a weight."""
    switches = {name: name in on for name in ORDER if name != "compressor"}
    changed = planned_with(settings, **switches)
    if "compressor" in on:
        return changed
    return changed.model_copy(update={"compressor": CompressorSettings(name="none")})


def elasticities(settings: Settings, num_rounds: int = PRICED) -> dict[str, float]:
    """d ln(learning time)/d ln(resource) with who takes part, steps, samples and bits as they are.

    The shadow prices of the allocation: band, power and frequency of each round are found anew for
    slightly more of it, and by the envelope theorem it does not matter which of them moves.
    """
    network = build_network(settings)
    planner = network.arm.planner
    trifle = 1.0 + 1e-4
    assert isinstance(planner, JointPlanner)
    past = before_training(network)
    gained = dict.fromkeys(RESOURCES, 0.0)
    total = 0.0
    for _ in range(num_rounds):
        this_round, past = without_learning(network, past)
        if not this_round.sends.any():
            continue

        # The round as it was planned, less those who do not send.
        senders = np.flatnonzero(this_round.sends)
        cell = this_round.cell.take(senders)
        gain = this_round.gain[senders]
        plan = this_round.plan.part(senders)
        all_band = float(this_round.cell.bandwidth.sum())
        time = _least_time(planner, cell, gain, plan, all_band)
        total += time + float(fixed_time(cell, gain)) / (1.0 + planner.thrift)

        # The same with a trifle more of each resource.
        for name in RESOURCES:
            richer = cell.having(**{name: getattr(cell, name) * trifle})
            band = all_band * (trifle if name == "bandwidth" else 1.0)
            gained[name] += _least_time(planner, richer, gain, plan, band) - time
    if not total:
        return gained
    return {name: change / (trifle - 1.0) / total for name, change in gained.items()}


def _least_time(
    planner: JointPlanner, cell: Cell, gain: Array, plan: Plan, all_band: float
) -> float:
    """The shortest round for what a plan asks of its UEs."""
    cycles = cell.cycles_per_sample * plan.local_steps * plan.num_samples
    task = Task.of(cell, gain, cycles, plan.bits_per_weight * cell.num_weights, planner.frequency)
    if planner.band:
        return allocate(task, all_band).time
    return allocate_fixed_band(task, cell.bandwidth).time


def bounds_of(settings: Settings, made: RoundPlan) -> list[Bound]:
    """What binds each UE of a planned round; for one that is left out, what admitting it would
    cost.

    Args:
        settings: of the plan, resolved.
        made: by `autofl.experiments.cell.plan` from them.
    """
    planner = build_planner(settings)
    this_round = made.round
    cell = this_round.cell
    plan = this_round.plan
    cost = this_round.cost
    gain = this_round.gain
    near = 1.0 - BINDS
    own = cost.compute_time + cost.upload_time
    slowest = float(own.max())

    # Where UEs share a band it binds all of them or none; where they do not, each uses its own up.
    full_band = True
    if isinstance(planner, JointPlanner) and planner.band:
        used = float(plan.bandwidth[plan.feasible].sum())
        full_band = used >= near * float(cell.bandwidth.sum())
    flags = {
        "energy": cost.energy >= near * cell.max_energy,
        "power": plan.tx_power >= near * cell.max_power,
        "frequency": plan.cpu_frequency >= near * cell.cpu_frequency,
        "band": np.full(cell.num_ue, full_band),
        "decoding": this_round.snr <= cell.least_snr * (1.0 + BINDS),
        "data": plan.num_samples >= np.floor(cell.data_size),
    }

    # Only the slowest decide how long a round is; the others wait for them, and nothing binds them.
    hurries = plan.feasible & (own >= near * slowest)
    spare = 1.0 - cost.energy / np.maximum(cell.max_energy, 1e-300)
    bounds = []
    for ue in range(cell.num_ue):
        binds = [name for name, holds in flags.items() if hurries[ue] and holds[ue]]
        bound = Bound(ue, binds, float(spare[ue]))
        if plan.status[ue] == Status.LEFT_OUT and isinstance(planner, JointPlanner):
            bound = _admitted(planner, cell, gain, plan, bound)
        bounds.append(bound)
    return bounds


def _admitted(planner: JointPlanner, cell: Cell, gain: Array, plan: Plan, bound: Bound) -> Bound:
    """The round planned anew in which this UE must take part."""
    memory = dict(planner.init(cell))
    asked = memory["asked"].copy()
    asked[bound.ue] = 1e-9  # behind, and worth no more for it
    _, after = planner(cell, gain, memory)
    _, instead = replace(planner, floor=1.0, patience=0)(cell, gain, {**memory, "asked": asked})
    rate = float(after["progress"] / after["time"])
    other = float(instead["progress"] / instead["time"])
    return bound._replace(round_time=float(instead["time"]), slower=1.0 - other / rate)
