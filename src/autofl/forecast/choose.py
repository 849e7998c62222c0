"""(P1): the least time to an accuracy, and what less energy costs in time.

And the other way round: the best accuracy within a time, or within an energy. Pilots tell how many
    rounds a plan needs,
and networks drawn without learning tell what a round costs: nothing is trained. NumPy only.

The planner chooses among all UEs, in one band that they share, unless the user sets their number.
What is left to
choose is thrift: how much longer than the least time a round may take to save energy. Half as many
UEs, drawn for each round, save energy too, so they are shown beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from autofl.config import Settings
from autofl.config.load import written
from autofl.core.horizon import Horizon
from autofl.errors import AutoFLError
from autofl.forecast.pilot_files import problem_of
from autofl.forecast.pilot_fit import Fitted, Pilots
from autofl.forecast.predict import Forecast, draw_networks, forecast_of
from autofl.units import PathLike

SELECTED = (2, 3, 5, 8, 10, 15, 20, 30, 50, 100)
"""|A_k| that a page shows beside each other."""
THRIFTS = (0.0, 0.25, 0.5, 1.0)
"""Points of the front between time and energy."""
STEP = 0.005
"""Distance between the accuracies that are tried."""

Asked = Literal["target", "within", "budget"]
OnStage = Callable[[str], None]


class Effort(NamedTuple):
    """Networks and rounds that are drawn for a candidate; a round of 20 UEs takes the joint planner
    7 to 30 ms.
    """

    networks: int
    rounds: int


FULL = Effort(4, 4)
"""Rounds of a network differ little, so few of them are drawn, and repeated."""


@dataclass(frozen=True)
class Candidate:
    """A thrift, what the planner then decides, and what comes of it."""

    settings: Settings  # complete: `autofl simulate` runs it
    forecast: Forecast
    num_samples: float  # d, tau and bits a weight of those that are heard, medians
    local_steps: float
    bits_per_weight: float
    heard: float  # of the selected UEs, mean

    @property
    def num_selected(self) -> int:
        return self.settings.simulation.num_selected

    @property
    def thrift(self) -> float:
        return float(self.settings.planner.given.get("thrift", 0.0))

    @property
    def time(self) -> float:
        """Median learning time [s]."""
        return self.forecast.sim_time[0]

    @property
    def energy(self) -> float:
        """Median energy of a UE [J], mean over UEs."""
        return self.forecast.energy[0]

    def table(self) -> dict[str, Any]:
        """Plain values for JSON, SI units."""
        values = {}
        for name in OWN:
            values[name] = getattr(self, name)
        coming = self.forecast.table()
        for name in ("target_accuracy", "rounds", "sim_time", "energy", "outside"):
            values[name] = coming[name]
        return values


OWN = ("num_selected", "thrift", "num_samples", "local_steps", "bits_per_weight", "heard")
"""What a candidate's table says beside its forecast."""


@dataclass(frozen=True)
class Choice:
    """All candidates by rising thrift, and the one that is chosen."""

    asked: Asked
    limit: float  # accuracy, s or J
    candidates: list[Candidate]
    best: Candidate
    changes: list[
        str
    ]  # what a run of the chosen plan needs beside the settings that the choice began with
    most: float  # highest accuracy that the pilots cover
    remarks: list[str]
    among_all: bool  # whether the planner chooses among all UEs

    @property
    def front(self) -> list[Candidate]:
        """The candidates than which none is both faster and thriftier, the fastest first."""
        kept = list[Candidate]()
        for one in sorted(self.candidates, key=lambda one: (one.time, one.energy)):
            if not kept or one.energy < kept[-1].energy:
                kept.append(one)
        return kept

    def table(self) -> dict[str, Any]:
        front = self.front
        return {
            "asked": {self.asked: self.limit},
            "chosen": {**self.best.table(), **self.best.forecast.table(), "settings": self.changes},
            "candidates": [{**one.table(), "on_front": one in front} for one in self.candidates],
            "remarks": self.remarks,
        }


def choose(
    settings: Settings,
    *,
    target: float | None = None,
    within: float | None = None,
    budget: float | None = None,
    pilots: PathLike | None = None,
    total_band: float | None = None,
    on_stage: OnStage | None = None,
    effort: Effort = FULL,
) -> Choice:
    """The plan with the least median time to the target, or with the highest accuracy within a
    limit.

    Args:
        target: adapted accuracy.
        within: learning time [s].
        budget: energy [J] of a UE over the whole training, mean over UEs; thrift is then chosen,
            unless it is set.
        pilots: as for `forecast`; the planner goes by the pace of one's own.
        total_band: [Hz], shared by all that are asked; by default `cell.total_bandwidth`.
        on_stage: told what is being looked at.
    """
    asked = {"target": target, "within": within, "budget": budget}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        raise AutoFLError("give one of --target, --within and --budget")
    if total_band is not None and not 0.0 < total_band <= 1e12:
        raise AutoFLError(f"--total-band {total_band:g}: it must be > 0 Hz and <= 1e12 Hz")
    name, limit = next(iter(given.items()))
    if settings.planner.name != "joint":
        raise AutoFLError(f"--{name}: this needs the joint planner; add --planner joint")
    if target is not None and not 0.0 < target <= 1.0:
        raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
    if target is None and not 0.0 < limit < float("inf"):
        raise AutoFLError(f"--{name} {limit:g}: must be more than 0")

    # The pilots say which accuracies can be forecast, and what pace the planner reckons with: that
    # of the middle one, where there are several.
    look = _Look.of(
        settings,
        Pilots.read(pilots),
        pilots is not None,
        total_band,
        on_stage or (lambda stage: None),
    )
    fits = {target: look.fitted(target)} if target is not None else _fits(look)
    targets = list(fits)
    look = look.at_pace(targets[len(targets) // 2])
    own = float(look.settings.planner.given.get("thrift", 0.0))
    is_set = own > 0.0 or "thrift" in settings.planner.given
    asks = look.settings.simulation.num_selected

    # What is left to choose is thrift, unless time is what is limited. Beside it, half as many UEs.
    thrifts = [own] if name == "within" else sorted({*THRIFTS, own})
    points = [(asks, thrift) for thrift in thrifts]
    if target is not None and settings.chooses_among_all and asks > 1:
        points.append((asks // 2, own))

    # Each point has networks of the same seeds, so that candidates differ by their plans alone.
    candidates = list[Candidate]()
    problems = list[AutoFLError]()
    for size, thrift in points:
        planned = look.at(size, thrift)
        networks = look.drawn(planned, effort, f"{size} UEs, thrift {thrift:g}")
        try:
            if target is not None:
                candidates.append(candidate_of(planned, fits[target], networks))
            elif (best := _reached(planned, fits, networks, name, limit)) is not None:
                candidates.append(best)
        except AutoFLError as error:  # too few are heard
            problems.append(error)

    # Of those that ask as many UEs as were set, with the thrift that was set, the quickest.
    able = [one for one in candidates if one.num_selected == asks]
    if name != "budget" or is_set:
        able = [one for one in able if one.thrift == own]
    if not able and problems:
        raise problems[0]
    if not able:
        unit = "s" if name == "within" else "J"
        lowest = 100 * targets[0]
        raise AutoFLError(
            f"--{name} {limit:g}{unit}: no plan reaches even {lowest:g} %, the lowest accuracy of the pilots"
        )
    inside = [one for one in able if not one.forecast.outside]
    best = min(inside or able, key=_rank)
    remarks = []
    if target is None and best.forecast.target >= targets[-1]:
        remarks.append(f"{100 * targets[-1]:g} % is as far as the pilots go; the limit allows more")
    for one in candidates:
        if one.num_selected < asks and one.time < best.time:
            remarks.append(
                f"{one.num_selected} UEs drawn for each round would be faster by the forecast, {one.time:.3g} s;"
                f" run them with --set simulation.num_selected={one.num_selected}"
                f" --set cell.total_bandwidth={one.settings.cell.total_bandwidth!r}"
            )
    return Choice(
        name,  # type: ignore[arg-type]
        limit,
        candidates,
        best,
        changes(best.settings, look.own_pace, total_band),
        targets[-1],
        remarks,
        settings.chooses_among_all,
    )


def planned_with(settings: Settings, **values: Any) -> Settings:
    """The same with these settings of the planner."""
    return settings.model_copy(update={"planner": settings.planner.model_copy(update=values)})


def changes(
    settings: Settings, own_pace: bool = False, total_band: float | None = None
) -> list[str]:
    """What to give to `autofl simulate` with --set, on top of what was given here, so that it runs
    this choice.
    """
    section = settings.planner
    lines = [f"arm={written(settings.arm)}", "planner.name=joint"]
    if own_pace:
        lines.append(
            f"planner.pace=[{', '.join(f'{value:.4g}' for value in section.given['pace'])}]"
        )
    if section.given.get("thrift"):
        lines.append(f"planner.thrift={section.given['thrift']:g}")
    if total_band is not None:
        lines.append(f"cell.total_bandwidth={total_band!r}")
    return lines


@dataclass(frozen=True)
class _Look:
    """What candidates are made of."""

    settings: Settings  # resolved
    pilots: Pilots
    own_pace: (
        bool  # whether the planner goes by the pace of these pilots, not by that of the package
    )
    on_stage: OnStage

    @classmethod
    def of(
        cls,
        settings: Settings,
        pilots: Pilots,
        own: bool,
        total_band: float | None,
        on_stage: OnStage,
    ) -> "_Look":
        if total_band is not None:
            cell = settings.cell.model_copy(update={"total_bandwidth": total_band})
            settings = settings.model_copy(update={"cell": cell})
        return cls(
            settings.resolved(), pilots, own and "pace" not in settings.planner.given, on_stage
        )

    def fitted(self, target: float) -> Fitted:
        return self.pilots.fitted(self.settings, target)

    def at_pace(self, target: float) -> "_Look":
        """The same with the pace of one's own pilots to this accuracy."""
        if not self.own_pace:
            return self
        pace = self.pilots.pace(self.settings, target)
        return replace(self, settings=planned_with(self.settings, pace=list(pace)))

    def at(self, size: int, thrift: float) -> Settings:
        """The settings of a candidate."""
        simulation = self.settings.simulation.model_copy(update={"num_selected": size})
        return planned_with(
            self.settings.model_copy(update={"simulation": simulation}), thrift=thrift
        )

    def drawn(self, settings: Settings, effort: Effort, what: str) -> list[Horizon]:
        """Rounds of some networks, and a word about each."""
        networks = []
        for number, horizon in enumerate(draw_networks(settings, *effort), 1):
            networks.append(horizon)
            self.on_stage(f"{what}: network {number} of {effort.networks}")
        return networks


def candidate_of(settings: Settings, fitted: Fitted, networks: Sequence[Horizon]) -> Candidate:
    """What comes of these settings, by these networks."""

    def typical(name: str) -> float:
        values = [getattr(horizon, name)[horizon.decoded] for horizon in networks]
        return float(np.median(np.concatenate(values)))

    forecast = forecast_of(settings, fitted, networks, few=True)
    return Candidate(
        settings,
        forecast,
        num_samples=typical("num_samples"),
        local_steps=typical("local_steps"),
        bits_per_weight=typical("bits_per_weight"),
        heard=float(np.mean([horizon.decoded.sum(axis=1).mean() for horizon in networks])),
    )


def _rank(one: Candidate) -> tuple[float, float]:
    """The highest accuracy first, then the least time."""
    return -one.forecast.target, one.time


def _reached(
    settings: Settings, fits: dict[float, Fitted], networks: list[Horizon], asked: str, limit: float
) -> Candidate | None:
    """The highest accuracy that fits the limit by its median, by bisection; None where none does."""
    targets = list(fits)

    def at(place: int) -> Candidate | None:
        try:
            one = candidate_of(settings, fits[targets[place]], networks)
        except AutoFLError:  # too few are heard
            return None
        spent = one.time if asked == "within" else one.energy
        return one if spent <= limit else None

    best = at(0)
    low = 0
    high = len(targets)
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        one = at(middle)
        if one is None:
            high = middle
        else:
            best = one
            low = middle
    return best


def _fits(look: _Look) -> dict[float, Fitted]:
    """Fits by accuracy, rising: those that more than half of the pilots reach and none of them has
    at the start.
    """
    problem = problem_of(look.settings.table())
    start = max(
        (pilot.accuracy[0] for pilot in look.pilots.every if pilot.problem == problem), default=0.0
    )
    fits: dict[float, Fitted] = {}
    for number in range(int(start / STEP) + 1, int(1.0 / STEP)):
        target = round(number * STEP, 6)
        try:
            fits[target] = look.fitted(target)
        except AutoFLError:
            if not fits:
                raise
            break
    return fits
