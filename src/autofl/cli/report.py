"""autofl report: tables and pictures of existing runs."""

from pathlib import Path
from typing import Annotated

import typer

from autofl.cli.shared import Json, report, show_joint, show_radio, show_reproduction
from autofl.errors import AutoFLError
from autofl.files import opening

EXAMPLE = "Example: autofl report runs/demo --target 0.8 --html --out report"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders, folders that contain them, or results of a reproduction."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures and table; default the first one given."),
    ] = None,
    target: Annotated[float, typer.Option(help="Accuracy for time to accuracy.")] = 0.85,
    page: Annotated[
        Path | None, typer.Option(help="Page whose marked blocks are filled with a reproduction.")
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Also write one self-contained file, report.html.")
    ] = False,
    latex: Annotated[
        bool,
        typer.Option(
            "--latex", help="Also write latex/: booktabs tables, pictures as PDF, report.tex."
        ),
    ] = False,
    mlflow: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Also put the runs into MLflow, such as sqlite:///runs.db."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Redraw the table and the pictures of runs, or of a reproduction, without training."""
    from autofl.records import find_runs

    kind = next(
        (what for what in (_is_results, _is_joint) if len(runs) == 1 and what(runs[0])), None
    )
    if kind is not None and (html or latex or mlflow):
        raise AutoFLError(
            f"{runs[0]}: --html, --latex and --mlflow are for run folders; this is a reproduction, see its report.md"
        )
    place = out if out is not None else runs[0]
    with opening(runs[0], "results of a reproduction"):
        if kind is _is_results:
            return show_reproduction(runs[0], place, page, None, as_json)
        if kind is _is_joint:
            return show_joint(runs[0], place, page, None, as_json)
        if len(runs) == 1 and (runs[0] / "radio.json").is_file():
            return show_radio(runs[0], place, page, as_json)
    if page is not None:
        raise AutoFLError(
            f"--page {page}: only the results of a reproduction fill a page; {runs[0]} holds none"
        )
    if mlflow is not None:
        from autofl.cli.screen import say
        from autofl.report.runs import read_runs
        from autofl.report.tracking import track

        say(f"{track(read_runs(runs), mlflow)} new runs in {mlflow}")
    report(find_runs(runs), out if out is not None else runs[0], target, as_json, html, latex)
    return None


def _is_results(folder: Path) -> bool:
    """Whether a folder has results of a reproduction, told by their files without loading the
    drawing library.
    """
    tables = [
        path for path in folder.glob("*.csv") if path.stem != "sweep"
    ]  # a sweep writes such a pair too
    return any(path.with_suffix(".json").is_file() for path in tables)


def _is_joint(folder: Path) -> bool:
    return any(folder.glob("joint-*.json"))
