"""The rival `tuned`: the best constants by grid search, with the same compressor, update and step
sizes.

It is a study, not a planner: constants are carried out by the planner `fixed`, with the cell's
bands and the power that the energy allows. The seeds that tune are not those that judge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import Settings, parse_settings
from autofl.errors import AutoFLError
from autofl.experiments.jobs import Job, OnProgress, check_free, run_jobs
from autofl.lock import locked
from autofl.quality import time_to_accuracy
from autofl.records import Run, read_run


@dataclass(frozen=True)
class Constants:
    """The same decisions in every round; None leaves a decision to the settings."""

    num_samples: int  # d
    local_steps: int  # tau
    bits: float | None = None  # of a weight
    num_selected: int | None = None  # |A_k|
    frequency: float | None = None  # share of vartheta_i

    @property
    def name(self) -> str:
        """As part of a folder's name."""
        bits = "" if self.bits is None else f"-b{self.bits:g}"
        selected = "" if self.num_selected is None else f"-a{self.num_selected}"
        frequency = "" if self.frequency is None else f"-f{self.frequency:g}"
        return f"d{self.num_samples}-tau{self.local_steps}{bits}{selected}{frequency}"

    def applied(self, settings: Settings, seed: int, **stop: Any) -> Settings:
        """The settings of a run with these constants; impossible ones raise an error of one line.

        Bits go to the compressor where it has a setting of this name, else to the planner, scales
        included.
        """
        table = settings.table()
        asked = settings.planner.model_fields_set if settings.planner.name == "fixed" else set()
        own = {key: value for key, value in settings.planner.given.items() if key in asked}
        planned = {"power": "computed", **own, "name": "fixed", "num_samples": self.num_samples}
        table["planner"] = planned | {"local_steps": self.local_steps}
        table["learning"]["local_steps"] = self.local_steps
        if self.frequency is not None:
            table["planner"]["frequency"] = self.frequency
        if self.num_selected is not None:
            table["simulation"]["num_selected"] = self.num_selected
        if self.bits is not None:
            if settings.compressor.name == "none":
                raise AutoFLError(
                    f"bits: {self.bits:g} of a weight need a compressor; set compressor.name"
                )
            if "bits" in settings.compressor.part.settings:
                whole = int(self.bits) if self.bits == int(self.bits) else self.bits
                table["compressor"]["bits"] = whole
            else:
                table["planner"]["bits_per_weight"] = self.bits
        table["stop"] |= stop
        return parse_settings({**table, "seed": seed}, f"constants {self.name}")


@dataclass(frozen=True)
class Grid:
    """The constants that are tried: every combination of these values; an empty one leaves the
    settings' own.
    """

    num_samples: Sequence[int]
    local_steps: Sequence[int] = (1,)
    bits: Sequence[float] = ()
    num_selected: Sequence[int] = ()
    frequency: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("num_samples", "local_steps"):
            if not len(getattr(self, name)):
                raise AutoFLError(f"{name}: the grid has no value of it; give at least one")

    def __iter__(self) -> Iterator[Constants]:
        combinations = product(
            self.num_samples,
            self.local_steps,
            self.bits or (None,),
            self.num_selected or (None,),
            self.frequency or (None,),
        )
        return iter(dict.fromkeys(Constants(*combination) for combination in combinations))


@dataclass(frozen=True)
class Trial:
    """What came of some constants, a value for each seed."""

    constants: Constants
    times: tuple[float, ...]  # simulated seconds to the target; infinite where it is not reached
    accuracies: tuple[float, ...]  # the best of each run
    heard: bool  # whether anybody was heard, in any run
    num_diverged: int

    @property
    def median_time(self) -> float:
        return float(np.median(self.times))

    @property
    def num_reached(self) -> int:
        return int(np.isfinite(self.times).sum())

    @property
    def remark(self) -> str:
        """What is wrong with these constants, empty where nothing is."""
        if not self.heard:
            return "nobody is heard"
        return f"{self.num_diverged} diverged" if self.num_diverged else ""

    def row(self) -> dict[str, Any]:
        """As plain values for JSON; a time that is not reached is None."""
        finite = [time if np.isfinite(time) else None for time in (self.median_time, *self.times)]
        return {
            **asdict(self.constants),
            "median_time": finite[0],
            "times": finite[1:],
            "reached": self.num_reached,
            "median_accuracy": float(np.median(self.accuracies)),
            "remark": self.remark,
        }


@dataclass(frozen=True)
class Tuned:
    """All trials, the quickest first, and the question they answer."""

    trials: tuple[Trial, ...]
    target: float
    seeds: tuple[int, ...]
    settings: Settings

    @property
    def best(self) -> Trial | None:
        """The least median time to the target; None where no constants reach it in half of the
        runs.
        """
        first = self.trials[0]
        return first if np.isfinite(first.median_time) else None

    @property
    def best_settings(self) -> Settings | None:
        """What `simulate` takes: the best constants, and the first seed that did not tune them."""
        if self.best is None:
            return None
        return self.best.constants.applied(self.settings, max(self.seeds) + 1)


def tune(
    settings: Settings,
    grid: Grid,
    folder: Path | str,
    *,
    seeds: Sequence[int],
    target: float,
    force: bool = False,
    resume: bool = False,
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> Tuned:
    """Every combination of the grid with every seed, a run folder each, until the target; the best
    by median time.

    Args:
        settings: algorithm, compressor, step sizes, cell, data, and how many rounds at most;
            `stop.metric` says whose accuracy is meant.
        seeds: for tuning; judge on others.
        target: accuracy, smoothed over 3 evaluations as in `Stop`.
    """
    if not 0.0 < target <= 1.0:
        raise AutoFLError(f"target: {target} is not > 0 and <= 1")
    if not seeds or len(set(seeds)) < len(seeds):
        raise AutoFLError(f"seeds: {list(seeds)} must be at least one, each once")
    places = {
        (constants, seed): Job(
            constants.applied(settings, seed, target_accuracy=target),
            Path(folder) / f"{constants.name}-seed{seed}",
            f"{constants.name} seed {seed}",
            resume,
            keep=not (force or resume),
        )
        for seed in seeds
        for constants in grid
    }
    jobs = list(places.values())
    with locked(folder):
        check_free(jobs)
        run_jobs(jobs, workers, ray, on_progress)
        runs = {at: read_run(job.place) for at, job in places.items()}
    trials = [
        trial_of(constants, [runs[constants, seed] for seed in seeds], target) for constants in grid
    ]
    trials.sort(
        key=lambda trial: (
            trial.median_time,
            -trial.num_reached,
            -float(np.median(trial.accuracies)),
        )
    )
    return Tuned(tuple(trials), target, tuple(seeds), settings)


def trial_of(constants: Constants, runs: Sequence[Run], target: float) -> Trial:
    """What the runs of some constants tell, by the metric of their settings."""
    times = []
    accuracies = []
    for run in runs:
        _, sim_time, accuracy = run.evaluated(f"{run.config['stop']['metric']}_accuracy")
        time = time_to_accuracy(sim_time, accuracy, target)
        times.append(time if np.isfinite(time) else float("inf"))
        accuracies.append(float(accuracy.max()))
    heard = any(run.rounds["num_decoded"].any() for run in runs)
    diverged = sum(run.manifest.get("stop") == "diverged" for run in runs)
    return Trial(constants, tuple(times), tuple(accuracies), heard, diverged)
