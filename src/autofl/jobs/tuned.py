"""The rival `tuned`: the best constants by grid search, with the same compressor, update and step
sizes.

It is a study, not a planner: constants are carried out by the planner `fixed`, with the cell's
bands and the power that the energy allows. The seeds that tune are not those that judge.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from autofl.config import Settings, parse_settings
from autofl.errors import AutoFLError
from autofl.jobs.job import Job, OnProgress
from autofl.jobs.many import check_free, run_jobs
from autofl.lock import locked
from autofl.quality import time_to_accuracy
from autofl.records import Run, read_run
from autofl.results import Results
from autofl.units import Array


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
        name = f"d{self.num_samples}-tau{self.local_steps}"
        for letter, value in (("b", self.bits), ("a", self.num_selected), ("f", self.frequency)):
            if value is not None:
                name += f"-{letter}{value:g}"
        return name

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


def grid(
    num_samples: Sequence[int],
    local_steps: Sequence[int] = (1,),
    bits: Sequence[float] = (),
    num_selected: Sequence[int] = (),
    frequency: Sequence[float] = (),
) -> list[Constants]:
    """Every combination of these values, each once; where there are none, the settings' own."""
    for name, values in (("num_samples", num_samples), ("local_steps", local_steps)):
        if not values:
            raise AutoFLError(f"{name}: the grid has no value of it; give at least one")
    combinations = product(
        num_samples, local_steps, bits or (None,), num_selected or (None,), frequency or (None,)
    )
    return list(dict.fromkeys(Constants(*combination) for combination in combinations))


def tune(
    settings: Settings,
    tried: Sequence[Constants],
    folder: Path | str,
    *,
    seeds: Sequence[int],
    target: float,
    force: bool = False,
    resume: bool = False,
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> Results:
    """Runs with all of these constants and each seed, until the target: time to it [s] and the best
    accuracy of each, whether it diverged, and whether anybody was heard.

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
    jobs = [
        Job(
            constants.applied(settings, seed, target_accuracy=target),
            Path(folder) / f"{constants.name}-seed{seed}",
            f"{constants.name} seed {seed}",
            asdict(constants),
            resume=resume,
            keep=not (force or resume),
        )
        for seed in seeds
        for constants in tried
    ]
    with locked(folder):
        check_free(jobs)
        run_jobs(jobs, workers, ray, on_progress)
        measured = [outcome(read_run(job.folder), target) for job in jobs]
    return Results.of(
        arms=[job.values for job in jobs],
        seeds=[job.settings.seed for job in jobs],
        measured=measured,
        names=[job.folder.name for job in jobs],
        target=target,
    )


def outcome(run: Run, target: float) -> dict[str, float]:
    """What a run tells of its constants, by the metric of its settings."""
    _, sim_time, accuracy = run.evaluated(f"{run.config['stop']['metric']}_accuracy")
    return {
        "time": time_to_accuracy(sim_time, accuracy, target),
        "accuracy": float(accuracy.max()),
        "heard": float(run.rounds["num_decoded"].any()),
        "diverged": float(run.manifest["stop"] == "diverged"),
    }


def times_of(arm: Results) -> Array:
    """Simulated seconds to the target, a value for each seed; infinite where it is not reached."""
    return np.nan_to_num(arm.values["time"], nan=np.inf)


def ranked(results: Results) -> list[Results]:
    """The constants by median time to the target, the quickest first; in doubt those that reach it
    more often, or come closer.
    """

    def rank(arm: Results) -> tuple[float, ...]:
        times = times_of(arm)
        num_reached = np.isfinite(times).sum()
        return float(np.median(times)), -num_reached, -float(np.median(arm.values["accuracy"]))

    return sorted(results.by_arm(), key=rank)


def best_of(results: Results) -> Constants | None:
    """The least median time to the target; None where no constants reach it in half of the runs."""
    first = ranked(results)[0]
    return Constants(**first.arms[0]) if np.isfinite(np.median(times_of(first))) else None


def trial_json(arm: Results) -> dict[str, Any]:
    """What came of some constants as plain values; a time that is not reached is None."""
    times = times_of(arm)
    median, *seconds = [time if np.isfinite(time) else None for time in (np.median(times), *times)]
    num_diverged = int(arm.values["diverged"].sum())
    remark = f"{num_diverged} diverged" if num_diverged else ""
    if not arm.values["heard"].any():
        remark = "nobody is heard"
    return {
        **arm.arms[0],
        "median_time": median,
        "times": seconds,
        "reached": int(np.isfinite(times).sum()),
        "median_accuracy": float(np.median(arm.values["accuracy"])),
        "remark": remark,
    }
