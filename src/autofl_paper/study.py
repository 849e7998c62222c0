"""What a study is: arms x seeds -> a table -> claims -> a page; and the runs behind it.

A run is named by its settings and is never made twice: arms of several studies share runs. One that
was stopped goes on from its last checkpoint; one that another command is making is waited for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofl.config import load_settings, name_of
from autofl.data import find
from autofl.errors import AutoFLError
from autofl.jobs.job import Job, OnProgress
from autofl.jobs.many import is_kept, run_jobs
from autofl_paper.results import Reader, Results, collect

if TYPE_CHECKING:
    from autofl_paper.page import Page


@dataclass(frozen=True)
class Arm:
    """A curve or a point of a study: seeds apart, one setting of everything."""

    study: str
    name: str
    overrides: tuple[str, ...]  # as one would give them to `autofl simulate --set`
    num_seeds: int
    x: int = 0  # place on the study's axis; 0 where it has none
    reading: str = ""  # the condition under which all arms are compared; empty where there is one
    scenario: str | None = None  # to which the overrides are applied

    @property
    def label(self) -> str:
        study = f"{self.reading}: {self.study}" if self.reading else self.study
        place = f", {self.x}" if self.x else ""
        return f"{study}, {self.name}{place}"


Runs = dict[tuple[Arm, int], Job]
"""The runs of a study by arm and seed."""


@dataclass(frozen=True)
class Studies:
    """Studies that share scales, a folder of results and a page."""

    folder: str  # of their results, inside that of the command
    scales: Mapping[str, Any]
    arms: Mapping[str, Callable[[Any], list[Arm]]]  # by study, from a scale
    named: Callable[[Sequence[str]], list[str]]  # from the names that a user types
    reader: Callable[[str, Any], Reader]  # what is read off a run, from study and scale
    about: Callable[
        [str, Any, str], dict[str, Any]
    ]  # beside what `collect` says; from the data too
    page: Callable[[Path, Sequence[str] | None], "Page"]  # from results, and the names to be shown
    seconds: Callable[[Arm, int], float] | None = None  # of a run of so many rounds on one core
    last: tuple[str, ...] = ()  # made when the others are there
    beside: Callable[[str, Runs, str, Path], None] | None = None  # made of the final models
    most_seeds: int = 1000
    beyond: str = ""  # why no seeds beyond the last


def with_seeds(studies: Studies, scale: Any, seeds: int | None) -> Any:
    """A scale with another number of seeds, if one is given."""
    if seeds is None:
        return scale
    if not 1 <= seeds <= studies.most_seeds:
        raise AutoFLError(
            f"--seeds {seeds}: must lie between 1 and {studies.most_seeds}{studies.beyond}"
        )
    names = [field.name for field in fields(scale) if field.name.endswith("seeds")]
    return replace(scale, **dict.fromkeys(names, seeds))


def stages_of(studies: Studies, names: Sequence[str]) -> list[list[str]]:
    """Studies that are made together: the main ones first, so that they are there if the rest is
    cut off.
    """
    main = [name for name in names if name not in studies.last]
    rest = [name for name in names if name in studies.last]
    return [stage for stage in (main, rest) if stage]


def digits_here(scale: str) -> str:
    """MNIST, or MNIST-5k in its place where it is not here; at full scale there is no such
    substitute.
    """
    if find("mnist") is not None:
        return "mnist"
    if scale == "full":
        raise AutoFLError(
            "the full scale needs MNIST: run 'autofl data fetch mnist', or name its folder (AUTOFL_DATA)"
        )
    return "mnist5k"


def lacks_data(study: str) -> bool:
    """Whether a study cannot be made here, since CIFAR-10 is missing; digits have a substitute."""
    return study.endswith("cifar10") and find("cifar10") is None


def jobs_of(arms: Sequence[Arm], store: Path, device: str) -> Runs:
    """The runs of these arms and their folders, seed by seed."""
    runs: Runs = {}
    for seed in range(1, max(arm.num_seeds for arm in arms) + 1):
        for arm in arms:
            if seed > arm.num_seeds:
                continue
            overrides = [*arm.overrides, f"seed={seed}", f"simulation.device={device}"]
            settings = load_settings(overrides=overrides, scenario=arm.scenario)
            label = f"{arm.label}, seed {seed}"
            folder = store / name_of(settings)
            runs[arm, seed] = Job(settings, folder, label, resume=True, wait=True)
    return runs


def each_once(jobs: Iterable[Job]) -> list[Job]:
    """Every run once, in whatever arms it stands."""
    return list({job.folder: job for job in jobs}.values())


def unfinished(jobs: Iterable[Job]) -> list[Job]:
    """What is still to be run, each run once."""
    return [job for job in each_once(jobs) if not is_kept(job)]


def make(
    jobs: Iterable[Job],
    workers: int = 1,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Make what is missing of these runs; the results depend neither on the number of workers nor
    on interruptions.

    Runs on the same data go together, the longest first: the last one to end should be short.
    """

    def rank(job: Job) -> tuple[int, str, int]:
        return -job.settings.stop.rounds, job.settings.data.name, job.settings.seed

    run_jobs(sorted(each_once(jobs), key=rank), workers, ray, on_progress)


def results_of(studies: Studies, name: str, scale: Any, runs: Runs, workers: int) -> Results:
    """The table of a study from its run folders."""
    rows = [(arm.reading, arm.study, arm.name, arm.x, seed) for arm, seed in runs]
    folders = [job.folder for job in runs.values()]
    results = collect(name, rows, folders, studies.reader(name, scale), workers)
    more = studies.about(name, scale, str(results.about["data"]))
    return replace(results, about={"scale": scale.name, **results.about, **more})
