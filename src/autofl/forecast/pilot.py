"""Pilot runs: short trainings in a network where everybody is heard, for `autofl plan --target`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autofl.config import PerUE, Settings
from autofl.config.parts import (
    ChannelSettings,
    CompressorSettings,
    DownlinkSettings,
    LinkSettings,
    PlannerSettings,
)
from autofl.config.settings import KnowledgeSettings
from autofl.errors import AutoFLError
from autofl.experiments.data import contents_of
from autofl.forecast.pilot_files import Pilot, problem_of, read_pilots
from autofl.forecast.predict import pilot_of
from autofl.jobs.job import Job, OnProgress
from autofl.jobs.many import is_same, run_jobs
from autofl.lock import locked
from autofl.records import read_run
from autofl.rng import stream
from autofl.units import PathLike


class Point(NamedTuple):
    """A point of a design: everything that a pilot varies."""

    num_samples: int  # d
    num_selected: int
    local_steps: int  # tau
    away: float = 0.0  # share of the UEs out of reach
    bits: float | None = None  # a weight; None: the compressor as it is set


DESIGN = (
    *(Point(d, m, 1) for d, m in ((5, 5), (15, 5), (40, 5), (15, 2), (15, 10))),
    *(Point(10, 5, 2), Point(5, 5, 4)),
    *(Point(20, 6, 1, 0.2), Point(20, 8, 1, 0.4)),
)
"""Enough to tell noise, local steps and unequal chances apart."""
JOINT_DESIGN = (
    *(Point(d, 20, tau, bits=0.2) for d in (8, 20) for tau in (2, 4, 8)),
    *(Point(12, 20, 2, bits=bits) for bits in (0.15, 0.3, 0.5)),
    *(Point(12, 20, 4, bits=0.15), Point(12, 20, 4, bits=0.5), Point(20, 20, 16, bits=0.5)),
    *(
        Point(8, 10, 2, bits=0.2),
        Point(20, 10, 2, bits=0.5),
        Point(12, 10, 4, bits=0.2),
        Point(20, 10, 8, bits=0.5),
    ),
    *(Point(12, 5, 2, bits=0.5), Point(12, 5, 4, bits=0.2), Point(20, 5, 8, bits=0.5)),
    *(Point(12, 12, 2, 0.2, 0.2), Point(12, 16, 4, 0.4, 0.2)),
)
"""The same around what the joint planner chooses: nearly all UEs, a few local steps, few bits."""
OUT_OF_REACH = 1e7
"""Distance [m] at which nothing is decoded."""


def pilot_settings(
    settings: Settings, labels: Sequence[int], num_seeds: int
) -> Iterator[tuple[str, Settings]]:
    """Name and settings of each pilot; its radio is perfect but for UEs out of reach: a pilot is
    about learning.
    """
    settings = settings.resolved()
    contents = contents_of(settings.data.source())
    whose = (
        "" if contents is None else f"-{contents[-16:]}"
    )  # pilots of other samples in the file are not kept
    cell = settings.cell.model_copy(
        update={
            "positions": None,
            "small_scale_gain": PerUE(value=1.0),
            "max_energy": PerUE(value=1.0),
        }
    )
    for number in labels:
        for point in design_of(settings):
            for seed in range(settings.seed, settings.seed + num_seeds):
                one = settings.model_copy(
                    update={
                        "seed": seed,
                        "channel": ChannelSettings(),
                        "link": LinkSettings(),
                        "knowledge": KnowledgeSettings(),
                        "cell": cell.model_copy(
                            update={"distance": _distance(cell.count, point.away, seed)}
                        ),
                        "data": settings.data.model_copy(update={"labels": number}),
                        "planner": PlannerSettings(
                            name="fixed", num_samples=point.num_samples, power="max"
                        ),
                        "compressor": _at(settings.compressor, point.bits),
                        **(
                            {"downlink": DownlinkSettings(name="none")}
                            if settings.decides_downlink
                            else {}
                        ),
                        "simulation": settings.simulation.model_copy(
                            update={"num_selected": min(point.num_selected, settings.cell.count)}
                        ),
                        "learning": settings.learning.model_copy(
                            update={"local_steps": point.local_steps}
                        ),
                    }
                )
                words = (
                    f"l{number}-d{point.num_samples}-m{point.num_selected}-tau{point.local_steps}"
                )
                rate = "" if point.bits is None else f"-bits{point.bits:g}"
                yield f"{words}-away{point.away:g}{rate}-seed{seed}{whose}", one


def design_of(settings: Settings) -> tuple[Point, ...]:
    """The pilots that these settings need: others where the joint planner plans."""
    return JOINT_DESIGN if settings.planner.name == "joint" else DESIGN


def _at(compressor: CompressorSettings, bits: float | None) -> CompressorSettings:
    """The compressor at so many bits a weight, where it is one whose rate is free."""
    return (
        CompressorSettings(name="entropy", bits=bits)
        if bits and compressor.name == "entropy"
        else compressor
    )


def _distance(num_ue: int, away: float, seed: int) -> PerUE:
    """Everybody near, but for this share of the UEs, drawn at random."""
    distance = np.full(num_ue, 10.0)
    distance[stream(seed, "pilot").permutation(num_ue)[: int(away * num_ue)]] = OUT_OF_REACH
    return PerUE(value=tuple(distance.tolist()))


def check_replaceable(
    path: Path,
    command: str,
    settings: Settings,
    folder: Path,
    labels: Sequence[int],
    num_seeds: int,
) -> None:
    """Refuse to replace a file, and the runs beside it, that this command with these settings has
    not made.
    """
    if not path.exists():
        return
    try:
        there, made_by = read_pilots(path)
    except AutoFLError:
        there = []
        made_by = ""
    problem = problem_of(settings.resolved().table())
    ours = made_by == command and all(pilot.problem == problem for pilot in there)
    for name, one in pilot_settings(settings, labels, num_seeds):
        ours = ours and is_same(one, folder / name)
    if not ours:
        raise AutoFLError(
            f"{path}: this command with these settings has not made it; name another file (--out), or replace it"
            " (--force)"
        )


def run_pilots(
    settings: Settings,
    folder: PathLike,
    labels: Sequence[int],
    num_seeds: int,
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> list[Pilot]:
    """Every pilot as a run folder, and what a forecast needs of each; those that are there already
    are kept.
    """
    pilots = pilot_settings(settings, labels, num_seeds)
    jobs = []
    for name, one in pilots:
        place = Path(folder) / name
        jobs.append(Job(one, place, name, resume=is_same(one, place)))
    with locked(Path(folder)):
        run_jobs(jobs, workers, on_progress=on_progress)
    return [pilot_of(read_run(job.folder)) for job in jobs]
