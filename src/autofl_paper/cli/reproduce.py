"""autofl reproduce: the figures of the paper, every number of the joint planner, and the claims
with real radio.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import (
    Device,
    Json,
    Ray,
    Workers,
    device_for,
    exit_status,
    num_workers,
    print_json,
)
from autofl.errors import AutoFLError
from autofl.files import inside
from autofl_paper.cli.show import show_folder, show_joint, show_radio, show_reproduction

if TYPE_CHECKING:
    from autofl_paper.recipes import Scale
    from autofl_paper.store import Entry

EXAMPLE = "Example: autofl reproduce fig2b fig4e; autofl reproduce all --scale full; autofl reproduce joint (or radio)"


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="fig2a to fig5d, sensitivity, or all of these; joint, or one of its studies: joint-paper, "
            "joint-physical, joint-tight, joint-mixed, joint-ternary, joint-ablation, joint-besides, joint-guesses, "
            "joint-choice, joint-cifar10; radio; testbed, on real shaped links.",
        ),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="quick: minutes on two cores; full: as in the paper.")
    ] = "quick",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; default the scale's.")] = None,
    device: Device = None,
    ray: Ray = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default runs/reproduce-SCALE.")
    ] = None,
    workers: Workers = None,
    slow: Annotated[
        float, typer.Option(help="testbed: how many times slower than modelled.")
    ] = 10.0,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="testbed: this algorithm; repeat it for several. Default all five."
        ),
    ] = None,
    results_in: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Redraw results that are there; nothing is trained."
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="With --from: page whose marked blocks are filled.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make figures of the paper, and compare what it says with what was measured.

    After an interruption, the same command continues."""
    from autofl_paper.recipes import SCALES, studies_of, with_seeds

    if results_in is not None:
        return show_folder(results_in, out or results_in, page, names or None, as_json)
    if page is not None:
        raise AutoFLError(f"--page {page}: name the folder of the results with --from")
    if not names:
        raise AutoFLError("name a figure or a study, for example fig2b, or --from FOLDER")
    if "testbed" in names:
        if len(names) > 1:
            raise AutoFLError(
                f"{' '.join(names)}: testbed needs the machine for itself; name it alone"
            )
        return _testbed(
            scale,
            3 if seeds is None else seeds,
            slow,
            only or [],
            out or Path("runs/reproduce-testbed"),
            as_json,
        )
    if scale not in SCALES:
        raise AutoFLError(f"--scale {scale}: unknown; there are {', '.join(SCALES)}")
    where = device_for(device, ray) or "auto"
    if "radio" in names:
        if len(names) > 1:
            raise AutoFLError("radio: name it alone")
        folder = out if out is not None else Path("runs") / f"reproduce-{scale}"
        return _radio(scale, seeds, folder, where, num_workers(workers), ray, as_json)
    figures = [name for name in names if name.partition("-")[0] != "joint"]
    studies = studies_of(figures)
    count = num_workers(workers)
    joint = [name for name in names if name not in figures]
    if figures and joint:
        raise AutoFLError(
            f"{figures[0]} and {joint[0]}: name figures of the paper or studies of joint, not both"
        )
    folder = out if out is not None else Path("runs") / f"reproduce-{scale}"
    if joint:
        return _joint(joint, scale, seeds, folder, where, count, ray, as_json)
    chosen = with_seeds(SCALES[scale], seeds)
    from autofl_paper.store import missing_data, stages_of

    for study, data in missing_data(studies).items():
        if "all" not in names or scale == "full":
            raise AutoFLError(
                f"{study} needs {data}: run 'autofl data fetch {data}', or name its folder (AUTOFL_DATA)"
            )
        say(f"{study} is left out: {data} is missing (autofl data fetch {data})")
        studies.remove(study)
    _say_which_digits(studies)
    for stage in stages_of(studies):
        _make_stage(stage, chosen, folder, where, count, ray)
    wanted = None if "all" in names else names
    results = inside(folder, "results")
    return show_reproduction(results, results, None, wanted, as_json)


def _testbed(
    scale: str, seeds: int, slow: float, only: list[str], folder: Path, as_json: bool
) -> None:
    """Predicted against measured time on the testbed."""
    from autofl.cli.deploy import need_flower

    need_flower()
    from autofl_paper.testbed import ALGORITHMS, SCALES, study_testbed, table_of

    if scale not in SCALES:
        raise AutoFLError(f"--scale {scale}: unknown; there are {', '.join(SCALES)}")
    for name in only:
        if name not in ALGORITHMS:
            raise AutoFLError(f"--only {name}: unknown; there are {', '.join(ALGORITHMS)}")
    rows = study_testbed(folder, scale, seeds, slow, say, only or ALGORITHMS)
    if as_json:
        return print_json([asdict(row) for row in rows])
    typer.echo(table_of(rows))
    say(
        f"all links and processors {slow:g} times slower than modelled; picture: {folder / 'testbed.png'}"
    )
    return None


def _say_which_digits(studies: list[str]) -> None:
    from autofl.data import find

    if find("mnist") is None and any("cifar10" not in study for study in studies):
        say("MNIST is missing, so MNIST-5k is used instead; autofl data fetch mnist gets MNIST")


def _make_stage(
    studies: list[str], scale: "Scale", folder: Path, where: str, count: int, ray: str | None
) -> None:
    """Make and collect some studies. One that already has results needs no runs."""
    from autofl_paper.few_shot import collect_adaptation, write_adaptation
    from autofl_paper.recipes import ADAPTED
    from autofl_paper.results import collect, is_collected, write_study
    from autofl_paper.store import entries_of

    results = inside(folder, "results")
    entries = {study: entries_of(study, scale, inside(folder, "runs"), where) for study in studies}
    left = {
        study: members
        for study, members in entries.items()
        if not is_collected(results, study, [entry.place for entry in members])
    }
    for study in entries.keys() - left.keys():
        say(f"{study}: its results are in {results}")
    if left:
        _make(left, folder, count, ray)
    for study, members in left.items():
        runs = [(entry.arm, entry.seed, entry.place) for entry in members]
        if study in ADAPTED:
            write_adaptation(collect_adaptation(study, runs, where), results)
        write_study(collect(study, scale.name, runs, count), results)


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
    from autofl_paper.joint import (
        JOINT_STUDIES,
        SCALES,
        seconds_of,
        studies_named,
        with_joint_seeds,
    )
    from autofl_paper.joint_results import collect_joint, write_joint
    from autofl_paper.store import entries_of_arms, missing_data, unfinished

    studies = studies_named(names)
    chosen = with_joint_seeds(SCALES[scale], seeds)
    for study, data in missing_data(studies).items():
        raise AutoFLError(
            f"{study} needs {data}: run 'autofl data fetch {data}', or name its folder (AUTOFL_DATA)"
        )
    entries = {
        study: entries_of_arms(JOINT_STUDIES[study](chosen), inside(folder, "runs"), where)
        for study in studies
    }
    if find("mnist") is None and studies != ["joint-cifar10"]:
        say("MNIST is missing, so MNIST-5k is used instead; autofl data fetch mnist gets MNIST")
    left = unfinished([entry for members in entries.values() for entry in members])
    minutes = (
        sum(seconds_of(entry.arm, entry.settings.stop.rounds) for entry in left) / count / 60.0
    )
    say(f"about {minutes:.0f} min with {count} at a time on two cores, if nothing else runs there")
    _make(entries, folder, count, ray)
    for study, members in entries.items():
        collected = collect_joint(
            study, chosen, [(entry.arm, entry.seed, entry.place) for entry in members]
        )
        write_joint(collected, folder / "joint")
    show_joint(folder / "joint", folder / "joint", None, studies, as_json)


def _radio(
    scale: str,
    seeds: int | None,
    folder: Path,
    where: str,
    count: int,
    ray: str | None,
    as_json: bool,
) -> None:
    """The study `radio`, into a folder of its own. Its results are written before anything is
    drawn.
    """
    from autofl_paper.joint_results import write_joint
    from autofl_paper.radio import RADIO, ROUND_SECONDS, SCALES, arms, with_radio_seeds
    from autofl_paper.radio_results import collect_radio
    from autofl_paper.store import entries_of_arms, unfinished

    chosen = with_radio_seeds(SCALES[scale], seeds)
    entries = entries_of_arms(arms(chosen), inside(folder, "runs"), where)
    minutes = len(unfinished(entries)) * chosen.rounds * ROUND_SECONDS / count / 60.0
    say(f"about {minutes:.0f} min with {count} at a time, if nothing else runs there")
    _make({RADIO: entries}, folder, count, ray)
    write_joint(
        collect_radio(chosen, [(entry.arm, entry.seed, entry.place) for entry in entries]),
        folder / RADIO,
    )
    show_radio(folder / RADIO, folder / RADIO, None, as_json)


def _make(entries: "dict[str, list[Entry]]", folder: Path, count: int, ray: str | None) -> None:
    """Make those of these runs that do not exist yet."""
    from autofl_paper.store import run_entries, unfinished

    needed = [entry for members in entries.values() for entry in members]
    left = unfinished(needed)
    say(
        f"{len({entry.place for entry in needed})} runs, {len(left)} of them to be made, into {folder}"
    )
    with ProgressBar(
        max(1, sum(entry.settings.stop.rounds for entry in left)), each_run=False
    ) as bar:
        try:
            run_entries(needed, count, ray, bar)
        except KeyboardInterrupt as error:
            say(
                f"interrupted; the same command continues from here (finished runs are in {folder / 'runs'})",
                whole=True,
            )
            raise typer.Exit(exit_status(error)) from None
