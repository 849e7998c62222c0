"""autofl reproduce: the figures of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import INTERRUPTED, Device, Json, Ray, Workers, device_for, num_workers, show_reproduction
from autofl.errors import AutoFLError

EXAMPLE = "Example: autofl reproduce fig2b fig4e; autofl reproduce all --scale full"


def command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="fig2a to fig5d, sensitivity, or all.")],
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
    studies, count = studies_of(names), num_workers(workers)
    chosen, folder = with_seeds(SCALES[scale], seeds), out if out is not None else Path("runs") / f"reproduce-{scale}"
    from autofl.reproduction.results import collect, write_study
    from autofl.reproduction.store import entries_of, missing_data, run_entries, unfinished

    for study, data in missing_data(studies).items():
        if "all" not in names or scale == "full":
            raise AutoFLError(f"{study} needs {data}: run 'autofl data fetch {data}', or name its folder (AUTOFL_DATA)")
        say(f"{study} is left out: {data} is not here (autofl data fetch {data})")
        studies.remove(study)
    entries = {study: entries_of(study, chosen, folder / "runs", where) for study in studies}
    needed = [entry for members in entries.values() for entry in members]
    left = unfinished(needed)
    say(f"{len({entry.place for entry in needed})} runs, {len(left)} of them to be made, into {folder}")
    with ProgressBar(max(1, sum(entry.settings.stop.rounds for entry in left)), each_run=False) as bar:
        try:
            run_entries(left, count, ray, bar)
        except KeyboardInterrupt:
            say(f"interrupted; the same command goes on from here (finished runs are in {folder / 'runs'})")
            raise typer.Exit(INTERRUPTED) from None
    for study, members in entries.items():
        collected = collect(study, scale, [(entry.arm, entry.seed, entry.place) for entry in members])
        write_study(collected, folder / "results")
    wanted = None if "all" in names else names
    show_reproduction(folder / "results", folder / "results", None, wanted, as_json)
