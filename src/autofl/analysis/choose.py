"""(P1): how many UEs to select, with how many steps, samples and bits, for the least time to an accuracy.

And the other way round: the best accuracy within a time, or within an energy. Pilots tell how many rounds a plan needs,
and networks drawn without learning tell what a round costs: nothing is trained. NumPy only.

In the paper's model each selected UE brings its own band B, so that more UEs have more band to share. With `total_band`
all that are selected share one band, however many they are.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from autofl.analysis.forecast import Forecast, draw_networks, forecast_of
from autofl.analysis.pilot_files import problem_of
from autofl.analysis.pilot_fit import Fitted, Pilots, heterogeneity_of
from autofl.config import PerUE, Settings
from autofl.errors import AutoFLError
from autofl.rounds.horizon import Horizon
from autofl.units import PathLike

SELECTED = (2, 3, 5, 8, 10, 15, 20, 30, 50, 100)
"""|A_k| to choose from; n itself where it is less than the last."""
THRIFTS = (0.0, 0.25, 0.5, 1.0)
"""How much longer a round may take to save energy, under a budget of energy."""
STEP = 0.005
"""Distance between the accuracies that are tried."""
REFINED = 3
"""Candidates that are examined again after the rough look."""

Asked = Literal["target", "within", "budget"]
OnStage = Callable[[str], None]


class Effort(NamedTuple):
    """Networks and rounds that are drawn for a candidate; a round takes the joint planner 5 to 10 ms."""

    networks: int
    rounds: int


FULL, ROUGH = Effort(8, 24), Effort(2, 12)


@dataclass(frozen=True)
class Candidate:
    """A number of selected UEs, what the planner then decides, and what comes of it."""

    settings: Settings  # complete: `autofl simulate` runs it
    forecast: Forecast
    num_samples: float  # d, tau and bits a weight of those that are heard, medians
    local_steps: float
    bits_per_weight: float
    heard: float  # of the selected UEs, mean
    rough: bool = False  # from fewer networks, and not in the choice

    @property
    def num_selected(self) -> int:
        return self.settings.simulation.num_selected

    @property
    def thrift(self) -> float:
        return float(self.settings.planned_by().given.get("thrift", 0.0))

    @property
    def time(self) -> float:
        """Median learning time [s]."""
        return self.forecast.sim_time[0]

    def table(self) -> dict[str, Any]:
        """Plain values for JSON, SI units."""
        own = ("num_selected", "thrift", "num_samples", "local_steps", "bits_per_weight", "heard", "rough")
        coming = self.forecast.table()
        kept = ("target_accuracy", "rounds", "sim_time", "energy", "outside")
        return {**{name: getattr(self, name) for name in own}, **{name: coming[name] for name in kept}}


@dataclass(frozen=True)
class Choice:
    """All candidates, and the one that is chosen among those that are not rough."""

    asked: Asked
    limit: float  # accuracy, s or J
    candidates: list[Candidate]
    best: Candidate
    most: float  # highest accuracy that the pilots cover
    remarks: list[str]
    total_band: float | None = None  # [Hz] that all share, where it was asked for

    @property
    def changes(self) -> list[str]:
        """What a run of the chosen plan needs beside the settings that the choice began with."""
        return changes(self.best.settings, self.total_band)

    def table(self) -> dict[str, Any]:
        return {
            "asked": {self.asked: self.limit},
            "chosen": {**self.best.table(), **self.best.forecast.table(), "settings": self.changes},
            "candidates": [candidate.table() for candidate in self.candidates],
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
    full: Effort = FULL,
    rough: Effort = ROUGH,
) -> Choice:
    """The candidate with the least median time to the target, or with the highest accuracy within a limit.

    Args:
        target: adapted accuracy.
        within: learning time [s].
        budget: energy [J] of a UE over the whole training, mean over UEs; thrift is then chosen too.
        pilots: as for `forecast`.
        total_band: [Hz], shared by all that are selected; by default each brings its own.
        on_stage: told what is being looked at.
    """
    asked = {"target": target, "within": within, "budget": budget}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        raise AutoFLError("give one of --target, --within and --budget")
    if total_band is not None and not 0.0 < total_band <= 1e12:
        raise AutoFLError(f"--total-band {total_band:g}: it must be > 0 Hz and <= 1e12 Hz")
    name, limit = next(iter(given.items()))
    settings = settings.resolved()
    if settings.planned_by().name != "joint":
        raise AutoFLError(f"--{name}: choosing |A_k| needs the joint planner; add --planner joint")
    look = _Look(settings, Pilots.read(pilots), total_band, on_stage or (lambda stage: None))
    if target is not None:
        if not 0.0 < target <= 1.0:
            raise AutoFLError(f"--target {target}: must lie between 0 and 1, for example 0.85")
        return replace(_quickest(look, target, full, rough), total_band=total_band)
    if not 0.0 < limit < float("inf"):
        raise AutoFLError(f"--{name} {limit:g}: must be more than 0")
    asked_for: Asked = "within" if name == "within" else "budget"
    return replace(_farthest(look, asked_for, limit, full, rough), total_band=total_band)


def planned_with(settings: Settings, **values: Any) -> Settings:
    """The same with these settings of the planner."""
    section = settings.planned_by()
    return settings.model_copy(update={settings.planned_in(): section.model_copy(update=values)})


def changes(settings: Settings, total_band: float | None = None) -> list[str]:
    """What to give to `autofl simulate` with --set, on top of what was given here, so that it runs this choice."""
    section, where = settings.planned_by(), settings.planned_in()
    pace = ", ".join(f"{value:.4g}" for value in section.given["pace"])
    lines = [f"algorithm={settings.algorithm}", f"simulation.num_selected={settings.simulation.num_selected}"]
    lines += [f"{where}.name=joint", f"{where}.pace=[{pace}]"]
    if section.given.get("thrift"):
        lines.append(f"{where}.thrift={section.given['thrift']:g}")
    if total_band is not None:
        lines.append(f"cell.bandwidth={total_band / settings.simulation.num_selected!r}")
    return lines


@dataclass(frozen=True)
class _Look:
    """What candidates are made of."""

    settings: Settings
    pilots: Pilots
    total_band: float | None
    on_stage: OnStage

    def fitted(self, target: float) -> Fitted:
        return self.pilots.fitted(self.settings, target)

    def sizes(self) -> list[int]:
        count = self.settings.cell.count
        sizes = [size for size in SELECTED if size <= count]
        return [*sizes, count] if count not in sizes and count < SELECTED[-1] else sizes

    def settings_of(self, size: int, fitted: Fitted, thrift: float | None) -> Settings:
        """The settings of a candidate; a pace of the user's own is kept."""
        changed = self.settings.model_copy(
            update={"simulation": self.settings.simulation.model_copy(update={"num_selected": size})}
        )
        if self.total_band is not None:
            band = PerUE(value=self.total_band / size)
            changed = changed.model_copy(update={"cell": changed.cell.model_copy(update={"bandwidth": band})})
        values: dict[str, Any] = {} if thrift is None else {"thrift": thrift}
        if "pace" not in changed.planned_by().given:
            pace = fitted.model.pace(heterogeneity_of(changed))
            if pace[0] + pace[1] <= 0.0:
                raise AutoFLError(
                    f"{self.pilots.path}: at {fitted.target:g} the fit makes no sense (no rounds at all); ask for more"
                )
            values["pace"] = list(pace)
        return planned_with(changed, **values)

    def drawn(self, settings: Settings, effort: Effort, what: str) -> list[Horizon]:
        """Rounds of some networks, and a word about each."""
        networks = []
        for number, horizon in enumerate(draw_networks(settings, *effort), 1):
            networks.append(horizon)
            self.on_stage(f"{what}: network {number} of {effort.networks}")
        return networks


def candidate_of(settings: Settings, fitted: Fitted, networks: list[Horizon], rough: bool = False) -> Candidate:
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
        rough=rough,
    )


def _quickest(look: _Look, target: float, full: Effort, rough: Effort) -> Choice:
    """The least median time to a target: a rough look at all candidates, and a good one at the best."""
    fitted, problems = look.fitted(target), list[AutoFLError]()

    def looked(size: int, effort: Effort) -> list[Candidate]:
        settings = look.settings_of(size, fitted, None)
        networks = look.drawn(settings, effort, f"|A_k| = {size}")
        try:
            return [candidate_of(settings, fitted, networks, rough=effort is rough)]
        except AutoFLError as error:  # too few are heard
            problems.append(error)
            return []

    looks = [one for size in look.sizes() for one in looked(size, rough)]
    inside = sorted((one for one in looks if not one.forecast.outside), key=lambda one: one.time)
    daring = sorted((one for one in looks if one.forecast.outside), key=lambda one: one.time)
    again = {one.num_selected for one in (inside or daring)[:REFINED]}
    refined = [one for size in sorted(again) for one in looked(size, full)]
    if not refined:
        raise problems[0] if problems else AutoFLError("there is nothing to choose from")
    every = [*refined, *(one for one in looks if one.num_selected not in again)]
    candidates = sorted(every, key=lambda one: one.num_selected)
    return _chosen("target", target, candidates, lambda one: one.time, target)


def _farthest(look: _Look, asked: Asked, limit: float, full: Effort, rough: Effort) -> Choice:
    """The highest accuracy within a time or an energy: a rough look at all candidates, and a good one at the best."""
    fits = _fits(look)
    targets = list(fits)
    thrifts: tuple[float | None, ...] = (None,) if asked == "within" else THRIFTS
    first = fits[targets[len(targets) // 2]]
    looks = []
    for size in look.sizes():
        for thrift in thrifts:
            settings = look.settings_of(size, first, thrift)
            more = f", thrift {thrift:g}" if thrift else ""
            networks = look.drawn(settings, rough, f"rough look at |A_k| = {size}{more}")
            looks.append(_reached(settings, fits, networks, asked, limit, rough=True))
    reached = sorted((one for one in looks if one is not None), key=_rank)
    if not reached:
        raise _nothing_fits(look, asked, limit, targets[0])
    refined: list[Candidate] = []
    for one in reached[:REFINED]:
        own = look.settings_of(one.num_selected, fits[one.forecast.target], one.thrift if asked == "budget" else None)
        again = []
        for settings in (own, one.settings):  # planned for its own accuracy; as in the rough look
            networks = look.drawn(settings, full, f"|A_k| = {one.num_selected}")
            reaching = _reached(settings, fits, networks, asked, limit)
            again += [] if reaching is None else [reaching]
        refined += [min(again, key=_rank)] if again else []
    if not refined:
        raise _nothing_fits(look, asked, limit, targets[0])
    every = sorted([*refined, *reached[REFINED:]], key=lambda one: (one.num_selected, one.thrift))
    return _chosen(asked, limit, every, _rank, targets[-1])


def _rank(one: Candidate) -> tuple[float, float]:
    return -one.forecast.target, one.time


def _reached(
    settings: Settings,
    fits: dict[float, Fitted],
    networks: list[Horizon],
    asked: Asked,
    limit: float,
    rough: bool = False,
) -> Candidate | None:
    """The highest accuracy that fits the limit by its median, by bisection; None where none does."""
    targets = list(fits)

    def at(place: int) -> Candidate | None:
        try:
            one = candidate_of(settings, fits[targets[place]], networks, rough)
        except AutoFLError:  # too few are heard
            return None
        spent = one.time if asked == "within" else one.forecast.energy[0]
        return one if spent <= limit else None

    best, low, high = at(0), 0, len(targets)
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        one = at(middle)
        if one is None:
            high = middle
        else:
            best, low = one, middle
    return best


def _fits(look: _Look) -> dict[float, Fitted]:
    """Fits by accuracy, rising: those that more than half of the pilots reach and none of them has at the start."""
    problem = problem_of(look.settings.table())
    start = max((pilot.accuracy[0] for pilot in look.pilots.every if pilot.problem == problem), default=0.0)
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


def _nothing_fits(look: _Look, asked: Asked, limit: float, lowest: float) -> AutoFLError:
    unit = "s" if asked == "within" else "J"
    return AutoFLError(
        f"--{asked} {limit:g}{unit}: no plan reaches even {100 * lowest:g} %, the lowest accuracy of the pilots"
    )


def _chosen(
    asked: Asked, limit: float, candidates: list[Candidate], rank: Callable[[Candidate], Any], most: float
) -> Choice:
    """The best of those that are not rough; one outside the pilots only where no other is there."""
    able = [one for one in candidates if not one.rough]
    inside = [one for one in able if not one.forecast.outside]
    best, remarks = min(inside or able, key=rank), []
    daring = min((one for one in candidates if one.forecast.outside), key=rank, default=best)
    if inside and rank(daring) < rank(best):
        remarks.append(
            f"|A_k| = {daring.num_selected} would do better by the forecast ({daring.time:.3g} s), but lies outside"
            f" the pilots in {', '.join(daring.forecast.outside)}"
        )
    if asked != "target" and best.forecast.target >= most:
        remarks.append(f"{100 * most:g} % is as far as the pilots go; the limit allows more")
    return Choice(asked, limit, candidates, best, most, remarks)
