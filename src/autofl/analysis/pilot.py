"""Pilot runs: short trainings in a network where everybody is heard, for `autofl plan --target`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from autofl.analysis.forecast import pilot_of
from autofl.analysis.pilot_files import Pilot
from autofl.config import PerUE, Settings
from autofl.config.parts import BaselineSettings, PlannerSettings
from autofl.experiments.jobs import Job, OnProgress, run_jobs
from autofl.records import read_run
from autofl.rng import stream
from autofl.units import PathLike

DESIGN = (
    *((d, m, 1, 0.0) for d, m in ((5, 5), (15, 5), (40, 5), (15, 2), (15, 10))),
    *((10, 5, 2, 0.0), (5, 5, 4, 0.0)),
    *((20, 6, 1, 0.2), (20, 8, 1, 0.4)),
)
"""d, |A_k|, tau and the share of UEs out of reach: enough to tell noise, local steps and unequal chances apart."""
OUT_OF_REACH = 1e7
"""Distance [m] at which nothing is decoded."""


def pilot_settings(settings: Settings, labels: Sequence[int], num_seeds: int) -> Iterator[tuple[str, Settings]]:
    """Name and settings of each pilot; its radio is perfect but for UEs out of reach: a pilot is about learning."""
    settings = settings.resolved()
    cell = settings.cell.model_copy(
        update={
            "positions": None,
            "small_scale_gain": PerUE(value=1.0),
            "max_energy": PerUE(value=1.0),
        }
    )
    for number in labels:
        for num_samples, num_selected, local_steps, away in DESIGN:
            for seed in range(settings.seed, settings.seed + num_seeds):
                one = settings.model_copy(
                    update={
                        "seed": seed,
                        "cell": cell.model_copy(update={"distance": _distance(cell.count, away, seed)}),
                        "data": settings.data.model_copy(update={"labels": number}),
                        "planner": PlannerSettings(name="fixed", num_samples=num_samples, power="max"),
                        "baseline": BaselineSettings(num_samples=num_samples, power="max"),
                        "simulation": settings.simulation.model_copy(
                            update={"num_selected": min(num_selected, settings.cell.count)}
                        ),
                        "learning": settings.learning.model_copy(update={"local_steps": local_steps}),
                    }
                )
                yield f"l{number}-d{num_samples}-m{num_selected}-tau{local_steps}-away{away:g}-seed{seed}", one


def _distance(num_ue: int, away: float, seed: int) -> PerUE:
    """Everybody near, but for this share of the UEs, drawn at random."""
    distance = np.full(num_ue, 10.0)
    distance[stream(seed, "pilot").permutation(num_ue)[: int(away * num_ue)]] = OUT_OF_REACH
    return PerUE(value=tuple(distance.tolist()))


def run_pilots(
    settings: Settings,
    folder: PathLike,
    labels: Sequence[int],
    num_seeds: int,
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> list[Pilot]:
    """Every pilot as a run folder, and what a forecast needs of each."""
    jobs = [Job(one, Path(folder) / name, name) for name, one in pilot_settings(settings, labels, num_seeds)]
    run_jobs(jobs, workers, on_progress=on_progress)
    return [pilot_of(read_run(job.place)) for job in jobs]
