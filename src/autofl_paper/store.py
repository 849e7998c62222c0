"""The runs behind the paper's figures, in a store: a run is named by its settings and is never made
twice.

Its manifest says whether it is finished. One that was stopped goes on from its last checkpoint, and
one that another command is making is waited for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autofl.config import Settings, dump_settings, load_settings, name_of
from autofl.data import find
from autofl.jobs.job import Job, OnProgress
from autofl.jobs.many import run_jobs
from autofl.jobs.recording import is_finished
from autofl_paper.recipes import SENSITIVITY, STUDIES, Arm, Scale


@dataclass(frozen=True)
class Entry:
    """A run of a study: its arm and seed, its settings, and where it is in the store."""

    arm: Arm
    seed: int
    settings: Settings
    place: Path

    def is_finished(self) -> bool:
        return is_finished(self.place, dump_settings(self.settings.resolved()))


def entries_of(study: str, scale: Scale, store: Path, device: str) -> list[Entry]:
    """The runs of a study of the paper's figures and their places, seed by seed."""
    return entries_of_arms(STUDIES[study](scale), store, device)


def entries_of_arms(arms: Sequence[Arm], store: Path, device: str) -> list[Entry]:
    """The runs of these arms and their places, seed by seed."""
    return [
        _entry(arm, seed, store, device)
        for seed in range(1, max(arm.num_seeds for arm in arms) + 1)
        for arm in arms
        if seed <= arm.num_seeds
    ]


def _entry(arm: Arm, seed: int, store: Path, device: str) -> Entry:
    overrides = [*arm.overrides, f"seed={seed}", f"simulation.device={device}"]
    settings = load_settings(overrides=overrides, scenario=arm.scenario)
    return Entry(arm, seed, settings, store / name_of(settings))


def missing_data(studies: Sequence[str]) -> dict[str, str]:
    """Studies that cannot be made here, and the data set each lacks."""
    return {
        study: "cifar10"
        for study in studies
        if study.endswith("cifar10") and find("cifar10") is None
    }


def stages_of(studies: Sequence[str]) -> list[list[str]]:
    """Studies that are made together: the figures first, so that they are there if the rest is cut
    off.
    """
    stages = (
        [s for s in studies if s not in SENSITIVITY],
        [s for s in studies if s in SENSITIVITY],
    )
    return [stage for stage in stages if stage]


def unfinished(entries: Sequence[Entry]) -> list[Entry]:
    """What is still to be run, each run once."""
    return [
        entry
        for entry in {entry.place: entry for entry in entries}.values()
        if not entry.is_finished()
    ]


def run_entries(
    entries: Sequence[Entry],
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Make what is missing of these runs; the results depend neither on the number of workers nor
    on interruptions.
    """
    jobs = [
        Job(
            entry.settings,
            entry.place,
            f"{entry.arm.label}, seed {entry.seed}",
            resume=True,
            wait=True,
        )
        for entry in _in_order_of_data([*{entry.place: entry for entry in entries}.values()])
    ]
    run_jobs(jobs, workers, ray, on_progress)


def _in_order_of_data(entries: Sequence[Entry]) -> list[Entry]:
    """Runs on the same data set together, the longest first: the last one to end should be short."""
    return sorted(
        entries,
        key=lambda entry: (-entry.settings.stop.rounds, entry.settings.data.name, entry.seed),
    )
