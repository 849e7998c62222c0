"""What pilots say about the rounds to a target. NumPy only."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autofl.config import Settings
from autofl.errors import AutoFLError
from autofl.forecast.pilot_files import Pilot, pilot_advice, problem_of, read_pilots
from autofl.forecast.rounds import Influences, RoundsModel, fit_rounds
from autofl.units import PathLike

SHIPPED = Path(__file__).parent / "pilots"
"""Pilots on MNIST and MNIST-5k, for the paper's planners and for the joint one; each file says by
which command it was made.
"""


class Fitted(NamedTuple):
    """What pilots say about the rounds to a target."""

    target: float
    model: RoundsModel
    num_pilots: int
    source: str
    highest: float = 1.0  # accuracy that pilots come to, median
    short: int = 0  # pilots that end below the target
    coarse: int = 0  # pilots whose first evaluation is at the target
    longest: float = np.inf  # rounds of the longest pilot
    rarest: float = 1.0  # least exposure of a label in a pilot that reached the target

    def is_rare(self, exposure: float) -> bool:
        """Whether a label is heard, but less than in any pilot."""
        return 0.0 < exposure < 0.8 * self.rarest


@dataclass(frozen=True)
class Pilots:
    """Pilots, and where they come from."""

    files: list[tuple[list[Pilot], str]]  # pilots and the command that made them
    path: Path

    @classmethod
    def read(cls, path: PathLike | None) -> "Pilots":
        place = Path(path) if path is not None else SHIPPED
        return cls([read_pilots(file) for file in sorted(place.glob("*.json")) or [place]], place)

    @property
    def every(self) -> list[Pilot]:
        return [pilot for pilots, _ in self.files for pilot in pilots]

    def fitted(self, settings: Settings, target: float) -> Fitted:
        model, fitting = fit(settings, self.every, target, str(self.path))
        problem = fitting[0].problem
        commands = [
            command
            for pilots, command in self.files
            if any(pilot.problem == problem for pilot in pilots)
        ]
        reached = [pilot for pilot in fitting if pilot.reaches(target, settings.evaluation.every)]
        return Fitted(
            target,
            model,
            len(fitting),
            f"{self.path.name}, made by: {'; '.join(commands)}",
            highest=float(np.median([max(pilot.accuracy) for pilot in fitting])),
            short=len(fitting) - len(reached),
            coarse=sum(pilot.is_coarse(target, settings.evaluation.every) for pilot in fitting),
            longest=max(pilot.round[-1] for pilot in fitting),
            rarest=min(pilot.rarest for pilot in reached),
        )

    def pace(self, settings: Settings, target: float) -> tuple[float, float, float, float, float]:
        """What `planner.pace` has to be for these settings, by the pilots' own evaluations.

        Those of a run may be so far apart that all plans seem to need as many rounds.
        """
        model, _ = fit(settings, self.every, target, str(self.path), as_evaluated=True)
        pace = model.pace(heterogeneity_of(settings))
        if pace[0] + pace[1] <= 0.0:
            raise AutoFLError(
                f"{self.path}: at {target:g} the fit makes no sense (no rounds at all); ask for more"
            )
        return pace


class PilotsMissing(AutoFLError):
    """The pilots do not cover what is asked; `what` says so without the file and the command for
    new ones.
    """

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(advice.format(what))
        self.what = what


def fit(
    settings: Settings, pilots: list[Pilot], target: float, origin: str, as_evaluated: bool = False
) -> tuple[RoundsModel, list[Pilot]]:
    """The model of rounds to a target from the pilots of the same learning problem, and those
    pilots.

    A pilot that ends below the target says that it needs more rounds than it had.

    Args:
        as_evaluated: with the evaluations that the pilots had, not those that a run will have.
    """
    problem = problem_of(settings.resolved().table())
    same = [pilot for pilot in pilots if pilot.problem == problem]
    if not same:
        closest = min((_differing(pilot.problem, problem) for pilot in pilots), key=len)
        differs = ", ".join(closest)
        raise PilotsMissing(
            f"no pilots of this learning problem ({differs})",
            f"{origin}: {{}}; make some with {pilot_advice(settings, target)}",
        )
    every = None if as_evaluated else settings.evaluation.every
    reached = np.array([pilot.reaches(target, every) for pilot in same])
    if 2 * reached.sum() <= len(same):
        raise PilotsMissing(
            f"only {reached.sum()} of {len(same)} pilots reach {target:g}; ask for less",
            f"{origin}: {{}}, or make longer ones: {pilot_advice(settings, target)}",
        )
    rounds = np.array([pilot.rounds_to(target, every) for pilot in same])
    last = np.array([pilot.round[-1] for pilot in same])
    given = Influences(
        noise=np.array([pilot.noise for pilot in same]),
        local_steps=np.array([pilot.local_steps for pilot in same], float),
        heterogeneity=np.array(
            [heterogeneity(pilot.problem["partition"], pilot.labels) for pilot in same]
        ),
        skew=np.array([pilot.skew for pilot in same]),
        rounding=np.array([pilot.rounding for pilot in same]),
        share=np.array([pilot.share for pilot in same]),
    )

    # Pilots of the same labels and seed share partition and start.
    together = [(pilot.labels, pilot.seed) for pilot in same]
    group = np.unique(together, axis=0, return_inverse=True)[1].ravel()
    least = np.maximum(np.where(reached, rounds, last), 1.0)  # 0: passed before training
    return fit_rounds(given, least, reached, group), same


def _differing(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """In what two learning problems differ, in words."""
    words = []
    for key in {**here, **there}:
        if there.get(key) != here.get(key):
            words.append(f"{key} is {there.get(key)!r} there, {here.get(key)!r} here")
    return words


def heterogeneity(partition: str, labels: int) -> float:
    """h = 1/l for a partition by labels; 0 for the others, whose pilots must share the partition
    itself.
    """
    return 1.0 / labels if partition == "labels" else 0.0


def heterogeneity_of(settings: Settings) -> float:
    return heterogeneity(settings.data.partition, settings.data.labels)
