"""Pilot runs: short trainings in a network where everybody is heard, for `autofl plan --target`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autofl.config import PerUE, Settings
from autofl.experiments.run import run_with_progress
from autofl.records import read_run
from autofl.records.pilots import Pilot, pilot_of

DESIGN = ((5, 5, 1), (15, 5, 1), (40, 5, 1), (15, 2, 1), (15, 10, 1), (10, 5, 2), (5, 5, 4))
"""d, |A_k| and tau of the pilots: enough to tell noise 1/(d m) and local steps apart."""


def pilot_settings(settings: Settings, labels: Sequence[int], num_seeds: int) -> Iterator[tuple[str, Settings]]:
    """Name and settings of each pilot; its radio is perfect, since a pilot is about learning."""
    settings = settings.resolved()
    cell = settings.cell.model_copy(
        update={
            "distance": PerUE(value=10.0),
            "positions": None,
            "small_scale_gain": PerUE(value=1.0),
            "max_energy": PerUE(value=1.0),
        }
    )
    for number in labels:
        for num_samples, num_selected, local_steps in DESIGN:
            for seed in range(settings.seed, settings.seed + num_seeds):
                one = settings.model_copy(
                    update={
                        "seed": seed,
                        "cell": cell,
                        "data": settings.data.model_copy(update={"labels": number}),
                        "planner": settings.planner.model_copy(
                            update={"name": "fixed", "num_samples": num_samples, "power": "max"}
                        ),
                        "baseline": settings.baseline.model_copy(update={"num_samples": num_samples, "power": "max"}),
                        "simulation": settings.simulation.model_copy(
                            update={"num_selected": min(num_selected, settings.cell.count)}
                        ),
                        "learning": settings.learning.model_copy(update={"local_steps": local_steps}),
                    }
                )
                yield f"l{number}-d{num_samples}-m{num_selected}-tau{local_steps}-seed{seed}", one


def run_pilots(
    settings: Settings, folder: Path, labels: Sequence[int], num_seeds: int, tell: Callable[[str], None]
) -> list[Pilot]:
    """Every pilot as a run folder, and what a forecast needs of each."""
    jobs = list(pilot_settings(settings, labels, num_seeds))
    pilots = []
    for number, (name, job) in enumerate(jobs, start=1):
        tell(f"pilot {number} of {len(jobs)}: {name}")
        run_with_progress(job, folder / name, lambda _: None)
        pilots.append(pilot_of(read_run(folder / name)))
    return pilots
