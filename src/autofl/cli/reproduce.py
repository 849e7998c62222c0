"""autofl reproduce: the figures of the paper, and every number of the joint planner."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import (
    INTERRUPTED,
    Device,
    Json,
    Ray,
    Workers,
    device_for,
    num_workers,
    show_joint,
    show_reproduction,
)
from autofl.errors import AutoFLError

if TYPE_CHECKING:
    from autofl.reproduction.store import Entry

EXAMPLE = "Example: autofl reproduce fig2b fig4e; autofl reproduce all --scale full; autofl reproduce joint"


def command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="fig2a to fig5d, sensitivity, or all of these; joint, or one of its studies: joint-paper, "
            "joint-physical, joint-tight, joint-mixed, joint-ternary, joint-ablation, joint-besides, joint-guesses, "
            "joint-choice, joint-cifar10.",
        ),
    ],
    scale: Annotated[str, typer.Option(help="quick: minutes on two cores; full: as in the paper.")] = "quick",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; default the scale's.")] = None,
    device: Device = None,
    ray: Ray = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default runs/reproduce-SCALE.")] = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Make figures of the paper, with what it says beside what was measured. Goes on where it was interrupted."""
    from autofl.reproduction.recipes import SCALES, studies_of, with_seeds

    if scale not in SCALES:
        raise AutoFLError(f"--scale {scale}: unknown; there are {', '.join(SCALES)}")
    where = device_for(device, ray) or "auto"
    figures = [name for name in names if name.partition("-")[0] != "joint"]
    studies, count = studies_of(figures), num_workers(workers)
    joint = [name for name in names if name not in figures]
    if figures and joint:
        raise AutoFLError(f"{figures[0]} and {joint[0]}: name figures of the paper or studies of joint, not both")
    folder = out if out is not None else Path("runs") / f"reproduce-{scale}"
    if joint:
        return _joint(joint, scale, seeds, folder, where, count, ray, as_json)
    chosen = with_seeds(SCALES[scale], seeds)
    from autofl.reproduction.results import collect, write_study
    from autofl.reproduction.store import entries_of, missing_data

    for study, data in missing_data(studies).items():
        if "all" not in names or scale == "full":
            raise AutoFLError(f"{study} needs {data}: run 'autofl data fetch {data}', or name its folder (AUTOFL_DATA)")
        say(f"{study} is left out: {data} is not here (autofl data fetch {data})")
        studies.remove(study)
    entries = {study: entries_of(study, chosen, folder / "runs", where) for study in studies}
    _make(entries, folder, count, ray)
    for study, members in entries.items():
        collected = collect(study, scale, [(entry.arm, entry.seed, entry.place) for entry in members])
        write_study(collected, folder / "results")
    wanted = None if "all" in names else names
    return show_reproduction(folder / "results", folder / "results", None, wanted, as_json)


def _joint(
    names: list[str],
    scale: str,
    seeds: int | None,
    folder: Path,
    where: str,
    count: int,
    ray: str | None,
    as_json: bool,
) -> None:
    """The studies of the joint planner, into a folder of their own beside the figures' results."""
    from autofl.data import find
    from autofl.reproduction.joint import JOINT_STUDIES, SCALES, seconds_of, studies_named, with_joint_seeds
    from autofl.reproduction.joint_results import collect_joint, write_joint
    from autofl.reproduction.store import entries_of_arms, missing_data, unfinished

    studies, chosen = studies_named(names), with_joint_seeds(SCALES[scale], seeds)
    for study, data in missing_data(studies).items():
        raise AutoFLError(f"{study} needs {data}: run 'autofl data fetch {data}', or name its folder (AUTOFL_DATA)")
    entries = {study: entries_of_arms(JOINT_STUDIES[study](chosen), folder / "runs", where) for study in studies}
    if find("mnist") is None and studies != ["joint-cifar10"]:
        say("MNIST is not here, so MNIST-5k stands in (autofl data fetch mnist)")
    left = unfinished([entry for members in entries.values() for entry in members])
    minutes = sum(seconds_of(entry.arm, entry.settings.stop.rounds) for entry in left) / count / 60.0
    say(f"about {minutes:.0f} min with {count} at a time on two cores, if nothing else runs there")
    _make(entries, folder, count, ray)
    for study, members in entries.items():
        collected = collect_joint(study, chosen, [(entry.arm, entry.seed, entry.place) for entry in members])
        write_joint(collected, folder / "joint")
    show_joint(folder / "joint", folder / "joint", None, studies, as_json)


def _make(entries: "dict[str, list[Entry]]", folder: Path, count: int, ray: str | None) -> None:
    """Make what is not there yet of these runs."""
    from autofl.reproduction.store import run_entries, unfinished

    needed = [entry for members in entries.values() for entry in members]
    left = unfinished(needed)
    say(f"{len({entry.place for entry in needed})} runs, {len(left)} of them to be made, into {folder}")
    with ProgressBar(max(1, sum(entry.settings.stop.rounds for entry in left)), each_run=False) as bar:
        try:
            run_entries(left, count, ray, bar)
        except KeyboardInterrupt:
            say(f"interrupted; the same command goes on from here (finished runs are in {folder / 'runs'})")
            raise typer.Exit(INTERRUPTED) from None
