"""autofl reproduce: the figures of the paper, every number of the joint planner, and the claims
with real radio.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofl.cli.screen import ProgressBar, say, show_table
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
from autofl.files import inside, opening, quoted

if TYPE_CHECKING:
    from autofl_paper.study import Runs, Studies

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
    if results_in is not None:
        studies = _found_in(results_in)
        return show(studies, results_in, out or results_in, page, names or None, as_json)
    if page is not None:
        raise AutoFLError(f"--page {page}: name the folder of the results with --from")
    if not names:
        raise AutoFLError("name a figure or a study, for example fig2b, or --from FOLDER")
    if "testbed" in names:
        if len(names) > 1:
            raise AutoFLError(
                f"{' '.join(names)}: testbed needs the machine for itself; name it alone"
            )
        folder = out or Path("runs/reproduce-testbed")
        return _testbed(scale, 3 if seeds is None else seeds, slow, only or [], folder, as_json)

    from autofl_paper.study import lacks_data, stages_of, with_seeds

    studies = _named(names)
    if scale not in studies.scales:
        raise AutoFLError(f"--scale {scale}: unknown; there are {', '.join(studies.scales)}")
    where = device_for(device, ray) or "auto"
    count = num_workers(workers)
    wanted = studies.named(names)
    chosen = with_seeds(studies, studies.scales[scale], seeds)

    # At quick scale `all` means what can be made here; otherwise a study without its data is refused.
    for study in [study for study in wanted if lacks_data(study)]:
        if "all" not in names or scale == "full":
            raise AutoFLError(
                f"{study} needs cifar10: run 'autofl data fetch cifar10', or name its folder (AUTOFL_DATA)"
            )
        say(f"{study} is left out: cifar10 is missing (autofl data fetch cifar10)")
        wanted.remove(study)
    _say_which_digits(wanted)

    folder = out if out is not None else Path("runs") / f"reproduce-{scale}"
    for stage in stages_of(studies, wanted):
        _make_stage(studies, stage, chosen, folder, where, count, ray)
    results = inside(folder, studies.folder)
    return show(studies, results, results, None, None if "all" in names else names, as_json)


def _all_studies() -> "list[Studies]":
    from autofl_paper.joint import JOINT
    from autofl_paper.radio import RADIO_STUDY
    from autofl_paper.recipes import FIGURE_STUDIES

    return [FIGURE_STUDIES, JOINT, RADIO_STUDY]


def _named(names: list[str]) -> "Studies":
    """The studies that a user means; all names must be of one page."""
    figures, *others = _all_studies()
    chosen = []
    for name in names:
        kind = name.partition("-")[0]
        chosen.append(next((one for one in others if one.folder == kind), figures))
    for name, studies in zip(names, chosen, strict=True):
        if studies is not chosen[0]:
            raise AutoFLError(
                f"{names[0]} and {name}: name figures of the paper, or studies of joint, or radio, not both"
            )
    return chosen[0]


def _found_in(results: Path) -> "Studies":
    """Whose results are in a folder."""
    with opening(results, "results of a reproduction"):
        there = {path.stem for path in results.glob("*.json")}
    for studies in _all_studies():
        if there & set(studies.arms):
            return studies
    raise AutoFLError(f"{results}: no results of a reproduction in it")


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
        return print_json(rows)
    show_table(table_of(rows))
    say(
        f"all links and processors {slow:g} times slower than modelled; picture: {folder / 'testbed.png'}"
    )
    return None


def _say_which_digits(studies: list[str]) -> None:
    from autofl.data import find

    if find("mnist") is None and any("cifar10" not in study for study in studies):
        say("MNIST is missing, so MNIST-5k is used instead; autofl data fetch mnist gets MNIST")


def _make_stage(
    studies: "Studies",
    names: list[str],
    scale: Any,
    folder: Path,
    where: str,
    count: int,
    ray: str | None,
) -> None:
    """Make and collect some studies. One that already has results needs no runs."""
    from autofl_paper.results import is_collected, write_results
    from autofl_paper.study import jobs_of, results_of

    results = inside(folder, studies.folder)
    left: dict[str, Runs] = {}
    for name in names:
        runs = jobs_of(studies.arms[name](scale), inside(folder, "runs"), where)
        if is_collected(results, name, [job.folder for job in runs.values()]):
            say(f"{name}: its results are in {results}")
        else:
            left[name] = runs
    if left:
        _make(studies, left, folder, count, ray)
    for name, runs in left.items():
        if studies.beside is not None:
            results.mkdir(parents=True, exist_ok=True)
            studies.beside(name, runs, where, results)
        write_results(results_of(studies, name, scale, runs, count), results)


def _make(
    studies: "Studies", left: "Mapping[str, Runs]", folder: Path, count: int, ray: str | None
) -> None:
    """Make those of these runs that do not exist yet."""
    from autofl_paper.study import each_once, make, unfinished

    needed = [job for runs in left.values() for job in runs.values()]
    missing = unfinished(needed)
    say(f"{len(each_once(needed))} runs, {len(missing)} of them to be made, into {folder}")
    if studies.seconds is not None:
        arms = {job.folder: arm for runs in left.values() for (arm, _), job in runs.items()}
        seconds = 0.0
        for job in missing:
            seconds += studies.seconds(arms[job.folder], job.settings.stop.rounds)
        minutes = seconds / count / 60.0
        say(f"about {minutes:.0f} min with {count} at a time, if nothing else runs there")
    with ProgressBar(
        max(1, sum(job.settings.stop.rounds for job in missing)), each_run=False
    ) as bar:
        try:
            make(needed, count, ray, bar)
        except KeyboardInterrupt as error:
            say(
                f"interrupted; the same command continues from here (finished runs are in {folder / 'runs'})",
                whole=True,
            )
            raise typer.Exit(exit_status(error)) from None


def show(
    studies: "Studies",
    results: Path,
    out: Path,
    template: Path | None,
    names: list[str] | None,
    as_json: bool,
) -> None:
    """Draw the results of some studies, fill a page, and show the tables of the named ones, or of
    all.
    """
    if find_spec("matplotlib") is None:
        return say(
            f"Matplotlib is missing: the tables are in {results}, and 'autofl reproduce --from {quoted(results)}' draws them"
            " elsewhere"
        )
    from autofl_paper.page import publish

    say(f"drawing into {out}")
    with opening(results, "results of a reproduction"):  # a study that lacks something, say
        page = studies.page(results, names)
        files = publish(page, out, template)
    if as_json:
        return print_json(page.plain)
    for table in page.tables:
        show_table(table)
    say(page.how.replace("\n", " "))
    say(f"written: {', '.join(str(path) for path in files)}")
    return None
